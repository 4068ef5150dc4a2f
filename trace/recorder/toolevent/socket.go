package toolevent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// DefaultTopic is what harnesses call tool events when they follow Dynamo's documentation.
const DefaultTopic = "agent-tool-events"

const (
	// handshakeTime is how long a peer may take to say who it is.
	handshakeTime = 10 * time.Second
	// maxPeers bounds the connections that are open at a time.
	maxPeers = 256
)

// Listen listens at a ZeroMQ endpoint such as tcp://127.0.0.1:20390, where a Socket is then served. Without
// a host the loopback is meant; "*" is all of the machine's addresses.
func Listen(endpoint string) (net.Listener, error) {
	address, ok := strings.CutPrefix(endpoint, "tcp://")
	host, port, err := net.SplitHostPort(address)
	if !ok || err != nil {
		return nil, fmt.Errorf("tool events at %q: want tcp://HOST:PORT", endpoint)
	}
	switch host {
	case "":
		host = "127.0.0.1"
	case "*":
		host = ""
	}
	if port == "*" {
		port = "0"
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("tool events at %s: %w", endpoint, err)
	}
	return listener, nil
}

// Socket takes tool events over ZeroMQ as Dynamo does: it is a PULL socket that is bound, and each harness connects a
// PUSH socket. A message has three frames: the topic, a sequence number of eight bytes that nobody looks at, and the
// record as MessagePack. Messages that are anything else are dropped and counted, and the next is taken.
type Socket struct {
	// Topic is what the first frame must be.
	Topic string
	// Emit takes the rows. It is called from several goroutines and must not block.
	Emit func(*trace.Record)
	// Logf is told of the first message that a peer sent in vain, and of peers that are hung up on; nil is nobody.
	Logf func(format string, args ...any)

	dropped atomic.Int64
}

// Dropped is the number of messages that were no tool events.
func (s *Socket) Dropped() int64 { return s.dropped.Load() }

// Serve takes connections until the context ends, closes the listener and waits for what was begun.
func (s *Socket) Serve(ctx context.Context, listener net.Listener) error {
	var peers sync.WaitGroup
	defer peers.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	slots := make(chan struct{}, maxPeers)
	for {
		conn, err := listener.Accept()
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, net.ErrClosed) {
			return fmt.Errorf("tool events at %s: %w", listener.Addr(), err)
		}
		if err != nil { // out of files, say: as net/http does, wait until some are closed
			s.logf("tool events at %s: %v", listener.Addr(), err)
			sleep(ctx, time.Second)
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			s.logf("tool events: hung up on %s: %d others are connected", conn.RemoteAddr(), maxPeers)
			conn.Close()
			continue
		}
		peers.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			defer context.AfterFunc(ctx, func() { conn.Close() })()
			if err := s.peer(conn); err != nil && ctx.Err() == nil {
				s.logf("tool events: hung up on %s: %v", conn.RemoteAddr(), err)
			}
		})
	}
}

func (s *Socket) logf(format string, args ...any) {
	if s.Logf != nil {
		s.Logf(format, args...)
	}
}

// sleep waits, or until the context ends.
func sleep(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// peer talks to one connection until it ends. An error is what the peer did wrong.
func (s *Socket) peer(conn net.Conn) error {
	if err := conn.SetDeadline(time.Now().Add(handshakeTime)); err != nil {
		return err
	}
	z := &zmtpReader{src: bufio.NewReader(conn)}
	if err := shakeHands(conn, z); err != nil {
		return err
	}
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	var message [][]byte
	told := false
	for {
		f, err := z.next()
		if err == io.EOF && len(message) == 0 {
			return nil
		}
		if err != nil {
			return cutOff(err)
		}
		if f.flags&frameCommand != 0 {
			if err := obey(conn, f.body); err != nil {
				return err
			}
			continue
		}
		if message = append(message, append([]byte(nil), f.body...)); len(message) > maxFrames {
			return fmt.Errorf("message of more than %d frames", maxFrames)
		}
		if f.flags&frameMore != 0 {
			continue
		}
		row, err := s.row(message)
		message = message[:0]
		if err == nil {
			s.Emit(row)
			continue
		}
		s.dropped.Add(1)
		if !told {
			told = true
			s.logf("tool events: dropped a message of %s, and will others like it without a word: %v", conn.RemoteAddr(), err)
		}
	}
}

// shakeHands greets a peer and learns its kind.
func shakeHands(conn io.Writer, z *zmtpReader) error {
	if _, err := conn.Write(greeting()); err != nil {
		return err
	}
	if err := readGreeting(z.src); err != nil {
		return err
	}
	ready := appendCommand(nil, "READY", property(nil, "Socket-Type", "PULL"))
	if _, err := conn.Write(ready); err != nil {
		return err
	}
	f, err := z.next()
	if err != nil {
		return fmt.Errorf("waiting for READY: %w", cutOff(err))
	}
	if f.flags&frameCommand == 0 {
		return errors.New("a message before READY")
	}
	name, data, err := command(f.body)
	if err != nil {
		return err
	}
	if name != "READY" {
		return fmt.Errorf("command %.20q: want READY", name)
	}
	kind, err := socketType(data)
	if err == nil && kind != "PUSH" {
		err = fmt.Errorf("a %.20q socket connected: want PUSH", kind)
		reason := "want a PUSH socket"
		conn.Write(appendCommand(nil, "ERROR", append([]byte{byte(len(reason))}, reason...))) //nolint:errcheck // it is hung up on
	}
	return err
}

// obey does what a command asks for: a PING wants its context back after a time to live of two bytes (ZMTP 3.1).
func obey(conn io.Writer, body []byte) error {
	name, data, err := command(body)
	switch {
	case err != nil:
		return err
	case name == "PING" && len(data) >= 2 && len(data) <= 2+16:
		_, err = conn.Write(appendCommand(nil, "PONG", data[2:]))
	case name == "ERROR":
		err = fmt.Errorf("it says %.100q", data)
	}
	return err
}

// row returns the row of a message.
func (s *Socket) row(message [][]byte) (*trace.Record, error) {
	if len(message) != 3 {
		return nil, fmt.Errorf("%d frames: want topic, sequence number and record", len(message))
	}
	if string(message[0]) != s.Topic {
		return nil, fmt.Errorf("topic %.60q: want %q", message[0], s.Topic)
	}
	if len(message[1]) != 8 {
		return nil, fmt.Errorf("sequence number of %d bytes: want 8", len(message[1]))
	}
	text, err := msgpackJSON(message[2])
	if err != nil {
		return nil, err
	}
	return parseEvent(text)
}
