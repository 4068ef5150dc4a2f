package thunderagent

import (
	"slices"
	"testing"
	"time"
)

// Four programs of 2,400 tokens and a buffer of 100 each use 10,000 of 10,000, above 9,500: one is paused, that with
// the least id as all are equal, and 7,500 are left, below 8,000. Room to resume is 8,500 - 7,500 = 1,000, less than
// the 2,500 that it needs.
func TestGoldenPause(t *testing.T) {
	r := native1(t)
	for session := uint64(4); session >= 1; session-- {
		r.act(session, 2400)
	}
	r.used(10_000)
	r.tick()
	r.used(7500)
	r.is(1, "acting, paused")
	r.is(2, "acting on 0")
	r.tick()
	r.is(1, "acting, paused")
	// 8,500 - 5,000 = 3,500 once another is gone.
	r.request(&Request{Session: 4, Pin: nowhere, Final: true})
	r.end(4, 0)
	r.tick()
	r.is(1, "acting on 0")
	r.used(7500)
	if got := r.Stats(r.now); got.Pauses != 1 || got.Resumes != 1 || got.PausedPeak != 1 || got.Paused != 10*time.Second {
		t.Errorf("stats %+v", got)
	}
	want := []string{"pause 1: over threshold", "resume 1: room again"}
	got := slices.DeleteFunc(slices.Clone(r.events), func(e string) bool { return e[:5] == "admit" })
	if !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
}

// Limits are float64 products, truncated, and the ceiling is a difference: with a hysteresis of 0.15 it is
// 0.7999999999999999 and not 0.8.
func TestLimitsAreTruncatedProducts(t *testing.T) {
	s, late := native(), native()
	late.ResumeHysteresis = 0.15
	for _, test := range []struct {
		of   float64
		cap  int64
		want int64
	}{
		{s.PauseThreshold, 10_000, 9500},
		{s.PauseTarget, 10_000, 8000},
		{s.PauseThreshold, 999, 949}, // 949.05
		{s.resumeCeiling(), 10_000, 8500},
		{late.resumeCeiling(), 10_000, 7999},
		{0.29, 100, 28}, // 28.999999999999996
	} {
		if got := share(test.cap, test.of); got != test.want {
			t.Errorf("%v of %d is %d, want %d", test.of, test.cap, got, test.want)
		}
	}
	s.ResumeHysteresis = s.PauseThreshold
	if got := s.resumeCeiling(); got != 0 {
		t.Errorf("ceiling %v, want 0", got)
	}
}

// Exactly at the threshold nothing happens: the documents say "at or above", the code is strict.
func TestThresholdIsStrict(t *testing.T) {
	r := native1(t)
	r.act(1, 4700)
	r.act(2, 4600)
	r.used(9500)
	r.tick()
	r.used(9500)
	r.arrive(2, 4601)
	r.tick()
	r.is(1, "acting, paused")
	r.is(2, "reasoning on 0")
}

// Programs are chosen smallest first from the room of both workers together, 8,500 and 4,250, and placed largest first
// where most is left: 4,900 on the first, which then has 3,500; 3,900 on the other, which has 4,250; 400 on the first.
func TestResumePlacesLargestOnRoomiest(t *testing.T) {
	r := newRig(t, native(), 10_000, 5000)
	r.arrive(9, 9900) // fills worker 0
	r.arrive(8, 4900) // fills worker 1
	for session, size := range map[uint64]int32{1: 4900, 2: 400, 3: 3900, 4: 8000} {
		r.arrive(session, size)
		r.is(session, "reasoning, held")
	}
	r.request(&Request{Session: 9, Pin: nowhere, Final: true})
	r.request(&Request{Session: 8, Pin: nowhere, Final: true})
	r.end(9, 9900)
	r.end(8, 4900)
	r.tick()
	r.releasedOnly(1, 3, 2) // largest first
	r.is(1, "reasoning on 0")
	r.is(3, "reasoning on 1")
	r.is(2, "reasoning on 0")
	r.is(4, "reasoning, held") // 500 + 4,000 + 5,000 leave 3,250 of 12,750
	r.used(5500, 4000)
}

