// Package replay drives live servers with recorded agent work, on the recorded schedule, and measures what comes back:
// the same figures, over the same rows, as for a recording or a simulation.
//
//	plan.Plan ── Run ──► Result ── Report ──► report.Run
//	                 └── Outcome, one per request, as it ends
package replay

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/replay/prompts"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/wire"
)

// What happens to the rest of a session after a request that failed.
const (
	Continue   = "continue"    // the next turn is sent all the same
	EndSession = "end-session" // no further turn is sent
	Abort      = "abort"       // nothing further is sent at all
)

// Options say how a plan is run.
type Options struct {
	Plan    *plan.Plan
	Client  *client.Client
	Prompts *prompts.Maker
	// Model is what requests ask for; "" is what the recorded call asked for.
	Model string
	// LiveOutputs splices what servers generate, token ids or text, into the later prompts that contain it.
	LiveOutputs bool
	// ForceOutputs asks for the very token ids that later prompts contain.
	ForceOutputs bool
	// Hints sends the hints that the trace has for the router. Cancel closes the connections of calls that the recorded client
	// cancelled: after the recorded tokens, or after the recorded time where there were none.
	Hints, Cancel bool
	// Precise spins for the last moment before a request is due.
	Precise bool
	// MaxInFlight, where positive, holds requests back while so many are under way. What is held counts as client lag.
	MaxInFlight int
	// Duration, where positive, is how long requests are sent. Grace is how long those under way may still take when
	// sending has stopped early.
	Duration, Grace time.Duration
	// OnError is Continue, EndSession or Abort. A context that is too long ends its session in any case: later turns
	// only grow.
	OnError string
	// MaxErrorRate stops the replay when a greater share of requests failed; 0 is never.
	MaxErrorRate float64
	// Window is the part of the replay that is measured, by when requests are sent; the zero Window is all of it.
	Window report.Window
	// Steady measures from the end of the first program to the beginning of the last instead: neither the ramp, in which
	// programs are all young, nor the drain, in which they get fewer.
	Steady bool
	// Each is called for every request as it ends, one at a time.
	Each     func(*Outcome) error
	Progress *Progress
}

// Progress may be read while a replay runs.
type Progress struct {
	Ended, Failed, InFlight, Programs atomic.Int64
	// Lag is that of the latest request, in ns.
	Lag atomic.Int64
}

// Outcome is what became of one request.
type Outcome struct {
	plan.Send
	// ID is its X-Request-ID.
	ID      string
	Session wire.Session
	Server  int
	Model   string
	// Held tells that it waited for others to end (MaxInFlight).
	Held    bool
	Retries int
	Answer  *client.Answer
}

// Lag is how late the client sent it: after both its plan and what it waited for let it go.
func (o *Outcome) Lag() time.Duration { return max(0, o.Answer.Sent-o.Due) }

// Slip is how much later than planned it could be sent because what it waited for took longer; 0 without a plan.
func (o *Outcome) Slip() time.Duration {
	if o.Planned < 0 {
		return 0
	}
	return max(0, o.Ready-o.Planned)
}

// minRate is how many requests must have ended before their share of failures can stop a replay.
const minRate = 20

// runner is a replay under way. All but the requests themselves happens on one goroutine.
type runner struct {
	Options
	schedule *plan.Schedule
	requests context.Context // of the requests: outlives the one that stops sending
	ended    chan *Outcome
	inFlight int
	held     bool // something is due, but too much is in flight
	servers  map[sessionKey]int
	next     int // server of the next session
	result   *Result
	failure  error
}

type sessionKey struct {
	session int32
	copy    uint32
}

