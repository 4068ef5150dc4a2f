package server

import (
	"context"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/agentsim/agentsim/trace/wire"
)

// bodyTimeout is how long a client may take to send a request.
const bodyTimeout = time.Minute

// answer returns the handler of a dialect.
func (s *Server) answer(dialect wire.Dialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		arrived, number := s.clock.now(), s.serial.Add(1)
		defer s.present.Add(-1)
		if s.present.Add(1) > maxRequests {
			refuse(w, dialect, &wire.Error{Status: 429, Message: "too many requests at a time", Type: "TooManyRequests", Code: "429"}, "1")
			return
		}
		asked, e := faults(r.Header)
		if e != nil {
			refuse(w, dialect, e, "")
			return
		}
		b := behave(number, s.options.Faults, asked)
		if s.misbehave(w, r, dialect, &b) {
			return
		}
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
		j, e := s.read(r, dialect, arrived, number, b)
		_ = control.SetReadDeadline(time.Time{})
		if e != nil {
			refuse(w, dialect, e, "")
			return
		}
		s.serve(w, r, j)
	}
}

// misbehave does what faults ask for before the request is read. It tells whether that was the answer.
func (s *Server) misbehave(w http.ResponseWriter, r *http.Request, dialect wire.Dialect, b *behaviour) bool {
	if b.restarts {
		s.post(func(c *core) { c.restart(time.Duration(float64(b.restart) * s.clock.scale)) })
		panic(http.ErrAbortHandler)
	}
	if s.restarting() {
		refuse(w, dialect, &wire.Error{Status: 503, Message: "the server is starting", Type: "ServiceUnavailable", Code: "503"}, "1")
		return true
	}
	if b.reset {
		reset(w)
	}
	if b.close {
		w.Header().Set("Connection", "close")
	}
	if !sleep(r.Context(), b.delay) {
		return true
	}
	switch {
	case b.status != 0:
		refuse(w, dialect, &wire.Error{Status: b.status, Message: "injected fault", Type: http.StatusText(b.status), Code: strconv.Itoa(b.status)}, b.retryAfter)
	case b.noAnswer:
		w.WriteHeader(http.StatusOK)
	default:
		return false
	}
	return true
}

// reset breaks the connection without an answer, so that the client sees it reset.
func reset(w http.ResponseWriter) {
	if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
		if tcp, ok := conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = conn.Close()
	}
	panic(http.ErrAbortHandler)
}

// sleep waits; false when the client has gone.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// refuse answers with an error, in the words of a dialect.
func refuse(w http.ResponseWriter, dialect wire.Dialect, e *wire.Error, retryAfter string) {
	if retryAfter != "" {
		w.Header().Set("Retry-After", retryAfter)
	}
	status := e.Status
	if status < 200 || status > 999 {
		status = http.StatusInternalServerError
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(errorBody(dialect, e))
}

func errorBody(dialect wire.Dialect, e *wire.Error) []byte {
	if dialect == wire.Messages {
		return e.AppendMessages(nil)
	}
	return e.Append(nil)
}

// serve lets the deployment answer a job, and writes the answer.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, j *job) {
	st := j.stream
	var got news
	if st.request.Output == 0 { // a fault
		st.over = true
		st.notify()
	} else {
		s.post(func(c *core) { c.submit(st) })
		defer func() {
			if !got.over {
				s.post(func(c *core) { c.cancel(st) })
			}
		}()
	}
	out := j.writer(w)
	var ping <-chan time.Time
	if j.ping > 0 {
		ticker := time.NewTicker(j.ping)
		defer ticker.Stop()
		ping = ticker.C
	}
	for !got.over {
		stopped := false
		select {
		case <-st.wake:
		case <-ping:
			out.ping()
			continue
		case <-s.done:
			stopped = true
		case <-r.Context().Done():
			return
		}
		got = st.take(got)
		if stopped && !got.over {
			out.fail(&wire.Error{Status: 503, Message: errStopped.Error(), Type: "ServiceUnavailable", Code: "503"})
			return
		}
		out.cached = int64(got.cached)
		if !s.writeTokens(r.Context(), out, got.due) {
			return
		}
	}
	switch got.failure {
	case nil:
		out.end()
	case errCrashed:
		out.flush()
		panic(http.ErrAbortHandler)
	default:
		out.fail(got.failure)
	}
}

// writeTokens writes tokens when they are due. It tells whether the answer goes on.
func (s *Server) writeTokens(ctx context.Context, out *writer, due []time.Duration) bool {
	for _, at := range due {
		if wait := s.clock.wall(at - s.clock.now()); wait > 0 {
			out.flush()
			if !sleep(ctx, wait) {
				return false
			}
		}
		if !out.token() {
			return false
		}
		if out.n == out.stall {
			out.flush()
			<-ctx.Done()
			return false
		}
	}
	out.flush()
	return true
}
