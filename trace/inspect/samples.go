package inspect

import (
	"cmp"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// Sample is a distribution that a trace is made of: all its values.
type Sample struct {
	// Key is the parameter of an agent profile of package synth that has this distribution, or that is its mean or maximum; "" is
	// a distribution that follows from those.
	Key  string
	Name string
	// Unit is "tokens", "s", "share" (of something, or 0 and 1 for what holds and what does not) or "" for a count.
	Unit   string
	Values []float64
	// Contexts are all contexts, where Values are those that were summarized.
	Contexts []Context
	// Firsts are the first prompts of the same sessions, where Values are their turns.
	Firsts []float64
}

// Context is the prompts of a session from its first one, or the one after a compaction, up to Last, at which the session
// ended or, if Compacted, the next compaction came.
type Context struct {
	First, Last float64 // tokens
	Compacted   bool
}

// toolKeys begins the keys of samples of a tool's times, and precedes its name.
const toolKeys = "tool."

// maxToolSamples bounds the tools that are told apart, those with most runs; the others are OtherTools.
const maxToolSamples = 15

// OtherTools names the tools that are not told apart.
const OtherTools = "(others)"

// leastWait is in place of no time at all, in seconds: synthetic times are not shorter.
const leastWait = 1e-6

// Samples returns the distributions of a linked capture that have values, in a fixed order.
func Samples(c *trace.Capture) ([]Sample, error) {
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		return nil, err
	}
	m := &measures{trail: newTrail(w), tools: map[string][]float64{}}
	m.family()
	m.prefixes()
	for _, p := range w.Programs {
		sessions := -1
		for i := p.First; i < p.Last; sessions++ {
			last := m.session(i)
			m.measure(i, last)
			i = last
		}
		m.children = append(m.children, float64(sessions))
	}
	m.arrivals()
	return m.list(), nil
}

// measures collects the values of samples.
type measures struct {
	*trail
	spawned map[*trace.Turn][]int32 // sessions that a turn spawned
	joins   []*trace.Turn           // by session: the first turn of its parent that waits for it

	system, task                    []float64
	childSystem, childTask          []float64
	turns, childTurns, children     []float64
	firsts                          []float64 // the first prompts of the sessions of turns
	output, answer, result, message []float64
	tools                           map[string][]float64
	human, humanWait                []float64
	subagents, fanout, background   []float64
	dropped, remains                []float64
	rewrites, lost                  []float64
	compact, summary                []float64
	contexts                        []Context
	gap                             []float64
	prompt, peak, reuse             []float64
}

// family finds out which turns spawn sessions and which wait for them.
func (m *measures) family() {
	m.spawned, m.joins = map[*trace.Turn][]int32{}, make([]*trace.Turn, len(m.w.Sessions))
	index := make(map[*trace.Session]int32, len(m.w.Sessions))
	for i, s := range m.w.Sessions {
		index[s] = int32(i)
	}
	for i := range m.w.Calls {
		c := &m.w.Calls[i]
		for _, d := range c.Turn.Deps {
			switch other := index[d.Turn.Session]; {
			case other == c.Session:
			case m.parents[c.Session] == other && c.Turn == m.w.Sessions[c.Session].Turns[0]:
				m.spawned[d.Turn] = append(m.spawned[d.Turn], c.Session)
			case m.parents[other] == c.Session && m.joins[other] == nil:
				m.joins[other] = c.Turn
			}
		}
	}
}

// prefixes measures, in order of start, what an endless cache has of prompts, and what first prompts share with what came
// before. The first program shares with none, and so does the first subagent if it does not begin as its root does.
func (m *measures) prefixes() {
	covered := newCoverage(m.w)
	firsts := make([]int32, len(m.w.Programs)) // calls, of roots; 0 is that of the first program, or not met yet
	var asRoot, childHits []float64
	programs := 0
	for _, i := range m.byStart {
		c := &m.w.Calls[i]
		input := float64(c.Input)
		hits := input - float64(covered.cover(m.w, 0, c.Prompt, c.Input))
		covered.call(m.w, 0, i)
		m.reuse = append(m.reuse, hits/input)
		if c.Turn != m.w.Sessions[c.Session].Turns[0] {
			continue
		}
		if m.parents[c.Session] == c.Session {
			firsts[c.Program] = i
			if programs++; programs > 1 {
				m.system = append(m.system, hits)
			}
			if programs == 1 {
				hits = 0
			}
			m.task = append(m.task, input-hits)
			continue
		}
		childHits = append(childHits, hits)
		asRoot = append(asRoot, float64(m.common(i, firsts[c.Program])))
		m.childTask = append(m.childTask, input-hits)
	}
	if len(m.system) > 0 { // the first program has as much of it as the others
		m.task[0] = max(1, m.task[0]-median(m.system))
	}
	system := 0.0
	if len(m.system) > 0 {
		system = median(m.system)
	}
	if len(childHits) == 0 || alike(median(asRoot), system) && alike(report.Mean(childHits), report.Mean(asRoot)) {
		return
	}
	if len(childHits) > 1 {
		m.childSystem = childHits[1:]
		m.childTask[0] = max(1, m.childTask[0]-median(m.childSystem))
	}
}

