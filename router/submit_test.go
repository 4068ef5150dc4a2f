package router

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// told writes decisions as "request>worker" or "request:reason".
func told(decisions []Decision) string {
	var list []string
	for _, d := range decisions {
		if d.Rejected != Placed {
			list = append(list, fmt.Sprintf("%d:%v", d.Request.ID, d.Rejected))
		} else {
			list = append(list, fmt.Sprintf("%d>%d", d.Request.ID, d.Worker))
		}
	}
	return strings.Join(list, " ")
}

// desk submits requests to a router and keeps them by ID.
type desk struct {
	*Router
	t        testing.TB
	requests []*Request
	now      time.Duration
}

// newDesk returns a desk of least-loaded workers with blocks of 10 tokens, 100 blocks and steps of 1000 tokens.
func newDesk(t testing.TB, workers int, edit func(*Settings)) *desk {
	s := Defaults("least-loaded")
	edit(&s)
	r, err := New(s, Pool{Workers: workers, BlockSize: 10, MaxBatchedTokens: 1000, KVBlocks: 100}, 1)
	if err != nil {
		t.Fatal(err)
	}
	return &desk{Router: r, t: t}
}

// submit submits the next request and tells what is decided.
func (d *desk) submit(input int32, edit func(*Request)) string {
	q := unbound(Request{ID: int32(len(d.requests)), Input: input, PromptBlocks: input / 10})
	if edit != nil {
		edit(q)
	}
	d.requests = append(d.requests, q)
	return told(d.Submit(d.now, q))
}

func (d *desk) firstToken(id int) string {
	d.FirstToken(d.requests[id])
	return told(d.Drain(d.now))
}

func (d *desk) done(id int) string {
	d.Done(d.now, d.requests[id])
	return told(d.Drain(d.now))
}

func (d *desk) want(step, got, want string) {
	d.t.Helper()
	if got != want {
		d.t.Errorf("%s: decided %q, want %q", step, got, want)
	}
}

func TestWithoutThresholdNothingWaits(t *testing.T) {
	d := newDesk(t, 1, func(*Settings) {})
	for i := range 100 {
		d.want("submit", d.submit(1e6, func(q *Request) { q.PriorityJump = float64(i) }), fmt.Sprintf("%d>0", i))
	}
	if d.Waiting() != 0 {
		t.Errorf("%d wait", d.Waiting())
	}
}

func TestQueueBehindBusyWorkers(t *testing.T) {
	d := newDesk(t, 2, func(s *Settings) { s.Threshold = 0.5 }) // busy above 500 tokens
	d.want("first", d.submit(500, func(q *Request) { q.Pinned = 0 }), "0>0")
	d.want("at the threshold a worker is free", d.submit(600, func(q *Request) { q.Pinned = 0 }), "1>0")
	d.want("one free worker is enough", d.submit(501, nil), "2>1")
	d.want("both busy", d.submit(10, nil), "")
	d.want("both busy", d.submit(10, nil), "")
	// Worker 0 has 500 tokens left and two requests: it is free, but the policy still prefers worker 1 with one.
	d.want("first token of one of two", d.firstToken(1), "3>1 4>1")
	d.want("three requests on worker 1", d.submit(10, nil), "5>0")
	d.want("busy again", d.submit(10, nil), "")
	d.want("done before its first token", d.done(2), "6>1")
	d.want("nothing waits", d.done(0), "")
	if d.Waiting() != 0 {
		t.Errorf("%d wait", d.Waiting())
	}
}

// A new arrival goes behind those that wait, though a worker is free for it.
func TestArrivalsQueueBehindBacklog(t *testing.T) {
	d := newDesk(t, 1, func(s *Settings) { s.ThresholdTokens = 100 })
	d.want("fills the worker", d.submit(101, nil), "0>0")
	d.want("waits", d.submit(50, nil), "")
	d.FirstToken(d.requests[0]) // but nobody drains
	d.want("waits behind it", d.submit(50, func(q *Request) { q.PriorityJump = 99; q.StrictPriority = 9 }), "")
	d.want("and goes by its priority", told(d.Drain(0)), "2>0 1>0")
	d.want("nothing waits", d.submit(1, nil), "3>0")
}

