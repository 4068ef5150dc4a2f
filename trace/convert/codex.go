package convert

import (
	"cmp"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// replayTime is how long Codex takes, at most, to write the rows of the parent into the rollout of a fork. No call ends as
// soon after its session began.
const replayTime = time.Second

func isCodex(l *look) bool {
	if l.has("type", "payload") {
		return slices.Contains([]string{"session_meta", "turn_context", "response_item", "event_msg", "compacted"}, l.keys["type"])
	}
	return l.has("id", "timestamp") && l.hasAny("instructions", "git") && !l.has("type") || l.keys["record_type"] == `state`
}

// codex reads Codex rollouts (~/.codex/sessions/YYYY/MM/DD/rollout-TIME-ID.jsonl).
//
// A call is what stands between two counts of the session's tokens that differ, and its usage is the difference: counts are
// written again and again. A call starts when the last message or tool result before it came and ends with its last row. In
// rollouts of forks and subagents the parent's rows come first, written at one time: they are history.
func (in input) codex() (*trace.Capture, error) {
	b := newLogbook(FormatCodex)
	files := make([][]*codexRow, len(in.segments))
	err := trace.MapLines(in.ctx, in.segments, in.opts.Progress, parseCodex, func(p *codexPart) error {
		b.read.Add(&p.read)
		files[p.segment] = append(files[p.segment], p.rows...)
		return nil
	})
	if err != nil {
		return nil, err
	}
	told, calls := map[codexCount]bool{}, map[string]int{}
	for i, rows := range files {
		r := rollout{logbook: b, file: in.segments[i].Path, told: told, calls: calls}
		r.read(rows)
	}
	return b.capture(in)
}

// codexCount identifies a call: no two calls of a session leave it with the same count at the same time.
type codexCount struct {
	session string
	at      time.Duration
	usage   codexTokens
}

// rollout reads the rows of one file.
type rollout struct {
	*logbook
	file    string
	told    map[codexCount]bool
	session *trace.Session
	model   string
	replay  time.Duration // rows up to here are the parent's; NoTime: none
	usage   codexKind     // the kind of row that tells the usage
	total   codexTokens
	calls   map[string]int // of each session, so far
	before  time.Duration  // when the last call ended

	prompt  *passage
	inputs  []*codexRow // since the last call, before its outputs or behind them
	outputs []*codexRow
	late    []*codexRow // inputs that came behind the outputs
	tools   map[string]*codexRow
}

func (r *rollout) read(rows []*codexRow) {
	r.replay, r.before, r.tools = trace.NoTime, trace.NoTime, map[string]*codexRow{}
	name := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(r.file), ".gz"), ".jsonl")
	r.session = r.logbook.session(name)
	for _, row := range rows {
		if row.kind == codexUsage || row.kind == codexTurnUsage && r.usage == 0 {
			r.usage = row.kind
		}
	}
	began := false
	for i, row := range rows {
		switch row.kind {
		case codexMeta:
			if began {
				break // the parent's, in a fork
			}
			began = true
			r.begin(row, rows[i+1:])
		case codexContext:
			r.model = cmp.Or(row.name, r.model)
		case codexCompacted:
			r.finishOld()
			r.inputs, r.outputs, r.late = nil, nil, nil
			r.prompt = r.behind(r.root(), append([]byte("compacted\n"), row.text...))
		case codexInput:
			r.input(row)
		case codexOutput:
			r.output(row)
		case codexUsage, codexTurnUsage:
			if row.kind == r.usage {
				r.count(row)
			}
		}
	}
	if r.finishOld(); len(r.outputs) > 0 && r.usage != 0 {
		r.logbook.read.Warn(rowPlace(r.file, r.outputs[0].line) + ": the rollout ends in the middle of an answer: it is no call")
	}
}

// root begins a prompt.
func (r *rollout) root() *passage {
	p := r.prompt
	for p != nil && p.before != nil {
		p = p.before
	}
	return p
}

// begin takes what a rollout says of its session.
func (r *rollout) begin(meta *codexRow, rest []*codexRow) {
	if meta.id != "" {
		r.session = r.logbook.session(meta.id)
	}
	r.before = meta.at
	forked := meta.forkedOf != "" || meta.parent != ""
	for _, row := range rest {
		forked = forked || row.kind == codexMeta && row.id != meta.id
	}
	if parent := cmp.Or(meta.parent, r.session.Parent); parent != r.session.ID {
		r.session.Parent = parent
		if parent != "" {
			r.session.Class = "subagent"
		}
	}
	if forked && len(rest) > 0 && rest[0].at != trace.NoTime {
		r.replay = rest[0].at + replayTime
	}
	hidden := "Codex " + meta.version + "\n" + string(meta.text)
	r.prompt = r.logbook.behind(nil, []byte("system\n"+hidden+"\n"))
	r.prompt.hidden = true
}