// common is the number of tokens with which the prompts of both calls begin.
func (m *measures) common(a, b int32) int32 {
	x, y := &m.w.Calls[a], &m.w.Calls[b]
	n, tokens := x.Prompt, x.Input
	o, others := y.Prompt, y.Input
	for n != o {
		nUp, nStart := m.w.Above(n)
		oUp, oStart := m.w.Above(o)
		switch {
		case nStart == 0 && oStart == 0:
			return 0
		case nStart >= oStart:
			n, tokens = nUp, nStart
		default:
			o, others = oUp, oStart
		}
	}
	return min(tokens, others)
}

// alike tells that two numbers of tokens are about the same.
func alike(a, b float64) bool { return max(a, b)-min(a, b) <= max(a, b)/10 }

// median of values, of which there must be some.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[len(sorted)/2]
}

// measure measures a session, calls first to last.
func (m *measures) measure(first, last int32) {
	calls := m.w.Calls[first:last]
	root := m.parents[calls[0].Session] == calls[0].Session
	turns, final := 0, -1 // without compactions
	for k := range calls {
		if !calls[k].Turn.Compaction {
			turns++
			final = k
		}
	}
	var context Context
	longest := int32(0)
	compact := func(at, kept float64) {
		context.Last, context.Compacted = at, true
		m.contexts = append(m.contexts, context)
		m.compact, m.summary = append(m.compact, at), append(m.summary, kept)
		context = Context{}
	}
	for k := range calls {
		c := &calls[k]
		m.prompt = append(m.prompt, float64(c.Input))
		longest = max(longest, c.Input)
		if k > 0 && !calls[k-1].Turn.Compaction {
			before := &calls[k-1]
			m.between(root, before, c)
			if c.Input < before.Input/2 {
				kept := c.Input - m.common(first+int32(k), first)
				compact(context.Last, float64(kept)/float64(before.Input))
			} else {
				m.grow(before, c, first+int32(k))
			}
		}
		if c.Turn.Compaction {
			if context.First > 0 { // it came as the prompt grew from the last one to this
				compact((context.Last+float64(c.Input))/2, float64(c.Output)/float64(c.Input))
			}
			continue
		}
		if context.First == 0 {
			context.First = float64(c.Input)
		}
		context.Last = max(context.Last, float64(c.Input))
		if k == final && turns > 1 {
			m.answer = append(m.answer, float64(max(c.Output, 1)))
		} else {
			m.output = append(m.output, float64(max(c.Output, 1)))
		}
	}
	if context.First > 0 {
		m.contexts = append(m.contexts, context)
	}
	m.peak = append(m.peak, float64(longest))
	if root {
		m.turns, m.firsts = append(m.turns, float64(max(turns, 1))), append(m.firsts, float64(calls[0].Input))
	} else {
		m.childTurns = append(m.childTurns, float64(max(turns, 1)))
	}
}

// grow measures how a prompt follows from the one before, which it is not much shorter than.
func (m *measures) grow(before, c *trace.Call, i int32) {
	if size := int32(m.w.Capture.BlockSize); size > 0 {
		common := m.common(i, i-1)
		lost := before.Input/size*size - common
		m.rewrites = append(m.rewrites, indicator(lost > 0))
		if lost > 0 {
			m.lost = append(m.lost, float64(lost))
		}
	}
	if len(m.spawned[before.Turn]) > 0 || c.Input < before.Input {
		return
	}
	grown := c.Input - before.Input
	m.dropped = append(m.dropped, indicator(grown < before.Output))
	if grown < before.Output {
		m.remains = append(m.remains, float64(grown)/float64(before.Output))
		return
	}
	grown -= before.Output
	if byPerson(c.Turn) {
		m.message = append(m.message, float64(max(grown, 1)))
	} else {
		m.result = append(m.result, float64(max(grown, 1)))
	}
}

// between measures what went on between two turns.
func (m *measures) between(root bool, before, c *trace.Call) {
	children := m.spawned[before.Turn]
	person := byPerson(c.Turn)
	if root {
		m.human = append(m.human, indicator(person && len(children) == 0))
		m.subagents = append(m.subagents, indicator(len(children) > 0))
	}
	if len(children) > 0 {
		awaited := slices.ContainsFunc(children, func(s int32) bool { return m.joins[s] == c.Turn })
		m.fanout = append(m.fanout, float64(len(children)))
		m.background = append(m.background, indicator(!awaited))
		return
	}
	if len(c.Turn.Deps) == 0 {
		return // it does not wait
	}
	wait := max(c.Turn.Gap.Total().Seconds(), leastWait)
	if person {
		m.humanWait = append(m.humanWait, wait)
		return
	}
	name := m.toolBetween(before, c)
	m.tools[name] = append(m.tools[name], wait)
}

// byPerson tells that a person wrote what a prompt ends with.
func byPerson(t *trace.Turn) bool {
	return t.Gap.Human > 0 || t.Trigger == "user_message" && t.Gap.Tool == 0
}

