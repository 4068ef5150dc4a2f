package thunderagent

import (
	"errors"
	"testing"
	"time"
)

// The tests of this file are the places where documents and implementations of ThunderAgent drift apart, or surprise.
// Numbers are of a list that is kept with the project's notes; each comment says all that is needed here.

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

// A response without a usage record counts as large as the request got. In [U] its program reasons for ever.
func TestDrift15MissingUsage(t *testing.T) {
	r := native1(t)
	r.arrive(1, 1000)
	r.generated[r.running[1]] = 70
	r.end(1, -1)
	r.is(1, "acting on 0")
	r.used(1170)
}

// Requests without a session are the caller's to pass by. In [U] all are of one program: as one session they are one
// giant, which runs one request at a time.
func TestDrift16OneSessionForAll(t *testing.T) {
	r := native1(t)
	r.arrive(0, 1000)
	r.arrive(0, 2000)
	r.arrive(0, 3000)
	r.is(0, "reasoning on 0, 2 behind")
	r.end(0, 1000)
	r.releasedOnly(0)
	r.used(2100)
}

// Sessions that end without saying so hold their budget until they expire. One that comes back is a new program.
func TestDrift17IdleExpiry(t *testing.T) {
	for _, test := range []struct {
		s       Settings
		expires time.Duration
	}{{native(), 30 * time.Minute}, {python(), 10 * time.Minute}, {upstream(), 0}} {
		r := newRig(t, test.s, 10_000)
		r.act(1, 4000)
		r.act(2, 4000)
		r.ticks(test.expires - 5*time.Second)
		r.used(8200)
		r.arrive(2, 4000) // in time: no longer idle
		r.ticks(5 * time.Second)
		if test.expires == 0 {
			r.ticks(100 * time.Hour)
			r.used(8200)
			continue
		}
		r.used(4100)
		r.is(1, "none")
		r.arrive(1, 100)
		if p, _ := r.Program(r.now, 1); p.Turns != 1 {
			t.Errorf("a session that came back is in turn %d", p.Turns)
		}
	}
	// It expires at an arrival too, which then finds the room.
	r := native1(t)
	r.act(1, 9000)
	r.now = 30 * time.Minute
	r.arrive(2, 9000)
	r.is(1, "none")
	r.is(2, "reasoning on 0")
}

// The last request is forwarded unchecked [N], answered without an engine [Y], or one like others, after which the
// program is gone ([U], [P]).
func TestDrift18FinalModes(t *testing.T) {
	for _, test := range []struct {
		final           string
		during          string
		swallowed       bool
		usedMeanwhile   int64
		pausedMeanwhile string // what becomes of the final request of a paused program
	}{
		{finalForward, "none", false, 0, "none"},
		{finalSwallow, "none", true, 0, "none"},
		{finalRelease, "reasoning on 0", false, 1300, "reasoning, held"},
	} {
		r := newRig(t, with(func(s *Settings) { s.Final = test.final }), 10_000)
		r.act(1, 1000)
		last := r.request(&Request{Session: 1, Input: 1200, Pin: nowhere, Final: true})
		r.is(1, test.during)
		if out := r.released[0]; out.Request != last || out.Swallowed != test.swallowed {
			t.Errorf("%s: released %+v", test.final, out)
		}
		r.used(test.usedMeanwhile)
		if !test.swallowed {
			r.end(1, 1300)
		}
		r.is(1, "none")
		if r.requests != 0 || len(r.entries) != 0 {
			t.Errorf("%s: %d requests of %d sessions are left", test.final, r.requests, len(r.entries))
		}

		r.act(1, 9900)
		r.tick()
		r.is(1, "acting, paused")
		last = r.request(&Request{Session: 1, Input: 9950, Pin: nowhere, Final: true})
		r.is(1, test.pausedMeanwhile)
		r.took(r.Abort(r.now, last))
	}
}

