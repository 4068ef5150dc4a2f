package convert

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-json"

	"github.com/agentsim/agentsim/trace"
)

// Target is a format that Write knows.
type Target struct {
	Name, Description string
	// holds names the facts that the format has a place for.
	holds []string
	write func(*writer) error
}

// Targets are the formats that Write knows, in the order of their names.
var Targets = []Target{
	{Name: FormatAgentic, Description: "Dynamo's agentic Mooncake v2; what it has no field for stands in an object agentsim, which others ignore",
		holds: []string{factID, factModel, factHints, factEnd, factParent, factCross, factCached, factReasoning, factTTFT, factTrigger, factClass, factFinal, factCompaction, factStatus, factInferred},
		write: (*writer).agentic},
	{Name: TargetAIPerf, Description: "AIPerf's mooncake_trace: the later rows of a session hold what is new of the prompt; read back as " + FormatMooncakeDelta,
		write: (*writer).aiperf},
	{Name: FormatATIF, Description: "ATIF v1.7 trajectories without text, one a program, one a line",
		holds: []string{factModel, factParent, factCached, factTrigger, factToolCalls, factReasoning, factEnd, factClass}, write: (*writer).atif},
	{Name: FormatMooncake, Description: "Mooncake with Dynamo's session_id and delay; each row holds the whole prompt",
		holds: []string{factID, factModel, factHints}, write: (*writer).mooncake},
	{Name: FormatWeka, Description: "WEKA kv-cache-tester conversations, one a line",
		holds: []string{factModel, factEnd, factParent, factCross, factTTFT, factTrigger, factClass}, write: (*writer).weka},
}

// TargetAIPerf is the name of AIPerf's multi-turn Mooncake rows.
const TargetAIPerf = "aiperf"

// Write writes a linked capture in one of Targets, as JSON lines. It returns what the format has no place for, by what
// it is and how often it is lost. Block hashes become small numbers that tell as much. A start that the capture does not
// tell is when the call would begin if each took as long as its answer at the default speed.
func Write(out io.Writer, target string, c *trace.Capture) (lost []Count, err error) {
	i := slices.IndexFunc(Targets, func(t Target) bool { return t.Name == target })
	if i < 0 {
		names := make([]string, len(Targets))
		for i, t := range Targets {
			names[i] = t.Name
		}
		return nil, fmt.Errorf("no writer of trace format %q; known are %s", target, strings.Join(names, ", "))
	}
	buffer := bufio.NewWriterSize(out, 1<<16)
	w := newWriter(c, Targets[i].holds)
	w.out = buffer
	err = Targets[i].write(w)
	if err == nil {
		err = buffer.Flush()
	}
	if err != nil {
		return nil, fmt.Errorf("writing a trace as %s: %w", target, err)
	}
	return counts(w.lost), nil
}

// newWriter returns a writer of a linked capture into a format that holds some facts.
func newWriter(c *trace.Capture, holds []string) *writer {
	w := &writer{capture: c, blockIDs: map[blockKey]uint64{}, begins: map[*trace.Turn]span{}, lost: map[string]int{}}
	w.schedule()
	for _, s := range c.Sessions {
		for name, n := range facts(s) {
			if !slices.Contains(holds, name) {
				w.lost[name] += n
			}
		}
	}
	return w
}

// writer writes one capture.
type writer struct {
	capture  *trace.Capture
	out      *bufio.Writer
	blockIDs map[blockKey]uint64
	begins   map[*trace.Turn]span
	lost     map[string]int
}

// blockKey identifies a block: tokens is the length of a last, partial one, else 0.
type blockKey struct {
	scope  int32
	tokens int32
	hash   uint64
}

// span is when a call begins and ends, as told or by the default speed.
type span struct{ start, end time.Duration }

// row writes a line.
func (w *writer) row(v any) error {
	text, err := json.MarshalWithOption(v, json.DisableHTMLEscape())
	if err != nil {
		return err
	}
	if _, err := w.out.Write(text); err != nil {
		return err
	}
	return w.out.WriteByte('\n')
}

// lose counts something that the format has no place for.
func (w *writer) lose(what string, n int) {
	if n > 0 {
		w.lost[what] += n
	}
}

// hashIDs returns the ids of a prompt's blocks: all that are full and, if tail is wished for, of the partial one at its
// end. They are numbered in the order in which they are first asked for.
func (w *writer) hashIDs(t *trace.Turn, tail bool) []uint64 {
	chain := t.Chain()
	if len(chain) == 0 {
		return nil
	}
	size := int32(w.capture.BlockSize)
	full := min(t.Input/size, int32(len(chain)))
	ids := make([]uint64, 0, full+1)
	for _, h := range chain[:full] {
		ids = append(ids, w.blockID(blockKey{t.Session.Scope, 0, h}))
	}
	if part := t.Input - full*size; tail && part > 0 {
		if int32(len(chain)) > full {
			ids = append(ids, w.blockID(blockKey{t.Session.Scope, part, chain[full]}))
		} else { // not told: like no other
			ids = append(ids, w.newIDs(1)...)
		}
	}
	return ids
}

