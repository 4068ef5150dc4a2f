package convert

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// maxHeader bounds the header of a CSV file, in bytes.
const maxHeader = 4096

// columns are the positions of the fields of an arrival in a CSV row; -1 is not there. The last three are BurstGPT's.
type columns struct {
	time, input, output     int
	session, elapsed, model int
	header                  []byte
}

// arrivalNames are the known names of the columns, in lower case: Azure's, Vidur's, BurstGPT's and the plain ones.
var arrivalNames = map[string]func(*columns) *int{
	"timestamp": timeColumn, "arrived_at": timeColumn, "time": timeColumn,
	"contexttokens": inputColumn, "num_prefill_tokens": inputColumn, "request tokens": inputColumn, "input": inputColumn,
	"generatedtokens": outputColumn, "num_decode_tokens": outputColumn, "response tokens": outputColumn, "output": outputColumn,
	"session id":   func(c *columns) *int { return &c.session },
	"elapsed time": func(c *columns) *int { return &c.elapsed },
	"model":        func(c *columns) *int { return &c.model },
}

func timeColumn(c *columns) *int   { return &c.time }
func inputColumn(c *columns) *int  { return &c.input }
func outputColumn(c *columns) *int { return &c.output }

// csvColumns reads the header line of a CSV file.
func csvColumns(head []byte) (columns, error) {
	line, _, _ := bytes.Cut(bytes.TrimSpace(head[:min(len(head), maxHeader)]), []byte{'\n'})
	c := columns{time: -1, input: -1, output: -1, session: -1, elapsed: -1, model: -1, header: bytes.TrimSpace(line)}
	for i, name := range splitRow(line) {
		if column := arrivalNames[strings.ToLower(string(name))]; column != nil {
			*column(&c) = i
		}
	}
	if c.time < 0 || c.input < 0 || c.output < 0 {
		return c, errors.New("no header with a time, an input and an output column")
	}
	return c, nil
}

// csvNames reads the header of a CSV file: the names of its columns, in lower case.
func csvNames(head []byte) []string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(head[:min(len(head), maxHeader)]), []byte{'\n'})
	var names []string
	for _, name := range splitRow(line) {
		names = append(names, strings.ToLower(string(name)))
	}
	return names
}

func splitRow(line []byte) [][]byte {
	fields := bytes.Split(line, []byte{','})
	for i, f := range fields {
		fields[i] = bytes.Trim(f, " \t\r\"")
	}
	return fields
}

// arrivalPart is the rows of one chunk.
type arrivalPart struct {
	trace.Part
	dated, undated *trace.Turn // the first row with a date, and the first with seconds
}

func isArrivals(l *look) bool {
	if l.columns == nil {
		return l.has("time", "input", "output")
	}
	_, err := csvColumns(l.text)
	return err == nil
}

// arrivals reads lists of arrivals: each row is a session of one call, with no known prefix. Times are seconds, or
// dates such as Azure's 2023-11-16 18:17:03.9799600. BurstGPT's rows may name a session and say how long the call took;
// one without an answer failed.
func (in input) arrivals() (*trace.Capture, error) {
	c := &trace.Capture{Format: FormatArrivals, Resolution: time.Microsecond, SharedClock: true}
	for _, head := range in.heads {
		if cols, err := csvColumns(head); err == nil && cols.elapsed >= 0 {
			c.Resolution = time.Second // of BurstGPT's timestamps
		}
	}
	join := trace.NewJoiner(c)
	var dated, undated *trace.Turn
	err := trace.MapLines(in.ctx, in.segments, in.opts.Progress, func(chunk trace.Chunk) (*arrivalPart, error) {
		return parseArrivals(chunk, in.heads[chunk.Segment])
	}, func(p *arrivalPart) error {
		if dated == nil {
			dated = p.dated
		}
		if undated == nil {
			undated = p.undated
		}
		if dated != nil && undated != nil {
			return &trace.InputError{File: undated.File, Line: int(undated.Line), Err: fmt.Errorf(
				"a time in seconds, but a date at %s:%d: the two have no common origin", dated.File, dated.Line)}
		}
		return join.Add(&p.Part)
	})
	if err != nil {
		return nil, err
	}
	if c, err = join.Capture(); err != nil {
		return nil, &trace.InputError{File: in.segments[0].Path, Err: err}
	}
	if zero := c.Rebase().Milliseconds(); dated != nil {
		c.Epoch = zero
	}
	return c, nil
}

