package thunderagent

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// engines is what the engines know of requests.
type engines struct {
	generated map[*Request]int32
	on        map[*Request]int32 // worker of the requests that run, less final ones that were forwarded
}

func newEngines() engines { return engines{map[*Request]int32{}, map[*Request]int32{}} }

func (e engines) sent(q *Request, w int32, final string) {
	if !q.Final || final == finalRelease {
		e.on[q] = w
	}
}

func (e engines) live() Live {
	return Live{
		Worker: func(w int) (sum int64) {
			for q, on := range e.on {
				if int(on) == w {
					sum += int64(e.generated[q])
				}
			}
			return sum
		},
		Request: func(q *Request) int32 { return e.generated[q] },
	}
}

// rig drives a table by hand: it is the router, which sends each release where the table wishes, and the engines.
type rig struct {
	*testing.T
	*Table
	engines
	now      time.Duration
	running  map[uint64]*Request
	released []Release // by the last call
	events   []string
}

// newRig has workers of those capacities, in tokens.
func newRig(t *testing.T, s Settings, capacity ...int64) *rig {
	t.Helper()
	r := &rig{T: t, engines: newEngines(), running: map[uint64]*Request{}}
	caps := make([]Capacity, len(capacity))
	for w, c := range capacity {
		caps[w].Tokens = c
	}
	table, err := New(s, caps, r.engines.live())
	if err != nil {
		t.Fatal(err)
	}
	r.Table = table
	table.Observe(func(e Event) {
		r.events = append(r.events, fmt.Sprintf("%s %d: %s", e.Kind, e.Session, e.Reason))
	})
	return r
}

func native1(t *testing.T) *rig { return newRig(t, native(), 10_000) }

// took sends what was released.
func (r *rig) took(released []Release) {
	r.released = slices.Clone(released)
	for _, out := range r.released {
		if out.Swallowed {
			continue
		}
		q := out.Request
		r.running[q.Session] = q
		if w := max(out.Worker, out.Target); w != nowhere {
			r.sent(q, w)
		}
	}
}

func (r *rig) sent(q *Request, w int32) {
	r.engines.sent(q, w, r.settings.Final)
	r.Sent(r.now, q, w)
}

// request brings any request.
func (r *rig) request(q *Request) *Request {
	r.Helper()
	released, err := r.Arrive(r.now, q)
	if err != nil {
		r.Fatal(err)
	}
	r.took(released)
	return q
}

func (r *rig) arrive(session uint64, input int32) *Request {
	r.Helper()
	return r.request(&Request{Session: session, Input: input, Pin: nowhere})
}

// end completes a session's running request with a context of that many tokens.
func (r *rig) end(session uint64, context int32) {
	r.Helper()
	q := r.running[session]
	if q == nil {
		r.Fatalf("session %d runs nothing", session)
	}
	delete(r.running, session)
	delete(r.on, q)
	r.took(r.Complete(r.now, q, context))
}

// act makes a session act with that many tokens.
func (r *rig) act(session uint64, tokens int32) {
	r.Helper()
	r.arrive(session, tokens)
	r.end(session, tokens)
}

// tick goes on to the next tick.
func (r *rig) tick() {
	r.Helper()
	at, ok := r.NextTick(r.now)
	if !ok {
		r.Fatal("no tick is due")
	}
	r.now = at
	r.took(r.Tick(at))
}

// ticks passes that much time, with its ticks.
func (r *rig) ticks(d time.Duration) {
	end := r.now + d
	var all []Release
	for at, ok := r.NextTick(r.now); ok && at <= end; at, ok = r.NextTick(r.now) {
		r.now = at
		r.took(r.Tick(at))
		all = append(all, r.released...)
	}
	r.now, r.released = end, all
}

// is checks the state of a session's program, in the words of describe.
func (r *rig) is(session uint64, want string) {
	r.Helper()
	if got := r.describe(session); got != want {
		r.Errorf("at %v session %d is %q, want %q", r.now, session, got, want)
	}
}

func (r *rig) describe(session uint64) string {
	p, ok := r.Program(r.now, session)
	if !ok {
		return "none"
	}
	s := "reasoning"
	if p.Acting {
		s = "acting"
	}
	switch {
	case p.Held:
		s += ", held"
	case p.Paused:
		s += ", paused"
	case p.Worker == nowhere:
		s += ", nowhere"
	default:
		s += fmt.Sprintf(" on %d", p.Worker)
	}
	if p.Marked {
		s += ", marked"
	}
	waiting := p.Waiting
	if p.Held {
		waiting-- // the held one itself
	}
	if waiting > 0 {
		s += fmt.Sprintf(", %d behind", waiting)
	}
	return s
}

// used checks the use of all workers.
func (r *rig) used(want ...int64) {
	r.Helper()
	got := make([]int64, len(want))
	for w := range want {
		got[w] = r.Used(w)
	}
	if !slices.Equal(got, want) {
		r.Errorf("at %v workers use %d, want %d", r.now, got, want)
	}
}

// sessions returns those that were released last, in order.
func (r *rig) sessions() []uint64 {
	ids := []uint64{}
	for _, out := range r.released {
		ids = append(ids, out.Request.Session)
	}
	return ids
}

func (r *rig) releasedOnly(want ...uint64) {
	r.Helper()
	if got := r.sessions(); !slices.Equal(got, want) {
		r.Errorf("at %v sessions %d were released, want %d", r.now, got, want)
	}
}

// path is one prefix-tree node of that many blocks.
func path(node, blocks int32) []trace.Span {
	return []trace.Span{{Key: trace.MakeKey(trace.NodeID(node), 0), To: blocks}}
}
