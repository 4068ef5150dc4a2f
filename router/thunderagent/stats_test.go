package thunderagent

import (
	"math"
	"slices"
	"testing"
	"time"
)

// Every kind of decision is told with the figures behind it.
func TestEvents(t *testing.T) {
	r := newRig(t, native(), 10_000, 2000)
	var got []Event
	r.Observe(func(e Event) {
		e.Request = nil
		got = append(got, e)
	})
	check := func(want ...Event) {
		t.Helper()
		for i := range want {
			want[i].At = r.now
		}
		if !slices.Equal(got, want) {
			t.Errorf("events\n%+v\nwant\n%+v", got, want)
		}
		got = nil
	}
	r.act(1, 1000)
	check(Event{Kind: Admitted, Reason: Fits, Session: 1, Worker: 0, Size: 1000, Capacity: 10_000, Room: 10_000})
	r.arrive(2, 8800)
	check(Event{Kind: Admitted, Reason: Fits, Session: 2, Worker: 0, Size: 8800, Used: 1100, Capacity: 10_000, Room: 8900})
	r.arrive(3, 9000)
	check(Event{Kind: Deferred, Reason: FitsNowhere, Session: 3, Worker: 1, Size: 9000, Capacity: 2000, Room: 2000})
	r.arrive(4, 10)
	check(Event{Kind: Deferred, Reason: BehindPaused, Session: 4, Worker: nowhere, Size: 10})
	r.tick()
	check(
		Event{Kind: Resumed, Reason: RoomAgain, Session: 4, Worker: 1, Size: 10, Capacity: 2000, Room: 1700},
		Event{Kind: Paused, Reason: OverThreshold, Session: 1, Worker: 0, Size: 1000, Used: 10_000, Capacity: 10_000, Room: -500},
		Event{Kind: Marked, Reason: OverThreshold, Session: 2, Worker: 0, Size: 8800, Used: 8900, Capacity: 10_000, Room: 600},
	)
	r.end(2, 8850)
	check(Event{Kind: Paused, Reason: MarkedBefore, Session: 2, Worker: 0, Size: 8850, Used: 8950, Capacity: 10_000, Room: 550})
	r.sent(r.running[4], 0)
	check(Event{Kind: Migrated, Reason: OtherWorker, Session: 4, Worker: 0, Size: 10, Capacity: 10_000, Room: 10_000})
	r.took(r.Abort(r.now, r.running[4]))
	check(Event{Kind: Restored, Reason: RequestAborted, Session: 4, Worker: 0, Size: 10, Used: 110, Capacity: 10_000, Room: 9890})
	r.ticks(30 * time.Minute)
	r.now = 30 * time.Minute // when the last decisions of interest were made
	got = slices.DeleteFunc(got, func(e Event) bool { return e.At != r.now })
	check(
		Event{Kind: Expired, Reason: IdleTooLong, Session: 1, Worker: 0, Size: 1000, Used: 1100, Capacity: 10_000, Room: 8900},
		Event{Kind: Forced, Reason: TimedOut, Session: 3, Worker: 0, Size: 9000, Capacity: 10_000, Room: 10_000},
	)
}

func TestMoments(t *testing.T) {
	var m Moments
	if _, ok := m.Correlation(); ok {
		t.Error("the correlation of nothing is defined")
	}
	m.add(1000, time.Second)
	m.add(1000, time.Second)
	if _, ok := m.Correlation(); ok {
		t.Error("the correlation without spread is defined")
	}
	m.add(2000, 3*time.Second)
	m.add(3000, 2*time.Second)
	// Sizes 1, 1, 2, 3 (mean 1.75) and waits 1, 1, 3, 2 (mean 1.75): the products of deviations sum up to 1.75, their
	// squares to 2.75 and 2.75.
	if got, ok := m.Correlation(); !ok || math.Abs(got-1.75/2.75) > 1e-12 {
		t.Errorf("correlation %v, want %v", got, 1.75/2.75)
	}
}

// The time that a session was paused or held is known until it is gone, and summed up over all.
func TestPausedFor(t *testing.T) {
	r := native1(t)
	r.act(1, 1000)
	r.arrive(2, 100)
	r.generated[r.running[2]] = 9000
	r.tick() // 5 s
	r.now = 7 * time.Second
	r.arrive(1, 1000) // paused becomes held
	r.generated[r.running[2]] = 0
	r.now = 9 * time.Second
	check := func(want time.Duration) {
		t.Helper()
		if got := r.PausedFor(r.now, 1); got != want {
			t.Errorf("at %v session 1 was paused for %v, want %v", r.now, got, want)
		}
		if got := r.Stats(r.now).Paused; got != want {
			t.Errorf("at %v all were paused for %v, want %v", r.now, got, want)
		}
	}
	check(4 * time.Second)
	r.tick() // 10 s
	r.now = 12 * time.Second
	check(5 * time.Second)
	if p, _ := r.Program(r.now, 1); p.PausedFor != 5*time.Second {
		t.Errorf("program %+v", p)
	}
	r.end(1, 1000)
	r.request(&Request{Session: 1, Pin: nowhere, Final: true})
	r.is(1, "none")
	if got := r.PausedFor(r.now, 1); got != 5*time.Second {
		t.Errorf("during its last request: %v, want 5s", got)
	}
	r.end(1, 0)
	if got := r.PausedFor(r.now, 1); got != 0 || len(r.entries) != 1 {
		t.Errorf("after its last request: %v of %d sessions", got, len(r.entries))
	}
}

// A request that is sent to a worker that has just gone counts nowhere.
func TestSentToDeadWorker(t *testing.T) {
	r := newRig(t, native(), 10_000, 10_000)
	q := r.arrive(1, 1000)
	r.RemoveWorker(r.now, 1)
	r.Sent(r.now, q, 1)
	r.is(1, "reasoning, nowhere")
	r.used(0, 0)
	if got := r.Stats(r.now).Migrations; got != 0 {
		t.Errorf("%d migrations", got)
	}
}