func (w *writer) blockID(key blockKey) uint64 {
	id, ok := w.blockIDs[key]
	if !ok {
		id = uint64(len(w.blockIDs))
		w.blockIDs[key] = id
	}
	return id
}

// newIDs returns n ids that nothing else has.
func (w *writer) newIDs(n int32) []uint64 {
	ids := make([]uint64, n)
	for i := range ids {
		ids[i] = w.blockID(blockKey{-1, 0, uint64(len(w.blockIDs))})
	}
	return ids
}

// schedule says when each call begins and ends.
func (w *writer) schedule() {
	for _, s := range w.capture.Sessions {
		for _, t := range s.Turns {
			w.scheduleWith(t)
		}
	}
}

// scheduleWith schedules a turn after those that it waits for. Link has refused cycles.
func (w *writer) scheduleWith(t *trace.Turn) {
	stack := []*trace.Turn{t}
	for len(stack) > 0 {
		t := stack[len(stack)-1]
		if _, done := w.begins[t]; done {
			stack = stack[:len(stack)-1]
			continue
		}
		at := span{t.Start, t.End}
		ready := true
		if t.Start == trace.NoTime {
			at.start = 0
			for _, d := range t.Deps {
				on, done := w.begins[d.Turn]
				if !done {
					stack = append(stack, d.Turn)
					ready = false
					continue
				}
				from := on.end
				if d.OnDispatch {
					from = on.start
				}
				at.start = max(at.start, from+d.Delay)
			}
		}
		if !ready {
			continue
		}
		if at.end == trace.NoTime {
			at.end = at.start + decodeTime(t.Output)
		}
		if t.Start == trace.NoTime {
			w.lose("starts, which followed from what calls wait for", 1)
		}
		w.begins[t] = at
		stack = stack[:len(stack)-1]
	}
}

// byStart returns all calls in the order of their starts.
func (w *writer) byStart() []*trace.Turn {
	var turns []*trace.Turn
	for _, s := range w.capture.Sessions {
		turns = append(turns, s.Turns...)
	}
	slices.SortStableFunc(turns, func(a, b *trace.Turn) int { return cmp.Compare(w.begins[a].start, w.begins[b].start) })
	return turns
}

// The facts that some formats have no place for, as Write tells of them.
const (
	factID         = "ids of calls"
	factModel      = "models"
	factHints      = "scheduling hints"
	factEnd        = "ends of calls"
	factParent     = "parents of sessions"
	factCross      = "waits for calls of other sessions"
	factCached     = "counts of cached tokens"
	factReasoning  = "counts of reasoning tokens"
	factTTFT       = "times to first token"
	factTrigger    = "what prompts end with"
	factClass      = "classes of sessions"
	factFinal      = "marks of last calls"
	factCompaction = "marks of compactions"
	factOutputs    = "block hashes of answers"
	factTools      = "spans of tools"
	factToolCalls  = "tool calls of answers"
	factStatus     = "failures of calls"
	factInferred   = "marks of what was filled by rule"
)

// facts counts what a session tells beyond lengths, hashes, starts, and what its calls wait for in it.
func facts(s *trace.Session) map[string]int {
	n := map[string]int{factTools: len(s.Tools)}
	count := func(what string, is bool) {
		if is {
			n[what]++
		}
	}
	count(factParent, s.Parent != "")
	count(factClass, s.Class != "")
	for _, t := range s.Turns {
		count(factID, true)
		count(factModel, t.Model != "")
		count(factHints, t.Hints != trace.Hints{})
		count(factEnd, t.End != trace.NoTime && t.Inferred&trace.FieldEnd == 0)
		count(factCached, t.Cached != trace.Unknown)
		count(factReasoning, t.Reasoning != trace.Unknown)
		count(factTTFT, t.TTFT != trace.NoTime)
		count(factTrigger, t.Trigger != "")
		count(factFinal, t.Final)
		count(factCompaction, t.Compaction)
		count(factOutputs, len(t.OutputHashes) > 0)
		count(factToolCalls, len(t.ToolCalls) > 0)
		count(factStatus, t.Status != "" && t.Status != "ok")
		count(factInferred, t.Inferred != 0)
		for _, d := range t.Deps {
			count(factCross, d.Turn.Session != s)
		}
	}
	for what, k := range n {
		if k == 0 {
			delete(n, what)
		}
	}
	return n
}