func TestBusyWorkerRatio(t *testing.T) {
	d := newDesk(t, 4, func(s *Settings) { s.ThresholdTokens, s.BusyWorkerRatio = 100, 0.5 })
	d.want("none busy", d.submit(200, nil)[:1], "0")
	d.want("one of four", d.submit(200, nil)[:1], "1")
	d.want("two of four", d.submit(200, nil), "")
	d.want("one of four", d.firstToken(0)[:1], "2")
}

// A request that only worker 0 may serve waits for that one alone, and holds up no other.
func TestPinnedRequestsWaitInLanes(t *testing.T) {
	d := newDesk(t, 2, func(s *Settings) { s.ThresholdTokens = 100 })
	pin := func(worker int32) func(*Request) { return func(q *Request) { q.Pinned = worker } }
	d.want("worker 0", d.submit(200, pin(0)), "0>0")
	d.want("worker 1", d.submit(200, pin(1)), "1>1")
	d.want("pinned", d.submit(10, pin(0)), "")
	d.want("any", d.submit(10, nil), "")
	d.want("worker 1 is free for any", d.firstToken(1), "3>1")
	d.want("the backlog is the class's", d.submit(10, nil), "")
	d.want("worker 0 is free for both", d.firstToken(0)[:4], "2>0 ")
	d.want("not in the pool", d.submit(10, pin(2)), "5:worker gone")
}

func TestDoneWhileWaiting(t *testing.T) {
	d := newDesk(t, 1, func(s *Settings) { s.ThresholdTokens = 100 })
	d.submit(200, nil)
	for range 3 {
		d.submit(10, nil)
	}
	d.want("the client of 2 hangs up", d.done(2), "")
	d.Done(0, d.requests[2]) // and nothing more happens
	if d.Waiting() != 2 {
		t.Errorf("%d wait, want 2", d.Waiting())
	}
	d.want("the others go", d.firstToken(0), "1>0 3>0")
	if d.loads[0].requests != 3 {
		t.Errorf("worker 0 has %d requests, want 3", d.loads[0].requests)
	}
	// A request that waits may be submitted anew.
	d.submit(200, nil)
	d.submit(10, nil)
	again := d.requests[5]
	d.want("again", told(d.Submit(0, again)), "")
	d.want("once", d.firstToken(4), "5>0")
}

func TestQueueLimits(t *testing.T) {
	limit := func(n int64) *int64 { return &n }
	for _, test := range []struct {
		name   string
		limits Class
		want   []string // of submitting 40 tokens, 30 of them cached, while both workers are busy
	}{
		{"none", Class{}, []string{"", "", "", "", ""}},
		{"no room", Class{RequestLimit: limit(0)}, []string{"2:queue full"}},
		{"one request per worker", Class{RequestLimit: limit(1)}, []string{"", "", "4:queue full"}},
		// 40, then 80 tokens wait against 2*30: the request that crosses the limit still enters.
		{"30 tokens per worker", Class{TokenLimit: limit(30)}, []string{"", "", "4:queue full"}},
		{"45 cached tokens per worker", Class{CachedLimit: limit(45)}, []string{"", "", "", "5:queue full"}},
	} {
		d := newDesk(t, 2, func(s *Settings) {
			s.Policy = "kv"
			c := test.limits
			c.Name, c.Family, c.Bucket, c.Quantum, c.ThresholdTokens = "all", "f", "b", 1, limit(100)
			s.DefaultFamily, s.Buckets, s.Classes = "f", []Bucket{{0, "b"}}, []Class{c}
		})
		path := []trace.Span{{Key: 1, From: 0, To: 4}}
		d.Stored(0, 1, trace.Span{Key: 1, From: 0, To: 3})
		d.submit(200, nil)
		d.submit(200, nil)
		for i, want := range test.want {
			d.want(fmt.Sprintf("%s, submit %d", test.name, i), d.submit(40, func(q *Request) { q.Path = path }), want)
		}
	}
}

