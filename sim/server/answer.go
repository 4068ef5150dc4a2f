package server

import (
	"compress/gzip"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace/wire"
)

// answer returns the handler of a dialect.
func (s *Server) answer(dialect wire.Dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		arrived, number := s.clock.now(), s.serial.Add(1)
		defer s.present.Add(-1)
		if s.present.Add(1) > maxRequests {
			refuse(w, &wire.Error{Status: 429, Message: "too many requests at a time", Type: "TooManyRequests", Code: "429"}, "1")
			return
		}
		asked, e := faults(r.Header)
		if e != nil {
			refuse(w, e, "")
			return
		}
		b := behave(number, s.options.Faults, asked)
		if s.misbehave(w, r, &b) {
			return
		}
		j, e := s.read(r, dialect, arrived, number, b)
		if e != nil {
			refuse(w, e, "")
			return
		}
		s.serve(w, r, j)
	}
}

// misbehave does what faults ask for before the request is read. It tells whether that was the answer.
func (s *Server) misbehave(w http.ResponseWriter, r *http.Request, b *behaviour) bool {
	if b.restarts {
		s.post(func(c *core) { c.restart(time.Duration(float64(b.restart) * s.clock.scale)) })
		panic(http.ErrAbortHandler)
	}
	if s.restarting() {
		refuse(w, &wire.Error{Status: 503, Message: "the server is starting", Type: "ServiceUnavailable", Code: "503"}, "1")
		return true
	}
	if b.reset {
		reset(w)
	}
	if b.close {
		w.Header().Set("Connection", "close")
	}
	if !sleep(r.Context(), b.delay) {
		return true
	}
	switch {
	case b.status != 0:
		refuse(w, &wire.Error{Status: b.status, Message: "injected fault", Type: http.StatusText(b.status), Code: strconv.Itoa(b.status)}, b.retryAfter)
	case b.noAnswer:
		w.WriteHeader(http.StatusOK)
	default:
		return false
	}
	return true
}

// reset breaks the connection without an answer, so that the client sees it reset.
func reset(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
	panic(http.ErrAbortHandler)
}

// sleep waits; false when the client has gone.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, e *wire.Error, retryAfter string) {
	if retryAfter != "" {
		w.Header().Set("Retry-After", retryAfter)
	}
	status := e.Status
	if status < 200 || status > 999 {
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(e.Append(nil))
}

// serve lets the deployment answer a job, and writes the answer.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, j *job) {
	st, ended := j.stream, false
	if j.stream.request.Output == 0 { // a fault
		st.over = true
		st.notify()
	} else {
		s.post(func(c *core) { c.submit(st) })
		defer func() {
			if !ended {
				s.post(func(c *core) { c.cancel(st) })
			}
		}()
	}
	out := j.writer(w)
	var due []time.Duration
	var ping <-chan time.Time
	if j.ping > 0 {
		ticker := time.NewTicker(j.ping)
		defer ticker.Stop()
		ping = ticker.C
	}
	for {
		select {
		case <-st.wake:
		case <-ping:
			out.ping()
			continue
		case <-s.done:
		case <-r.Context().Done():
			return
		}
		var over bool
		var failure *wire.Error
		due, over, failure = st.take(due)
		ended = over
		for _, at := range due {
			if wait := s.clock.wall(at - s.clock.now()); wait > 0 {
				out.flush()
				if !sleep(r.Context(), wait) {
					return
				}
			}
			if !out.token() {
				return
			}
			if out.n == j.stall {
				out.flush()
				<-r.Context().Done()
				return
			}
		}
		switch {
		case failure == errCrashed:
			out.flush()
			panic(http.ErrAbortHandler)
		case failure != nil:
			out.fail(failure)
			return
		case over:
			out.end()
			return
		}
		out.flush()
		select {
		case <-s.done:
			return
		default:
		}
	}
}