func (r *rollout) replayed(row *codexRow) bool {
	return r.replay != trace.NoTime && row.at != trace.NoTime && row.at <= r.replay
}

// input takes a message or a tool's result.
func (r *rollout) input(row *codexRow) {
	if call := r.tools[row.tool]; row.tool != "" && call != nil && !r.replayed(row) {
		delete(r.tools, row.tool)
		if call.at != trace.NoTime && row.at != trace.NoTime {
			r.session.Tools = append(r.session.Tools, trace.ToolSpan{ID: row.tool, Class: call.name, Start: min(call.at, row.at), End: row.at})
		}
	}
	switch {
	case r.replayed(row):
		r.prompt = r.behind(r.prompt, row.text)
	case len(r.outputs) > 0:
		r.late = append(r.late, row)
	default:
		r.inputs = append(r.inputs, row)
	}
}

// output takes what the model wrote. Where no row tells the usage, what it writes behind new input is the next call.
func (r *rollout) output(row *codexRow) {
	if r.replayed(row) {
		if len(row.text) > 0 {
			r.prompt = r.behind(r.prompt, row.text)
		}
		return
	}
	if len(r.late) > 0 {
		r.finishOld()
	}
	if row.tool != "" {
		r.tools[row.tool] = row
	}
	r.outputs = append(r.outputs, row)
}

// count takes a count of tokens: the end of a call, unless it was written before.
func (r *rollout) count(row *codexRow) {
	usage := row.usage.minus(r.total)
	if row.usage.sum() < r.total.sum() { // counted anew
		usage = row.usage
		if row.last.sum() > 0 {
			usage = row.last
		}
	}
	r.total = row.usage
	if r.replayed(row) || usage.sum() == 0 {
		return
	}
	at := row.at
	if at == trace.NoTime {
		at = r.before
	}
	key := codexCount{r.session.ID, row.at, row.usage}
	if r.told[key] {
		r.logbook.read.Duplicates++
		r.drop()
		return
	}
	r.told[key] = true
	c := r.call(row.line)
	c.setUsage(usage.input, usage.cached, usage.output, usage.reasoning)
	r.place(c, at)
}

// drop forgets the call that is under way.
func (r *rollout) drop() { r.inputs, r.outputs, r.late = r.late, nil, nil }

// finishOld ends a call of a rollout without counts.
func (r *rollout) finishOld() {
	if r.usage != 0 || len(r.outputs) == 0 {
		return
	}
	r.place(r.call(r.outputs[0].line), trace.NoTime)
}

// call makes a call of what was written since the last one.
func (r *rollout) call(line int) *call {
	r.calls[r.session.ID]++
	c := newCall(r.session)
	c.ID = r.session.ID + ":" + strconv.Itoa(r.calls[r.session.ID])
	c.Model, c.File, c.Line = r.model, r.file, int32(min(line, math.MaxInt32))
	c.Trigger = "other"
	for _, row := range r.inputs {
		r.prompt = r.behind(r.prompt, row.text)
		switch {
		case row.role == "tool":
			c.Trigger = "tool_result"
		case row.role == "user" && c.Trigger == "other":
			c.Trigger = "user_message"
		}
	}
	c.prompt = r.prompt
	for _, row := range r.outputs {
		if len(row.text) > 0 {
			r.prompt = r.behind(r.prompt, row.text)
		}
		if c.written += row.written; row.tool != "" {
			c.ToolCalls = append(c.ToolCalls, trace.ToolCall{ID: row.tool, Name: row.name})
		}
	}
	return c
}

// place gives a call its times and keeps it. A call without rows of its own ends when it was counted; without any times,
// calls follow one another, each as long as its output takes.
func (r *rollout) place(c *call, counted time.Duration) {
	for _, row := range r.inputs {
		c.Start = max(c.Start, row.at)
	}
	for _, row := range r.outputs {
		c.End = max(c.End, row.at)
	}
	if c.End == trace.NoTime {
		c.End = counted
	}
	c.Inferred |= trace.FieldStart
	switch {
	case c.Start != trace.NoTime:
	case c.End != trace.NoTime:
		c.Start = c.unaskedStart(r.before)
	default:
		c.Start = max(r.before, 0)
	}
	if c.End == trace.NoTime {
		c.End = c.Start + decodeTime(c.output())
		c.Inferred |= trace.FieldEnd
	}
	c.End = max(c.End, c.Start)
	r.before = c.End
	r.logbook.calls = append(r.logbook.calls, c)
	r.drop()
}