// Capacity and assignment are by (worker, rank), which is a worker here: two ranks of half the size are not one pool.
func TestDrift19RanksAreSeparatePools(t *testing.T) {
	r := newRig(t, native(), 5000, 5000)
	r.arrive(1, 3000)
	r.arrive(2, 3000)
	r.is(2, "reasoning on 1")
	r.arrive(3, 3000) // 3,800 of 10,000 are left
	r.is(3, "reasoning, held")
}

// A program whose worker is gone is placed anew, past the gate for new programs, but it needs room. [Y] lets it go
// without a place rather than hold it.
func TestDrift20StaleWorker(t *testing.T) {
	for _, pass := range []bool{false, true} {
		r := newRig(t, with(func(s *Settings) { s.PassUnplaceable = pass }), 10_000, 10_000)
		r.arrive(2, 5000)
		r.act(1, 1000)
		r.act(3, 9900-1100) // with session 1
		r.act(4, 4000)      // with session 2
		r.tick()
		r.is(1, "acting, paused")
		r.is(3, "acting, paused")
		r.arrive(5, 10)
		r.is(5, "reasoning, held") // behind 3
		r.is(4, "acting on 0")
		r.RemoveWorker(r.now, 0)
		r.is(4, "acting, nowhere")
		r.arrive(4, 4000)
		r.is(4, "reasoning on 1")
		r.RemoveWorker(r.now, 1)
		if err := r.SetWorker(0, Capacity{Tokens: 4100}); err != nil {
			t.Fatal(err)
		}
		r.end(4, 4001)
		r.arrive(4, 4001)
		if pass {
			r.is(4, "reasoning, nowhere")
		} else {
			r.is(4, "reasoning, held")
		}
	}
}

// Before any capacity is known nothing is held and nothing counts; what was sent counts as soon as it is.
func TestDrift21ColdStart(t *testing.T) {
	r := newRig(t, native(), 0)
	for session := range uint64(3) {
		r.sent(r.arrive(session, 50_000), 0)
	}
	if err := r.SetWorker(0, Capacity{Tokens: 10_000}); err != nil {
		t.Fatal(err)
	}
	r.used(150_300)
	r.arrive(3, 10)
	r.is(3, "reasoning, held")
	r.tick()
	r.is(0, "reasoning on 0, marked")
}

// A pinned request counts on its pin from admission on, never on the least used worker for a while.
func TestDrift22PinIsChargedWhereItRuns(t *testing.T) {
	r := newRig(t, native(), 10_000, 10_000)
	r.arrive(1, 8000)
	if _, err := r.Arrive(r.now, &Request{Session: 2, Input: 1000, Pin: 0}); err != nil {
		t.Fatal(err)
	}
	r.used(9200, 0) // before Sent
}

// A request that is aborted leaves its program as it was, held, released or sent, and one that it began is gone.
func TestDrift23CancelRestoresExactly(t *testing.T) {
	r := newRig(t, native(), 10_000, 20_000)
	r.act(1, 1000)
	r.now = time.Second
	before := r.entries[1].state
	q := r.arrive(1, 7000)
	r.used(7100, 0)
	r.took(r.Abort(r.now, q))
	r.used(1100, 0)
	if after := r.entries[1].state; !sameState(before, after) {
		t.Errorf("%+v is now %+v", before, after)
	}
	q = r.arrive(1, 7000)
	r.sent(q, 1) // elsewhere
	r.took(r.Abort(r.now, q))
	if after := r.entries[1].state; !sameState(before, after) {
		t.Errorf("after it was sent %+v is now %+v", before, after)
	}
	q = r.arrive(2, 500)
	next := r.arrive(2, 600)
	r.took(r.Abort(r.now, q))
	r.releasedOnly(2)
	if p, _ := r.Program(r.now, 2); p.Turns != 1 || p.Tokens != 600 {
		t.Errorf("the second request runs as %+v, want a first turn", p)
	}
	r.took(r.Abort(r.now, next))
	r.is(2, "none")
	// An end that comes late, or twice, changes nothing.
	r.took(r.Abort(r.now, next))
	r.took(r.Complete(r.now, q, 77))
	r.is(2, "none")
	// A request behind another is only taken out of the line.
	q = r.arrive(1, 1000)
	next = r.arrive(1, 1100)
	r.took(r.Abort(r.now, next))
	r.is(1, "reasoning on 0")
	if r.requests != 1 {
		t.Errorf("%d requests are left, want 1", r.requests)
	}
}