// writer writes an answer.
type writer struct {
	*job
	w       http.ResponseWriter
	control *http.ResponseController
	zipped  *gzip.Writer // nil: not compressed
	buf     []byte       // not yet written
	event   []byte       // scratch
	n       int          // tokens of the answer so far
	group   []uint32     // of the event that is being gathered
	text    strings.Builder
	thought strings.Builder
	begun   bool
}

func (j *job) writer(w http.ResponseWriter) *writer {
	return &writer{job: j, w: w, control: http.NewResponseController(w)}
}

// begin writes what comes before the first token.
func (o *writer) begin() {
	if o.begun {
		return
	}
	o.begun = true
	if !o.Stream {
		return
	}
	h := o.w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	if o.zip {
		h.Set("Content-Encoding", "gzip")
		o.zipped = gzip.NewWriter(o.w)
	}
	if o.mark {
		o.buf = append(o.buf, "\xef\xbb\xbf"...)
	}
	if o.Dialect == wire.Chat && !o.noRole {
		c := wire.Chunk{Role: "assistant"}
		if o.body.ReturnTokenIDs {
			c.PromptTokenIDs = o.prompt
		}
		o.chunk(&c)
	}
}

// token adds the next token, and tells whether the answer goes on.
func (o *writer) token() bool {
	o.begin()
	o.group = append(o.group, o.output.id(o.n))
	word := o.output.word(o.n)
	o.n++
	if o.reasons(o.n) {
		o.thought.WriteString(word)
	} else {
		o.text.WriteString(word)
	}
	if !o.Stream {
		return true
	}
	last := o.n == int(o.stream.request.Output)
	if len(o.group) < o.behaviour.group && !last && !o.turns() {
		return true
	}
	c := o.chunkOf()
	if last {
		c.Finish = o.finish()
	}
	o.chunk(&c)
	if o.n >= o.behaviour.fail && o.behaviour.fail > 0 {
		o.fail(&wire.Error{Message: "injected fault", Type: "InternalServerError", Code: "500"})
		return false
	}
	return true
}

// reasons tells whether token number n, from 1, is one of reasoning: the first half, under that fault.
func (o *writer) reasons(n int) bool {
	return o.reasoning != "" && o.Dialect == wire.Chat && 2*n <= int(o.stream.request.Output)
}

// turns tells whether the answer proper begins with the next token.
func (o *writer) turns() bool { return o.reasons(o.n) && !o.reasons(o.n+1) }

// chunkOf takes what was gathered since the last chunk.
func (o *writer) chunkOf() wire.Chunk {
	c := wire.Chunk{Text: o.text.String(), Reasoning: o.thought.String()}
	o.text.Reset()
	o.thought.Reset()
	if o.toolCalls && o.Dialect == wire.Chat {
		call := wire.ToolCall{Arguments: c.Text}
		if o.n == len(o.group) { // the first
			call.ID, call.Name = "call_"+o.ID, "run"
		}
		c.Text, c.ToolCalls = "", []wire.ToolCall{call}
	}
	if o.body.ReturnTokenIDs {
		c.TokenIDs = o.group
		if o.Dialect == wire.Completions && o.n == len(o.group) {
			c.PromptTokenIDs = o.prompt
		}
	}
	if o.usageEach || o.body.StreamOptions != nil && o.body.StreamOptions.ContinuousUsageStats {
		c.Usage = o.usage()
	}
	o.group = o.group[:0]
	return c
}

func (o *writer) finish() string {
	if o.toolCalls && o.Dialect == wire.Chat {
		return "tool_calls"
	}
	return o.stream.reason()
}

// usage counts the tokens so far.
func (o *writer) usage() *wire.Usage {
	if o.noUsage {
		return nil
	}
	cached := int64(o.stream.request.Hit)
	if o.warm {
		cached = int64(len(o.prompt))
	}
	u := &wire.Usage{Prompt: new(int64(len(o.prompt)) + o.wrongUsage), Completion: new(int64(o.n) + o.wrongUsage), Cached: &cached}
	if o.reasoning != "" {
		u.Reasoning = new(int64(min(o.n, int(o.stream.request.Output)/2)))
	}
	return u
}

