package toolevent

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentsim/agentsim/trace"
)

// appendFrame appends a frame, in the long form where that is asked for or needed.
func appendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) > 255 || flags&frameLong != 0 {
		b = binary.BigEndian.AppendUint64(append(b, flags|frameLong), uint64(len(body)))
	} else {
		b = append(b, flags, byte(len(body)))
	}
	return append(b, body...)
}

// appendMessage appends the frames of one message.
func appendMessage(b []byte, frames ...[]byte) []byte {
	for i, f := range frames {
		flags := byte(frameMore)
		if i == len(frames)-1 {
			flags = 0
		}
		b = appendFrame(b, flags, f)
	}
	return b
}

// toolMessage is a whole message of a harness.
func toolMessage(t testing.TB, changes ...any) []byte {
	return appendMessage(nil, []byte(DefaultTopic), make([]byte, 8), pack(nil, packable(event(t, changes...)), 1))
}

// packable turns the whole floats of decoded JSON into integers.
func packable(v map[string]any) map[string]any {
	for key, e := range v {
		switch e := e.(type) {
		case map[string]any:
			v[key] = packable(e)
		case float64:
			if e == float64(int64(e)) {
				v[key] = int64(e)
			}
		}
	}
	return v
}

// hello is what a peer sends before messages.
func hello(kind string) []byte {
	return appendCommand(greeting(), "READY", property(property(nil, "Identity", ""), "socket-type", kind))
}

// server serves a Socket on a free port and keeps what comes of it.
type server struct {
	Socket
	address string
	mu      sync.Mutex
	rows    []*trace.Record
	log     []string
	stop    func() error
}

func serve(t *testing.T) *server {
	t.Helper()
	listener, err := Listen("tcp://:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &server{address: listener.Addr().String()}
	s.Socket = Socket{Topic: DefaultTopic,
		Emit: func(r *trace.Record) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.rows = append(s.rows, r)
		},
		Logf: func(format string, args ...any) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.log = append(s.log, fmt.Sprintf(format, args...))
		}}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, listener) }()
	s.stop = sync.OnceValue(func() error { cancel(); return <-served })
	t.Cleanup(func() { s.stop() })
	return s
}

// talk connects, sends all at once or byte by byte, and returns what comes back until the server hangs up.
func (s *server) talk(t *testing.T, say []byte, byByte bool) []byte {
	t.Helper()
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		if byByte {
			for i := range say {
				if _, err := conn.Write(say[i : i+1]); err != nil {
					return
				}
			}
		} else if _, err := conn.Write(say); err != nil {
			return
		}
		conn.(*net.TCPConn).CloseWrite()
	}()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	answer, _ := io.ReadAll(conn)
	return answer
}

// A PUSH peer greets, and its messages become rows, however its bytes arrive.
func TestSocket(t *testing.T) {
	say := hello("PUSH")
	say = append(say, toolMessage(t)...)
	say = appendCommand(say, "PING", []byte("\x00\x64ctx"))
	say = append(say, toolMessage(t)...)
	for _, byByte := range []bool{false, true} {
		s := serve(t)
		answer := s.talk(t, say, byByte)
		want := appendCommand(greeting(), "READY", []byte("\x0bSocket-Type\x00\x00\x00\x04PULL"))
		want = append(want, "\x04\x08\x04PONGctx"...)
		if !bytes.Equal(answer, want) {
			t.Errorf("it answers %q, want %q", answer, want)
		}
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]*trace.Record{grep(), grep()}, s.rows); diff != "" || len(s.log) > 0 || s.Dropped() > 0 {
			t.Errorf("logged %q (-want +got):\n%s", s.log, diff)
		}
	}
}