func sameState(a, b state) bool {
	a.path, b.path = nil, nil
	type comparable struct {
		known, acting, paused, marked, confirmed bool
		worker, origin, turns                    int32
		tokens, atPause                          int64
		times                                    [3]time.Duration
	}
	of := func(s state) comparable {
		return comparable{s.known, s.acting, s.paused, s.marked, s.confirmed, s.worker, s.origin, s.turns, s.tokens, s.atPause,
			[3]time.Duration{s.actingSince, s.deferredSince, s.demotedUntil}}
	}
	return of(a) == of(b)
}

// Rounding to blocks counts what partial blocks waste: up for reasoning programs, down for acting ones.
func TestDrift24BlockRounding(t *testing.T) {
	r := newRig(t, with(func(s *Settings) { s.Rounding, s.BlockSize = roundBlocks, 64 }), 10_000)
	r.arrive(1, 1000)
	r.used(1152) // 1,100 is 17.2 blocks
	r.generated[r.running[1]] = 5
	r.used(1157)
	r.end(1, 1005)
	r.used(960) // 15.7 blocks, no buffer
}

// The priority jump of [Y]: -2 s for the programs of a nearly full worker, for 7.5 s from a tick on. The router's queue
// clamps it to 0.
func TestDrift25SoftDemotion(t *testing.T) {
	for _, test := range []struct {
		at   time.Duration
		want time.Duration
	}{
		{4999 * time.Millisecond, 0},
		{5 * time.Second, -2 * time.Second},
		{12400 * time.Millisecond, -2 * time.Second},
		{12500 * time.Millisecond, 0},
	} {
		r := newRig(t, python(), 10_000)
		r.act(1, 4000)
		r.act(2, 3900) // 8,100 of 10,000, within 0.80..0.95
		if test.at >= 5*time.Second {
			r.tick()
		}
		r.now = test.at
		r.arrive(1, 4000)
		if got := r.released[0]; got.PriorityJump != test.want || got.Worker != 0 || got.Target != nowhere {
			t.Errorf("at %v: released %+v, want a jump of %v, bound to worker 0", test.at, got, test.want)
		}
	}
}

// In [Y], what was held gets a jump of 1 s.
func TestDrift26ResumeBoost(t *testing.T) {
	for _, test := range []struct {
		s    Settings
		want time.Duration
	}{{native(), 0}, {python(), time.Second}} {
		r := newRig(t, test.s, 10_000)
		r.arrive(1, 9000)
		if got := r.released[0].PriorityJump; got != 0 {
			t.Errorf("a jump of %v for what was not held", got)
		}
		r.arrive(2, 1000)
		r.end(1, 10)
		r.tick()
		r.releasedOnly(2)
		if got := r.released[0].PriorityJump; got != test.want {
			t.Errorf("a jump of %v for what was held, want %v", got, test.want)
		}
	}
}

// The host tier counts as capacity in [Y], not in [N].
func TestDrift28HostTier(t *testing.T) {
	for _, test := range []struct {
		s    Settings
		want string
	}{{native(), "reasoning, held"}, {python(), "reasoning on 0"}} {
		r := newRig(t, test.s, 1)
		if err := r.SetWorker(0, Capacity{Tokens: 10_000, HostTokens: 5000}); err != nil {
			t.Fatal(err)
		}
		r.arrive(1, 14_000)
		r.is(1, test.want)
	}
}

