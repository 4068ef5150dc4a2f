package sim

import (
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// instance is one run of a program: the program itself, or a repetition of it.
type instance struct {
	program int32
	copy    uint32
	first   int32 // its first call
	calls   []progress
	left    int // calls that have not ended
	record  report.Program
	lost    bool // a call was rejected or failed
	begun   time.Duration
	cut     bool // it will not end: time was up before its last call, or it is held for ever
	// admitted tells that the gate let the program through, kept are the requests that it keeps until then.
	admitted bool
	kept     []*live
	// skip is the calls that a snapshot start leaves out, by index, and warm the tokens that they computed for those
	// that follow them; nil for none.
	skip []bool
	warm []int32
}

// history is the number of leading prompt tokens of a call that were computed before the run began.
func (inst *instance) history(call int32, c *trace.Call) int32 {
	if inst.warm != nil {
		return max(c.Cut, inst.warm[call-inst.first])
	}
	return c.Cut
}

// progress is how far a call of an instance is.
type progress struct {
	waits int32 // edges not yet satisfied
	ready time.Duration
	// waited is the time from the end of the last call that it waited for to ready; tool and human are parts of it.
	waited, tool, human time.Duration
}

// arrivals decides when programs begin and how long calls wait between turns.
type arrivals struct {
	plan  *Plan
	w     *trace.Workload
	mode  string
	order []int32 // programs in the order in which they begin
	total int     // instances to run; -1 for as many as fit the duration
	begun int
	rng   *rand.Rand
	clock time.Duration // poisson: the latest arrival
	// hold keeps calls back until their recorded time since the program's start, in place of recorded gaps.
	hold bool
	// served says per call what happens to it, when the deployment treats models differently; nil for all served.
	served []treatment
}

// treatment is what happens to a call.
type treatment uint8

const (
	serve treatment = iota
	drop
	fold
)

const (
	arrivalStream  = 0x6172726976616c73 // "arrivals"
	snapshotStream = 0x736e617073686f74 // "snapshot"
)

func newArrivals(p *Plan, w *trace.Workload) *arrivals {
	a := &arrivals{plan: p, w: w, mode: p.Load.Mode, hold: p.Load.Mode == "recorded", rng: rand.New(rand.NewPCG(p.Seed, arrivalStream))}
	a.order = make([]int32, len(w.Programs))
	for i := range a.order {
		a.order[i] = int32(i)
	}
	if a.mode == "recorded" || a.mode == "closed" {
		slices.SortStableFunc(a.order, func(x, y int32) int {
			return int(max(-1, min(1, w.Programs[x].Start-w.Programs[y].Start)))
		})
	}
	a.total = len(a.order)
	if p.Load.Programs > 0 {
		a.total = p.Load.Programs
	} else if p.Load.Duration > 0 && (a.mode == "concurrency" || a.mode == "poisson") {
		a.total = -1
	}
	a.treat()
	return a
}

// atOnce is how many programs begin of themselves and keep a slot each, in the modes in which slots decide when programs
// begin; 0 in others.
func (a *arrivals) atOnce() int {
	switch a.mode {
	case "concurrency":
		return a.plan.Load.Concurrency
	case "rollout":
		return a.total
	}
	return 0
}

// treat finds the calls to models that the deployment does not serve.
func (a *arrivals) treat() {
	globs := make([]string, 0, len(a.plan.Models))
	for g := range a.plan.Models {
		globs = append(globs, g)
	}
	slices.Sort(globs)
	for i := range a.w.Calls {
		model := a.w.Calls[i].Turn.Model
		for _, g := range globs {
			if !matches(g, model) || a.plan.Models[g] == "serve" {
				continue
			}
			if a.served == nil {
				a.served = make([]treatment, len(a.w.Calls))
			}
			a.served[i] = drop
			if a.plan.Models[g] == "fold" {
				a.served[i] = fold
			}
			break
		}
	}
}

// matches tells whether a model's name matches a glob, whose stars match slashes too.
func matches(glob, model string) bool {
	flat := strings.NewReplacer("/", "\x00")
	ok, _ := path.Match(flat.Replace(glob), flat.Replace(model))
	return ok
}

// Serves tells whether the deployment serves any call of the workload (config key models).
func (p *Plan) Serves(w *trace.Workload) bool {
	served := newArrivals(p, w).served
	return served == nil || slices.Contains(served, serve)
}

func (a *arrivals) treatment(call int32) treatment {
	if a.served == nil {
		return serve
	}
	return a.served[call]
}

// more tells whether another program is to begin.
func (a *arrivals) more() bool { return a.total < 0 || a.begun < a.total }

// scheduled returns when the next program begins, for the modes in which time alone decides it.
func (a *arrivals) scheduled() time.Duration {
	switch a.mode {
	case "poisson":
		a.clock += time.Duration(a.rng.ExpFloat64() / a.plan.Load.Rate * 1e9)
		return a.clock
	default:
		n := len(a.order)
		start := a.w.Programs[a.order[a.begun%n]].Start
		round := time.Duration(a.begun / n)
		if round > 0 { // repetitions follow the whole recording
			start += round * (a.w.Programs[a.order[n-1]].Start + time.Second)
		}
		return a.scale(start)
	}
}

// scale divides a recorded time by the load's speed.
func (a *arrivals) scale(d time.Duration) time.Duration {
	if a.plan.Load.Speed == 1 {
		return d
	}
	return time.Duration(math.Round(float64(d) / a.plan.Load.Speed))
}

// begin makes the next instance.
func (a *arrivals) begin() *instance {
	n := len(a.order)
	program := a.order[a.begun%n]
	p := a.w.Programs[program]
	inst := &instance{program: program, copy: uint32(a.begun / n), first: p.First,
		calls: make([]progress, p.Last-p.First), left: int(p.Last - p.First)}
	for i := range inst.calls {
		inst.calls[i].waits = a.w.Calls[int(p.First)+i].Waits
	}
	inst.record = report.Program{Index: program, Copy: inst.copy, First: report.None, Last: report.None}
	if a.plan.Load.Start == "snapshot" && a.mode == "concurrency" && a.begun < a.plan.Load.Concurrency {
		a.snapshot(inst)
	}
	a.begun++
	return inst
}

// snapshot lets an instance begin at a random turn of its root session: earlier calls have ended.
func (a *arrivals) snapshot(inst *instance) {
	rng := rand.New(rand.NewPCG(a.plan.Seed, snapshotStream^uint64(inst.copy)<<32^uint64(inst.program)))
	root := a.w.Calls[inst.first].Session
	turns := int32(0)
	for i := range inst.calls {
		if a.w.Calls[inst.first+int32(i)].Session == root {
			turns++
		}
	}
	at := a.w.Calls[inst.first+rng.Int32N(turns)].Offset
	inst.skip, inst.warm = make([]bool, len(inst.calls)), make([]int32, len(inst.calls))
	for i := range inst.calls {
		c := &a.w.Calls[inst.first+int32(i)]
		inst.skip[i] = c.Offset != trace.NoTime && c.Offset < at
		inst.record.Partial = inst.record.Partial || inst.skip[i]
	}
}

// held tells whether a call is not sent before its recorded time.
func (a *arrivals) held(c *trace.Call) bool { return a.hold && c.Offset != trace.NoTime }

// gap is how long a call waits after the end of what it depends on, along an edge with the given recorded delay, and
// the share of it that people take.
func (a *arrivals) gap(c *trace.Call, delay time.Duration) (d time.Duration, people float64) {
	human := min(delay, c.Turn.Gap.Human)
	machine := delay - human
	if a.plan.humanCap >= 0 {
		human = min(human, a.plan.humanCap)
	}
	if human > 0 {
		people = float64(human) / float64(machine+human)
	}
	d = a.scale(machine + human)
	if a.plan.maxGap >= 0 {
		d = min(d, a.plan.maxGap)
	}
	return d, people
}
