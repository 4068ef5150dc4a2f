package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// Answer is what became of a request. Times count from the client's Start, or are None; token counts are
// trace.Unknown where the server does not tell them.
type Answer struct {
	// Sent is before the request is handed to the transport, Connected when it has a connection, Wrote when the request
	// is written, FirstByte when the first byte of the answer is there, End when the answer is read to its end.
	Sent, Connected, Wrote, FirstByte time.Duration
	// FirstToken and LastToken are when the first and last event with generated text were read.
	FirstToken, LastToken, End time.Duration

	// Status is the HTTP status, 0 without one.
	Status int
	// Err is nil when the answer is whole.
	Err *Failure
	// RetryAfter is the header of a refusal.
	RetryAfter string
	Finish     string

	Prompt, Cached, Completion, Reasoning int32
	// Events is the number of events with generated text. Without usage each counts as a token.
	Events int32
	// Gaps are the times between those events.
	Gaps []time.Duration
	// TokenIDs and Text are what was generated, where they are asked for; Text without reasoning and tool calls.
	TokenIDs []uint32
	Text     []byte

	// Reused tells that the connection was used before. Connections above 1 mean that the transport sent the request again
	// because the server had closed an idle connection.
	Reused      bool
	Connections int
	// Whole tells that the server answered in one piece though a stream was asked for, Cancelled that the client closed the
	// connection before the answer was over, as it was asked to.
	Whole, Cancelled bool
}

func newAnswer() *Answer {
	return &Answer{Sent: None, Connected: None, Wrote: None, FirstByte: None, FirstToken: None, LastToken: None, End: None,
		Prompt: trace.Unknown, Cached: trace.Unknown, Completion: trace.Unknown, Reasoning: trace.Unknown}
}

// Output is the number of generated tokens: what the server says, else one for each event.
func (a *Answer) Output() int32 {
	if a.Completion != trace.Unknown {
		return a.Completion
	}
	return a.Events
}

// refusedForNow tells that the server would take the request later.
func (a *Answer) refusedForNow() bool {
	return a.Status == http.StatusTooManyRequests || a.Status == http.StatusServiceUnavailable
}

const (
	defaultRetry = time.Second
	longestRetry = time.Minute
)

// retryAfter is how long the server asks to wait, in whole seconds; a date counts as not told.
func (a *Answer) retryAfter() time.Duration {
	seconds, err := strconv.Atoi(strings.TrimSpace(a.RetryAfter))
	if err != nil || seconds < 0 {
		return defaultRetry
	}
	return min(time.Duration(min(seconds, 3600))*time.Second, longestRetry)
}

// Kind is why a request failed.
type Kind string

// The kinds of failures.
const (
	FailConnect Kind = "connection"   // none could be made, or it broke before the answer began
	FailStatus  Kind = "status"       // refused with an HTTP status
	FailContext Kind = "context"      // refused because the context is too long for the model
	FailInBand  Kind = "in-band"      // an error inside an answer that began with status 200
	FailCut     Kind = "cut off"      // the stream ended before the answer did
	FailEmpty   Kind = "empty"        // a whole answer without a token
	FailParse   Kind = "unreadable"   // not JSON where JSON should be
	FailIdle    Kind = "idle timeout" // silent for too long
	FailStopped Kind = "stopped"      // cut off by the replay
)

// Failure says why a request failed. Its text has no credentials in it.
type Failure struct {
	Kind  Kind
	Text  string
	Param string // the field that the server names

	fields bool // a field of the request may be the reason
}

func (f *Failure) Error() string { return string(f.Kind) + ": " + f.Text }

var (
	errIdle      = errors.New("no byte for longer than the idle timeout")
	errCancelled = errors.New("cancelled as asked")
)

// fail notes a failure, if it is the first.
func (a *Answer) fail(kind Kind, format string, args ...any) {
	if a.Err == nil {
		a.Err = &Failure{Kind: kind, Text: fmt.Sprintf(format, args...)}
	}
}

// failRead notes why reading failed, kind unless the context ended it.
func (a *Answer) failRead(ctx context.Context, err error, kind Kind) {
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errCancelled):
		a.Cancelled = true
	case errors.Is(cause, errIdle):
		a.fail(FailIdle, "%v", errIdle)
	case ctx.Err() != nil:
		a.fail(FailStopped, "the replay ended")
	default:
		a.fail(kind, "%v", err)
	}
}

// redact takes the key out of what a server said, and bounds it.
func (a *Answer) redact(key string) {
	if a.Err != nil {
		a.Err.Text, a.Err.Param = redacted(a.Err.Text, key), redacted(a.Err.Param, key)
	}
	a.RetryAfter, a.Finish = redacted(a.RetryAfter, key), redacted(a.Finish, key)
}

const maxFailure = 500

// redacted is a text of a server without the key, of bounded length.
func redacted(text, key string) string {
	if key != "" {
		text = strings.ReplaceAll(text, key, "[redacted]")
	}
	if len(text) > maxFailure {
		return strings.ToValidUTF8(text[:maxFailure], "") + "…"
	}
	return text
}

// refusesFields tells whether a status may mean that a field of the body is unknown.
func refusesFields(status int) bool {
	return status == http.StatusBadRequest || status == http.StatusUnprocessableEntity
}
