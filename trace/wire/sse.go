// Package wire is what servers of language models and their clients say to each other over HTTP: server-sent events, the
// completions and chat dialects of OpenAI with the fields that vLLM, SGLang and Dynamo add, and Anthropic's messages. The
// recorder, the replayer and the simulated server share it.
package wire

import (
	"bytes"
	"errors"
)

// MaxEvent is the default bound on one event of a stream, in bytes.
const MaxEvent = 16 << 20

// ErrEventTooLong is the error of a Stream whose server sends an event beyond its limit.
var ErrEventTooLong = errors.New("server-sent event is longer than the limit")

// Event is one server-sent event.
type Event struct {
	// Name is the event's type, "" where the server names none (OpenAI).
	Name string
	// Data is the text of the data lines, joined by newlines. It is valid until the next call of the stream.
	Data []byte
}

// Done tells whether the event is OpenAI's end of stream, [DONE].
func (e Event) Done() bool { return string(bytes.TrimSpace(e.Data)) == "[DONE]" }

// Stream splits bytes as they come from the network into server-sent events (WHATWG HTML, 9.2.6): lines end in LF, CRLF or
// CR, an empty line ends an event, comments and unknown fields are ignored, a byte order mark is skipped. The caller feeds
// it what a read returned and takes the events that are whole by then:
//
//	n, err := body.Read(buf)
//	stream.Feed(buf[:n])
//	for event, ok := stream.Next(); ok; event, ok = stream.Next() {
//
// The zero value is ready. A Stream is not safe for concurrent use.
type Stream struct {
	// Limit bounds one event, in bytes; 0 is MaxEvent.
	Limit int

	buf    []byte // what was fed and is not read: the caller's bytes, or those of rest
	rest   []byte
	owned  bool // buf is rest
	pos    int  // start of the line to read
	seen   int  // no line ends in buf[pos:seen]
	begun  bool // the first line was looked at
	afterR bool // the last line ended in CR: an LF that follows belongs to it
	ended  bool
	err    error

	name   string
	data   []byte
	filled bool // a data line came
	taken  bool // data was returned
}

// Feed adds bytes. They must stay as they are until Next is false; then the stream has copied what it still needs.
func (s *Stream) Feed(p []byte) {
	if s.pos == len(s.buf) {
		s.buf, s.owned, s.pos, s.seen = p, false, 0, 0
		return
	}
	s.own()
	s.rest = append(s.rest, p...)
	s.buf = s.rest
}

// own copies what is left of the caller's bytes, to the beginning of the stream's own.
func (s *Stream) own() {
	if s.owned && s.pos == 0 {
		return
	}
	s.rest = append(s.rest[:0], s.buf[s.pos:]...)
	s.buf, s.owned, s.seen, s.pos = s.rest, true, max(0, s.seen-s.pos), 0
}

// End says that the server closed the stream in good order: Next then returns an event that lacks only its empty line.
// After a broken connection leave it, so that half an event is not taken for a whole one.
func (s *Stream) End() { s.ended = true }

// Err is why the stream has no more events; nil while it is only waiting for bytes.
func (s *Stream) Err() error { return s.err }

// Partial tells whether the stream holds part of an event: the connection was cut in the middle of it.
func (s *Stream) Partial() bool { return s.filled && !s.taken || s.pos < len(s.buf) }

// Pending is the number of bytes that were fed and are not part of an event that Next returned, nor of a line before it. (Of
// CRLF the LF is part of what follows.)
func (s *Stream) Pending() int { return len(s.buf) - s.pos }

// Next returns the next event that is whole; false when more bytes are needed.
func (s *Stream) Next() (Event, bool) {
	if s.taken {
		s.name, s.data, s.filled, s.taken = "", s.data[:0], false, false
	}
	for s.err == nil {
		line, ok := s.line()
		switch {
		case ok && len(line) > 0:
			s.field(line)
			continue
		case !ok && !s.ended:
			s.own()
			return Event{}, false
		}
		if s.filled {
			s.taken = true
			return Event{s.name, s.data}, true
		}
		s.name = "" // an event without data is none
		if !ok {
			return Event{}, false
		}
	}
	return Event{}, false
}

// line returns the next line without its end.
func (s *Stream) line() ([]byte, bool) {
	if s.afterR && s.pos < len(s.buf) {
		if s.buf[s.pos] == '\n' {
			s.pos++
		}
		s.afterR = false
	}
	s.seen = max(s.seen, s.pos)
	end := bytes.IndexByte(s.buf[s.seen:], '\n')
	rest := s.buf[s.seen:]
	if end >= 0 {
		rest = rest[:end]
	}
	cr := bytes.IndexByte(rest, '\r')
	switch {
	case cr >= 0:
		end = s.seen + cr
		s.afterR = true
	case end >= 0:
		end += s.seen
	case s.tooLong(len(s.buf) - s.pos):
		return nil, false
	case s.ended && s.pos < len(s.buf):
		end = len(s.buf)
		line := s.buf[s.pos:end]
		s.pos = end
		return s.unmark(line), true
	default:
		s.seen = len(s.buf)
		return nil, false
	}
	line := s.buf[s.pos:end]
	s.pos = end + 1
	return s.unmark(line), true
}

// unmark takes the byte order mark off the first line.
func (s *Stream) unmark(line []byte) []byte {
	if !s.begun {
		s.begun = true
		line = bytes.TrimPrefix(line, []byte("\xef\xbb\xbf"))
	}
	return line
}

// field reads a line that is not empty. One that begins with a colon is a comment: servers send them to keep connections
// alive.
func (s *Stream) field(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "data":
		if s.filled {
			s.data = append(s.data, '\n')
		}
		if s.tooLong(len(s.data) + len(value)) {
			return
		}
		s.data = append(s.data, value...)
		s.filled = true
	case "event":
		s.name = eventName(value)
	}
}

func (s *Stream) tooLong(n int) bool {
	limit := s.Limit
	if limit == 0 {
		limit = MaxEvent
	}
	if n > limit {
		s.err = ErrEventTooLong
	}
	return s.err != nil
}

// eventNames are those of Anthropic's messages, and "error".
var eventNames = []string{"content_block_delta", "content_block_start", "content_block_stop", "message_start",
	"message_delta", "message_stop", "ping", "error"}

// eventName is string(name), without allocation for known names.
func eventName(name []byte) string {
	for _, known := range eventNames {
		if string(name) == known {
			return known
		}
	}
	return string(name)
}

// AppendEvent appends an event as a server sends it. Name may be "".
func AppendEvent(b []byte, name string, data []byte) []byte {
	if name != "" {
		b = append(b, "event: "...)
		b = append(b, name...)
		b = append(b, '\n')
	}
	for {
		line, rest, more := bytes.Cut(data, []byte("\n"))
		b = append(b, "data: "...)
		b = append(b, line...)
		b = append(b, '\n')
		if data = rest; !more {
			return append(b, '\n')
		}
	}
}

// Done is OpenAI's end of stream, as a server sends it.
const Done = "data: [DONE]\n\n"
