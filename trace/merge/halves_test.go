package merge_test

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/merge"
	"github.com/agentsim/agentsim/trace/synth"
)

// invented is a workload at times in whole milliseconds.
func invented(t testing.TB, profile string, programs int) *trace.Capture {
	t.Helper()
	c, err := synth.Generate(profile, synth.Options{Programs: programs, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	c.Epoch, c.Resolution, c.SharedClock = epoch, time.Millisecond, true
	for _, s := range c.Sessions {
		for _, turn := range s.Turns {
			turn.Start, turn.End = turn.Start.Truncate(time.Millisecond), turn.End.Truncate(time.Millisecond)
		}
		for i := range s.Tools {
			s.Tools[i].Start, s.Tools[i].End = s.Tools[i].Start.Truncate(time.Millisecond), s.Tools[i].End.Truncate(time.Millisecond)
		}
	}
	return c
}

// serverHalf takes all that a server does not know out of a workload: each call is a session of its own.
func serverHalf(c *trace.Capture) *trace.Capture {
	half := *c
	half.Sessions, half.BlockSize = nil, c.BlockSize
	for _, s := range c.Sessions {
		for _, turn := range s.Turns {
			turn.Trigger, turn.ToolCalls = "", nil
			half.Sessions = append(half.Sessions, &trace.Session{ID: turn.ID, Scope: s.Scope, Turns: []*trace.Turn{turn}})
		}
	}
	return &half
}

// harnessHalf takes all that a harness does not know out of a workload. Its clock is ahead, rounds to a unit, and notes things
// up to 20 ms late.
func harnessHalf(c *trace.Capture, ahead, unit time.Duration) *trace.Capture {
	random := rand.New(rand.NewPCG(1, 2))
	note := func(at time.Duration) time.Duration {
		return (at + ahead + time.Duration(random.IntN(20))*time.Millisecond).Truncate(unit)
	}
	half := *c
	half.BlockSize = 0
	for _, s := range c.Sessions {
		for i, turn := range s.Turns {
			turn.ID = fmt.Sprintf("%s call %d", s.ID, i)
			turn.Start, turn.End, turn.TTFT, turn.Cached = note(turn.Start), note(turn.End), trace.NoTime, trace.Unknown
			turn.Base, turn.Shared, turn.Hashes, turn.OutputHashes = nil, 0, nil, nil
		}
		for i := range s.Tools {
			s.Tools[i].Start = note(s.Tools[i].Start)
			s.Tools[i].End = max(note(s.Tools[i].End), s.Tools[i].Start)
		}
	}
	return &half
}

// served lists when the calls of a simulation came and were answered, and what they found in the cache.
func served(t *testing.T, c *trace.Capture) []string {
	t.Helper()
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		t.Fatal(err)
	}
	d := sim.Default()
	d.Model, d.Workers, d.Load.Mode = "qwen3-14b", 2, "closed"
	d.Engine.MaxModelLen = 1 << 20
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(context.Background(), w, p, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, q := range r.Requests {
		list = append(list, fmt.Sprintf("%v %v %v %v: %d+%d, hit %d", q.Status, q.Arrival, q.FirstToken, q.End, q.Input, q.Output, q.Hit))
	}
	slices.Sort(list)
	return list
}

// A workload that is split into what its server and what its harness would have recorded, and merged, is the same workload: a
// simulation serves each call at the same time with the same hits, and gaps are split into tool and human time as before, as
// exactly as the harness's clock is.
func TestHalvesMakeTheWhole(t *testing.T) {
	for _, profile := range []string{"claude-code", "deep-research", "subagent-fanout", "chat"} {
		for _, unit := range []time.Duration{time.Millisecond, time.Second} {
			t.Run(fmt.Sprintf("%s to %v", profile, unit), func(t *testing.T) {
				const ahead, programs = -95 * time.Minute, 6
				whole := invented(t, profile, programs)
				c, report, err := merge.Merge(merge.Source{Name: "server", Capture: serverHalf(invented(t, profile, programs))},
					[]merge.Source{{Name: "harness", Capture: harnessHalf(invented(t, profile, programs), ahead, unit)}}, merge.Options{})
				if err != nil {
					t.Fatal(err)
				}
				h := report.Harnesses[0]
				t.Logf("%s, %d of %d sessions", matched(&h), report.Merged.Sessions, len(whole.Sessions))
				if h.Matched() != whole.Read.Calls || report.Unheard != 0 {
					t.Errorf("%d of %d calls are matched", h.Matched(), whole.Read.Calls)
				}
				if off, most := (h.Clock.Ahead - ahead).Abs(), clockError(unit, h.Clock.Pairs); off > most {
					t.Errorf("the clock is %v off, more than %v", off, most)
				}
				if diff := cmp.Diff(served(t, whole), served(t, c)); diff != "" {
					t.Error(diff)
				}
				compareGaps(t, whole, c, unit)
			})
		}
	}
}

// clockError is how far the median over calls may be from a clock that drops what is below a unit and notes things up to 20 ms
// late: half a unit is dropped in the middle, and the median of n calls strays from there by unit/(2√n), or thrice that.
func clockError(unit time.Duration, calls int) time.Duration {
	return unit/2 + 20*time.Millisecond + time.Duration(3*float64(unit)/(2*math.Sqrt(float64(calls))))
}

// compareGaps compares sessions and the split of gaps, of linked captures.
func compareGaps(t *testing.T, want, got *trace.Capture, unit time.Duration) {
	t.Helper()
	turns := map[string]*trace.Turn{}
	for _, s := range got.Sessions {
		for _, turn := range s.Turns {
			turns[turn.ID] = turn
		}
	}
	for _, s := range want.Sessions {
		for _, turn := range s.Turns {
			g := turns[turn.ID]
			if g.Session.ID != s.ID || g.Session.Parent != s.Parent || g.Trigger != turn.Trigger || g.Gap.Total() != turn.Gap.Total() {
				t.Fatalf("call %s: session %q, trigger %q, gap %v; want %q, %q, %v", turn.ID, g.Session.ID, g.Trigger, g.Gap, s.ID, turn.Trigger, turn.Gap)
			}
			if off := (g.Gap.Tool - turn.Gap.Tool).Abs(); off > 2*unit+40*time.Millisecond {
				t.Errorf("call %s: gap %v, want %v", turn.ID, g.Gap, turn.Gap)
			}
		}
	}
}
