package thunderagent

import (
	"testing"
	"time"
)

// The tests called Drift are of the places where documents and implementations of ThunderAgent drift apart, or surprise.
// Their numbers only tell them apart. Here: who is paused, held and resumed, and when.

// with returns the settings of Dynamo's plugin after a change.
func with(change func(*Settings)) Settings {
	s := native()
	change(&s)
	return s
}

// When acting programs are exhausted, all reasoning ones are marked, though one would do. The prose says smallest.
func TestDrift03OverMarking(t *testing.T) {
	for _, test := range []struct {
		mark string
		want [3]string // programs of 2,000, 3,000 and 4,500, with buffers 9,800 of 10,000
	}{
		{markAll, [3]string{"reasoning on 0, marked", "reasoning on 0, marked", "reasoning on 0, marked"}},
		{markUntilTarget, [3]string{"reasoning on 0, marked", "reasoning on 0", "reasoning on 0"}}, // 9,800 - 2,100 = 7,700
		{markNone, [3]string{"reasoning on 0", "reasoning on 0", "reasoning on 0"}},
	} {
		r := newRig(t, with(func(s *Settings) { s.Mark = test.mark }), 10_000)
		for i, size := range []int32{2000, 3000, 4500} {
			r.arrive(uint64(i), size)
		}
		for range 2 { // what is marked already counts as freed the next time
			r.tick()
			for i, want := range test.want {
				r.is(uint64(i), want)
			}
		}
	}
}

// A reasoning program is never interrupted: the worker stays over its budget until the turn ends.
func TestDrift04LazyPause(t *testing.T) {
	r := native1(t)
	r.arrive(1, 5000)
	r.generated[r.running[1]] = 4900
	r.ticks(time.Minute)
	r.used(10_000)
	r.end(1, 9900)
	r.is(1, "acting, paused")
}

// Where the tokens of acting programs decay, what acted long ago weighs next to nothing: 9,000 tokens on worker 0, next
// to 5,000 on worker 1 that reason.
func TestDrift06WhereActingTokensDecay(t *testing.T) {
	old := func(decay Decay, threshold float64) *rig {
		r := newRig(t, with(func(s *Settings) {
			s.Decay, s.PauseThreshold, s.PauseTarget, s.SessionRetention = decay, threshold, threshold, 0
			s.ResumeHysteresis, s.ResumeTimeout = 0, 60
		}), 10_000, 10_000)
		r.act(1, 9000)
		r.arrive(2, 5000)
		r.now = 4 * time.Second
		return r
	}
	for _, test := range []struct {
		decay                 Decay
		admitted, forced      string
		overThreshold, resume string
	}{
		{Decay{}, "reasoning on 1", "reasoning on 1", "acting, paused", "reasoning, held"},
		{Decay{Admission: true}, "reasoning on 0", "reasoning on 1", "acting, paused", "reasoning, held"},
		{Decay{Forced: true}, "reasoning on 1", "reasoning on 0", "acting, paused", "reasoning, held"},
		{Decay{Pause: true}, "reasoning on 1", "reasoning on 1", "acting on 0", "reasoning, held"},
		{Decay{Resume: true}, "reasoning on 1", "reasoning on 1", "acting, paused", "reasoning on 0"},
	} {
		r := old(test.decay, 1)
		r.arrive(3, 800) // fits both
		r.is(3, test.admitted)

		r = old(test.decay, 1)
		r.arrive(3, 20_000)
		r.ticks(70 * time.Second)
		r.releasedOnly(3)
		r.is(3, test.forced+", marked")

		r = old(test.decay, 0.9) // below 9,100; 9,000 * 2^-5 and the buffer are 381
		r.tick()
		r.is(1, test.overThreshold)

		r = old(test.decay, 1)
		r.arrive(3, 6000) // 900 and 4,900 are left, or 9,619
		r.tick()
		r.is(3, test.resume)
	}
}

// An active program is not checked at its next turn, however it has grown; the next tick is the first to see it.
func TestDrift07GrowthIsUnchecked(t *testing.T) {
	r := native1(t)
	r.act(1, 1000)
	r.act(2, 1000)
	r.arrive(1, 9000)
	r.releasedOnly(1)
	r.used(10_200)
	r.tick()
	r.is(2, "acting, paused")
	r.is(1, "reasoning on 0, marked") // 9,100 are over the target of 8,000
}