// parseArrivals reads the rows of a chunk of the file that begins with head.
func parseArrivals(c trace.Chunk, head []byte) (*arrivalPart, error) {
	p := &arrivalPart{}
	p.Read = c.Read
	cols, err := csvColumns(head)
	isCSV := err == nil
	for number, text := range c.Lines {
		p.Read.Lines++
		if isCSV && bytes.Equal(text, cols.header) {
			continue // joined files repeat it
		}
		row := arrivalRow{cols: cols, elapsed: math.NaN()}
		if isCSV {
			err = row.parseCSV(text)
		} else {
			err = row.parseJSON(text)
		}
		if err != nil {
			if err := lose(&p.Read, c.File, number, text, err); err != nil {
				return nil, err
			}
			continue
		}
		t, err := row.turn()
		if err != nil {
			return nil, &trace.InputError{File: c.File, Line: number, Err: err}
		}
		t.ID = rowName(c.Segment, number)
		t.File, t.Line = c.File, int32(min(number, math.MaxInt32))
		t.Session = &trace.Session{ID: cmp.Or(row.session, t.ID)}
		if row.dated && p.dated == nil {
			p.dated = t
		}
		if !row.dated && p.undated == nil {
			p.undated = t
		}
		p.Sessions = append(p.Sessions, t.Session)
		p.Turns = append(p.Turns, t)
	}
	return p, nil
}

// arrivalRow is one arrival before it is judged.
type arrivalRow struct {
	cols    columns
	at      time.Duration // when dated, since the Unix epoch
	seconds float64       // when not dated; NaN when not told
	dated   bool
	in, out int64
	session string
	elapsed float64 // seconds that the call took; NaN when not told
	model   string
}

// dateLayouts are the forms of dates in arrival lists. A fraction of the second is accepted in all of them.
var dateLayouts = []string{"2006-01-02 15:04:05", "2006-01-02 15:04:05Z07:00", time.RFC3339, "2006-01-02T15:04:05"}

func (r *arrivalRow) parseCSV(text []byte) error {
	fields := splitRow(text)
	if len(fields) <= max(r.cols.time, r.cols.input, r.cols.output) {
		return fmt.Errorf("%d columns, fewer than the header", len(fields))
	}
	var err error
	if r.in, err = wholeField(fields[r.cols.input]); err != nil {
		return err
	}
	if r.out, err = wholeField(fields[r.cols.output]); err != nil {
		return err
	}
	optional := func(column int) string {
		if column < 0 || column >= len(fields) {
			return ""
		}
		return string(fields[column])
	}
	if id := optional(r.cols.session); id != "" {
		r.session = "session-" + id // never the name of a row
	}
	r.model = optional(r.cols.model)
	if text := optional(r.cols.elapsed); text != "" {
		if r.elapsed, err = strconv.ParseFloat(text, 64); err != nil {
			return fmt.Errorf("elapsed time %q is not a number of seconds", text)
		}
	}
	at := string(fields[r.cols.time])
	if at == "" {
		r.seconds = math.NaN()
		return nil
	}
	if f, err := strconv.ParseFloat(at, 64); err == nil || errors.Is(err, strconv.ErrRange) {
		if r.seconds = f; math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("time %s: %w", at, errNotFinite)
		}
		return nil
	}
	for _, layout := range dateLayouts {
		if date, err := time.Parse(layout, at); err == nil && date.Year() >= 1970 && date.Year() < 2200 {
			r.at, r.dated = time.Duration(date.UnixNano()), true
			return nil
		}
	}
	return fmt.Errorf("time %q is neither seconds nor a date like 2023-11-16 18:17:03.98", at)
}

// wholeField reads a count, which some programs write as a float (12.0).
func wholeField(text []byte) (int64, error) {
	s := scanner{data: text}
	n := s.integer()
	return n, s.end()
}

func (r *arrivalRow) parseJSON(text []byte) error {
	r.seconds, r.in = math.NaN(), -1
	s := scanner{data: text}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "time":
			r.seconds = s.float()
		case "input":
			r.in = s.integer()
		case "output":
			r.out = s.integer()
		default:
			s.skip()
		}
	}
	return s.end()
}

func (r *arrivalRow) turn() (t *trace.Turn, err error) {
	t = &trace.Turn{Start: r.at, End: trace.NoTime, TTFT: trace.NoTime, Cached: trace.Unknown, Reasoning: trace.Unknown, Model: r.model}
	if !r.dated {
		if t.Start, err = seconds("time", r.seconds); err != nil {
			return nil, err
		}
	}
	if t.Input, err = tokens("input", r.in, 1); err != nil {
		return nil, err
	}
	if t.Output, err = tokens("output", r.out, 0); err != nil {
		return nil, err
	}
	if took, err := optionalSeconds("elapsed time", r.elapsed); err != nil {
		return nil, err
	} else if took != trace.NoTime {
		t.End = t.Start + took
		if t.Output == 0 {
			t.Status = "error"
		}
	}
	return t, nil
}
