package plan_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/synth"
)

const ms = time.Millisecond

// call is one recorded call of a session, times in ms.
type call struct {
	session, parent string
	start, end      int
}

func workload(t testing.TB, calls ...call) *trace.Workload {
	t.Helper()
	c := &trace.Capture{Format: "test", Resolution: ms, SharedClock: true}
	byID := map[string]*trace.Session{}
	for _, u := range calls {
		s := byID[u.session]
		if s == nil {
			s = &trace.Session{ID: u.session, Parent: u.parent}
			byID[u.session] = s
			c.Sessions = append(c.Sessions, s)
		}
		s.Turns = append(s.Turns, &trace.Turn{ID: fmt.Sprint(u.session, len(s.Turns)+1), TTFT: trace.NoTime, Input: 10, Output: 1,
			Start: time.Duration(u.start) * ms, End: time.Duration(u.end) * ms, Cached: trace.Unknown, Reasoning: trace.Unknown})
	}
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// drive runs a schedule against a server that takes the same time for every call, and lists what was sent: "a1@0" for
// call 1 of session a at 0 ms. A final call of a session has a dot behind it.
func drive(t testing.TB, p *plan.Plan, service time.Duration, visit func(s *plan.Schedule, send plan.Send, end time.Duration)) string {
	t.Helper()
	type running struct {
		send plan.Send
		end  time.Duration
	}
	var list []string
	var live []running
	s := p.Start()
	for s.Left > 0 {
		due, ok := s.Next()
		slices.SortStableFunc(live, func(a, b running) int { return int(a.end - b.end) })
		if len(live) > 0 && (!ok || live[0].end <= due) {
			if visit != nil {
				visit(s, live[0].send, live[0].end)
			}
			s.Ended(live[0].send, live[0].end)
			live = live[1:]
			continue
		}
		if !ok {
			t.Fatalf("nothing is due, nothing runs, and %d calls are left", s.Left)
		}
		send := s.Send(due)
		c := &p.Workload.Calls[send.Call]
		name := fmt.Sprintf("%s@%d", c.Turn.ID, send.Due/ms)
		if send.Copy > 0 {
			name = fmt.Sprintf("%s#%d@%d", c.Turn.ID, send.Copy, send.Due/ms)
		}
		if send.Final {
			name += "."
		}
		list = append(list, name)
		live = append(live, running{send, due + service})
	}
	if s.Live != 0 || s.Finished != p.Programs {
		t.Errorf("%d programs live, %d of %d finished", s.Live, s.Finished, p.Programs)
	}
	return strings.Join(list, " ")
}

// recording is a session a whose second call spawns sub, which a's third call joins, and a later session b. Calls took
// 10 ms.
func recording(t testing.TB) *trace.Workload {
	return workload(t, call{"a", "", 100, 110}, call{"a", "", 120, 130}, call{"a", "", 200, 210},
		call{"sub", "a", 140, 150}, call{"sub", "a", 160, 170}, call{"b", "", 500, 510})
}

func TestTimings(t *testing.T) {
	tests := []struct {
		name    string
		options plan.Options
		service time.Duration
		want    string
	}{
		{"recorded: the server is as fast", plan.Options{}, 10 * ms, "a1@100 a2@120 sub1@140 sub2@160. a3@200. b1@500."},
		{"recorded: a slow server delays what waits, and nothing else", plan.Options{}, 50 * ms, "a1@100 a2@150 sub1@200 sub2@250. a3@300. b1@500."},
		{"closed: gaps follow the end", plan.Options{Timing: plan.Closed}, 50 * ms, "a1@100 a2@160 sub1@220 sub2@280. a3@360. b1@500."},
		{"closed: a fast server speeds it up", plan.Options{Timing: plan.Closed}, ms, "a1@100 a2@111 sub1@122 sub2@133. a3@164. b1@500."},
		{"strict waits for nothing", plan.Options{Timing: plan.Strict}, 50 * ms, "a1@100 a2@120 sub1@140 sub2@160. a3@200. b1@500."},
		{"asap has no gaps", plan.Options{Timing: plan.ASAP}, 50 * ms, "a1@0 b1@0. a2@50 sub1@100 sub2@150. a3@200."},
		{"one program at a time", plan.Options{Timing: plan.Concurrency, Concurrency: 1}, 50 * ms, "a1@0 a2@60 sub1@120 sub2@180. a3@260. b1@310."},
		{"slots that open one after another", plan.Options{Timing: plan.Concurrency, Concurrency: 2, Ramp: 40 * ms}, 10 * ms, "a1@0 b1@20. a2@20 sub1@40 sub2@60. a3@100."},
		{"speed divides times, not service", plan.Options{Speed: 2}, 10 * ms, "a1@50 a2@60 sub1@70 sub2@80. a3@100. b1@250."},
		{"closed with a longest gap", plan.Options{Timing: plan.Closed, MaxGap: 5 * ms}, 10 * ms, "a1@5 a2@20 sub1@35 sub2@50. a3@65. b1@80."},
		{"slower, with a longest silence: calls take as long as before", plan.Options{Speed: 0.1, MaxGap: 50 * ms}, 10 * ms, "a1@50 a2@110 sub1@170 sub2@230. a3@290. b1@350."},
		{"a window begins at its own zero", plan.Options{From: 130 * ms, To: 300 * ms}, 10 * ms, "sub1@10 sub2@30. a3@70."},
		{"one session of two", plan.Options{Sessions: 1, From: 150 * ms}, 10 * ms, "sub2@10. a3@50."},
		{"a loop repeats after the whole", plan.Options{Loop: 2, From: 300 * ms}, 10 * ms, "b1@200. b1#1@1400."},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			p, err := plan.New(recording(t), test.options)
			if err != nil {
				t.Fatal(err)
			}
			if got := drive(t, p, test.service, nil); got != test.want {
				t.Errorf("sent %s\nwant %s", got, test.want)
			}
		})
	}
}

