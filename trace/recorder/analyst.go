package recorder

import (
	"errors"
	"runtime"
	"sync"

	"github.com/agentsim/agentsim/trace/wire"
)

// maxJobs bounds the exchanges that wait for the analyst.
const maxJobs = 4096

// maxAsked is how many requests for tokens the upstream gets at a time.
const maxAsked = 16

// analyst makes the records of exchanges that have ended, off the path of clients: it reads their conversations, finds their
// sessions and hashes their blocks. Its workers place exchanges into sessions in the order in which they ended, so that a
// turn is placed after the one whose answer it holds.
type analyst struct {
	recorder *Recorder
	sessions *sessions
	blocks   *blocks

	jobs chan job
	done sync.WaitGroup

	mu   sync.Mutex
	last chan struct{} // placed of the latest job
}

// job is an exchange, after closes when those before it are placed, placed when it is.
type job struct {
	*exchange
	after  <-chan struct{}
	placed chan struct{}
}

func newAnalyst(r *Recorder, b *blocks) *analyst {
	a := &analyst{recorder: r, sessions: newSessions(r.options.MaxSessions), blocks: b, jobs: make(chan job, maxJobs), last: make(chan struct{})}
	close(a.last)
	workers := max(1, runtime.GOMAXPROCS(0)/2) // the other half serves
	if b.asker != nil {
		workers = maxAsked
	}
	for range workers {
		a.done.Go(func() {
			for j := range a.jobs {
				a.work(j)
			}
		})
	}
	return a
}

// take takes an exchange that has ended. When too many wait, it is recorded as it stands, without what only its text tells.
func (a *analyst) take(e *exchange) {
	a.mu.Lock()
	j := job{e, a.last, make(chan struct{})}
	queued := true
	select {
	case a.jobs <- j:
		a.last = j.placed
	default:
		queued = false
	}
	a.mu.Unlock()
	if !queued {
		a.recorder.options.Logf("request %s: too many wait for their hashes: recorded without", e.id)
		a.recorder.emit(e, &wire.Conversation{}, nil)
	}
}

// close waits for the records of what was taken. Nothing may be taken any more.
func (a *analyst) close() {
	close(a.jobs)
	a.done.Wait()
}

// work makes the record of an exchange.
func (a *analyst) work(j job) {
	e := j.exchange
	c, err := e.conversation()
	if err != nil { // the upstream will have said so too
		c = &wire.Conversation{}
	}
	<-j.after
	var s *session
	if e.session.ID != "" {
		s = a.sessions.named(e.session)
	} else {
		s = a.sessions.inferred("inferred-"+e.id, c, &e.answer, e.outcome != "")
	}
	at := s.next()
	close(j.placed)
	defer close(at.cut)
	a.recorder.emit(e, c, at)
}

var errNoBody = errors.New("the request was too large to keep")

// conversation reads what the client sent.
func (e *exchange) conversation() (*wire.Conversation, error) {
	if e.body == nil {
		return nil, errNoBody
	}
	return wire.ParseConversation(e.body)
}
