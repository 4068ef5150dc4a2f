package convert

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

const (
	// maxSubagentDepth bounds how deep subagents of a WEKA conversation may nest.
	maxSubagentDepth = 16
	// maxSeconds bounds a time of a WEKA conversation, so that sums of them fit a time.Duration.
	maxSeconds = 3e9
	// defaultSpeed, in tokens per second, gives a call its length when no call of its file has a recorded one.
	defaultSpeed = 50
)

// conversation is one JSON object of the WEKA kv-cache-tester format: a program with a clock of its own.
type conversation struct {
	id        string
	blockSize int64
	global    bool // hashes are comparable between files
	calledAt  int  // the calls of the conversation itself, of which fine have a time within a second
	fine      int
	// sessions are named relative to id: "" is the conversation, "/agent_001" a subagent.
	sessions []*trace.Session
	calls    []*wekaCall
}

// wekaCall is one request, with what the file says before it is judged.
type wekaCall struct {
	trace.Turn
	t, apiTime, ttft float64 // seconds; NaN when not told
	in, out          int64
	hashes           int // length of the chain; -1 when there is none
}

// wekaPart is the conversations of one chunk.
type wekaPart struct {
	file          string
	conversations []*conversation
	read          trace.ReadReport
}

func isWeka(l *look) bool { return l.keys["requests"] == "[" }

