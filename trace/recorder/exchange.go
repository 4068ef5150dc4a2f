package recorder

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/goccy/go-json"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/wire"
)

// exchange is one request and its answer, from arrival to record.
type exchange struct {
	dialect    wire.Dialect
	id, callID string // ours, and the client's own
	session    wire.Session
	compaction json.RawMessage
	header     http.Header // with the client's credentials: never to be written

	started time.Time
	body    []byte // as the client sent it, but plain; nil where it was too large to keep
	size    int64  // of what the client sent, in bytes
	held    int64  // bytes that count in Recorder.held
	asked   bool   // for usage, which the client did not ask for
	idle    *time.Timer

	status int // HTTP
	answer answer
	ended  time.Time
	// outcome is how it went wrong; "" is well.
	outcome outcome
}

// outcome is what ended a request before its answer was whole, as it stands in the record (backend_finish_reason).
type outcome string

const (
	clientGone outcome = "cancelled"
	unreached  outcome = "error: upstream not reached"
	broken     outcome = "error: upstream broke off"
	timedOut   outcome = "error: upstream timed out"
	toldError  outcome = "error: told in the answer"
	refused    outcome = "error: refused"
)

// errIdle is why a request is given up whose upstream sends nothing.
var errIdle = errors.New("the upstream sent nothing for too long")

type exchangeKey struct{}

// exchangeOf is the exchange of a request; nil for one that is not recorded.
func exchangeOf(ctx context.Context) *exchange {
	e, _ := ctx.Value(exchangeKey{}).(*exchange)
	return e
}

// begin notes who asks, and when.
func (r *Recorder) begin(q *http.Request, dialect wire.Dialect) *exchange {
	return &exchange{
		dialect:    dialect,
		started:    time.Now(),
		id:         fmt.Sprintf("%s-%06d", r.options.Run, r.serial.Add(1)),
		callID:     wire.RequestIDOf(q.Header),
		session:    wire.SessionOf(q.Header, r.options.SessionHeaders...),
		header:     q.Header,
		compaction: wire.CompactionOf(q.Header),
	}
}

// hold counts bytes that are kept for the record; false when there is no room.
func (r *Recorder) hold(e *exchange, n int64) bool {
	if r.held.Add(n) > r.options.MaxHeld {
		r.held.Add(-n)
		return false
	}
	e.held += n
	return true
}

// bodyTimeout is how long a client may take to send a request that is read before it is passed on.
const bodyTimeout = time.Minute

// readBody reads the body, to ask for usage where the client did not and to know the prompt. One that is too large, or finds
// no room, passes unread.
func (r *Recorder) readBody(w http.ResponseWriter, q *http.Request, e *exchange) error {
	limit := r.options.MaxBody
	e.size = q.ContentLength
	if q.ContentLength > limit || !r.hold(e, max(q.ContentLength, 0)) {
		return nil
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(bodyTimeout))
	text, err := readUpTo(q.Body, q.ContentLength, limit)
	_ = control.SetReadDeadline(time.Time{})
	if err != nil {
		return &clientError{err}
	}
	e.size = int64(len(text))
	if q.ContentLength < 0 && (e.size > limit || !r.hold(e, e.size)) { // its size was not told
		q.Body = &prefixed{io.MultiReader(bytes.NewReader(text), q.Body), q.Body}
		return nil
	}
	plain, err := decode(text, q.Header.Get("Content-Encoding"), limit)
	if err != nil || !r.hold(e, int64(len(plain)-len(text))) {
		plain = nil // passes as it is; the upstream may say why it is wrong
	}
	e.body = plain
	if e.dialect == wire.Chat || e.dialect == wire.Completions {
		if asking := wire.AskUsage(plain); asking != nil {
			text, e.asked = asking, true
			q.Header.Del("Content-Encoding")
		}
	}
	setBody(q, text)
	return nil
}

// setBody gives a request a body that can be sent again.
func setBody(q *http.Request, text []byte) {
	q.ContentLength, q.TransferEncoding = int64(len(text)), nil
	q.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil }
	q.Body, _ = q.GetBody()
}