// Below a rejection threshold workers are preferred; when all are above, requests are refused.
func TestOverload(t *testing.T) {
	for _, test := range []struct {
		name string
		edit func(*Settings)
	}{
		{"tokens", func(s *Settings) { s.PrefillTokens = 300 }},
		{"fraction of 1000 tokens", func(s *Settings) { s.PrefillFraction = 0.3 }},
		{"share of 100 blocks", func(s *Settings) { s.DecodeBlocks = 0.3 }},
	} {
		d := newDesk(t, 2, test.edit)
		d.want(test.name+": at the threshold", d.submit(300, func(q *Request) { q.Pinned = 0 }), "0>0")
		d.want(test.name+": not above it", d.submit(10, func(q *Request) { q.Pinned = 0 }), "1>0")
		d.want(test.name+": worker 0 is overloaded, and the preferred", d.submit(400, func(q *Request) { q.Preferred = 0 }), "2>1")
		d.want(test.name+": both", d.submit(10, nil), "3:overloaded")
		d.want(test.name+": pinned", d.submit(10, func(q *Request) { q.Pinned = 1 }), "4:overloaded")
		d.done(2)
		d.want(test.name+": worker 1 is back", d.submit(10, nil), "5>1")
		d.want(test.name+": worker 0 is not", d.submit(10, func(q *Request) { q.Pinned = 0 }), "6:overloaded")
	}
}

func TestPrecedence(t *testing.T) {
	d := newDesk(t, 4, func(s *Settings) { s.SessionAffinity.Mode = "soft" })
	at := func(session uint64, pinned, preferred int32) string {
		return d.submit(10, func(q *Request) { q.Session, q.Pinned, q.Preferred = session, pinned, preferred })
	}
	d.want("pinned before preferred", at(1, 3, 2), "0>3")
	d.want("bound by that", at(1, -1, -1), "1>3")
	d.want("preferred before the binding", at(1, -1, 2), "2>2")
	d.want("bound anew", at(1, -1, -1), "3>2")
	d.want("a preferred worker that is not there", at(1, -1, 7), "4>2")
}

func TestRemoveAndAdd(t *testing.T) {
	for _, policy := range Policies() {
		r := newRouter(t, Defaults(policy), 3, 10, 1)
		d := &desk{Router: r, t: t}
		for range 9 {
			d.submit(100, nil)
		}
		r.Remove(1)
		r.Remove(1)
		r.Remove(7)
		for range 9 {
			if got := d.submit(100, nil); strings.HasSuffix(got, ">1") || !strings.Contains(got, ">") {
				t.Errorf("%s: without worker 1 decided %q", policy, got)
			}
		}
		r.Remove(0)
		r.Remove(2)
		d.want(policy+": nobody is left", d.submit(100, nil), "18:no worker")
		r.Add(1)
		r.Add(1)
		r.Add(3)
		r.Add(-1)
		d.want(policy+": worker 1 is back", d.submit(100, nil), "19>1")
		for _, q := range d.requests {
			r.Done(0, q)
		}
		for worker, l := range r.loads {
			if l != (load{}) {
				t.Errorf("%s: worker %d is left with %+v", policy, worker, l)
			}
		}
	}
}

func TestRemoveWhileWaiting(t *testing.T) {
	d := newDesk(t, 2, func(s *Settings) { s.ThresholdTokens = 100 })
	d.submit(200, func(q *Request) { q.Pinned = 0 })
	d.submit(200, func(q *Request) { q.Pinned = 1 })
	d.submit(10, func(q *Request) { q.Pinned = 1 })
	d.submit(10, nil)
	d.Remove(1)
	d.want("who waits for worker 1 is refused", told(d.Drain(0)), "2:worker gone")
	d.Remove(0)
	d.want("with a queue, who comes to no worker waits", d.submit(10, nil), "")
	d.want("and stays", told(d.Drain(0)), "")
	d.Add(0)
	d.want("worker 0 is still busy", told(d.Drain(0)), "")
	d.want("then free", d.done(0), "3>0 4>0")
}