// weka reads WEKA conversations. Times are seconds, of a resolution of one second where the conversations' own calls all begin
// at whole ones; files have no common clock.
// Calls without api_time (streams that were not closed) end after their ttft, else after as long as their output
// takes at the file's median speed.
func (in input) weka() (*trace.Capture, error) {
	c := &trace.Capture{Format: FormatWeka, Resolution: time.Second}
	join := trace.NewJoiner(c)
	taken := map[string]bool{}
	scope := int32(0)
	fine, coarse := 0, 0 // conversations with times within seconds, and those without
	read := trace.MapFiles[*wekaPart]
	if linewise(in.heads) {
		read = trace.MapLines[*wekaPart]
	}
	err := read(in.ctx, in.segments, in.opts.Progress, parseWeka, func(p *wekaPart) error {
		if err := join.Add(&trace.Part{Read: p.read}); err != nil {
			return err
		}
		for _, conv := range p.conversations {
			if !conv.global {
				scope++
			}
			if conv.fine > 0 {
				fine++
			} else if conv.calledAt > 1 {
				coarse++
			}
			var part trace.Part
			id := cmp.Or(conv.id, filepath.Base(p.file))
			name := id
			for n := 2; taken[name]; n++ {
				name = fmt.Sprintf("%s#%d", id, n)
			}
			if taken[name] = true; name != id {
				part.Read.Warn(fmt.Sprintf("%s: a conversation %q was read before: this one is called %q", p.file, id, name))
			}
			if err := conv.finish(p.file, name, scope); err != nil {
				return err
			}
			part.Sessions, part.BlockSize = conv.sessions, int(conv.blockSize)
			for _, call := range conv.calls {
				part.Turns = append(part.Turns, &call.Turn)
			}
			if err := join.Add(&part); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	if c, err = join.Capture(); err != nil {
		return nil, &trace.InputError{File: in.segments[0].Path, Err: err}
	}
	if fine > 0 && coarse == 0 {
		c.Resolution = time.Millisecond
	}
	return c, nil
}

// linewise tells whether files hold one object a line: the first line of each that has more is a whole object.
func linewise(heads [][]byte) bool {
	found := false
	for _, head := range heads {
		line, rest, _ := bytes.Cut(head, []byte{'\n'})
		if len(bytes.TrimSpace(rest)) == 0 {
			continue
		}
		s := scanner{data: line}
		s.skip()
		if s.end() != nil {
			return false
		}
		found = true
	}
	return found
}

// parseWeka reads the objects of a chunk one after the other. A broken one is lost up to the end of its line.
func parseWeka(c trace.Chunk) (*wekaPart, error) {
	p := &wekaPart{file: c.File, read: c.Read}
	text := bytes.TrimRight(c.Data, " \t\r\n")
	line, counted := c.Line, 0 // the line in which text[counted] stands
	for rest := bytes.TrimSpace(text); len(rest) > 0; rest = bytes.TrimSpace(rest) {
		r := wekaReader{scanner: scanner{data: rest}, file: c.File, models: names{}}
		conv := r.conversation()
		p.read.Lines++
		if r.err != nil {
			row, after, _ := bytes.Cut(rest, []byte{'\n'})
			at := len(text) - len(rest)
			line, counted = line+bytes.Count(text[counted:at], []byte{'\n'}), at
			if err := lose(&p.read, c.File, line, row, r.err); err != nil {
				return nil, err
			}
			rest = after
			continue
		}
		rest = rest[r.pos:]
		p.conversations = append(p.conversations, conv)
	}
	return p, nil
}

// wekaReader reads one conversation.
type wekaReader struct {
	scanner
	file   string
	conv   *conversation
	models names
}

func (r *wekaReader) conversation() *conversation {
	r.conv = &conversation{}
	root := r.session("", "")
	for key, ok := r.object(); ok; key, ok = r.next() {
		switch string(key) {
		case "id":
			r.conv.id = r.str()
		case "block_size":
			r.conv.blockSize = r.integer()
		case "hash_id_scope":
			r.conv.global = r.str() == "global"
		case "requests":
			r.requests(root, 0)
		default:
			r.skip()
		}
	}
	return r.conv
}

func (r *wekaReader) session(id, parent string) *trace.Session {
	s := &trace.Session{ID: id, Parent: parent}
	r.conv.sessions = append(r.conv.sessions, s)
	return s
}

func (r *wekaReader) requests(s *trace.Session, depth int) {
	var chain trace.Chain
	for ok := r.array(); ok; ok = r.more() {
		r.request(s, &chain, depth)
	}
}

// request reads one element of a requests array: a call, or a subagent with requests of its own. Which one it is may
// stand behind the requests, so both are read and one is dropped.
func (r *wekaReader) request(s *trace.Session, chain *trace.Chain, depth int) {
	call := &wekaCall{t: math.NaN(), apiTime: math.NaN(), ttft: math.NaN(), in: -1, hashes: -1}
	call.Session, call.File = s, r.file
	var hashes []byte
	var child *trace.Session
	firstCall := len(r.conv.calls)
	kind, agent, class := "", "", ""
	for key, ok := r.object(); ok; key, ok = r.next() {
		switch string(key) {
		case "t":
			call.t = r.float()
		case "type":
			kind = r.str()
		case "model":
			call.Model = r.models.of(r.nullable())
		case "in":
			call.in = r.integer()
		case "out":
			call.out = r.integer()
		case "hash_ids":
			hashes = r.flat()
		case "input_types":
			call.Trigger = r.trigger()
		case "api_time":
			call.apiTime = r.float()
		case "ttft":
			call.ttft = r.float()
		case "agent_id":
			agent = r.str()
		case "subagent_type":
			class = r.str()
		case "requests":
			if depth == maxSubagentDepth {
				r.fail("subagents nest deeper than %d", maxSubagentDepth)
				return
			}
			child = r.session("", s.ID)
			child.ID = s.ID + "/" + strconv.Itoa(len(r.conv.sessions)-1)
			r.requests(child, depth+1)
		default:
			r.skip()
		}
	}
	if kind == "subagent" || child != nil {
		if child != nil {
			r.placeSubagent(call.t, firstCall)
			child.Class = class
			r.rename(child, agent)
		}
		return
	}
	if hashes != nil && r.err == nil {
		n, err := chain.AddText(&call.Turn, hashes)
		if err != nil {
			r.fail("hash_ids: %w", err)
		}
		call.hashes = n
	}
	r.conv.calls = append(r.conv.calls, call)
	if depth == 0 {
		r.conv.calledAt++
		if call.t != math.Trunc(call.t) {
			r.conv.fine++
		}
	}
}

// rename gives a subagent the name that its agent_id says, if no other has it.
func (r *wekaReader) rename(child *trace.Session, agent string) {
	name := child.Parent + "/" + agent
	if agent == "" || slices.ContainsFunc(r.conv.sessions, func(s *trace.Session) bool { return s.ID == name }) {
		return
	}
	for _, s := range r.conv.sessions {
		if rest, ok := strings.CutPrefix(s.ID, child.ID+"/"); ok {
			s.ID = name + "/" + rest
		}
		if rest, ok := strings.CutPrefix(s.Parent+"/", child.ID+"/"); ok {
			s.Parent = strings.TrimSuffix(name+"/"+rest, "/")
		}
	}
	child.ID = name
}

// placeSubagent puts the calls of a subagent that begins at t on its parent's clock. Editions differ in whether nested
// times count from t already; they do when the first is 0 or lies before t.
func (r *wekaReader) placeSubagent(t float64, firstCall int) {
	calls := r.conv.calls[firstCall:]
	if len(calls) == 0 || math.IsNaN(t) || calls[0].t >= t && calls[0].t != 0 {
		return
	}
	for _, c := range calls {
		c.t += t
	}
}

// trigger reads input_types: a tool's result anywhere in the new input means that a tool answered.
func (r *wekaReader) trigger() string {
	trigger := ""
	if r.null() {
		return trigger
	}
	for ok := r.array(); ok; ok = r.more() {
		switch kind := r.text(); {
		case string(kind) == "tool_result":
			trigger = "tool_result"
		case string(kind) == "text" && trigger != "tool_result":
			trigger = "user_message"
		case trigger == "":
			trigger = "other"
		}
	}
	return trigger
}

// finish names the sessions and turns of the conversation and checks and fills what its calls say.
func (c *conversation) finish(file, name string, scope int32) error {
	if c.global {
		scope = 0
	}
	for _, s := range c.sessions {
		s.ID, s.Scope = name+s.ID, scope
		if s != c.sessions[0] {
			s.Parent = name + s.Parent
		}
	}
	if c.blockSize < 0 || c.blockSize > maxTokens {
		return &trace.InputError{File: file, Err: fmt.Errorf("conversation %q: block_size is %d", name, c.blockSize)}
	}
	speed := c.medianSpeed()
	for i, call := range c.calls {
		call.Line = int32(i + 1)
		call.ID = call.Session.ID + ":" + strconv.Itoa(i+1)
		if err := call.finish(int32(c.blockSize), speed); err != nil {
			return &trace.InputError{File: file, Line: i + 1, Err: fmt.Errorf("request %d of conversation %q: %w", i+1, name, err)}
		}
	}
	return nil
}

// medianSpeed is the median output speed of the calls whose length is recorded, in tokens per second.
func (c *conversation) medianSpeed() float64 {
	var speeds []float64
	for _, call := range c.calls {
		if call.apiTime > 0 && call.out > 0 {
			speeds = append(speeds, float64(call.out)/call.apiTime)
		}
	}
	if len(speeds) == 0 {
		return defaultSpeed
	}
	slices.Sort(speeds)
	return speeds[len(speeds)/2]
}

func (c *wekaCall) finish(blockSize int32, speed float64) (err error) {
	c.Cached, c.Reasoning = trace.Unknown, trace.Unknown
	if c.Input, err = tokens("in", c.in, 1); err != nil {
		return err
	}
	if c.Output, err = tokens("out", c.out, 0); err != nil {
		return err
	}
	if c.hashes > 0 {
		if blockSize == 0 {
			return errors.New("hash_ids, but the conversation has no block_size")
		}
		if err := trace.CheckHashCount(c.hashes, c.Input, blockSize); err != nil {
			return err
		}
	}
	if c.Start, err = seconds("t", c.t); err != nil {
		return err
	}
	if c.TTFT, err = optionalSeconds("ttft", c.ttft); err != nil {
		return err
	}
	took, err := optionalSeconds("api_time", c.apiTime)
	if err != nil {
		return err
	}
	if took == trace.NoTime {
		c.Inferred |= trace.FieldEnd
		if took = c.TTFT; took == trace.NoTime {
			took = time.Duration(float64(c.Output) / max(speed, 0.1) * float64(time.Second))
		}
	}
	c.End = c.Start + took
	return nil
}

// seconds turns a time in seconds into a duration, rounded to nanoseconds.
func seconds(name string, s float64) (time.Duration, error) {
	if !(s >= 0 && s <= maxSeconds) {
		if math.IsNaN(s) {
			return 0, fmt.Errorf("%s is missing", name)
		}
		return 0, fmt.Errorf("%s is %g: want 0 to %g seconds", name, s, float64(maxSeconds))
	}
	return time.Duration(math.Round(s * 1e9)), nil
}

func optionalSeconds(name string, s float64) (time.Duration, error) {
	if math.IsNaN(s) {
		return trace.NoTime, nil
	}
	return seconds(name, s)
}
