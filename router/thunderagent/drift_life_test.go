package thunderagent

import (
	"errors"
	"reflect"
	"testing"
	"time"
)

// More of what drifts apart: how programs begin, end and lose their workers.

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
	if after := r.entries[1].state; !reflect.DeepEqual(before, after) {
		t.Errorf("%+v is now %+v", before, after)
	}
	q = r.arrive(1, 7000)
	r.sent(q, 1) // elsewhere
	r.took(r.Abort(r.now, q))
	if after := r.entries[1].state; !reflect.DeepEqual(before, after) {
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
	r.arrive(1, 1000)
	next = r.arrive(1, 1100)
	r.took(r.Abort(r.now, next))
	r.is(1, "reasoning on 0")
	if r.requests != 1 {
		t.Errorf("%d requests are left, want 1", r.requests)
	}
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

// Events of requests that are still held: they cannot have been sent, and an end is an abort.
func TestEventsOfHeldRequests(t *testing.T) {
	r := native1(t)
	r.arrive(1, 9000)
	q := r.arrive(2, 2000)
	r.Sent(r.now, q, 0)
	r.is(2, "reasoning, held")
	r.took(r.Complete(r.now, q, 2500))
	r.is(2, "none")
	r.Sent(r.now, q, 0)
	r.is(2, "none")
}