// What is chosen but fits no single worker has taken its share of the sum: 3 is not chosen, though it fits.
func TestResumeMisfitTakesItsShare(t *testing.T) {
	s := native()
	s.ResumeOrder = orderStatus
	r := newRig(t, s, 4000, 4000)
	r.act(3, 3900) // on 0, will be paused
	r.arrive(8, 100)
	r.generated[r.running[8]] = 3700
	r.is(8, "reasoning on 1")
	r.tick()
	r.is(3, "acting, paused")
	r.arrive(4, 5000) // 5,100 of 3,400 and 3,400, less than both, more than each
	r.end(8, 100)
	r.tick()
	r.is(4, "reasoning, held")
	r.is(3, "acting, paused") // 5,100 + 4,000 exceed 6,600
}

// Hysteresis: a program that was paused for being over 9,500 comes back below 8,500 only, and then stays.
func TestHysteresisDoesNotFlap(t *testing.T) {
	r := native1(t)
	r.act(1, 1000)
	r.arrive(2, 100)
	r.generated[r.running[2]] = 8400
	r.used(9700)
	r.tick()
	r.is(1, "acting, paused")
	for _, test := range []struct {
		generated int32
		want      string
	}{
		{7301, "acting, paused"}, // 8,500 - 7,501 = 999
		{7200, "acting on 0"},    // 8,500 - 7,400 = 1,100, what it needs
		{8100, "acting on 0"},    // 9,400 in use, between the ceiling and the threshold
		{8201, "acting, paused"}, // 9,501
	} {
		r.generated[r.running[2]] = test.generated
		r.tick()
		r.is(1, test.want)
	}
	if got := r.Stats(r.now); got.Pauses != 2 || got.Resumes != 1 {
		t.Errorf("%d pauses and %d resumes, want 2 and 1", got.Pauses, got.Resumes)
	}
}

// A parent acts while it waits for its child, and holds memory that the child needs. The child is let go when the
// parent is paused or forgotten, at the latest at its own timeout: nobody waits for ever.
func TestParentWaitsForPausedChild(t *testing.T) {
	r := native1(t)
	r.act(1, 9000)
	r.arrive(2, 2000) // the child, of 2,100 where 900 are left
	r.is(2, "reasoning, held")
	r.ticks(30*time.Minute - time.Second)
	r.is(2, "reasoning, held")
	r.ticks(5 * time.Second)
	r.is(1, "none") // idle for as long as the child waited
	r.is(2, "reasoning on 0")

	s := native()
	s.SessionRetention = 0
	r = newRig(t, s, 10_000)
	r.act(1, 9000)
	r.arrive(2, 2000)
	r.ticks(30*time.Minute + 5*time.Second)
	r.releasedOnly(2)
	if !r.released[0].Forced {
		t.Error("the child was not forced")
	}
	r.is(1, "acting, paused") // by the same tick, as 11,200 are over 9,500
}

// Nothing published yet: requests go out without a place, and count where they are sent.
func TestNoCapacityPublished(t *testing.T) {
	r := newRig(t, native(), 0, 0)
	q := r.arrive(1, 500)
	if out := r.released[0]; out.Target != nowhere || out.Worker != nowhere || out.Reason != NoCapacity {
		t.Errorf("released %+v", out)
	}
	r.is(1, "reasoning, nowhere")
	r.used(0, 0)
	r.sent(q, 1)
	r.used(0, 600)
	r.tick()
	r.is(1, "reasoning on 1")
	// One is published: only that one is chosen. The router may use the other, and the table follows.
	if err := r.SetWorker(0, Capacity{Tokens: 10_000}); err != nil {
		t.Fatal(err)
	}
	q = r.arrive(2, 9900)
	r.is(2, "reasoning on 0")
	r.sent(q, 1)
	r.used(0, 10_600)
	r.tick()
	r.is(2, "reasoning on 1") // a worker without a capacity is never over it
}

func TestEmptyFleet(t *testing.T) {
	r := newRig(t, native())
	q := r.arrive(1, 500)
	r.releasedOnly(1)
	r.is(1, "reasoning, nowhere")
	r.ticks(time.Hour)
	r.took(r.Abort(r.now, q))
	r.is(1, "none")
}

