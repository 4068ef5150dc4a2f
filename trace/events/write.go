package events

import (
	"fmt"

	"github.com/goccy/go-json"

	"github.com/agentsim/agentsim/trace"
)

// Writer writes a sidecar as events come. The file has a temporary name until Close; equal events give equal bytes.
type Writer struct {
	path  string
	lines *trace.LineWriter
	err   error // the first
}

// Create begins a sidecar at path, in place of one that is there. The header's schema is filled in.
func Create(path string, h Header) (*Writer, error) {
	w := &Writer{path: path, lines: trace.NewLineWriter(path, 0)}
	h.Schema = Schema
	if h.Workers == nil {
		h.Workers = []Worker{}
	}
	if err := h.check(); err != nil {
		return nil, fmt.Errorf("writing %s: %w", path, err)
	}
	if err := w.line(h); err != nil {
		return nil, err
	}
	return w, nil
}

// Write adds an event. After an error it does nothing: Close tells of it.
func (w *Writer) Write(e *Event) {
	if w.err == nil {
		w.err = w.line(e)
	}
}

func (w *Writer) line(v any) error {
	text, err := json.MarshalWithOption(v, json.DisableHTMLEscape())
	if err != nil {
		return fmt.Errorf("writing %s: %w", w.path, err)
	}
	return w.lines.Write(text)
}

// Close completes the file and gives it its name. After an error there is no file.
func (w *Writer) Close() error {
	if w.err == nil {
		w.err = w.lines.Close()
	}
	if w.err != nil {
		w.lines.Discard()
	}
	return w.err
}

// Discard removes the file, which is not complete.
func (w *Writer) Discard() { w.lines.Discard() }
