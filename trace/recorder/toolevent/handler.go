package toolevent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/goccy/go-json"

	"github.com/agentsim/agentsim/trace"
)

// Path is where harnesses post tool events.
const Path = "/agentsim/v1/tool-events"

// Bounds of tool events: of one, of a body of them, and of how many a body may hold.
const (
	maxEvent  = 64 << 10 // bytes
	maxBody   = 4 << 20  // bytes
	maxEvents = 10_000
)

// Handler answers POST requests of harnesses that tell which tools they ran: a JSON object, an array of them, or one
// object a line. Each is a record of Dynamo's schema as rowOf wants it. A body is taken whole, and emit gets its
// rows, or not at all: then the answer names the event, counted from 1, and the field.
func Handler(emit func(*trace.Record)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			reply(w, http.StatusMethodNotAllowed, "error", "tool events are posted")
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
			reply(w, http.StatusRequestEntityTooLarge, "error", fmt.Sprintf("the body is longer than %d bytes: send fewer events at a time", maxBody))
			return
		}
		if err != nil {
			return // the client is gone
		}
		rows, err := parseBody(body)
		if err != nil {
			reply(w, http.StatusBadRequest, "error", err.Error())
			return
		}
		for _, row := range rows {
			emit(row)
		}
		reply(w, http.StatusOK, "recorded", len(rows))
	})
}

func reply(w http.ResponseWriter, status int, key string, value any) {
	text, err := json.Marshal(map[string]any{key: value})
	if err != nil {
		panic(err) // a string or a number
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(text, '\n')) //nolint:errcheck // the client is gone
}

// parseBody returns the rows of a body.
func parseBody(body []byte) ([]*trace.Record, error) {
	events, err := splitEvents(bytes.TrimSpace(body))
	if err != nil {
		return nil, err
	}
	rows := make([]*trace.Record, 0, len(events))
	for i, text := range events {
		row, err := parseEvent(text)
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", i+1, err)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// splitEvents takes a body apart into its events.
func splitEvents(body []byte) (events []json.RawMessage, err error) {
	switch {
	case bytes.HasPrefix(body, []byte{'['}):
		if err := json.Unmarshal(body, &events); err != nil {
			return nil, fmt.Errorf("not a JSON array: %w", err)
		}
	case json.Valid(body):
		events = []json.RawMessage{body}
	default:
		for line := range bytes.Lines(body) {
			if line = bytes.TrimSpace(line); len(line) > 0 {
				events = append(events, json.RawMessage(line))
			}
		}
	}
	if len(events) == 0 {
		return nil, errors.New("no event in the body")
	}
	if len(events) > maxEvents {
		return nil, fmt.Errorf("%d events in one body: send at most %d at a time", len(events), maxEvents)
	}
	return events, nil
}

// parseEvent reads one event in JSON.
func parseEvent(text []byte) (*trace.Record, error) {
	if len(text) > maxEvent {
		return nil, fmt.Errorf("%d bytes: an event has at most %d", len(text), maxEvent)
	}
	r, err := trace.ParseRecord(text)
	if err != nil {
		return nil, err
	}
	return rowOf(r)
}