// readUpTo reads a body of the given size, or one whose size is not told (below 0) up to a byte more than the limit.
func readUpTo(body io.Reader, size, limit int64) ([]byte, error) {
	if size < 0 {
		return io.ReadAll(io.LimitReader(body, limit+1))
	}
	text := make([]byte, size)
	n, err := io.ReadFull(body, text)
	return text[:n], err
}

// prefixed is a body of which a part was read.
type prefixed struct {
	io.Reader
	io.Closer
}

// clientError is a failure of the client to send its request.
type clientError struct{ error }

func (e *clientError) Unwrap() error { return e.error }

// modify sees an answer before its body: from here on the tap reads it.
func (r *Recorder) modify(a *http.Response) error {
	e := exchangeOf(a.Request.Context())
	if e == nil || a.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	e.status = a.StatusCode
	kind, _, _ := mime.ParseMediaType(a.Header.Get("Content-Type"))
	t := &tap{body: a.Body, exchange: e, recorder: r, ctx: a.Request.Context(),
		encoding: a.Header.Get("Content-Encoding"), events: kind == "text/event-stream"}
	t.filtering = e.asked && t.events && t.plain() && e.status == http.StatusOK
	if t.filtering {
		a.Header.Del("Content-Length")
		a.ContentLength = -1
	}
	a.Body = t
	return nil
}

// fail answers a request that has no answer: the upstream could not be reached or was silent, or the client has gone.
func (r *Recorder) fail(w http.ResponseWriter, q *http.Request, err error) {
	e := exchangeOf(q.Context())
	told := &wire.Error{Status: http.StatusBadGateway, Type: "upstream_error", Message: "agentsim record: the upstream cannot be reached"}
	var client *clientError
	outcome := unreached
	switch cause := context.Cause(q.Context()); {
	case cause == errIdle:
		outcome = timedOut
		told.Status, told.Message = http.StatusGatewayTimeout, "agentsim record: "+errIdle.Error()
	case cause != nil:
		outcome = clientGone // nobody will read this
	case errors.As(err, &client):
		outcome = clientGone
		told.Status, told.Type, told.Message = http.StatusBadRequest, "invalid_request_error", "agentsim record: the request ended early"
	}
	if outcome != clientGone {
		r.options.Logf("%s %s: %v", q.Method, q.URL.Path, err)
	}
	if e != nil {
		e.end(outcome, time.Now())
		e.status = told.Status
		if outcome == clientGone {
			e.status = 0
		}
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(told.Status)
	_, _ = w.Write(told.Append(nil))
}

// end notes when the exchange ended, and how. The first that says so is right.
func (e *exchange) end(o outcome, at time.Time) {
	if e.ended.IsZero() {
		e.ended, e.outcome = at, o
	}
}

// end hands an exchange to the analyst, who makes the record.
func (r *Recorder) end(e *exchange) {
	e.end(clientGone, time.Now()) // nobody said how: the client did not stay to the end
	r.analyst.take(e)
}

// result is how the exchange ended in the words of trace.Extension.
func (e *exchange) result() string {
	switch {
	case e.outcome == clientGone:
		return "unfinished"
	case e.outcome == refused && (e.status == http.StatusTooManyRequests || e.status == http.StatusServiceUnavailable || e.status == 529):
		return "rejected"
	case e.outcome != "":
		return "failed"
	}
	return "completed"
}

// finish is how the answer ended.
func (e *exchange) finish() *trace.FinishReason {
	a := &e.answer
	f := &trace.FinishReason{FinishReason: wire.FinishReason(a.finish, len(a.calls) > 0), Backend: string(e.outcome), ToolCalls: a.refs()}
	if e.outcome == "" {
		f.Backend = backendReason(f.FinishReason)
	}
	if f.FinishReason == "" && f.Backend == "" && len(f.ToolCalls) == 0 {
		return nil
	}
	return f
}

// backendReason is the word of engines for a reason of OpenAI's: a call of a tool is a stop to them.
func backendReason(reason string) string {
	switch reason {
	case "tool_calls", "function_call":
		return "stop"
	}
	return strings.Clone(reason)
}