// A long silence is cut for all programs alike, so that they keep their order.
func TestLongSilenceIsCut(t *testing.T) {
	w := workload(t, call{"a", "", 0, 10}, call{"b", "", 5000, 5010}, call{"a", "", 5020, 5030})
	p, err := plan.New(w, plan.Options{MaxGap: 100 * ms})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := drive(t, p, ms, nil), "a1@0 b1@110. a2@130."; got != want {
		t.Errorf("sent %s, want %s", got, want)
	}
}

func TestEndedSessions(t *testing.T) {
	p, err := plan.New(recording(t), plan.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ id, want string }{
		{"a1", "a1@100 b1@500."},                           // nothing of a, and no child
		{"sub1", "a1@100 a2@120 sub1@140 a3@200. b1@500."}, // a joins what is left of its child at once
	} {
		got := drive(t, p, 10*ms, func(s *plan.Schedule, send plan.Send, _ time.Duration) {
			if p.Workload.Calls[send.Call].Turn.ID == test.id {
				s.EndSession(send)
			}
		})
		if got != test.want {
			t.Errorf("%s fails: sent %s, want %s", test.id, got, test.want)
		}
	}
}

func TestRefusedOptions(t *testing.T) {
	w := recording(t)
	for _, o := range []plan.Options{{Timing: "soon"}, {Speed: -1}, {From: 2, To: 1}, {Share: 2}, {Concurrency: 3}, {Timing: plan.Concurrency}, {Ramp: 1},
		{From: time.Hour}, {Loop: 1 << 30}, {Sessions: -1}, {Speed: 1e-300}, {Speed: 1e-9, Loop: 10}} {
		if _, err := plan.New(w, o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}

func TestSummary(t *testing.T) {
	p, err := plan.New(recording(t), plan.Options{Loop: 3})
	if err != nil {
		t.Fatal(err)
	}
	s := p.Summary()
	if s.Calls != 6 || s.Sessions != 3 || s.Programs != 2 || s.Duration != 400*ms || s.Peak != 1 || s.Silence != 290*ms || s.SilenceAt != 210*ms ||
		s.InputTokens != 60 || s.OutputTokens != 6 || s.LongestContext != 11 || p.Calls != 18 {
		t.Errorf("%+v", s)
	}
}

// Whatever the timing, each call is sent once, none before what it waits for has ended, and the due times are those of an
// obvious recursion.
func TestSchedulesOfSyntheticWork(t *testing.T) {
	capture, err := synth.Generate("claude-code", synth.Options{Programs: 6, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	if err := capture.Link(); err != nil {
		t.Fatal(err)
	}
	w, err := capture.Compile(trace.OutputsInferred)
	if err != nil {
		t.Fatal(err)
	}
	const service = 700 * ms
	for _, o := range []plan.Options{{}, {Timing: plan.Closed}, {Timing: plan.Strict}, {Timing: plan.ASAP},
		{Timing: plan.Concurrency, Concurrency: 2}, {Loop: 2, Speed: 3, MaxGap: time.Second}, {Share: 0.5, Timing: plan.Closed}} {
		p, err := plan.New(w, o)
		if err != nil {
			t.Fatal(err)
		}
		sent := map[string]int{}
		due := map[int32]time.Duration{}
		drive(t, p, service, func(_ *plan.Schedule, send plan.Send, end time.Duration) {
			sent[fmt.Sprint(send.Call, "#", send.Copy)]++
			if send.Copy == 0 {
				due[send.Call] = send.Due
			}
			if end-send.Due != service {
				t.Fatalf("ended after %v", end-send.Due)
			}
		})
		if len(sent) != p.Calls {
			t.Errorf("%+v: %d of %d calls were sent", o, len(sent), p.Calls)
		}
		for key, n := range sent {
			if n != 1 {
				t.Errorf("%+v: call %s was sent %d times", o, key, n)
			}
		}
		for i, at := range due {
			c := w.Calls[i].Turn
			want := time.Duration(0)
			for _, d := range c.Deps {
				if from := indexOf(w, d.Turn); d.OnDispatch {
					want = max(want, due[from])
				} else {
					want = max(want, due[from]+service)
				}
			}
			if p.Options.Timing == plan.Recorded && p.Options.Loop == 1 {
				if want = max(want, c.Start); at != want {
					t.Errorf("%+v: call %s is due at %v, want %v", o, c.ID, at, want)
				}
			}
			if p.Options.Timing != plan.Strict && at < want {
				t.Errorf("%+v: call %s is due at %v, before what it waits for ends at %v", o, c.ID, at, want)
			}
		}
	}
}

func indexOf(w *trace.Workload, t *trace.Turn) int32 {
	return int32(slices.IndexFunc(w.Calls, func(c trace.Call) bool { return c.Turn == t }))
}