// What is no tool event is dropped, and said once for each peer; what follows is taken.
func TestSocketDrops(t *testing.T) {
	topic, number, record := []byte(DefaultTopic), make([]byte, 8), pack(nil, packable(event(t)), 1)
	for _, c := range []struct {
		want   string
		frames [][]byte
	}{
		{"2 frames: want topic, sequence number and record", [][]byte{topic, record}},
		{"4 frames", [][]byte{topic, number, record, nil}},
		{`topic "other": want "agent-tool-events"`, [][]byte{[]byte("other"), number, record}},
		{"sequence number of 7 bytes", [][]byte{topic, number[1:], record}},
		{"MessagePack is cut off", [][]byte{topic, number, record[:len(record)-1]}},
		{"event_source is", [][]byte{topic, number, pack(nil, packable(event(t, "event_source", "dynamo")), 1)}},
		{"duration_ms\": a number is NaN", [][]byte{topic, number, append([]byte("\x81\xabduration_ms"), "\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00"...)}},
		{"not a record object", [][]byte{topic, number, {0x07}}},
	} {
		s := serve(t)
		say := appendMessage(hello("PUSH"), c.frames...)
		s.talk(t, append(appendMessage(say, c.frames...), toolMessage(t)...), false)
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if len(s.rows) != 1 || s.Dropped() != 2 || len(s.log) != 1 || !strings.Contains(s.log[0], c.want) {
			t.Errorf("%d rows, %d dropped, logged %q; want 1, 2, %q", len(s.rows), s.Dropped(), s.log, c.want)
		}
	}
}

// A peer that does not keep to the protocol is hung up on, and the others are served.
func TestSocketHangsUp(t *testing.T) {
	plain := greeting()
	copy(plain[12:], "PLAIN")
	old := greeting()
	old[10] = 1
	for _, c := range []struct {
		want string
		say  []byte
	}{
		{"is that ZeroMQ?", []byte("POST / HTTP/1.1\r\n\r\n")},
		{"no ZMTP greeting: unexpected EOF", greeting()[:20]},
		{"ZMTP version 1", old},
		{`security mechanism "PLAIN"`, plain},
		{`a "SUB" socket connected: want PUSH`, hello("SUB")},
		{"READY names no Socket-Type", appendCommand(greeting(), "READY", nil)},
		{"READY names no Socket-Type", appendCommand(greeting(), "READY", []byte("\x0bSocket-Type\xff\xff\xff\xffPUSH"))},
		{`command "HELLO": want READY`, appendCommand(greeting(), "HELLO", nil)},
		{"command without a name", append(greeting(), frameCommand, 1, 9)},
		{"a message before READY", append(greeting(), toolMessage(t)...)},
		{"waiting for READY: unexpected EOF", greeting()},
		{"frame with flags 0x80", append(hello("PUSH"), 0x80, 0)},
		{"frame with flags 0x05", append(hello("PUSH"), frameMore|frameCommand, 0)},
		{"frame of 65537 bytes: want at most 65536", append(hello("PUSH"), frameLong, 0, 0, 0, 0, 0, 1, 0, 1)},
		{"frame of 18446744073709551615 bytes", append(append(hello("PUSH"), frameLong), bytes.Repeat([]byte{0xff}, 8)...)},
		{"frame of 1025 bytes: want at most 1024", append(hello("PUSH"), frameLong|frameCommand, 0, 0, 0, 0, 0, 0, 4, 1)},
		{"message of more than 8 frames", appendMessage(hello("PUSH"), make([][]byte, 9)...)},
		{"unexpected EOF", append(hello("PUSH"), 0, 9, 'x')},
		{"unexpected EOF", append(hello("PUSH"), frameMore, 1, 'x')},
		{`it says "\x05sorry"`, appendCommand(hello("PUSH"), "ERROR", []byte("\x05sorry"))},
	} {
		s := serve(t)
		s.talk(t, c.say, false)
		s.talk(t, append(hello("PUSH"), toolMessage(t)...), false)
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if len(s.rows) != 1 || len(s.log) != 1 || !strings.Contains(s.log[0], "hung up on") || !strings.Contains(s.log[0], c.want) {
			t.Errorf("%d rows, logged %q; want 1 and %q", len(s.rows), s.log, c.want)
		}
	}
}

