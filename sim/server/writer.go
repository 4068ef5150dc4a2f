package server

import (
	"compress/gzip"
	"io"
	"net/http"
	"strings"

	"github.com/agentsim/agentsim/trace/wire"
)

// writer writes an answer.
type writer struct {
	*job
	w       http.ResponseWriter
	control *http.ResponseController
	zipped  *gzip.Writer // nil: not compressed
	buf     []byte       // not yet written
	event   []byte       // scratch
	n       int          // tokens of the answer so far
	written int          // bytes of its text
	cached  int64        // tokens of the prompt
	group   []uint32     // of the event that is being gathered
	text    strings.Builder
	thought strings.Builder
	begun   bool
	called  bool // a tool call was begun
	ended   bool
	// events writes those of Messages.
	events wire.MessageEvents
}

func (j *job) writer(w http.ResponseWriter) *writer {
	return &writer{job: j, w: w, control: http.NewResponseController(w), events: wire.MessageEvents{ID: j.ID, Model: j.Model}}
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
	if o.Dialect == wire.Messages {
		o.chunk(&wire.Chunk{Usage: o.usage()})
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
	word := o.output.text(o.n, o.written)
	o.written += len(word)
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
	apart := o.finishApart && o.Dialect != wire.Messages // where it always is
	if last && !apart {
		c.Finish, c.Stop = o.finish(), o.output.stop
	}
	if last && o.Dialect == wire.Messages {
		c.Usage = o.usage()
	}
	o.chunk(&c)
	if last && apart {
		o.chunk(&wire.Chunk{Finish: o.finish(), Stop: o.output.stop})
	}
	if o.n >= o.behaviour.fail && o.behaviour.fail > 0 {
		o.fail(&wire.Error{Message: "injected fault", Type: "InternalServerError", Code: "500"})
		return false
	}
	return true
}

// reasons tells whether token number n, from 1, is one of reasoning: the first half, under that fault.
func (o *writer) reasons(n int) bool {
	return o.reasoning != "" && o.Dialect != wire.Completions && 2*n <= int(o.stream.request.Output)
}

// turns tells whether the answer proper begins with the next token.
func (o *writer) turns() bool { return o.reasons(o.n) && !o.reasons(o.n+1) }

// chunkOf takes what was gathered since the last chunk.
func (o *writer) chunkOf() wire.Chunk {
	c := wire.Chunk{Text: o.text.String(), Reasoning: o.thought.String()}
	o.text.Reset()
	o.thought.Reset()
	if o.toolCalls && o.Dialect != wire.Completions && (c.Text != "" || o.n == int(o.stream.request.Output)) {
		c.Text, c.ToolCalls = "", []wire.ToolCall{o.call(c.Text)}
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

// call is a part of a tool call. The arguments are a JSON object, as clients expect, with the words of the answer in it.
func (o *writer) call(words string) wire.ToolCall {
	var part wire.ToolCall
	if !o.called {
		o.called = true
		part = wire.ToolCall{ID: "call_" + o.ID, Name: "run", Arguments: `{"command":"`}
	}
	part.Arguments += words
	if o.n == int(o.stream.request.Output) {
		part.Arguments += `"}`
	}
	return part
}

func (o *writer) finish() string {
	if o.toolCalls && o.Dialect != wire.Completions {
		return "tool_calls"
	}
	return o.stream.reason()
}

// usage counts the tokens so far.
func (o *writer) usage() *wire.Usage {
	if o.noUsage {
		return nil
	}
	cached := o.cached
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
	o.ended = true
	o.begin()
	if !o.Stream {
		c := o.chunkOf()
		if o.Dialect == wire.Chat {
			c.Role = "assistant"
			if o.body.ReturnTokenIDs {
				c.PromptTokenIDs = o.prompt
			}
		}
		c.Finish, c.Stop, c.Usage = o.finish(), o.output.stop, o.usage()
		o.w.Header().Set("Content-Type", "application/json")
		_, _ = o.w.Write(o.rewrite(o.Append(nil, &c)))
		return
	}
	switch {
	case o.Dialect == wire.Messages && o.n == 0: // by a fault
		o.chunk(&wire.Chunk{Finish: "stop", Usage: o.usage()})
	case o.Dialect != wire.Messages:
		if o.body.StreamOptions != nil && o.body.StreamOptions.IncludeUsage && !o.noUsage {
			o.chunk(&wire.Chunk{Usage: o.usage()})
		}
		if !o.noDone {
			o.send("", []byte("[DONE]"))
		}
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
	o.ended = true
	if !o.begun || !o.Stream {
		refuse(o.w, o.Dialect, e, "")
		return
	}
	name := o.failEvent
	if o.Dialect == wire.Messages {
		name = "error"
	}
	o.send(name, errorBody(o.Dialect, e))
	if !o.noDone && o.Dialect != wire.Messages {
		o.send("", []byte("[DONE]"))
	}
	o.flush()
}

// chunk writes an event of the answer.
func (o *writer) chunk(c *wire.Chunk) {
	if o.Dialect == wire.Messages {
		o.events.Send(c, func(name string, data []byte) {
			o.event = data
			o.send(name, data)
		})
	} else {
		o.event = o.Append(o.event[:0], c)
		o.send("", o.rewrite(o.event))
	}
	if o.n == o.cut && o.n > 0 {
		o.buf = o.buf[:len(o.buf)-len(o.event)/2]
		o.ended = true
		o.flush()
		panic(http.ErrAbortHandler)
	}
}

// rewrite changes the JSON of an event as faults ask for.
func (o *writer) rewrite(text []byte) []byte {
	for _, change := range []struct {
		on       bool
		from, to string
	}{
		{o.reasoning != "", `"reasoning_content":`, `"` + o.reasoning + `":`},
		{o.nullText, `"content":""`, `"content":null`},
		{o.manyLines, `,"choices"`, ",\n" + `"choices"`},
	} {
		if change.on {
			text = []byte(strings.Replace(string(text), change.from, change.to, 1))
		}
	}
	return text
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
	if len(o.buf) == 0 || o.merge > 1 && o.n%o.merge != 0 && !o.ended {
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
