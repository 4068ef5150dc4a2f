package router

import (
	"fmt"
	"maps"
	"time"
)

// SessionAffinity keeps the requests of a session on one worker. A session is bound by its first dispatch; the binding
// ends when none of its requests ran for TTL, or when the worker goes.
type SessionAffinity struct {
	// Mode is off; soft, which goes to the bound worker while it is eligible and is bound anew elsewhere; or hard,
	// which goes nowhere else.
	Mode string        `yaml:"mode"`
	TTL  time.Duration `yaml:"ttl"`
	// ByParent binds a session together with those of the same parent.
	ByParent bool `yaml:"by_parent"`
}

func (s SessionAffinity) on() bool { return s.Mode == "soft" || s.Mode == "hard" }

func (s SessionAffinity) check() error {
	switch s.Mode {
	case "", "off":
		return nil
	case "soft", "hard":
		return checkSpans(span{"router.session_affinity.ttl", s.TTL, time.Second, maxTTL})
	}
	return fmt.Errorf("router.session_affinity.mode: %q is unknown, want off, soft or hard", s.Mode)
}

// A home is the worker to which a session is bound.
type home struct {
	worker int32
	active int32         // requests of the session that run, where that counts
	used   time.Duration // when the session was last picked for, or its last request ended
}

// homes are the bindings of sessions. Those that were idle for longer than ttl are dropped.
type homes struct {
	ttl   time.Duration
	by    map[uint64]*home
	swept time.Duration
	count []int64 // bindings by worker
}

// sweepEvery is how often idle bindings are dropped, as in Dynamo's dynamo-sticky-min-load.
const sweepEvery = time.Minute

func newHomes(ttl time.Duration, workers int) *homes {
	return &homes{ttl: ttl, by: make(map[uint64]*home), count: make([]int64, workers)}
}

func (b *homes) idle(h *home, now time.Duration) bool { return h.active == 0 && now-h.used > b.ttl }

// sweep drops idle bindings once a minute.
func (b *homes) sweep(now time.Duration) {
	if now-b.swept >= sweepEvery {
		b.swept = now
		b.drop(func(h *home) bool { return b.idle(h, now) })
	}
}

func (b *homes) drop(which func(*home) bool) {
	maps.DeleteFunc(b.by, func(_ uint64, h *home) bool {
		gone := which(h)
		if gone {
			b.count[h.worker]--
		}
		return gone
	})
}

// find returns the binding of a session, nil when it has none. A nil homes has none.
func (b *homes) find(now time.Duration, session uint64) *home {
	if b == nil {
		return nil
	}
	b.sweep(now)
	if h := b.by[session]; h != nil && !b.idle(h, now) {
		return h
	}
	return nil
}

// bind makes worker the home of a session.
func (b *homes) bind(session uint64, worker int32) *home {
	h := b.by[session]
	if h == nil {
		h = &home{}
		b.by[session] = h
	} else {
		b.count[h.worker]--
	}
	h.worker = worker
	b.count[worker]++
	return h
}

// affinityKey is the session that the affinity of q binds.
func (r *Router) affinityKey(q *Request) uint64 {
	if r.settings.SessionAffinity.ByParent {
		return q.Parent
	}
	return q.Session
}

// exact returns the one worker that may serve q: the pinned one, else that of its hard affinity; -1 for any.
func (r *Router) exact(now time.Duration, q *Request) int32 {
	if q.Pinned >= 0 {
		return q.Pinned
	}
	if r.settings.SessionAffinity.Mode == "hard" {
		if h := r.affinity.find(now, r.affinityKey(q)); h != nil {
			return h.worker
		}
	}
	return -1
}

// bind binds the session of q, which has been dispatched, to its worker.
func (r *Router) bind(now time.Duration, q *Request) {
	if r.affinity == nil {
		return
	}
	q.home = r.affinity.bind(r.affinityKey(q), q.worker)
	q.home.active++
	q.home.used = now
}

// unbind frees the sessions of a worker.
func (r *Router) unbind(worker int32) {
	for _, b := range []*homes{r.affinity, r.homes} {
		if b != nil {
			b.drop(func(h *home) bool { return h.worker == worker })
		}
	}
}