// One paused program, though in a tool and without a request, keeps every new program out of an empty worker.
func TestDrift08FairnessGateBlocksNewPrograms(t *testing.T) {
	for _, test := range []struct {
		gate          string
		first, second string // before and after the paused program wants to go on
	}{
		{gateAnyPaused, "reasoning, held", "reasoning, held"},
		{gateWaitingOnly, "reasoning on 0", "reasoning, held"},
		{gateNone, "reasoning on 0", "reasoning on 0"},
	} {
		r := newRig(t, with(func(s *Settings) { s.Gate = test.gate }), 10_000)
		r.act(1, 9900) // too large for anything but force, once paused
		r.tick()
		r.is(1, "acting, paused")
		r.used(0)
		r.arrive(2, 100)
		r.is(2, test.first)
		r.arrive(1, 9900)
		r.arrive(3, 100)
		r.is(3, test.second)
	}
}

// Smallest first: a large program waits while smaller ones, which came later, go in and out, until it is forced.
func TestDrift09SmallestFirstStarves(t *testing.T) {
	r := newRig(t, with(func(s *Settings) { s.ResumeTimeout = 300 }), 10_000)
	r.arrive(1, 5000)
	r.arrive(2, 6000) // never below 8,500 - 5,100
	for small := uint64(10); r.running[2] == nil; small++ {
		r.arrive(small, 1000)
		r.is(small, "reasoning, held") // behind the large one
		r.tick()
		r.end(small, 1000)
		r.request(&Request{Session: small, Pin: nowhere, Final: true})
		r.end(small, 0)
	}
	got := r.Stats(r.now)
	if got.LongestWait != 300*time.Second || got.ForcedResumes != 1 {
		t.Errorf("longest wait %v, %d forced, want 300s and 1", got.LongestWait, got.ForcedResumes)
	}
	if c, ok := got.Waits.Correlation(); !ok || c < 0.99 { // one of 6,000 tokens and 300 s, the others of 1,000 and 5 s
		t.Errorf("correlation of size and wait %v, want nearly 1", c)
	}
}

// Requests that were deferred together are forced together, without regard to capacity.
func TestDrift10ForcedHerd(t *testing.T) {
	r := native1(t)
	r.arrive(1, 9000)
	for session := uint64(2); session <= 6; session++ {
		r.arrive(session, 5000)
	}
	r.ticks(30 * time.Minute)
	r.releasedOnly(2, 3, 4, 5, 6)
	r.used(9100 + 5*5100)
	if got := r.Stats(r.now); got.ForcedResumes != 5 || got.MaxOver != 9100+5*5100-10_000 || got.UsedPeak != 9100+5*5100 {
		t.Errorf("stats %+v", got)
	}
}

// The clock of a forced resume starts when a request is deferred, not when its program is paused, and starts anew when
// the client gives up and comes back.
func TestDrift11TimeoutStartsAtDeferral(t *testing.T) {
	for _, test := range []struct {
		forceAt string
		want    time.Duration
	}{
		{forceAtTick, 30*time.Minute + 15*time.Second}, // the tick after 30m12s
		{forceAtDeadline, 30*time.Minute + 12*time.Second},
	} {
		r := newRig(t, with(func(s *Settings) { s.ForceAt = test.forceAt }), 10_000)
		r.arrive(2, 100)
		r.act(1, 1000)
		r.generated[r.running[2]] = 9000
		r.tick()
		r.now = 9 * time.Second
		q := r.arrive(1, 1000)
		r.ticks(2 * time.Second)
		r.took(r.Abort(r.now, q))
		r.is(1, "acting, paused")
		r.now = 12 * time.Second
		r.arrive(1, 1000)
		for r.running[1] = nil; r.running[1] == nil; {
			r.tick()
		}
		if out := r.released[0]; r.now != test.want || !out.Forced || out.Held != test.want-12*time.Second {
			t.Errorf("%s: released at %v: %+v; want it at %v", test.forceAt, r.now, out, test.want)
		}
	}
}

// New programs are admitted up to 100 %, resumed ones up to 85 %: what has just come in may be paused at the next tick.
func TestDrift12AdmissionAboveThePauseLine(t *testing.T) {
	r := native1(t)
	r.act(1, 4900)
	r.act(2, 4900)
	r.used(10_000)
	r.tick()
	r.is(1, "acting, paused")
	// With admission below the line it does not come in.
	r = newRig(t, with(func(s *Settings) { s.AdmitCeiling = 0.95 }), 10_000)
	r.act(1, 4900)
	r.arrive(2, 4900)
	r.is(2, "reasoning, held")
}

