package events

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/goccy/go-json"

	"github.com/agentsim/agentsim/trace"
)

// Bounds on hostile input, in bytes of text.
const (
	maxHeader = 4 << 20
	maxEvent  = 1 << 20
)

// File is a sidecar that has been opened: its header is read, its events are not.
type File struct {
	Header  Header
	segment []trace.Segment
}

// Open reads the header of a sidecar, gzip or plain.
func Open(path string) (*File, error) {
	segments, err := trace.Find([]string{path}, nil)
	if err != nil {
		return nil, err
	}
	if len(segments) != 1 {
		return nil, &trace.InputError{File: path, Err: errors.New("is not one file of events")}
	}
	head, err := segments[0].Head(maxHeader)
	if err != nil {
		return nil, err
	}
	line, _, _ := bytes.Cut(head, []byte{'\n'})
	f := &File{segment: segments}
	err = json.Unmarshal(line, &f.Header)
	if err == nil {
		err = f.Header.check()
	}
	if err != nil {
		return nil, &trace.InputError{File: path, Line: 1, Err: fmt.Errorf("is no header of a file of events: %w", err)}
	}
	return f, nil
}

// Read calls each with every event, in the order of the file. Lines that are damaged, or earlier than those before them, are
// lost, and those of kinds that are not known here skipped; the report counts both and says where. Memory does not grow
// with the file. An error of each ends the reading and is returned.
func (f *File) Read(ctx context.Context, each func(*Event) error) (trace.ReadReport, error) {
	type row struct {
		line int
		size int
		Event
	}
	type rows struct {
		file string
		list []row
		read trace.ReadReport
	}
	var report trace.ReadReport
	var last time.Duration
	err := trace.MapLines(ctx, f.segment, nil, func(c trace.Chunk) (rows, error) {
		out := rows{file: c.File, read: c.Read}
		for number, text := range c.Lines {
			if number == 1 { // the header
				continue
			}
			out.read.Lines++
			r := row{line: number, size: len(text)}
			switch err := r.parse(text, len(f.Header.Workers)); {
			case err == nil:
				out.list = append(out.list, r)
			case errors.Is(err, errNoKind):
				out.read.SkippedRows++
			default:
				out.read.Lose(c.File, number, text, err)
			}
		}
		return out, nil
	}, func(out rows) error {
		report.Add(&out.read)
		for i := range out.list {
			r := &out.list[i]
			if r.At < last {
				report.LostRows++
				report.LostBytes += int64(r.size)
				report.Warn(fmt.Sprintf("%s:%d: lost an event of %v that stands behind one of %v", out.file, r.line, r.At, last))
				continue
			}
			last = r.At
			if err := each(&r.Event); err != nil {
				return err
			}
		}
		return nil
	})
	return report, err
}

// parse reads one line.
func (e *Event) parse(text []byte, workers int) error {
	if len(text) > maxEvent {
		return fmt.Errorf("longer than the %d bytes of an event", maxEvent)
	}
	if err := json.Unmarshal(text, e); err != nil {
		return err
	}
	return e.check(workers)
}
