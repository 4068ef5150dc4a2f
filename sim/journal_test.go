package sim

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/events"
	"github.com/agentsim/agentsim/trace/report"
)

// audit adds up the events of a run.
type audit struct {
	blocks      int
	last        time.Duration
	ended       []time.Duration // by worker: its latest step
	steps       []events.Step   // by worker: sums
	preemptions int64
	decisions   map[string]int64
	programs    events.Programs
	err         error // the first
}

func newAudit(p *Plan) *audit {
	return &audit{blocks: p.Blocks, ended: make([]time.Duration, p.Ranks), steps: make([]events.Step, p.Ranks), decisions: map[string]int64{}}
}

// note checks an event by itself and adds it up.
func (a *audit) note(e *events.Event) {
	if a.err == nil {
		if a.err = a.add(e); a.err != nil {
			a.err = fmt.Errorf("event at %v: %w", e.At, a.err)
		}
	}
}

func (a *audit) add(e *events.Event) error {
	if e.At < a.last {
		return fmt.Errorf("one at %v came before", a.last)
	}
	a.last = e.At
	switch {
	case e.Step != nil:
		s := e.Step
		if e.At-s.Took < a.ended[s.Worker] || s.Took <= 0 || s.Steps < 1 || s.Steps > 1 && s.Prefill > 0 {
			return fmt.Errorf("the step before ended at %v: %+v", a.ended[s.Worker], *s)
		}
		a.ended[s.Worker] = e.At
		sum := &a.steps[s.Worker]
		sum.Steps += s.Steps
		sum.Took += s.Took
		sum.Prefill += s.Prefill
		sum.Decode += s.Decode
		sum.Output += s.Output
		sum.Admitted += s.Admitted
		sum.Queried += s.Queried
		sum.Hit += s.Hit
		sum.Evicted += s.Evicted
	case e.Preemption != nil:
		a.preemptions++
	case e.KV != nil:
		k := e.KV
		if sum := k.Root.Total() + k.Subagent.Total() + k.Cached; k.Cached < 0 || min(k.Root.Active, k.Root.Acting, k.Root.Paused, k.Subagent.Active,
			k.Subagent.Acting, k.Subagent.Paused) < 0 || sum < k.Used || sum > a.blocks {
			return fmt.Errorf("%d blocks, %+v of %d", sum, *k, a.blocks)
		}
	case e.Programs != nil:
		a.programs = *e.Programs
	case e.Decision != nil:
		a.decisions[e.Decision.What]++
	}
	return nil
}

// agrees compares the sums with the result of the run.
func (a *audit) agrees(res *Result) error {
	if a.err != nil {
		return a.err
	}
	if s := res.Scheduler; s != nil {
		d := a.decisions
		got := []int64{d["pause"], d["mark"], d["resume"] + d["forced-resume"], d["forced-resume"], d["migrate"], d["defer"]}
		if want := []int64{s.Pauses, s.Marks, s.Resumes, s.ForcedResumes, s.Migrations, s.Deferred}; !reflect.DeepEqual(got, want) {
			return fmt.Errorf("pauses, marks, resumes, forced ones, migrations and deferrals: %v by events, %v by the scheduler", got, want)
		}
	} else if len(a.decisions) > 0 {
		return fmt.Errorf("decisions without a scheduler: %v", a.decisions)
	}
	if res.Window != (report.Window{}) {
		return nil // the result covers a part of the run
	}
	var output, admitted, queried, hit, preemptions int64
	whole := true
	for i := range res.Requests {
		q := &res.Requests[i]
		whole = whole && q.Status == report.Completed && q.Retries == 0
		output += int64(q.Output)
		admitted++
		queried += int64(q.Input)
		hit += int64(q.Hit)
		preemptions += int64(q.Preemptions)
		if res.Handovers != nil && res.Handovers[i].Worker >= 0 { // a second engine took it
			admitted++
			queried += int64(q.Input)
			hit += int64(res.Handovers[i].Found)
		}
	}
	var sum events.Step
	for w, e := range res.Engines {
		s := a.steps[w]
		if e.Evicted > s.Evicted && res.Plan.memory != nil { // by loads after which its worker made no step
			s.Evicted = e.Evicted
		}
		got := []int64{s.Steps, int64(s.Took), s.Prefill, s.Decode, s.Evicted}
		if want := []int64{e.Steps, int64(e.Busy), e.PrefillTokens, e.DecodeTokens, e.Evicted}; !reflect.DeepEqual(got, want) {
			return fmt.Errorf("worker %d: steps, time, prefill, decode, evictions are %v by events, %v by the engine", w, got, want)
		}
		sum.Output += s.Output
		sum.Admitted += s.Admitted
		sum.Queried += s.Queried
		sum.Hit += s.Hit
	}
	if !whole {
		return nil
	}
	got := []int64{sum.Output, int64(sum.Admitted), sum.Queried, sum.Hit, a.preemptions}
	if want := []int64{output, admitted, queried, hit, preemptions}; !reflect.DeepEqual(got, want) {
		return fmt.Errorf("output, admissions, prompt tokens, hits and preemptions are %v by events, %v by requests", got, want)
	}
	if p := a.programs; p.Live+p.Held+p.Queued > 0 { // sessions that never say that they end may stay paused
		return fmt.Errorf("all requests have ended, and the last sample is %+v", a.programs)
	}
	return nil
}

