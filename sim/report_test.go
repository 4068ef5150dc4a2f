package sim

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/synth"
)

// Worked out by hand, with blocks of 4 tokens and prefills of 10 ms:
//
//	one request         8 tokens of prompt: 2 blocks; then 2 decode steps of 5 ms with 3
//	evicted in between  a holds 12 tokens, b 16 of the 20 that there are, which takes the last 8 of a's; a's next prompt of 16
//	                    computes these again and 4 more
func TestSpaceTimeByHand(t *testing.T) {
	for _, test := range []struct {
		name                       string
		blocks                     string
		sessions                   []*trace.Session
		prefill, recompute, decode float64 // token·s
		total                      float64 // capacity in tokens
	}{
		{"one request", "1001", []*trace.Session{session("a", 1, trace.Turn{Input: 8, Output: 3, End: 20 * ms})}, 8 * 0.010, 0, 12 * 0.010, 4000},
		{"evicted in between", "6", []*trace.Session{
			session("a", 100, trace.Turn{Input: 12, Output: 1, End: 10 * ms}, trace.Turn{Input: 16, Output: 1, Start: 100 * ms, End: 110 * ms}),
			session("b", 200, trace.Turn{Input: 16, Output: 1, Start: 20 * ms, End: 30 * ms}),
		}, (12 + 16 + 16*4/12.) * 0.010, 16 * 8 / 12. * 0.010, 0, 20},
	} {
		d := fixed()
		d.Engine.KVBlocks = test.blocks
		res := mustRun(t, compile(t, test.sessions...), d)
		got := res.Report(nil, nil).KV.SpaceTime
		for _, term := range []struct {
			name string
			got  report.Figure
			want float64
		}{
			{"total", got.TotalTokenS, test.total * res.End.Seconds()}, {"prefill", got.Prefill.TokenS, test.prefill},
			{"recompute", got.Recompute.TokenS, test.recompute}, {"decode", got.Decode.TokenS, test.decode},
			{"all", report.Known(got.Prefill.TokenS.Value + got.Recompute.TokenS.Value + got.Decode.TokenS.Value + got.Caching.TokenS.Value + got.Unused.TokenS.Value),
				test.total * res.End.Seconds()},
		} {
			if !term.got.Known || math.Abs(term.got.Value-term.want) > 1e-9 {
				t.Errorf("%s: %s is %+v, want %v token·s", test.name, term.name, term.got, term.want)
			}
		}
	}
}

// Whatever thrashes, is held or pinned, and whatever part is measured: the terms are not negative and add up to capacity
// × time.
func TestSpaceTimeAddsUp(t *testing.T) {
	w := agents(t, synth.Options{Programs: 30, Seed: 3})
	for _, test := range []struct {
		name   string
		change func(*Deployment)
	}{
		{"thrashing", func(d *Deployment) {}},
		{"held", func(d *Deployment) { d.Router.Policy = "thunderagent" }},
		{"pinned", func(d *Deployment) { d.Engine.Scheduling = "continuum" }},
		{"window", func(d *Deployment) { d.Load.Warmup, d.Load.Duration = 20*time.Second, 60*time.Second }},
		{"tiers", func(d *Deployment) { d.KV.Host.Capacity, d.KV.Policy = "2GiB", "prefetch-before-return" }},
		{"sglang", func(d *Deployment) { d.Engine.Kind = "sglang"; d.Engine.KVBlocks = "96000" }},
	} {
		d := fleetOf(2, "kv", 16)
		d.Engine.KVBlocks = "6000"
		test.change(&d)
		run := mustRun(t, w, d).Report(nil, nil)
		s := run.KV.SpaceTime
		sum := 0.0
		for _, p := range []report.Part{s.Decode, s.Prefill, s.Recompute, s.Caching, s.Unused} {
			if !(p.Share.Value >= 0) {
				t.Errorf("%s: a term is %v", test.name, p)
			}
			sum += p.Share.Value
		}
		// The borders of a window move to the end of the step in flight.
		capacity, off := run.KV.CapacityTokens.Value*run.DurationS.Value, 1e-9
		if test.name == "window" {
			off = 0.02
		}
		if math.Abs(sum-1) > 1e-9 || math.Abs(s.TotalTokenS.Value/capacity-1) > off {
			t.Errorf("%s: shares add up to %v and the total is %v of %v token·s", test.name, sum, s.TotalTokenS.Value, capacity)
		}
		if test.name == "thrashing" && s.Recompute.Share.Value < 0.01 {
			t.Errorf("thrashing recomputes %v of the capacity", s.Recompute.Share)
		}
		if pins := run.KV.Pins; pins.Known != (test.name == "pinned") || pins.Known && pins.Value == 0 {
			t.Errorf("%s: %+v pins", test.name, pins)
		}
	}
}

// What gives up says where it was: held by the scheduler, most of it, as the KV cache is far too small.
func TestReportSaysWhoHeldWhatGaveUp(t *testing.T) {
	w := agents(t, synth.Options{Programs: 40, Seed: 3})
	d := fleetOf(1, "thunderagent", 40)
	d.Engine.KVBlocks, d.Client.Timeout = "8000", 30*time.Second
	res := simulate(t, w, d, Options{})
	run := res.Report(nil, nil)
	g := res.GaveUp
	if g.Calls != run.Requests.Failed || g.ByScheduler == 0 || g.ByScheduler == g.Calls {
		t.Fatalf("%+v gave up of %+v", g, run.Requests)
	}
	if why := run.Requests.Failures[0].Why; !strings.HasPrefix(why, "clients gave up after 30 s, ") || !strings.Contains(why, "of them held by the scheduler") || !strings.HasSuffix(why, "before 1800 s: resume_timeout_seconds of router.thunderagent.parameters)") {
		t.Errorf("the reason is %q", why)
	}
	s := run.Scheduler
	if w := s.Starvation.LongestWaitS; !w.Known || w.Value <= 0 || w.Value > 30 {
		t.Errorf("the longest wait is %+v, want one up to the timeout", w)
	}
	if u := s.Tokens; u.AccountedPeak.Value <= 0 || u.Capacity.Value != 8000*16 || s.PausedS.Value <= 0 {
		t.Errorf("accounted for %+v, paused for %v s", u, s.PausedS.Value)
	}
	if held := run.LatencyMs.Held; held.Count != run.Requests.Completed || held.Max.Value <= 0 {
		t.Errorf("held: %+v", held)
	}
}

// A client that tries again has been held all the while.
func TestRetriesKeepTheTimeHeld(t *testing.T) {
	w := agents(t, synth.Options{Programs: 40, Seed: 3})
	d := fleetOf(1, "thunderagent", 40)
	d.Engine.KVBlocks, d.Client.Timeout, d.Client.Retries = "8000", 30*time.Second, 20
	res := simulate(t, w, d, Options{})
	longest := time.Duration(0)
	for i := range res.Requests {
		q := &res.Requests[i]
		longest = max(longest, q.Held)
		if q.Admitted >= 0 && q.Held > q.End-q.Arrival {
			t.Errorf("request %d was held for %v in %v", i, q.Held, q.End-q.Arrival)
		}
	}
	if longest <= 30*time.Second {
		t.Errorf("no request was held for more than one attempt: %v", longest)
	}
}