// end finishes the answer.
func (o *writer) end() {
	o.begin()
	if !o.Stream {
		c := o.chunkOf()
		if o.Dialect == wire.Chat {
			c.Role = "assistant"
			if o.body.ReturnTokenIDs {
				c.PromptTokenIDs = o.prompt
			}
		}
		c.Finish, c.Usage = o.finish(), o.usage()
		o.w.Header().Set("Content-Type", "application/json")
		_, _ = o.w.Write(o.rename(o.Append(nil, &c)))
		return
	}
	if o.body.StreamOptions != nil && o.body.StreamOptions.IncludeUsage && !o.noUsage {
		o.chunk(&wire.Chunk{Usage: o.usage()})
	}
	if !o.noDone {
		o.send("", []byte("[DONE]"))
	}
	if o.moreAfter {
		o.chunk(&wire.Chunk{Text: " late"})
	}
	if o.unterminated {
		o.buf = o.buf[:len(o.buf)-len(o.lineEnd)]
	}
	o.flush()
	if o.zipped != nil {
		_ = o.zipped.Close()
	}
}

// fail tells an error: by status while nothing was written, else inside the answer.
func (o *writer) fail(e *wire.Error) {
	if !o.begun || !o.Stream {
		refuse(o.w, e, "")
		return
	}
	o.send(o.failEvent, e.Append(nil))
	if !o.noDone {
		o.send("", []byte("[DONE]"))
	}
	o.flush()
}

// chunk writes an event of the answer.
func (o *writer) chunk(c *wire.Chunk) {
	o.event = o.Append(o.event[:0], c)
	o.send("", o.rename(o.event))
	if o.n == o.cut && o.n > 0 {
		o.buf = o.buf[:len(o.buf)-len(o.event)/2]
		o.flush()
		panic(http.ErrAbortHandler)
	}
}

// rename gives the field of reasoning the name that a fault asks for.
func (o *writer) rename(text []byte) []byte {
	if o.reasoning == "" || o.reasoning == "reasoning_content" {
		return text
	}
	return []byte(strings.Replace(string(text), `"reasoning_content":`, `"`+o.reasoning+`":`, 1))
}

// send adds an event to what is to be written.
func (o *writer) send(name string, data []byte) {
	from := len(o.buf)
	if o.comment != "" {
		o.buf = append(append(o.buf, o.comment...), '\n')
	}
	if o.pad > 0 {
		data = append(data, strings.Repeat(" ", o.pad)...)
	}
	o.buf = wire.AppendEvent(o.buf, name, data)
	if o.noSpace {
		o.buf = append(o.buf[:from], strings.Replace(string(o.buf[from:]), "data: ", "data:", 1)...)
	}
	if o.lineEnd != "\n" {
		o.buf = append(o.buf[:from], strings.ReplaceAll(string(o.buf[from:]), "\n", o.lineEnd)...)
	}
	if o.split {
		half := o.buf[from+(len(o.buf)-from)/2:]
		rest := append([]byte(nil), half...)
		o.buf = o.buf[:len(o.buf)-len(half)]
		o.flush()
		o.buf = append(o.buf, rest...)
	}
}

// ping writes a comment, which keeps proxies from closing the connection.
func (o *writer) ping() {
	if o.Stream {
		o.begin()
		o.buf = append(o.buf, ": ping"+o.lineEnd+o.lineEnd...)
		o.flush()
	}
}

// flush sends what was written to the client. An error means that it has gone: then its context ends.
func (o *writer) flush() {
	if len(o.buf) == 0 {
		return
	}
	to := io.Writer(o.w)
	if o.zipped != nil {
		to = o.zipped
	}
	_, _ = to.Write(o.buf)
	o.buf = o.buf[:0]
	if o.zipped != nil {
		_ = o.zipped.Flush()
	}
	_ = o.control.Flush()
}