// eventsOf returns the events of a run, and its result.
func eventsOf(t *testing.T, w *trace.Workload, d Deployment) ([]events.Event, *Result) {
	t.Helper()
	var list []events.Event
	res := simulate(t, w, d, Options{Check: true, Events: func(e *events.Event) { list = append(list, *e) }})
	return list, res
}

// A session of two turns with a tool between them, and a subagent meanwhile; blocks of 4 tokens:
//
//	   0 ms  a's first turn computes 12 tokens in 150 ms, and leaves 3 blocks
//	 500 ms  the subagent computes 8 tokens in 150 ms; its 2 blocks are of no use to anybody then
//	1150 ms  a's second turn finds 12 of its 20 tokens, and computes 8 in 150 ms
//	1300 ms  5 further tokens take 50 ms each, in one leap; the first takes a block, and so does the fifth
//	1550 ms  all ends: of 25 tokens 6 blocks are full, and the seventh is free again but not empty
func TestEventsByHand(t *testing.T) {
	d := fixed()
	d.Cost.Prefill, d.Cost.Decode = 150*ms, 50*ms
	b := session("b", 500, trace.Turn{Input: 8, Output: 1, Start: 500 * ms, End: 650 * ms})
	b.Parent = "a"
	w := compile(t, session("a", 1, trace.Turn{Input: 12, Output: 1, End: 150 * ms}, trace.Turn{Input: 20, Output: 6, Start: 1150 * ms, End: 1400 * ms}), b)
	got, _ := eventsOf(t, w, d)
	want := []events.Event{
		{At: 0, Programs: &events.Programs{Live: 1}},
		{At: 0, KV: &events.KV{Used: 3, Root: events.Holding{Active: 3}}},
		{At: 150 * ms, Step: &events.Step{Took: 150 * ms, Steps: 1, Running: 1, Prefill: 12, Output: 1, Admitted: 1, Queried: 12}},
		{At: 150 * ms, KV: &events.KV{Root: events.Holding{Acting: 3}}},
		{At: 500 * ms, KV: &events.KV{Used: 2, Root: events.Holding{Acting: 3}, Subagent: events.Holding{Active: 2}}},
		{At: 650 * ms, Step: &events.Step{Took: 150 * ms, Steps: 1, Running: 1, Prefill: 8, Output: 1, Admitted: 1, Queried: 8}},
		{At: 650 * ms, KV: &events.KV{Root: events.Holding{Acting: 3}, Cached: 2}},
		{At: 1150 * ms, KV: &events.KV{Used: 5, Root: events.Holding{Active: 5}, Cached: 2}},
		{At: 1300 * ms, Step: &events.Step{Took: 150 * ms, Steps: 1, Running: 1, Prefill: 8, Output: 1, Admitted: 1, Queried: 20, Hit: 12}},
		{At: 1300 * ms, KV: &events.KV{Used: 6, Root: events.Holding{Active: 6}, Cached: 2}},
		{At: 1550 * ms, Step: &events.Step{Took: 250 * ms, Steps: 5, Running: 1, Decode: 5, Output: 5}},
		{At: 1550 * ms, Programs: &events.Programs{}},
		{At: 1550 * ms, KV: &events.KV{Cached: 9}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// Two requests on 6 blocks, which their prompts fill but for one:
//
//	 0 ms  a (12 tokens, 3 out) and b (8 tokens, 3 out) prefill together
//	10 ms  both need a block for their second token: a gets it, and b is preempted
//	20 ms  a ends, and b comes back: it finds its 8 tokens and computes the one that it had generated
//	35 ms  b ends
func TestPreemptionEventsByHand(t *testing.T) {
	d := fixed()
	d.Engine.KVBlocks = "7" // one is the null block
	w := compile(t, session("a", 1, trace.Turn{Input: 12, Output: 3, End: 20 * ms}), session("b", 500, trace.Turn{Input: 8, Output: 3, End: 20 * ms}))
	got, res := eventsOf(t, w, d)
	want := []events.Event{
		{At: 0, Programs: &events.Programs{Live: 2}},
		{At: 0, KV: &events.KV{Used: 5, Root: events.Holding{Active: 5}}},
		{At: 10 * ms, Step: &events.Step{Took: 10 * ms, Steps: 1, Running: 2, Prefill: 20, Output: 2, Admitted: 2, Queried: 20}},
		{At: 10 * ms, Preemption: &events.Preemption{Session: "b", Request: "b-0"}},
		{At: 15 * ms, Step: &events.Step{Took: 5 * ms, Steps: 1, Running: 1, Waiting: 1, Decode: 1, Output: 1}},
		{At: 20 * ms, Step: &events.Step{Took: 5 * ms, Steps: 1, Running: 1, Waiting: 1, Decode: 1, Output: 1}},
		{At: 30 * ms, Step: &events.Step{Took: 10 * ms, Steps: 1, Running: 1, Prefill: 1, Output: 1}},
		{At: 35 * ms, Step: &events.Step{Took: 5 * ms, Steps: 1, Running: 1, Decode: 1, Output: 1}},
		{At: 35 * ms, Programs: &events.Programs{}},
		{At: 35 * ms, KV: &events.KV{Cached: 6}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := res.Report(nil, nil).Workers[0].Preemptions; n != report.Known(1) {
		t.Errorf("the report has %v preemptions, want the one of the events", n)
	}
}
