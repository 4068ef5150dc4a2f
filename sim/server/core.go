package server

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/wire"
)

// core is the simulated state. Only the goroutine of Server.Run touches it.
type core struct {
	server   *Server
	service  *sim.Service
	prefixes *prefixes
	streams  map[*sim.Request]*stream
	counts   *counters

	late     report.Gaps
	latest   time.Duration
	reported time.Duration // when Server.lag was set
}

// stream is a request on its way between its handler and the core.
type stream struct {
	request sim.Request
	blocks  []uint64 // sequence hashes of prompt and answer
	arrived time.Duration
	limited bool // the answer ends because of max_tokens

	// Of the core.
	end         *prefix
	first, last time.Duration // of tokens
	admitted    time.Duration
	begun       bool

	mu      sync.Mutex
	due     []time.Duration // of tokens that the handler has not taken yet: when the client should see each
	cached  int32
	over    bool
	failure *wire.Error
	wake    chan struct{} // has something when the above has changed
}

// Run moves the deployment through time until the context ends. An error is a fault of the simulation.
func (s *Server) Run(ctx context.Context) error {
	defer close(s.done)
	c := &core{server: s}
	if err := c.boot(); err != nil {
		return err
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if err := c.advance(); err != nil {
			c.failAll(&wire.Error{Status: 500, Message: err.Error(), Type: "InternalServerError", Code: "500"})
			return fmt.Errorf("serving deployment %q: %w", s.plan.Name, err)
		}
		wait := time.Hour
		if next := c.service.Next(); next != engine.Never {
			wait = min(wait, s.clock.wall(next-s.clock.now()))
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case f := <-s.inbox:
			f(c)
			for range len(s.inbox) {
				(<-s.inbox)(c)
			}
		case <-ctx.Done():
			c.reportLag()
			c.failAll(&wire.Error{Status: 503, Message: errStopped.Error(), Type: "ServiceUnavailable", Code: "503"})
			return nil
		}
	}
}

// boot begins with empty caches and counters.
func (c *core) boot() error {
	service, err := sim.NewService(c.server.plan, nil)
	if err != nil {
		return err
	}
	c.service, c.prefixes = service, newPrefixes()
	c.service.Cached = c.prefixes.cached
	c.streams, c.counts = map[*sim.Request]*stream{}, newCounters()
	return nil
}

// restart is that of a server which crashed, and is back after a time.
func (c *core) restart(downtime time.Duration) {
	c.failAll(nil)
	c.server.down.Store(int64(c.server.clock.now() + downtime))
	if err := c.boot(); err != nil { // it went well before
		panic(err)
	}
}

// advance lets happen what is due, and tells the streams.
func (c *core) advance() error {
	now := c.server.clock.now()
	if due := c.service.Next(); due <= now {
		late := c.server.clock.wall(now - due)
		c.late.Add(late, 1)
		c.latest = max(c.latest, late)
	}
	if now-c.reported > time.Second {
		c.reported = now
		c.reportLag()
	}
	changes, err := c.service.Advance(now)
	for _, ch := range changes {
		if st := c.streams[ch.Request]; st != nil {
			c.change(st, ch)
		}
	}
	return err
}

func (c *core) reportLag() {
	c.server.lag.Store(&Lag{c.latest, time.Duration(c.late.Quantile(0.99)), c.late.Count()})
}

// submit takes a stream.
func (c *core) submit(st *stream) {
	st.request.Path, st.end = c.prefixes.add(st.blocks)
	st.blocks = nil
	c.streams[&st.request] = st
	c.service.Submit(st.arrived, &st.request)
}

// cancel takes out a stream whose client has gone.
func (c *core) cancel(st *stream) {
	if c.streams[&st.request] == st && !st.over {
		c.counts.finished["abort"]++
		c.service.Cancel(&st.request)
	}
}

// change does what became of a stream.
func (c *core) change(st *stream, ch sim.Change) {
	q := ch.Request
	switch ch.What {
	case sim.Admitted:
		if !st.begun {
			st.begun, st.admitted = true, ch.At
			c.counts.prompt += int64(q.Input)
			c.counts.queries += int64(q.Input)
			c.counts.hits += int64(q.Hit)
			c.counts.queue.add(ch.At - st.arrived)
		}
	case sim.Progressed:
		c.tokens(st, ch)
	case sim.Completed:
		c.tokens(st, ch)
		c.counts.complete(st, ch)
		c.finish(st, nil)
	case sim.TurnedAway:
		c.finish(st, turnedAway(ch.Why))
	case sim.Orphaned:
		c.finish(st, &wire.Error{Status: 500, Message: "the worker of this request is gone", Type: "InternalServerError", Code: "500"})
	case sim.Departed:
		c.forget(st)
	}
}

// tokens hands on the tokens that are new. Each costs the server a little time of its own.
func (c *core) tokens(st *stream, ch sim.Change) {
	st.mu.Lock()
	st.cached = ch.Request.Hit
	fresh := ch.Request.Generated - ch.Before
	for k := range fresh {
		st.due = append(st.due, ch.At+c.server.plan.Cost.TokenDelay()*time.Duration(ch.Before+k+1))
	}
	st.mu.Unlock()
	st.notify()
	c.counts.tokens(st, ch.At, int64(fresh))
}

// finish ends a stream.
func (c *core) finish(st *stream, failure *wire.Error) {
	st.mu.Lock()
	st.over, st.failure = true, failure
	st.mu.Unlock()
	st.notify()
	c.forget(st)
}

func (c *core) forget(st *stream) {
	delete(c.streams, &st.request)
	c.prefixes.free(st.end)
}

// failAll ends all streams; without a failure to tell their connections break.
func (c *core) failAll(failure *wire.Error) {
	all := make([]*stream, 0, len(c.streams))
	for _, st := range c.streams {
		all = append(all, st)
	}
	slices.SortFunc(all, func(a, b *stream) int { return int(a.arrived - b.arrived) })
	for _, st := range all {
		st.mu.Lock()
		st.over, st.failure = true, failure
		if failure == nil {
			st.failure = errCrashed
		}
		st.mu.Unlock()
		st.notify()
	}
	clear(c.streams)
}

// errCrashed breaks the connections of requests that were under way.
var errCrashed = &wire.Error{Message: "the server crashed"}

// notify wakes the handler. It never waits.
func (st *stream) notify() {
	select {
	case st.wake <- struct{}{}:
	default:
	}
}

// take returns what the handler has to write, reusing buf for it.
func (st *stream) take(buf []time.Duration) (due []time.Duration, over bool, failure *wire.Error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	due, st.due = st.due, buf[:0]
	return due, st.over, st.failure
}

// turnedAway is the answer to a request that no worker takes: 529 where it may come again soon, as Dynamo's frontend
// answers.
func turnedAway(why string) *wire.Error {
	e := &wire.Error{Status: 529, Message: "request refused: " + why, Type: "Overloaded", Code: "529"}
	switch why {
	case "no worker", "worker gone", "program scheduler full":
		e.Status, e.Type, e.Code = 503, "ServiceUnavailable", "503"
	}
	return e
}
