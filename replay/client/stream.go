package client

import (
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/agentsim/agentsim/trace/wire"
)

// limit cancels a request whose server is silent for too long.
type limit struct {
	timer *time.Timer
	idle  time.Duration
}

func newLimit(cancel context.CancelCauseFunc, first, idle time.Duration) *limit {
	l := &limit{idle: idle}
	l.timer = time.AfterFunc(max(first, time.Hour), func() { cancel(errIdle) })
	if first > 0 {
		l.timer.Reset(first)
	} else {
		l.timer.Stop()
	}
	return l
}

// heard gives the server another while.
func (l *limit) heard() { l.timer.Reset(l.idle) }

func (l *limit) stop() { l.timer.Stop() }

// decoded is the body of a response as it was before a proxy compressed it unasked.
func decoded(resp *http.Response) (io.Reader, error) {
	switch encoding := resp.Header.Get("Content-Encoding"); encoding {
	case "", "identity":
		return resp.Body, nil
	case "gzip":
		z, err := gzip.NewReader(resp.Body)
		if err != nil {
			return nil, fmt.Errorf("answer in gzip: %w", err)
		}
		return z, nil
	default:
		return nil, fmt.Errorf("answer in content encoding %q", encoding)
	}
}

// streamReader reads an answer.
type streamReader struct {
	answer *Answer
	now    func() time.Duration
	limit  *limit
	chunk  wire.Parser
	usage  wire.Usage
	done   bool // the server said that the answer is whole
	// cancelAt, where positive, is after how many events with tokens nothing more is read.
	cancelAt int32
	keepText bool
}

// maxText bounds the text of an answer that is kept, in bytes.
const maxText = 16 << 20

var buffers = sync.Pool{New: func() any { return new([16 << 10]byte) }}

// stream reads server-sent events. What one read returns has one time.
func (s *streamReader) stream(ctx context.Context, body io.Reader) {
	buf := buffers.Get().(*[16 << 10]byte)
	defer buffers.Put(buf)
	var events wire.Stream
	var err error
	for err == nil {
		var n int
		n, err = body.Read(buf[:])
		at := s.now()
		s.limit.heard()
		events.Feed(buf[:n])
		if err == io.EOF {
			events.End()
		}
		for e, ok := events.Next(); ok; e, ok = events.Next() {
			s.event(e, at)
			if s.cancelAt > 0 && s.answer.Events == s.cancelAt && s.answer.Err == nil {
				s.answer.Cancelled = true
				return
			}
		}
		if events.Err() != nil {
			s.answer.fail(FailParse, "%v", events.Err())
			return
		}
	}
	s.take()
	switch {
	case s.answer.Err != nil:
	case err != io.EOF && !s.done:
		s.answer.failRead(ctx, err, FailCut) // or the client did it, as asked
	case !s.done && s.answer.Finish == "":
		s.answer.fail(FailCut, "the stream ended after %d events without a finish reason or [DONE]", s.answer.Events)
	case s.empty():
		s.answer.fail(FailEmpty, "status 200 and an answer without a token")
	}
}

// empty tells that nothing was generated, as far as anybody says.
func (s *streamReader) empty() bool { return s.answer.Events == 0 && s.answer.Output() == 0 }

// whole reads an answer that was not streamed. When its first token came is not known.
func (s *streamReader) whole(ctx context.Context, body io.Reader) {
	text, err := io.ReadAll(io.LimitReader(body, wire.MaxEvent))
	at := s.now()
	if err != nil {
		s.answer.failRead(ctx, err, FailCut)
		return
	}
	s.answer.Whole = true
	s.event(wire.Event{Data: text}, at)
	s.take()
	s.answer.FirstToken = None
	if s.answer.Err == nil && s.empty() {
		s.answer.fail(FailEmpty, "status 200 and an answer without a token")
	}
}

// event takes one event, read at a time.
func (s *streamReader) event(e wire.Event, at time.Duration) {
	a := s.answer
	if e.Done() {
		s.done = true
		return
	}
	c := &s.chunk
	if err := c.Parse(e.Data); err != nil {
		a.fail(FailParse, "%v", err)
		return
	}
	if c.Err != nil || e.Name == "error" {
		text := string(e.Data)
		if c.Err != nil {
			text = c.Err.Error()
		}
		a.fail(FailInBand, "%s", text)
		return
	}
	if !s.done && (c.Generates() || len(c.TokenIDs) > 0) { // after [DONE] only usage may follow
		s.token(at)
		a.TokenIDs = append(a.TokenIDs, c.TokenIDs...)
		if s.keepText && len(a.Text) < maxText {
			a.Text = append(a.Text, c.Text...)
		}
	}
	if c.Finish != "" {
		a.Finish = c.Finish
	}
	s.done = s.done || c.End
	s.usage.Update(c.Usage)
}

// token notes an event with generated text.
func (s *streamReader) token(at time.Duration) {
	a := s.answer
	if a.Events == 0 {
		a.FirstToken = at
	} else {
		a.Gaps = append(a.Gaps, at-a.LastToken)
	}
	a.Events++
	a.LastToken = at
}

// take copies the usage into the answer.
func (s *streamReader) take() {
	for _, f := range []struct {
		to   *int32
		from *int64
	}{{&s.answer.Prompt, s.usage.Prompt}, {&s.answer.Cached, s.usage.Cached},
		{&s.answer.Completion, s.usage.Completion}, {&s.answer.Reasoning, s.usage.Reasoning}} {
		if f.from != nil && *f.from >= 0 && *f.from < 1<<30 {
			*f.to = int32(*f.from)
		}
	}
}
