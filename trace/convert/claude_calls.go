package convert

import (
	"cmp"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/zeebo/xxh3"

	"github.com/agentsim/agentsim/trace"
)

// maxNews bounds the rows between two calls of a conversation that are looked at.
const maxNews = 1024

// rowPlace names a row by where it stands.
func rowPlace(file string, line int) string { return filepath.Base(file) + ":" + strconv.Itoa(line) }

// linkAgents finds the parents and types of subagents, and the spans of tools.
func (t *transcripts) linkAgents() {
	type use struct {
		row  *claudeRow
		tool *claudeTool
	}
	type task struct {
		session string
		prompt  uint64
	}
	uses := map[string]use{}
	tasks := map[task]string{}
	for _, response := range t.order {
		for _, r := range response.rows {
			for i := range r.tools {
				tool := &r.tools[i]
				if uses[tool.id].row == nil {
					uses[tool.id] = use{r, tool}
				}
				if tool.agentType != "" {
					tasks[task{r.session, tool.prompt}] = tool.agentType
				}
			}
		}
	}
	ended := map[string]bool{}
	parents := map[string]string{}
	for _, r := range t.rows {
		for _, result := range r.results {
			u := uses[result.id]
			if u.row == nil || ended[result.id] || r.at == trace.NoTime || u.row.at == trace.NoTime {
				continue
			}
			ended[result.id] = true
			status := "succeeded"
			if result.failed {
				status = "error"
			}
			s := t.session(u.row.chain)
			s.Tools = append(s.Tools, trace.ToolSpan{ID: result.id, Class: u.tool.name, Start: min(u.row.at, r.at), End: r.at, Status: status})
			if r.spawned != "" {
				parents[r.session+"/"+r.spawned] = u.row.chain
				t.types[r.spawned] = cmp.Or(t.types[r.spawned], u.tool.agentType)
			}
		}
	}
	for _, r := range t.rows {
		if r.chain == r.session {
			continue
		}
		s := t.session(r.chain)
		s.Parent = cmp.Or(parents[r.chain], s.Parent, r.session)
		if s.Parent == s.ID {
			s.Parent = r.session
		}
		if r.agent != "" {
			s.Class = cmp.Or(t.types[r.agent], "subagent")
		} else if s.Class == "" && r.parent == nil && len(r.text) > len("text\n\n") {
			s.Class = tasks[task{r.session, xxh3.Hash(r.text[len("text\n") : len(r.text)-1])}]
		}
	}
	for _, r := range t.rows {
		if s := t.session(r.chain); r.chain != r.session && s.Class == "" {
			s.Class = "subagent"
		}
	}
}

// tell makes a call of each response.
func (t *transcripts) tell() {
	used := map[string]bool{}
	for _, response := range t.order {
		t.write(response)
		first := response.rows[0]
		c := newCall(t.session(first.chain))
		c.prompt = response.prompt
		c.File, c.Line = first.file, int32(min(first.line, math.MaxInt32))
		if c.ID = cmp.Or(first.message, first.uuid, rowPlace(first.file, first.line)); used[c.ID] {
			c.ID += "/" + cmp.Or(first.request, first.uuid, rowPlace(first.file, first.line))
		}
		used[c.ID] = true
		if first.request != "" {
			c.Aliases = append(c.Aliases, first.request)
		}
		way, beside := response.news()
		news := slices.Concat(way, beside)
		c.setResponse(response)
		if c.setTimes(response, news); c.Start == trace.NoTime {
			t.read.Skip("without a time")
			continue
		}
		c.Trigger = "other"
		for _, r := range news {
			switch {
			case len(r.results) > 0:
				c.Trigger = "tool_result"
			case r.kind == "user" && c.Trigger == "other":
				c.Trigger = "user_message"
			}
		}
		t.calls = append(t.calls, c)
	}
}

// setTimes gives a call its start and end.
func (c *call) setTimes(response *claudeResponse, news []*claudeRow) {
	first := trace.NoTime
	for _, r := range response.rows {
		c.End = max(c.End, r.at)
		if r.at != trace.NoTime && (first == trace.NoTime || r.at < first) {
			first = r.at
		}
	}
	if first == trace.NoTime {
		return
	}
	for _, r := range news {
		if r.kind == "user" {
			c.Start = max(c.Start, r.at)
		}
	}
	if c.Start == trace.NoTime {
		before := trace.NoTime
		if response.from != nil {
			for _, r := range response.from.rows {
				before = max(before, r.at)
			}
		}
		c.Start = c.unaskedStart(before)
	}
	c.Start = min(c.Start, first)
	c.Inferred |= trace.FieldStart
}

// setResponse gives a call the counts and tools of its response. Rows repeat the counts of the prompt; that of the output
// grows. Where it never became final, the text tells if there was more.
func (c *call) setResponse(response *claudeResponse) {
	u := claudeUsage{-1, -1, -1, -1}
	stopped := false
	for _, r := range response.rows {
		c.Model = cmp.Or(r.model, c.Model)
		u.input, u.created = max(u.input, r.usage.input), max(u.created, r.usage.created)
		u.read, u.output = max(u.read, r.usage.read), max(u.output, r.usage.output)
		stopped = stopped || r.stopped
		c.written += r.written
		for _, tool := range r.tools {
			c.ToolCalls = append(c.ToolCalls, trace.ToolCall{ID: tool.id, Name: tool.name})
		}
	}
	c.setUsage(u.total(), u.read, u.output, trace.Unknown)
	if !stopped && (c.written+bytesPerToken-1)/bytesPerToken > int(c.Output) {
		c.Output = trace.Unknown
	}
}

// total is the whole prompt: input_tokens leaves out what was found in the cache or written there. It is -1 if not told.
func (u *claudeUsage) total() int64 {
	if u.input < 0 {
		return -1
	}
	return u.input + max(u.created, 0) + max(u.read, 0)
}

// news returns the rows that the prompt of a response has beyond the response that it goes on from: those on the way
// there, and those with the results of tools that ran beside.
func (c *claudeResponse) news() (way, beside []*claudeRow) {
	first := c.rows[0]
	onWay := map[*claudeRow]bool{}
	for at := first.parent; at != nil && at.response == nil && len(way) < maxNews; at = at.parent {
		onWay[at] = true
		way = append(way, at)
	}
	slices.Reverse(way)
	if c.from != nil {
		for _, r := range c.from.results[max(0, len(c.from.results)-maxNews):] {
			if !onWay[r] && r.at <= first.at {
				beside = append(beside, r)
			}
		}
	}
	return way, beside
}

// write makes the passages of a response's prompt and answer, after those of the responses before it.
func (t *transcripts) write(response *claudeResponse) {
	var path []*claudeResponse
	for at := response; at != nil && !at.begun; at = at.from {
		at.begun = true
		path = append(path, at)
	}
	for _, at := range slices.Backward(path) {
		way, beside := at.news()
		p := (*passage)(nil)
		if at.from != nil {
			p = at.from.answer
		}
		for i, r := range append(way, at.rows[0]) {
			switch {
			case i < len(way) && r.passage != nil: // on the way to another response too
				p = r.passage
				continue
			case p == nil:
				p = hiddenPrompt("Claude Code " + r.version + " " + t.session(r.chain).Class)
			}
			if i < len(way) {
				if r.kind == "user" && len(r.text) > 0 {
					p = p.then(r.text)
				}
				r.passage = p
			}
		}
		for _, r := range beside {
			p = p.then(r.text)
		}
		at.prompt = p
		for _, r := range at.rows {
			if len(r.text) > 0 {
				p = p.then(r.text)
			}
		}
		at.answer = p
	}
}