// Run replays a plan. When ctx ends it sends nothing more, waits for what is under way as long as Grace says, and returns
// what it has: the result is never nil. The error says why an outcome could not be kept; that stops the replay too.
func Run(ctx context.Context, o Options) (*Result, error) {
	requests, cut := context.WithCancel(context.WithoutCancel(ctx))
	defer cut()
	if o.Progress == nil {
		o.Progress = new(Progress)
	}
	r := &runner{Options: o, requests: requests, schedule: o.Plan.Start(), ended: make(chan *Outcome, 1024),
		servers: map[sessionKey]int{}, result: newResult(o.Plan, o.Client.Servers(), o.Window)}
	if o.Steady {
		r.result.Window, r.result.allGaps = never, new(report.Gaps)
	}
	o.Client.Start()
	cpu := cpuTime()
	r.send(ctx)
	r.drain(cut)
	r.result.finish(o.Client.Now(), cpuTime()-cpu)
	r.result.Dropped = o.Client.Dropped()
	return r.result, r.failure
}

// send sends requests as they become due, until none is left or something stops it.
func (r *runner) send(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for r.schedule.Left > 0 && !r.stopped(ctx) {
		wait := r.sendDue()
		if r.Precise {
			if wait -= spin; wait <= 0 {
				r.yield()
				continue
			}
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case o := <-r.ended:
			r.end(o)
		case <-ctx.Done():
		}
	}
}

// spin is how much too late a timer may be.
const spin = time.Millisecond

// yield lets others run, and takes an outcome if there is one.
func (r *runner) yield() {
	select {
	case o := <-r.ended:
		r.end(o)
	default:
		runtime.Gosched()
	}
}

// stopped tells whether sending is over, and notes why.
func (r *runner) stopped(ctx context.Context) bool {
	switch {
	case r.failure != nil:
		r.result.Stopped = "an outcome could not be written"
	case r.result.Stopped != "":
	case ctx.Err() != nil:
		r.result.Stopped, r.result.Interrupted = "it was interrupted", true
	case r.Duration > 0 && r.Client.Now() >= r.Duration:
		r.result.Stopped, r.result.Timed = fmt.Sprintf("its duration of %v was over", r.Duration), true
	}
	return r.result.Stopped != ""
}

// sendDue sends all that is due and returns how long nothing else will be.
func (r *runner) sendDue() time.Duration {
	for {
		due, ok := r.schedule.Next()
		now := r.Client.Now()
		wake := time.Hour
		if r.Duration > 0 {
			wake = max(0, r.Duration-now)
		}
		switch {
		case !ok:
			return wake
		case due > now:
			return min(wake, due-now)
		case r.MaxInFlight > 0 && r.inFlight >= r.MaxInFlight:
			r.held = true
			return wake
		}
		r.start(r.schedule.Send(now))
		r.noteSteady(now)
	}
}

// never is the window of a replay that is not steady yet.
var never = report.Window{From: math.MaxInt64, To: math.MaxInt64}

// noteSteady moves the measured window: it begins when a program has ended and ends when none is left to begin.
func (r *runner) noteSteady(now time.Duration) {
	if !r.Steady {
		return
	}
	w, s := &r.result.Window, r.schedule
	if s.Finished > 0 && w.From == never.From {
		w.From = now
	}
	if s.Live+s.Finished == r.Plan.Programs && w.To == never.To {
		w.To = now
	}
}

// start sends one request.
func (r *runner) start(s plan.Send) {
	w := r.Plan.Workload
	c := &w.Calls[s.Call]
	o := &Outcome{Send: s, Held: r.held, Model: r.Model, ID: copyName(c.Turn.ID, s.Copy)}
	r.held = false
	if o.Model == "" {
		o.Model = c.Turn.Model
	}
	o.Session = wire.Session{ID: copyName(w.Sessions[c.Session].ID, s.Copy), Final: s.Final}
	if parent, ok := r.Plan.Parent(c.Session); ok {
		o.Session.Parent = copyName(w.Sessions[parent].ID, s.Copy)
	}
	o.Server = r.server(sessionKey{c.Session, s.Copy}, s.Final)
	r.inFlight++
	r.Progress.InFlight.Store(int64(r.inFlight))
	go func() {
		q := client.Request{Server: o.Server, ID: o.ID, Session: o.Session, Model: o.Model,
			Prompt: r.Prompts.Prompt(s.Call, s.Copy), MaxTokens: c.Output}
		switch {
		case r.Cancel && c.Turn.Status == trace.Cancelled && (c.Output > 0 || c.Turn.End > c.Turn.Start):
			q.Cancel, q.CancelAfter = true, c.Turn.End-c.Turn.Start
		case r.ForceOutputs:
			q.Force = r.Prompts.Output(s.Call, s.Copy)
		}
		if r.Hints {
			q.Hints = hintsOf(c.Turn)
		}
		o.Answer = r.Client.Do(r.requests, &q)
		o.Retries = q.Retries
		r.ended <- o
	}()
}