// Peers that stay connected are let go when serving ends.
func TestSocketStops(t *testing.T) {
	s := serve(t)
	conn, err := net.Dial("tcp", s.address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.Write(hello("PUSH")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(conn, make([]byte, greetingSize)); err != nil {
		t.Fatal(err)
	}
	if err := s.stop(); err != nil || len(s.log) > 0 {
		t.Errorf("%v, logged %q", err, s.log)
	}
}

// One peer too many is hung up on; when another leaves, there is room again.
func TestSocketIsFull(t *testing.T) {
	s := serve(t)
	conns := make([]net.Conn, maxPeers)
	for i := range conns {
		var err error
		if conns[i], err = net.Dial("tcp", s.address); err != nil {
			t.Fatal(err)
		}
		defer conns[i].Close()
		if _, err := io.ReadFull(conns[i], make([]byte, greetingSize)); err != nil { // it is served
			t.Fatal(err)
		}
	}
	if answer := s.talk(t, nil, false); len(answer) > 0 {
		t.Errorf("peer %d is answered %q", maxPeers+1, answer)
	}
	conns[0].Close()
	for start := time.Now(); len(s.talk(t, hello("PUSH"), false)) == 0; {
		if time.Since(start) > time.Minute {
			t.Fatal("no room a minute after a peer left")
		}
	}
}

func TestListenTools(t *testing.T) {
	for endpoint, loopback := range map[string]bool{"tcp://:0": true, "tcp://127.0.0.1:*": true, "tcp://localhost:0": true, "tcp://*:0": false} {
		listener, err := Listen(endpoint)
		if err != nil {
			t.Error(err)
			continue
		}
		if ip := listener.Addr().(*net.TCPAddr).IP; ip.IsLoopback() != loopback {
			t.Errorf("%s: listening on %s, loopback only: want %v", endpoint, ip, loopback)
		}
		listener.Close()
	}
	for _, endpoint := range []string{"", "127.0.0.1:5557", "ipc:///run/tools", "tcp://127.0.0.1", "tcp://127.0.0.1:none"} {
		if _, err := Listen(endpoint); err == nil || !strings.Contains(err.Error(), endpoint) {
			t.Errorf("%q: error %v", endpoint, err)
		}
	}
}

// Frames that are written are read back as they were.
func TestFrames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOf(rapid.Custom(func(t *rapid.T) frame {
			return frame{rapid.SampledFrom([]byte{0, frameMore, frameCommand, frameLong, frameLong | frameMore}).Draw(t, "flags"),
				rapid.SliceOfN(rapid.Byte(), 0, 600).Draw(t, "body")}
		})).Draw(t, "frames")
		var wire []byte
		for _, f := range want {
			wire = appendFrame(wire, f.flags, f.body)
		}
		z := &zmtpReader{src: bufio.NewReaderSize(bytes.NewReader(wire), 16)}
		for _, f := range want {
			got, err := z.next()
			if err != nil || got.flags|frameLong != f.flags|frameLong || !bytes.Equal(got.body, f.body) {
				t.Fatalf("%+v, %v; want %+v", got, err, f)
			}
		}
		if _, err := z.next(); err != io.EOF {
			t.Fatalf("behind the last frame: %v", err)
		}
	})
}

// FuzzSocket gives a peer's bytes to the socket: it must end, answer little, and emit only tool events.
func FuzzSocket(f *testing.F) {
	f.Add(append(hello("PUSH"), toolMessage(f)...))
	f.Add(appendCommand(append(hello("PUSH"), toolMessage(f, "event_type", "tool_start")...), "PING", []byte("\x00\x01abc")))
	f.Add(hello("SUB"))
	f.Add(appendMessage(hello("PUSH"), []byte(DefaultTopic), make([]byte, 8), []byte("\xdf\xff\xff\xff\xff\xa1a")))
	f.Fuzz(func(t *testing.T, say []byte) {
		var rows []*trace.Record
		s := &Socket{Topic: DefaultTopic, Emit: func(r *trace.Record) { rows = append(rows, r) }}
		conn := &script{Reader: bytes.NewReader(say)}
		err := s.peer(conn)
		if err == nil && conn.Len() > 0 {
			t.Errorf("%d bytes were not read", conn.Len())
		}
		if conn.written > 1<<10+20*len(say) {
			t.Errorf("%d bytes were answered to %d", conn.written, len(say))
		}
		for _, r := range rows { // FuzzHandler checks what is asked of a row
			if again, err := rowOf(r); err != nil || !cmp.Equal(again, r) {
				t.Errorf("a row that is no tool event: %v, %v", r, err)
			}
		}
	})
}

// script is a connection on which a peer says what is written down.
type script struct {
	*bytes.Reader
	net.Conn // the rest of the interface
	written  int
}

func (s *script) Read(p []byte) (int, error)  { return s.Reader.Read(p) }
func (s *script) Write(p []byte) (int, error) { s.written += len(p); return len(p), nil }
func (s *script) SetDeadline(time.Time) error { return nil }
func (s *script) RemoteAddr() net.Addr        { return &net.TCPAddr{} }