// toolBetween names the tool that runs between two turns: the one that was asked for, or whose span began there; "" is not told.
func (m *measures) toolBetween(before, c *trace.Call) string {
	if calls := before.Turn.ToolCalls; len(calls) > 0 {
		name := calls[0].Name
		if slices.ContainsFunc(calls, func(t trace.ToolCall) bool { return t.Name != name }) {
			return SeveralTools
		}
		return name
	}
	spans := m.w.Sessions[c.Session].Tools
	at, _ := slices.BinarySearchFunc(spans, before.Turn.End, func(s trace.ToolSpan, t time.Duration) int { return cmp.Compare(s.Start, t) })
	name := ""
	for _, s := range spans[at:] {
		if s.Start >= c.Turn.Start {
			break
		}
		if name != "" && s.Class != name {
			return SeveralTools
		}
		name = s.Class
	}
	return name
}

// arrivals measures the times between the starts of programs.
func (m *measures) arrivals() {
	if !m.w.Capture.SharedClock {
		return
	}
	var starts []time.Duration
	for _, p := range m.w.Programs {
		starts = append(starts, p.Start)
	}
	slices.Sort(starts)
	for i := 1; i < len(starts); i++ {
		m.gap = append(m.gap, (starts[i] - starts[i-1]).Seconds())
	}
}

// indicator is 1 for what holds.
func indicator(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

// list returns the samples that have values.
func (m *measures) list() []Sample {
	all := []Sample{
		{Key: "turns", Name: "turns of a session", Values: m.turns, Firsts: m.firsts},
		{Key: "system", Name: "prompt shared by programs", Unit: "tokens", Values: m.system},
		{Key: "task", Name: "first prompt after it", Unit: "tokens", Values: m.task},
		{Key: "output", Name: "output of a turn", Unit: "tokens", Values: m.output},
		{Key: "answer", Name: "output of the last turn", Unit: "tokens", Values: m.answer},
		{Key: "result", Name: "growth by a tool", Unit: "tokens", Values: m.result},
	}
	all = append(all, m.toolSamples()...)
	all = append(all,
		Sample{Key: "human", Name: "turns that people answer", Unit: "share", Values: m.human},
		Sample{Key: "human-wait", Name: "wait for people", Unit: "s", Values: m.humanWait},
		Sample{Key: "message", Name: "growth by people", Unit: "tokens", Values: m.message},
		Sample{Key: "subagents", Name: "turns with subagents", Unit: "share", Values: m.subagents},
		Sample{Key: "fanout", Name: "subagents at once", Values: m.fanout},
		Sample{Key: "background", Name: "not waited for", Unit: "share", Values: m.background},
		Sample{Key: "subagent-system", Name: "prompt shared by subagents", Unit: "tokens", Values: m.childSystem},
		Sample{Key: "subagent-task", Name: "a subagent's after it", Unit: "tokens", Values: m.childTask},
		Sample{Key: "subagent-turns", Name: "turns of a subagent", Values: m.childTurns},
		Sample{Key: "dropped", Name: "answers left out", Unit: "share", Values: m.dropped},
		Sample{Key: "remains", Name: "growth then, of the answer", Unit: "share", Values: m.remains},
		Sample{Key: "rewrites", Name: "prompts rewritten", Unit: "share", Values: m.rewrites},
		Sample{Key: "lost", Name: "lost by a rewrite", Unit: "tokens", Values: m.lost},
		Sample{Key: "compact", Name: "contexts when compacted", Unit: "tokens", Values: m.compact, Contexts: m.contexts},
		Sample{Key: "summary", Name: "kept by a compaction", Unit: "share", Values: m.summary},
		Sample{Key: "gap", Name: "time between arrivals", Unit: "s", Values: m.gap},
		Sample{Name: "subagents of a program", Values: m.children},
		Sample{Name: "prompt of a turn", Unit: "tokens", Values: m.prompt},
		Sample{Key: "context", Name: "longest prompt", Unit: "tokens", Values: m.peak},
		Sample{Name: "reuse in an endless cache", Unit: "share", Values: m.reuse},
	)
	return slices.DeleteFunc(all, func(s Sample) bool { return len(s.Values) == 0 })
}

// toolSamples returns the times of tools, those with most runs first.
func (m *measures) toolSamples() []Sample {
	var list []Sample
	for name, values := range m.tools {
		list = append(list, Sample{Key: toolKeys + name, Name: "time of " + cmp.Or(name, UnnamedTool), Unit: "s", Values: values})
	}
	slices.SortFunc(list, func(a, b Sample) int {
		return cmp.Or(cmp.Compare(len(b.Values), len(a.Values)), cmp.Compare(a.Key, b.Key))
	})
	if len(list) > maxToolSamples+1 { // in work that is made like a trace, the others are a tool of that name
		rest := Sample{Key: toolKeys + OtherTools, Name: "time of " + OtherTools, Unit: "s"}
		for _, s := range list[maxToolSamples:] {
			rest.Values = append(rest.Values, s.Values...)
		}
		list = append(list[:maxToolSamples], rest)
	}
	return list
}