// hintsOf are the hints of a turn as Dynamo takes them; nil for none.
func hintsOf(t *trace.Turn) *wire.AgentHints {
	h := wire.AgentHints{Priority: t.Hints.Priority, StrictPriority: t.Hints.StrictPriority, OSL: uint32(max(0, t.Hints.OSL)),
		SpeculativePrefill: t.Hints.SpeculativePrefill}
	if h == (wire.AgentHints{}) {
		return nil
	}
	return &h
}

// copyName sets the ids of repetitions apart, or a server would take them for one session.
func copyName(id string, copy uint32) string {
	if copy == 0 {
		return id
	}
	return fmt.Sprintf("%s#%d", id, copy)
}

// server returns the server of a session: always the same, the next in turn for a new one.
func (r *runner) server(key sessionKey, final bool) int {
	if r.Client.Servers() == 1 {
		return 0
	}
	server, ok := r.servers[key]
	if !ok {
		server = r.next
		r.next = (r.next + 1) % r.Client.Servers()
		r.servers[key] = server
	}
	if final {
		delete(r.servers, key)
	}
	return server
}

// end takes the outcome of a request and lets go what waits for it.
func (r *runner) end(o *Outcome) {
	r.inFlight--
	a := o.Answer
	if r.LiveOutputs && a.Err == nil {
		r.Prompts.Generated(o.Call, o.Copy, a.TokenIDs)
		r.Prompts.GeneratedText(o.Call, o.Copy, string(a.Text))
	}
	if a.Err != nil {
		r.Progress.Failed.Add(1)
		switch {
		case a.Err.Kind == client.FailStopped:
		case r.OnError == Abort:
			r.result.Stopped = fmt.Sprintf("request %s failed: %v", o.ID, a.Err)
		case r.OnError == EndSession || a.Err.Kind == client.FailContext:
			r.schedule.EndSession(o.Send)
		}
	}
	r.schedule.Ended(o.Send, a.End)
	r.noteSteady(a.End)
	r.result.add(o)
	if r.Each != nil && r.failure == nil {
		if err := r.Each(o); err != nil {
			r.failure = fmt.Errorf("keeping the outcome of request %s: %w", o.ID, err)
		}
	}
	if n := len(r.result.Rows); r.MaxErrorRate > 0 && n >= minRate && float64(r.result.Failed) > r.MaxErrorRate*float64(n) && r.result.Stopped == "" {
		r.result.Stopped = fmt.Sprintf("%d of %d requests had failed", r.result.Failed, n)
	}
	p := r.Progress
	p.Ended.Store(int64(len(r.result.Rows)))
	p.InFlight.Store(int64(r.inFlight))
	p.Programs.Store(int64(r.schedule.Finished))
	p.Lag.Store(int64(o.Lag()))
}

// drain waits for what is under way. When sending stopped early it is cut off after the grace.
func (r *runner) drain(cut context.CancelFunc) {
	if r.inFlight == 0 {
		return
	}
	grace := time.NewTimer(max(r.Grace, 0))
	defer grace.Stop()
	for r.inFlight > 0 {
		select {
		case o := <-r.ended:
			r.end(o)
		case <-grace.C:
			cut()
		}
	}
}
