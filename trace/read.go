package trace

import (
	"context"
	"errors"
	"time"
)

// Read reads Dynamo request traces (dynamo.request.trace.v1 and dynamo.agent.trace.v1, of all eras, in either
// framing) into a capture. What is damaged is survived, counted and located in Capture.Read. An *InputError is a
// row that makes the capture meaningless: no start time, no prompt length, hashes that fit no prompt of that length.
func Read(ctx context.Context, segments []Segment, progress Progress) (*Capture, error) {
	return read(ctx, segments, progress, keepWork)
}

// ReadDetailed is Read for those who show a capture: it keeps the rest of each row and tools without an end, but no hashes.
func ReadDetailed(ctx context.Context, segments []Segment, progress Progress) (*Capture, error) {
	return read(ctx, segments, progress, keepDetails)
}

// ReadWhole is Read for those who write a capture again: it keeps the rows themselves, beside their hashes, and sessions of
// which only tools are told, without any call if need be.
func ReadWhole(ctx context.Context, segments []Segment, progress Progress) (*Capture, error) {
	return read(ctx, segments, progress, keepRows)
}

// keeping is what a reader keeps of a row.
type keeping uint8

const (
	keepWork    keeping = iota // what is simulated or replayed
	keepDetails                // what is shown: Turn.Detail and tools without an end, no hashes
	keepRows                   // all: Turn.Row
)

func read(ctx context.Context, segments []Segment, progress Progress, keep keeping) (*Capture, error) {
	c := &Capture{Format: "dynamo", Resolution: time.Millisecond, SharedClock: true}
	join := NewJoiner(c)
	var starts, ends []toolEdge
	hints := map[string]Hints{}
	parse := func(c Chunk) (*rows, error) { return parseRows(c, keep) }
	err := MapLines(ctx, segments, progress, parse, func(r *rows) error {
		starts = append(starts, r.starts...)
		ends = append(ends, r.ends...)
		for id, h := range r.hints {
			if _, ok := hints[id]; !ok {
				hints[id] = h
			}
		}
		return join.Add(&r.Part)
	})
	if err != nil {
		return nil, err
	}
	for id, h := range hints {
		if t := join.Turn(id); t != nil && t.Hints == (Hints{}) {
			t.Hints = h
		}
	}
	pairTools(join, starts, ends, keep == keepDetails)
	if keep == keepDetails {
		addUnended(join, starts)
	}
	join.toolsSuffice = keep == keepRows
	if c, err = join.Capture(); err != nil {
		return nil, &InputError{File: segments[0].Path, Err: err}
	}
	c.Epoch = c.Rebase().Milliseconds()
	return c, nil
}

// ReadRecords calls each with the records of the segments in the order of their lines, whatever their event type, as
// they stand in the file. It stops at the first error of each. What is damaged is counted in the report.
func ReadRecords(ctx context.Context, segments []Segment, each func(file string, line int, r *Record) error) (ReadReport, error) {
	type located struct {
		line int
		rec  *Record
	}
	type records struct {
		file string
		rows []located
		read ReadReport
	}
	var report ReadReport
	err := MapLines(ctx, segments, nil, func(c Chunk) (records, error) {
		out := records{file: c.File, read: c.Read}
		for number, text := range c.Lines {
			out.read.Lines++
			rec, err := ParseRecord(text)
			switch {
			case err == nil:
				out.read.missing(c.File, number, rec.Lost)
				out.rows = append(out.rows, located{number, rec})
			case errors.Is(err, errNotRecord):
				out.read.SkippedRows++
			default:
				out.read.Lose(c.File, number, text, err)
			}
		}
		return out, nil
	}, func(out records) error {
		report.Add(&out.read)
		for _, r := range out.rows {
			if err := each(out.file, r.line, r.rec); err != nil {
				return err
			}
		}
		return nil
	})
	return report, err
}
