package router

import (
	"testing"
	"time"
)

// TestSessionAffinity walks through the life of bindings: each step submits a request, or ends an earlier one, or
// takes a worker away.
func TestSessionAffinity(t *testing.T) {
	const ttl = 10 * time.Second
	type step struct {
		at      time.Duration
		session uint64
		done    int // a request to end, counted from 1; 0 submits
		remove  int // a worker to remove, counted from 1; 0 none
		busy    int // a worker to load with five requests first, counted from 1
		want    string
	}
	for _, test := range []struct {
		name, mode string
		steps      []step
	}{
		// A least-loaded router; the session's own requests that run draw it away from its worker.
		{"off", "off", []step{{session: 1, busy: 2, want: "0>0"}, {session: 1, busy: 1, want: "1>1"}}},
		{"soft stays", "soft", []step{{session: 1, busy: 2, want: "0>0"}, {session: 1, busy: 1, want: "1>0"}}},
		{"hard stays", "hard", []step{{session: 1, busy: 2, want: "0>0"}, {session: 1, busy: 1, want: "1>0"}}},
		{"sessions are apart", "soft", []step{{session: 1, busy: 2, want: "0>0"}, {session: 2, busy: 1, want: "1>1"}}},
		{"idle up to the TTL", "soft", []step{{session: 1, busy: 2, want: "0>0"}, {at: 5 * time.Second, done: 1},
			{at: 5*time.Second + ttl, session: 1, busy: 1, want: "1>0"}}},
		{"idle for longer", "soft", []step{{session: 1, busy: 2, want: "0>0"}, {at: 5 * time.Second, done: 1},
			{at: 5*time.Second + ttl + 1, session: 1, busy: 1, want: "1>1"}}},
		{"hard, idle for longer", "hard", []step{{session: 1, busy: 2, want: "0>0"}, {at: 5 * time.Second, done: 1},
			{at: 5*time.Second + ttl + 1, session: 1, busy: 1, want: "1>1"}}},
		{"the timer stops while a request runs", "soft", []step{{session: 1, busy: 2, want: "0>0"},
			{at: 100 * time.Second, session: 1, busy: 1, want: "1>0"}, {at: 101 * time.Second, done: 2},
			{at: 200 * time.Second, session: 1, want: "2>0"}}},
		{"until the last ends", "soft", []step{{session: 1, busy: 2, want: "0>0"}, {session: 1, want: "1>0"},
			{at: time.Second, done: 1}, {at: 2 * time.Second, done: 2}, {at: 13 * time.Second, session: 1, busy: 1, want: "2>1"}}},
		{"a worker that goes frees its sessions", "hard", []step{{session: 1, busy: 2, want: "0>0"}, {remove: 1},
			{session: 1, want: "1>1"}, {session: 1, want: "2>1"}}},
	} {
		d := newDesk(t, 2, func(s *Settings) { s.SessionAffinity = SessionAffinity{Mode: test.mode, TTL: ttl} })
		for _, s := range test.steps {
			d.now = s.at
			if s.busy > 0 {
				dispatch(d.Router, s.busy-1, 5)
			}
			switch {
			case s.done > 0:
				d.done(s.done - 1)
			case s.remove > 0:
				d.Remove(s.remove - 1)
			default:
				d.want(test.name, d.submit(10, func(q *Request) { q.Session = s.session }), s.want)
			}
		}
	}
}

// With a soft affinity an overloaded worker is left for another, to which the session is bound from then on; with a
// hard one the request is refused.
func TestAffinityUnderOverload(t *testing.T) {
	for mode, want := range map[string][2]string{"soft": {"1>1", "2>1"}, "hard": {"1:overloaded", "2>0"}} {
		d := newDesk(t, 2, func(s *Settings) {
			s.SessionAffinity.Mode = mode
			s.PrefillTokens = 100
		})
		session := func(q *Request) { q.Session = 1 }
		dispatch(d.Router, 1, 1)
		d.want(mode, d.submit(101, session), "0>0")
		d.want(mode+", overloaded", d.submit(10, session), want[0])
		d.firstToken(0)
		dispatch(d.Router, 1, 9)
		d.want(mode+", later", d.submit(10, session), want[1])
	}
}