// What is larger than 85 % of every worker is resumed by force only, though all are empty; what is larger than 100 %
// too. The paper knows no force, so there it is held for ever, and only its client's patience ends it.
func TestDrift13TooLargeForEveryWorker(t *testing.T) {
	for _, size := range []int32{8600, 20_000} {
		r := newRig(t, native(), 10_000, 10_000)
		r.act(9, 9900)
		r.tick() // paused, so that the gate is closed
		r.arrive(1, size)
		r.ticks(30*time.Minute - 5*time.Second)
		r.is(1, "reasoning, held")
		r.tick()
		r.releasedOnly(1)
		if size > 10_000 {
			r.is(1, "reasoning on 0, marked") // by the same tick
		} else {
			r.is(1, "reasoning on 0")
		}
	}
	r := newRig(t, upstream(), 10_000)
	r.arrive(1, 20_000)
	r.ticks(30 * time.Minute)
	r.releasedOnly(1)

	r = newRig(t, paper(), 10_000)
	q := r.arrive(1, 20_000)
	r.ticks(24 * time.Hour)
	r.is(1, "reasoning, held")
	if got := r.Stats(r.now).LongestWait; got != 24*time.Hour {
		t.Errorf("longest wait %v", got)
	}
	r.took(r.Abort(r.now, q))
	r.is(1, "none")
}

// [U] resumes by the size at pause time, stale once a longer request has come.
func TestDrift14StaleSizeAtResume(t *testing.T) {
	for _, stale := range []bool{false, true} {
		r := newRig(t, with(func(s *Settings) { s.ResumeBySizeAtPause = stale }), 10_000)
		r.arrive(2, 100)
		r.act(1, 1000)
		r.generated[r.running[2]] = 9000
		r.tick()
		r.arrive(1, 5000) // 5,100, where 8,500 - 6,200 = 2,300 are left
		r.generated[r.running[2]] = 6000
		r.tick()
		want := "reasoning, held"
		if stale {
			want = "reasoning on 0" // and 11,300 are used; marked by the same tick
			want += ", marked"
		}
		r.is(1, want)
	}
}

// A held request waits for a tick, though the room is there sooner.
func TestDrift32ResumesComeAtTicksOnly(t *testing.T) {
	r := native1(t)
	r.arrive(1, 9000)
	r.now = time.Second
	r.arrive(2, 1000)
	r.is(2, "reasoning, held")
	r.end(1, 10)
	r.releasedOnly()
	r.is(2, "reasoning, held")
	r.tick()
	if out := r.released[0]; r.now != 5*time.Second || out.Held != 4*time.Second {
		t.Errorf("released at %v after %v, want 5s and 4s", r.now, out.Held)
	}
}

// The marking step compares with the target, not the threshold: acting programs have brought the use down to 8,200, and
// all reasoning ones are marked.
func TestDrift38MarksBelowTheThreshold(t *testing.T) {
	r := native1(t)
	r.act(1, 1300)
	r.arrive(2, 4000)
	r.arrive(3, 4000)
	r.used(9600)
	r.tick()
	r.used(8200)
	r.is(1, "acting, paused")
	r.is(2, "reasoning on 0, marked")
	r.is(3, "reasoning on 0, marked")
}

// A program in its first turn goes before all that act later on, though it acts too. By status they are equal, and the
// smaller goes first.
func TestDrift39FirstTurnGroup(t *testing.T) {
	for _, test := range []struct {
		order  string
		winner uint64
	}{{orderTurns, 1}, {orderStatus, 2}} {
		r := newRig(t, with(func(s *Settings) { s.ResumeOrder = test.order }), 10_000)
		r.arrive(9, 100)
		r.act(1, 1000) // first turn
		r.act(2, 800)
		r.act(2, 900) // second
		r.generated[r.running[9]] = 9000
		r.tick()
		r.is(1, "acting, paused")
		r.is(2, "acting, paused")
		r.generated[r.running[9]] = 7000 // 8,500 - 7,200 = 1,300: room for one
		r.tick()
		r.is(test.winner, "acting on 0")
		r.is(3-test.winner, "acting, paused")
	}
}

// Resumes alone do not lead to pauses in the same tick, as 0.85 is below 0.95; forced ones do.
func TestDrift42ForceThenPauseInOneTick(t *testing.T) {
	r := native1(t)
	r.act(1, 1000)
	r.arrive(3, 100)
	r.generated[r.running[3]] = 8000
	r.arrive(2, 5000)
	r.is(2, "reasoning, held")
	r.ticks(30*time.Minute - 5*time.Second)
	r.arrive(1, 1000)
	r.end(1, 1000)
	r.is(1, "acting on 0")
	r.tick()
	r.is(2, "reasoning on 0, marked")
	r.is(1, "acting, paused")
}