// Each frontend has its own table and thinks that it owns all capacity: together they overcommit.
func TestDrift29TwoFrontends(t *testing.T) {
	var used int64
	for range 2 {
		r := native1(t)
		r.arrive(1, 9000)
		r.is(1, "reasoning on 0")
		used += r.Used(0)
	}
	if used <= 10_000 {
		t.Errorf("%d tokens are used, want more than 10,000", used)
	}
}

// Pausing tells no engine, and the KV may still be there at resume. The program goes back to its worker only if that has
// the most room; else it migrates, and its KV is of no use.
func TestDrift31ResumesMayMigrate(t *testing.T) {
	for _, test := range []struct {
		elsewhere  int32 // generated on worker 1
		target     int32
		migrations int64
	}{{7000, 0, 0}, {0, 1, 1}} {
		r := newRig(t, native(), 10_000, 10_000)
		r.act(1, 2000)
		r.arrive(2, 2000) // on worker 1
		r.arrive(3, 100)  // on worker 0
		r.generated[r.running[3]] = 7300
		r.is(3, "reasoning on 0")
		r.tick() // 2,100 + 7,500
		r.is(1, "acting, paused")
		r.arrive(1, 2100)
		r.generated[r.running[3]] = 3000
		r.generated[r.running[2]] = test.elsewhere
		r.tick()
		if out := r.released[0]; out.Target != test.target || r.Stats(r.now).Migrations != test.migrations {
			t.Errorf("resumed on %d with %d migrations, want %d and %d", out.Target, r.Stats(r.now).Migrations, test.target, test.migrations)
		}
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

// max_programs limits the programs that reason on a worker, as SGLang's max_running_requests does.
func TestDrift35MaxPrograms(t *testing.T) {
	r := newRig(t, with(func(s *Settings) { s.MaxPrograms = 4 }), 1_000_000, 1_000_000)
	for session := range uint64(8) {
		r.arrive(session, 10)
	}
	r.arrive(8, 10)
	r.is(8, "reasoning, held")
	r.tick() // 4 of 4 is over 0.95 of them, so all are marked
	r.is(0, "reasoning on 0, marked")
	r.is(8, "reasoning, held")
	r.end(0, 10)
	r.is(0, "acting, paused")
	r.tick() // 3 of at most floor(0.85*4) = 3; acting takes no slot
	r.is(8, "reasoning, held")
	r.is(0, "acting on 0")
	r.end(2, 10)
	r.tick()
	r.is(8, "reasoning on 0")
}

// A full table forgets the program that was idle longest. There is always one, unless the requests are at their limit.
func TestDrift37TableLimit(t *testing.T) {
	r := newRig(t, with(func(s *Settings) { s.MaxTrackedRequests = 3 }), 1_000_000)
	for session := uint64(1); session <= 3; session++ {
		r.act(session, 10)
		r.now += time.Second
	}
	r.act(1, 10) // now 2 is idle longest
	r.act(4, 10)
	r.is(2, "none")
	r.is(1, "acting on 0")
	if got := r.Stats(r.now); got.Programs != 3 || got.Evicted != 1 || got.Expired != 0 {
		t.Errorf("stats %+v", got)
	}
	for range 3 {
		r.arrive(1, 10)
	}
	r.is(1, "reasoning on 0, 2 behind")
	fourth := &Request{Session: 5, Input: 10, Pin: nowhere}
	if _, err := r.Arrive(r.now, fourth); !errors.Is(err, ErrRequestLimit) {
		t.Errorf("a fourth request: %v, want %v", err, ErrRequestLimit)
	}
	r.is(5, "none")
	r.end(1, 10)
	r.request(fourth)
	r.is(5, "reasoning on 0")
	r.is(3, "none")
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

// An aborted request takes the mark with it: its program is not paused.
func TestDrift40AbortLosesTheMark(t *testing.T) {
	r := native1(t)
	r.act(1, 9000)
	q := r.arrive(1, 9800)
	r.tick()
	r.is(1, "reasoning on 0, marked")
	r.took(r.Abort(r.now, q))
	r.is(1, "acting on 0")
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