// A sticky session leaves a worker that may take nothing more.
func TestStickyUnderOverload(t *testing.T) {
	d := newDesk(t, 2, func(s *Settings) { s.Policy, s.PrefillTokens = "sticky", 100 })
	dispatch(d.Router, 1, 1)
	d.want("first turn", d.submit(101, nil), "0>0")
	d.want("overloaded", d.submit(10, nil), "1>1")
	d.firstToken(0)
	d.want("bound anew", d.submit(10, nil), "2>1")
}

// A session with a hard affinity waits for its worker though another is free.
func TestHardAffinityWaits(t *testing.T) {
	d := newDesk(t, 2, func(s *Settings) {
		s.SessionAffinity.Mode = "hard"
		s.ThresholdTokens = 100
	})
	session := func(q *Request) { q.Session = 1 }
	dispatch(d.Router, 1, 1)
	d.want("bound", d.submit(200, session), "0>0")
	d.want("worker 0 is busy", d.submit(10, session), "")
	d.want("free", d.firstToken(0), "1>0")
}

func TestAffinityByParent(t *testing.T) {
	for byParent, want := range map[bool]string{true: "1>0", false: "1>1"} {
		d := newDesk(t, 2, func(s *Settings) { s.SessionAffinity = SessionAffinity{"soft", time.Hour, byParent} })
		dispatch(d.Router, 1, 1)
		d.want("root", d.submit(10, func(q *Request) { q.Session, q.Parent = 1, 1 }), "0>0")
		dispatch(d.Router, 0, 9)
		d.want("child", d.submit(10, func(q *Request) { q.Session, q.Parent = 2, 1 }), want)
	}
}

// A request that is submitted again, as after the loss of a worker, runs once.
func TestAffinityOfResubmitted(t *testing.T) {
	d := newDesk(t, 2, func(s *Settings) { s.SessionAffinity = SessionAffinity{Mode: "soft", TTL: time.Second} })
	d.submit(10, nil)
	d.Submit(0, d.requests[0])
	d.done(0)
	if h := d.affinity.by[0]; h.active != 0 || d.loads[0].requests+d.loads[1].requests != 0 {
		t.Errorf("%d requests of the session run, workers have %+v", h.active, d.loads)
	}
}

// Idle bindings do not pile up.
func TestAffinityForgets(t *testing.T) {
	d := newDesk(t, 2, func(s *Settings) { s.SessionAffinity = SessionAffinity{Mode: "soft", TTL: time.Second} })
	for i := range 1000 {
		d.now = time.Duration(i) * 10 * time.Second
		d.submit(10, func(q *Request) { q.Session = uint64(i) })
		d.done(i)
	}
	if n := len(d.affinity.by); n > 7 { // a minute's
		t.Errorf("%d sessions are bound", n)
	}
	if sum := d.affinity.count[0] + d.affinity.count[1]; sum != int64(len(d.affinity.by)) {
		t.Errorf("workers count %d bindings, want %d", sum, len(d.affinity.by))
	}
}

func TestPoliciesThatImplyAffinity(t *testing.T) {
	for _, test := range []struct{ policy, mode, want string }{
		{"kv", "off", "off"}, {"thunderagent", "off", "soft"}, {"thunderagent", "", "soft"}, {"thunderagent", "hard", "hard"},
		{"soft-affinity-load-guard", "off", "soft"}, {"dynamo-soft-affinity-load-guard", "soft", "soft"},
	} {
		got := Settings{Policy: test.policy, SessionAffinity: SessionAffinity{Mode: test.mode}}.Effective().SessionAffinity
		if got.Mode != test.want || got.Mode == "soft" && test.mode != "soft" && got.TTL != 30*time.Minute {
			t.Errorf("%s with mode %q has %+v, want mode %s", test.policy, test.mode, got, test.want)
		}
	}
}
