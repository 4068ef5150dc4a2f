package toolevent

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// This file reads ZMTP 3.x, the protocol of ZeroMQ sockets (rfc.zeromq.org/spec/23 and 37), as far as a PULL socket
// needs it: the NULL mechanism, and PUSH peers.

// Bounds on what a peer may send before it is hung up on.
const (
	maxCommand = 1 << 10 // bytes of a command
	maxFrame   = maxEvent
	maxFrames  = 8 // frames of a message
)

// Flags of a frame.
const (
	frameMore    = 1 << iota // another frame of the message follows
	frameLong                // the size has eight bytes, not one
	frameCommand             // the frame is a command, not part of a message
)

// greetingSize is the size of the greeting: signature, version, mechanism, as-server and filler.
const greetingSize = 10 + 2 + 20 + 1 + 31

// greeting is what a peer that is no security server says first: version 3.1, mechanism NULL.
func greeting() []byte {
	g := make([]byte, greetingSize)
	g[0], g[9] = 0xff, 0x7f
	g[10], g[11] = 3, 1
	copy(g[12:], "NULL")
	return g
}

// readGreeting checks the peer's greeting.
func readGreeting(r io.Reader) error {
	var g [greetingSize]byte
	if _, err := io.ReadFull(r, g[:11]); err != nil {
		return fmt.Errorf("no ZMTP greeting: %w", err)
	}
	if g[0] != 0xff || g[9] != 0x7f {
		return errors.New("no ZMTP greeting: is that ZeroMQ?")
	}
	if g[10] < 3 {
		return fmt.Errorf("ZMTP version %d: want 3, that of libzmq from 4.0 on", g[10])
	}
	if _, err := io.ReadFull(r, g[11:]); err != nil {
		return fmt.Errorf("no ZMTP greeting: %w", err)
	}
	if mechanism := bytes.TrimRight(g[12:32], "\x00"); string(mechanism) != "NULL" {
		return fmt.Errorf("security mechanism %.20q: only NULL is spoken", mechanism)
	}
	return nil
}

// frame is one frame from the wire. Its body is valid until the next is read.
type frame struct {
	flags byte
	body  []byte
}

// zmtpReader reads frames.
type zmtpReader struct {
	src *bufio.Reader
	buf []byte
}

func (z *zmtpReader) next() (frame, error) {
	flags, err := z.src.ReadByte()
	if err != nil {
		return frame{}, err
	}
	if flags&^(frameMore|frameLong|frameCommand) != 0 || flags&frameCommand != 0 && flags&frameMore != 0 {
		return frame{}, fmt.Errorf("frame with flags 0x%02x", flags)
	}
	var size [8]byte
	short := size[7:]
	if flags&frameLong != 0 {
		short = size[:]
	}
	if _, err := io.ReadFull(z.src, short); err != nil {
		return frame{}, cutOff(err)
	}
	n, most := binary.BigEndian.Uint64(size[:]), uint64(maxFrame)
	if flags&frameCommand != 0 {
		most = maxCommand
	}
	if n > most {
		return frame{}, fmt.Errorf("frame of %d bytes: want at most %d", n, most)
	}
	if uint64(cap(z.buf)) < n {
		z.buf = make([]byte, n)
	}
	z.buf = z.buf[:n]
	if _, err := io.ReadFull(z.src, z.buf); err != nil {
		return frame{}, cutOff(err)
	}
	return frame{flags, z.buf}, nil
}

// cutOff tells a connection that ended inside a frame from one that ended behind it.
func cutOff(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// command splits the body of a command into its name and its data.
func command(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || int(body[0]) > len(body)-1 {
		return "", nil, errors.New("command without a name")
	}
	end := 1 + int(body[0])
	return string(body[1:end]), body[end:], nil
}

// appendCommand appends a command frame. Name and data are at most 255 bytes together with what stands around them.
func appendCommand(b []byte, name string, data []byte) []byte {
	b = append(b, frameCommand, byte(1+len(name)+len(data)), byte(len(name)))
	return append(append(b, name...), data...)
}

// property appends one name and value of the metadata in READY.
func property(b []byte, name, value string) []byte {
	b = append(append(b, byte(len(name))), name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// socketType finds the Socket-Type in the metadata of READY. Names are compared without regard to case.
func socketType(metadata []byte) (string, error) {
	for len(metadata) > 0 {
		n := int(metadata[0])
		if len(metadata) < 1+n+4 {
			break
		}
		name, rest := metadata[1:1+n], metadata[1+n:]
		size := binary.BigEndian.Uint32(rest)
		if rest = rest[4:]; uint64(size) > uint64(len(rest)) {
			break
		}
		if bytes.EqualFold(name, []byte("Socket-Type")) {
			return string(rest[:size]), nil
		}
		metadata = rest[size:]
	}
	return "", errors.New("READY names no Socket-Type")
}