func TestRemoveForgetsCache(t *testing.T) {
	for _, events := range []bool{true, false} {
		s := Defaults("kv")
		s.UseKVEvents = events
		r := newRouter(t, s, 2, 10, 1)
		q := unbound(Request{Input: 45, PromptBlocks: 4, Path: []trace.Span{{Key: 1, From: 0, To: 2}, {Key: 2, From: 2, To: 4}}})
		for worker := range 2 {
			q.Pinned = int32(worker)
			r.Submit(0, q)
			for _, span := range q.Path {
				r.Stored(0, worker, span)
			}
		}
		r.overlapOn(0, q, 0) // the events are in the index; one more is under way
		r.Stored(0, 1, trace.Span{Key: 3, From: 0, To: 9})
		r.Remove(1)
		r.Add(1)
		if got := []int32{r.overlapOn(1, q, 0), r.overlapOn(1, q, 1)}; !slices.Equal(got, []int32{4, 0}) {
			t.Errorf("events %v: workers 0 and 1 hold %v blocks, want [4 0]", events, got)
		}
		other := unbound(Request{Input: 90, PromptBlocks: 9, Path: []trace.Span{{Key: 3, From: 0, To: 9}}})
		if got := r.overlapOn(1, other, 1); got != 0 {
			t.Errorf("events %v: an event from before the removal came through: %d blocks", events, got)
		}
	}
}

// The overlaps of a waiting request stand for ten seconds; then they are looked up again.
func TestOverlapRefresh(t *testing.T) {
	for _, test := range []struct {
		wait time.Duration
		want int32
	}{{10 * time.Second, 3}, {10*time.Second + 1, 1}} {
		d := newDesk(t, 1, func(s *Settings) { s.Policy, s.ThresholdTokens = "kv", 100 })
		span := trace.Span{Key: 1, From: 0, To: 3}
		d.Stored(0, 0, span)
		d.submit(200, nil)
		d.submit(30, func(q *Request) { q.Path = []trace.Span{span} })
		d.Removed(time.Second, 0, trace.Span{Key: 1, From: 1, To: 3})
		d.FirstToken(d.requests[0])
		got := d.Drain(test.wait)
		if len(got) != 1 || got[0].Overlap != test.want {
			t.Errorf("after %v: %+v, want an overlap of %d", test.wait, got, test.want)
		}
		if len(d.snapshots) != 1 || d.requests[1].overlap != nil {
			t.Error("the snapshot was not given back")
		}
	}
}

// A request of wspt that only one worker may serve is measured by what that one holds.
func TestShortestByEligibleWorkers(t *testing.T) {
	d := newDesk(t, 2, func(s *Settings) { s.Policy, s.ThresholdTokens, s.Queue.Policy = "kv", 100, "wspt" })
	span := trace.Span{Key: 1, From: 0, To: 9}
	d.Stored(0, 1, span)
	d.submit(200, func(q *Request) { q.Pinned = 0 })
	d.submit(200, func(q *Request) { q.Pinned = 1 })
	cached := func(pinned int32) func(*Request) {
		return func(q *Request) { q.Path, q.Pinned = []trace.Span{span}, pinned }
	}
	d.submit(90, cached(0))  // 90 tokens to compute
	d.submit(95, cached(-1)) // 5
	d.submit(50, nil)        // 50
	for _, want := range []struct {
		id   int
		cost int64
	}{{2, 90}, {3, 5}, {4, 50}} {
		if got := d.requests[want.id].cost; got != want.cost {
			t.Errorf("request %d costs %d, want %d", want.id, got, want.cost)
		}
	}
}
