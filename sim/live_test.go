package sim

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/synth"
)

// served is what the client of a call saw.
type served struct {
	Worker, Hit, Preemptions int32
	First, End               time.Duration
}

// outside drives a Service through a workload as a run does, from outside: it submits each call once those before it have
// ended. It looks at the service when something happens, and at some other times.
func outside(t *testing.T, w *trace.Workload, d Deployment, looks *rand.Rand) []served {
	t.Helper()
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewService(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	up := w.Parents()
	saw := make([]served, len(w.Calls))
	waits, ready := make([]int32, len(w.Calls)), make([]time.Duration, len(w.Calls))
	calls := map[*Request]int{}
	var send func(i int)
	satisfy := func(e trace.Edge, at time.Duration) {
		ready[e.To] = max(ready[e.To], at+e.Delay)
		if waits[e.To]--; waits[e.To] == 0 {
			send(int(e.To))
		}
	}
	send = func(i int) {
		c := &w.Calls[i]
		for _, e := range w.Successors(c) {
			if e.OnDispatch {
				satisfy(e, ready[i])
			}
		}
		sess := w.Sessions[c.Session]
		q := &Request{Session: uint64(c.Session), Parent: uint64(up[c.Session]), Named: true, Final: sess.Turns[len(sess.Turns)-1] == c.Turn,
			Path: w.Path(c.End, c.Computed(), p.Engine.BlockSize, 0, nil), Input: c.Input, Output: c.Output}
		calls[q] = i
		s.Submit(ready[i], q)
	}
	for i := range w.Calls {
		waits[i] = w.Calls[i].Waits
	}
	for i := range w.Calls {
		if c := &w.Calls[i]; c.Waits == 0 {
			ready[i] = w.Programs[c.Program].Start + max(0, c.Offset)
			send(i)
		}
	}
	now := time.Duration(0)
	for left := len(w.Calls); left > 0; {
		at := s.Next()
		if at == engine.Never {
			t.Fatalf("%d calls are left at %v and nothing is to come", left, now)
		}
		if looks != nil && looks.IntN(3) == 0 && at > now+1 {
			at = now + 1 + time.Duration(looks.Int64N(int64(at-now)))
		}
		now = at
		changes, err := s.Advance(now)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			i := calls[c.Request]
			switch c.What {
			case Progressed, Completed:
				if saw[i].First == 0 {
					saw[i].First = c.At
				}
			case Denied, Failed:
				t.Fatalf("call %d: %s", i, c.Why)
			}
			if c.What == Completed {
				left--
				saw[i].Worker, saw[i].Hit, saw[i].Preemptions, saw[i].End = c.Request.Worker, c.Request.Hit, c.Request.Preemptions, c.At
				for _, e := range w.Successors(&w.Calls[i]) {
					if !e.OnDispatch {
						satisfy(e, c.At)
					}
				}
			}
		}
	}
	return saw
}

// A service that is driven from outside does to the nanosecond what a run does, whenever it is looked at.
func TestServiceIsTheRun(t *testing.T) {
	w := agents(t, synth.Options{Programs: 24, Seed: 5, Set: []string{"turns=12"}})
	for _, policy := range []string{"kv", "thunderagent"} {
		for _, async := range []string{"false", "true"} {
			d := fleetOf(2, policy, 0)
			d.Load.Mode, d.Engine.KVBlocks, d.Engine.AsyncScheduling = "closed", "1500", async
			d.Workload.WarmStart, d.Client.SessionFinal = false, "last"
			res := mustRun(t, w, d)
			want := make([]served, len(w.Calls))
			preempted := int32(0)
			for _, r := range res.Requests {
				if r.Status != report.Completed {
					t.Fatalf("the run rejects calls: %+v", r)
				}
				want[r.Turn] = served{r.Worker, r.Hit, r.Preemptions, r.FirstToken, r.End}
				preempted += r.Preemptions
			}
			for seed := range uint64(3) {
				looks := rand.New(rand.NewPCG(seed, 1))
				if seed == 0 {
					looks = nil
				}
				if diff := cmp.Diff(want, outside(t, w, d, looks)); diff != "" {
					t.Errorf("%s, async %s, looks %d (-run +service):\n%.1500s", policy, async, seed, diff)
				}
			}
			t.Logf("%s, async %s: %d preemptions", policy, async, preempted)
		}
	}
}

// Requests whose clients go away leave nothing behind, wherever they are.
func TestServiceCancel(t *testing.T) {
	d := fleetOf(1, "thunderagent", 0)
	d.Load.Mode, d.Engine.KVBlocks = "closed", "300"
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewService(p, nil)
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	var live []*Request
	now, asked, departed := time.Duration(0), 0, 0
	cancel := func(q *Request) {
		if q.live != nil {
			asked++
		}
		s.Cancel(q)
	}
	advance := func(now time.Duration) {
		changes, err := s.Advance(now)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			if c.What == Departed {
				departed++
			}
		}
	}
	for i := range 3000 {
		input := 1 + rng.Int32N(2000)
		q := &Request{Session: uint64(i % 50), Parent: uint64(i % 50), Named: i%3 > 0, Input: input, Output: rng.Int32N(50), Hints: trace.Hints{},
			Path: []trace.Span{{Key: trace.Key(i + 1), To: (input + 49) / 16}}}
		s.Submit(now, q)
		live = append(live, q)
		if rng.IntN(2) == 0 {
			k := rng.IntN(len(live))
			cancel(live[k])
			live[k] = live[len(live)-1]
			live = live[:len(live)-1]
		}
		now += time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
		advance(now)
		if err := s.engines[0].Check(); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range live {
		cancel(q)
	}
	advance(now + time.Minute)
	if e := s.engines[0]; e.Waiting()+e.Running() > 0 || s.inFlight != 0 || len(s.gone) > 0 || len(s.decoding[0]) > 0 {
		t.Errorf("%d wait, %d run, %d are in flight, %d gone, %d decode; want none", e.Waiting(), e.Running(), s.inFlight, len(s.gone), len(s.decoding[0]))
	}
	if departed == 0 || departed != asked {
		t.Errorf("%d of %d cancelled requests departed", departed, asked)
	}
	if len(s.idle) != len(s.lives) {
		t.Errorf("%d of %d slots are free", len(s.idle), len(s.lives))
	}
}

// What needs a trace is refused.
func TestServiceRefusesWhatNeedsATrace(t *testing.T) {
	for key, change := range map[string]func(d *Deployment){
		"router.max_programs": func(d *Deployment) { d.Router.MaxPrograms = "4" },
		"engine.scheduling":   func(d *Deployment) { d.Engine.Scheduling = "continuum" },
	} {
		d := fleetOf(1, "kv", 0)
		d.Load.Mode = "closed"
		change(&d)
		p, err := d.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		_, err = NewService(p, nil)
		if c, ok := err.(*ConfigError); !ok || c.Key != key {
			t.Errorf("error %v, want one of %s", err, key)
		}
	}
}