// All workers go: held requests stay held, past their timeout too, new ones go out without a place, and all is well when
// a worker comes.
func TestAllWorkersRemoved(t *testing.T) {
	for name, s := range map[string]Settings{"native": native(), "python": python(), "upstream": upstream(), "paper": paper()} {
		t.Run(name, func(t *testing.T) {
			s.ResumeTimeout = min(s.ResumeTimeout, 60)
			s.Gate = gateAnyPaused
			r := newRig(t, s, 10_000, 10_000)
			r.arrive(1, 9000)
			r.arrive(2, 9000)
			held := r.arrive(3, 9000)
			r.is(3, "reasoning, held")
			for w := range 2 {
				r.RemoveWorker(r.now, w)
				r.RemoveWorker(r.now, w) // again does nothing
			}
			for _, session := range []uint64{1, 2} {
				r.is(session, "reasoning, nowhere")
				delete(r.on, r.running[session])
				r.took(r.Abort(r.now, r.running[session]))
				r.is(session, "none")
			}
			r.arrive(4, 100)
			r.is(4, "reasoning, nowhere")
			r.ticks(2 * time.Minute)
			r.is(3, "reasoning, held")
			if at, ok := r.NextTick(r.now); !ok || at <= r.now {
				t.Fatalf("next tick at %v, %v: the caller would not get on", at, ok)
			}
			if err := r.SetWorker(1, Capacity{Tokens: 20_000}); err != nil {
				t.Fatal(err)
			}
			r.tick()
			r.releasedOnly(3)
			r.is(3, "reasoning on 1")
			if got := r.Stats(r.now).LongestWait; got != r.now || held.Session != 3 {
				t.Errorf("longest wait %v, want %v", got, r.now)
			}
		})
	}
}

// A pin is honoured by admission, resume and force; without room there a request is held, though others have it.
func TestHardPin(t *testing.T) {
	r := newRig(t, native(), 10_000, 10_000)
	pinned := func(session uint64, input int32, pin int32) {
		r.request(&Request{Session: session, Input: input, Pin: pin})
	}
	pinned(1, 5000, 1)
	if out := r.released[0]; out.Worker != 1 || out.Target != nowhere {
		t.Errorf("released %+v, want it bound to worker 1", out)
	}
	r.used(0, 5100)
	pinned(2, 5000, 1) // 4,900 are left
	r.is(2, "reasoning, held")
	r.tick()
	r.is(2, "reasoning, held") // 3,400 below the ceiling; 8,500 on the other worker
	r.end(1, 3300)
	r.tick()
	r.is(2, "reasoning on 1") // 8,500 - 3,400 = 5,100
	pinned(3, 5000, 1)
	r.is(3, "reasoning, held")
	r.ticks(30*time.Minute + 5*time.Second)
	r.is(3, "reasoning on 1, marked")
	if r.Stats(r.now).ForcedResumes != 1 {
		t.Error("session 3 was not forced")
	}
	// A pin to a worker that is gone is left to the router when the time is up.
	r.RemoveWorker(r.now, 0)
	pinned(4, 10, 0)
	r.is(4, "reasoning, held")
	r.ticks(30*time.Minute + 5*time.Second)
	r.is(4, "reasoning, nowhere")
	if _, err := r.Arrive(r.now, &Request{Session: 5, Pin: 2}); err == nil {
		t.Error("a pin to worker 2 of 2 is accepted")
	}
}

// Capacity that never binds and one worker: all versions let every request go at once, except that the paper's queue
// lets new programs in at ticks.
func TestVersionsAgreeWithoutPressure(t *testing.T) {
	for _, name := range Presets() {
		s, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, s, 1_000_000)
		for turn := range int32(3) {
			for session := range uint64(20) {
				r.arrive(session, 1000*(turn+1))
				if name == "paper" && turn == 0 {
					r.is(session, "reasoning, held")
				} else {
					r.releasedOnly(session)
				}
			}
			r.tick()
			for session := range uint64(20) {
				r.end(session, 1000*(turn+1)+500)
			}
		}
		if got := r.Stats(r.now); got.Pauses+got.Marks+got.ForcedResumes+got.Migrations+got.Expired != 0 {
			t.Errorf("%s: %+v", name, got)
		}
	}
}
