// Package server puts a simulated deployment behind the HTTP interface of a real one, on the wall clock: the engines,
// routers and program schedulers of `agentsim predict`, answering as vLLM does.
//
// One goroutine, the core, owns all simulated state. A handler reads its request, hands it to the core as a stream, and
// writes tokens as the core says that they are there. The core sleeps until the next step of any engine ends, whatever the
// number of streams, and never waits for a client.
package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace/wire"
)

// Bounds on what clients may ask for.
const (
	maxBody     = 64 << 20 // bytes of a request
	maxRequests = 20_000   // at a time
)

// Options say how a deployment is served.
type Options struct {
	// Names are those of the model, the first of which answers carry; none: the deployment's own.
	Names []string
	// TimeScale is how much faster than the wall clock the simulated one runs; 0 is 1.
	TimeScale float64
	// OutputTokens is the mean length of answers that end by themselves; 0 is 200.
	OutputTokens int
	// Faults are given to all requests, beside those that a request asks for.
	Faults []Fault
}

// Server is a simulated deployment as an http.Handler. Run must run while it serves.
type Server struct {
	plan    *sim.Plan
	options Options
	clock   clock
	mux     *http.ServeMux
	created int64 // Unix seconds
	fits    func(input, output int32) bool

	inbox   chan func(*core)
	done    chan struct{} // closed when the core has stopped
	serial  atomic.Int64  // numbers requests
	present atomic.Int64  // requests being served
	down    atomic.Int64  // simulated time until which the server restarts
	lag     atomic.Pointer[Lag]
}

// clock is the simulated time: scale times as fast as the wall clock, and 0 at start.
type clock struct {
	start time.Time
	scale float64
}

func (c clock) now() time.Duration { return time.Duration(float64(time.Since(c.start)) * c.scale) }

// wall is how long a simulated duration takes.
func (c clock) wall(d time.Duration) time.Duration { return time.Duration(float64(d) / c.scale) }

// New returns a server of a deployment.
func New(p *sim.Plan, o Options) (*Server, error) {
	o.TimeScale = cmp.Or(o.TimeScale, 1)
	o.OutputTokens = cmp.Or(o.OutputTokens, 200)
	if !(o.TimeScale >= 1e-3 && o.TimeScale <= 1e3) {
		return nil, fmt.Errorf("time scale %v is out of range, want 0.001 to 1000", o.TimeScale)
	}
	if o.OutputTokens < 1 || o.OutputTokens > 1<<24 {
		return nil, fmt.Errorf("%d output tokens are out of range, want 1 to %d", o.OutputTokens, 1<<24)
	}
	if len(o.Names) == 0 {
		o.Names = []string{p.Hardware.Model.Name}
	}
	service, err := sim.NewService(p, nil)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	s := &Server{plan: p, options: o, clock: clock{now, o.TimeScale}, created: now.Unix(), fits: service.Fits, mux: http.NewServeMux(),
		inbox: make(chan func(*core), 1024), done: make(chan struct{})}
	s.lag.Store(new(Lag))
	s.mux.HandleFunc("POST /v1/completions", s.answer(wire.Completions))
	s.mux.HandleFunc("POST /v1/chat/completions", s.answer(wire.Chat))
	s.mux.HandleFunc("POST /v1/messages", s.answer(wire.Messages))
	s.mux.HandleFunc("POST /v1/messages/count_tokens", s.countMessages)
	s.mux.HandleFunc("POST /tokenize", s.tokenize)
	s.mux.HandleFunc("POST /detokenize", s.detokenize)
	s.mux.HandleFunc("GET /v1/models", s.listModels)
	s.mux.HandleFunc("GET /metrics", s.metrics)
	s.mux.HandleFunc("GET /version", s.version)
	s.mux.HandleFunc("GET /health", s.health)
	return s, nil
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Server", "agentsim")
	if id := r.Header.Get(wire.HeaderRequestID); id != "" {
		w.Header().Set(wire.HeaderRequestID, id)
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	s.mux.ServeHTTP(w, r)
}

// errStopped is why nothing is answered any more.
var errStopped = errors.New("the server has stopped")

// do lets the core call f, and waits until it has.
func (s *Server) do(ctx context.Context, f func(*core)) error {
	called := make(chan struct{})
	select {
	case s.inbox <- func(c *core) { f(c); close(called) }:
	case <-s.done:
		return errStopped
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-called:
		return nil
	case <-s.done:
		return errStopped
	}
}

// post lets the core call f some time.
func (s *Server) post(f func(*core)) {
	select {
	case s.inbox <- f:
	case <-s.done:
	}
}

// restarting tells whether the server is down, as a fault asked for.
func (s *Server) restarting() bool { return s.clock.now() < time.Duration(s.down.Load()) }

// Lag is how far the server fell behind its own clock: how late it was, in wall time, when it came to something that was
// due. Events are what was due.
type Lag struct {
	Max, P99 time.Duration
	Events   int64
}

// Lag is that of the whole run up to now, or up to a moment ago.
func (s *Server) Lag() Lag { return *s.lag.Load() }
