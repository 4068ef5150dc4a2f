package recorder

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

	"github.com/agentsim/agentsim/trace/wire"
)

// tap is the body of an answer on its way to the client. It passes what was read at once, and reads along.
type tap struct {
	body     io.ReadCloser
	exchange *exchange
	recorder *Recorder
	ctx      context.Context
	encoding string
	events   bool // server-sent

	stream wire.Stream
	parser wire.Parser
	copy   []byte // of an answer that is read when it is whole
	lost   bool   // the copy has no room

	// Where usage was asked for that the client did not want, its event is taken out.
	filtering bool
	held      []byte // of the event under way, while it may be the one
	passed    bool   // a part of the event under way was passed on
	out       []byte // to pass on before anything else
	failed    error  // of the upstream, after out
}

func (t *tap) plain() bool { return t.encoding == "" || t.encoding == "identity" }

// Read passes on what the upstream sent.
func (t *tap) Read(p []byte) (int, error) {
	for {
		if len(t.out) > 0 {
			n := copy(p, t.out)
			t.out = t.out[n:]
			return n, nil
		}
		if t.failed != nil {
			return 0, t.failed
		}
		n, err := t.body.Read(p)
		now := time.Now()
		t.exchange.idle.Reset(t.recorder.options.IdleTimeout)
		if !t.filtering {
			t.see(p[:n], now)
			t.finish(err, now)
			return n, err
		}
		out := t.filter(p[:n], now)
		if err != nil {
			out, t.held = append(out, t.held...), nil
			t.finish(err, now)
		}
		n = copy(p, out)
		if t.out = out[n:]; len(t.out) > 0 {
			t.failed = err
			return n, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// see reads along.
func (t *tap) see(p []byte, now time.Time) {
	switch {
	case len(p) == 0 || t.exchange.status >= 400:
	case t.events && t.plain():
		t.stream.Feed(p)
		for e, ok := t.stream.Next(); ok; e, ok = t.stream.Next() {
			t.event(e, now)
		}
	case !t.lost:
		if int64(len(t.copy)+len(p)) > t.recorder.options.MaxBody || !t.recorder.hold(t.exchange, int64(len(p))) {
			t.copy, t.lost = nil, true
			return
		}
		t.copy = append(t.copy, p...)
	}
}

// event takes an event into the answer, and tells whether it is the one with usage alone.
func (t *tap) event(e wire.Event, now time.Time) (usage bool) {
	a := &t.exchange.answer
	if a.complete {
		return false // what follows is not part of it
	}
	if e.Done() {
		a.complete = true
		t.exchange.end("", now)
		return false
	}
	if t.parser.Parse(e.Data) != nil {
		return false // of a kind that says nothing to us
	}
	a.take(&t.parser.Chunk, now)
	if t.parser.Err != nil {
		t.exchange.end(toldError, now)
	} else if a.complete {
		t.exchange.end("", now)
	}
	return t.parser.UsageOnly
}

// filter returns what is to be passed on, in the place of p: all but the event with usage alone. Until an answer says why it
// ended that event cannot come, so nothing is held back; after that the beginning of an event waits for its end.
func (t *tap) filter(p []byte, now time.Time) []byte {
	text := p
	if len(t.held) > 0 {
		text = append(t.held, p...)
		t.held = nil
	}
	t.stream.Feed(p)
	end, from, to := 0, 0, 0
	for e, ok := t.stream.Next(); ok; e, ok = t.stream.Next() {
		begin := end
		end = len(text) - t.stream.Pending()
		if usage := t.event(e, now); usage && !t.passed && to == 0 {
			from, to = begin, end
		}
		t.passed = false
	}
	if t.filtering = to == 0 && t.stream.Err() == nil; !t.filtering {
		return append(text[:from], text[to:]...)
	}
	if t.exchange.answer.finish == "" {
		t.passed = t.passed || end < len(text)
		return text
	}
	t.held = append(t.held, text[end:]...)
	return text[:end]
}

// finish notes how the answer ended, when it has.
func (t *tap) finish(err error, now time.Time) {
	if err == nil {
		return
	}
	e := t.exchange
	switch cause := context.Cause(t.ctx); {
	case err == io.EOF && e.status >= 400:
		e.end(refused, now)
	case err == io.EOF:
		t.whole(now)
	case cause == errIdle:
		e.end(timedOut, now)
	case cause != nil:
		e.end(clientGone, now)
	default:
		e.end(broken, now)
	}
}

// whole reads what is left when the upstream ended the answer in good order. An answer that is none is broken, but for those
// that cannot be read here.
func (t *tap) whole(now time.Time) {
	e := t.exchange
	read := true
	if t.events && t.plain() {
		t.stream.End()
		for ev, ok := t.stream.Next(); ok; ev, ok = t.stream.Next() {
			t.event(ev, now)
		}
		read = e.answer.finish != "" || e.answer.complete || t.stream.Err() != nil // servers leave out [DONE], but not the reason
	} else if text, err := decode(t.copy, t.encoding, t.recorder.options.MaxBody); err == nil && !t.lost {
		read = t.readWhole(text, now)
	}
	if !read {
		e.end(broken, now)
	}
	e.end("", now)
}

// readWhole reads an answer that did not pass event by event, and tells whether it is one. It has no time of a first token.
func (t *tap) readWhole(text []byte, now time.Time) bool {
	a := &t.exchange.answer
	if t.events {
		t.stream.Feed(text)
		t.stream.End()
		for e, ok := t.stream.Next(); ok; e, ok = t.stream.Next() {
			t.event(e, now)
		}
	} else if t.parser.Parse(text) == nil {
		a.take(&t.parser.Chunk, now)
		if t.parser.Err != nil {
			t.exchange.end(toldError, now)
		}
	}
	a.first, a.last, a.gaps = time.Time{}, time.Time{}, nil
	return a.finish != "" || a.complete || t.exchange.outcome != ""
}

// Close ends the answer. Before its end that means that the client has gone.
func (t *tap) Close() error {
	t.exchange.end(clientGone, time.Now())
	return t.body.Close()
}

// resender sends a request again as the client wrote it when the upstream refuses to be asked for usage.
type resender struct{ next http.RoundTripper }

// RoundTrip sends a request.
func (s *resender) RoundTrip(q *http.Request) (*http.Response, error) {
	a, err := s.next.RoundTrip(q)
	e := exchangeOf(q.Context())
	if err != nil || e == nil || !e.asked || a.StatusCode != http.StatusBadRequest && a.StatusCode != http.StatusUnprocessableEntity {
		return a, err
	}
	said, err := io.ReadAll(io.LimitReader(a.Body, maxRefusal))
	if err != nil || !bytes.Contains(said, []byte("stream_options")) {
		a.Body = &prefixed{io.MultiReader(bytes.NewReader(said), a.Body), a.Body}
		return a, nil
	}
	_ = a.Body.Close()
	e.asked = false
	again := q.Clone(q.Context())
	setBody(again, e.body)
	return s.next.RoundTrip(again)
}

// maxRefusal is how much of a refusal is looked at, in bytes.
const maxRefusal = 64 << 10
