package convert

import (
	"bytes"
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

// columns are the positions of the three fields of an arrival in a CSV row.
type columns struct {
	time, input, output int
	header              []byte
}

// arrivalNames are the known names of the three columns, in lower case: Azure's, Vidur's and the plain ones.
var arrivalNames = map[string]func(*columns, int){
	"timestamp": setTime, "arrived_at": setTime, "time": setTime,
	"contexttokens": setInput, "num_prefill_tokens": setInput, "input": setInput,
	"generatedtokens": setOutput, "num_decode_tokens": setOutput, "output": setOutput,
}

func setTime(c *columns, i int)   { c.time = i }
func setInput(c *columns, i int)  { c.input = i }
func setOutput(c *columns, i int) { c.output = i }

// csvColumns reads the header line of a CSV file.
func csvColumns(head []byte) (columns, error) {
	line, _, _ := bytes.Cut(bytes.TrimSpace(head[:min(len(head), maxHeader)]), []byte{'\n'})
	c := columns{time: -1, input: -1, output: -1, header: bytes.TrimSpace(line)}
	for i, name := range splitRow(line) {
		if set := arrivalNames[strings.ToLower(string(name))]; set != nil {
			set(&c, i)
		}
	}
	if c.time < 0 || c.input < 0 || c.output < 0 {
		return c, errors.New("no header with a time, an input and an output column")
	}
	return c, nil
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
// dates such as Azure's 2023-11-16 18:17:03.9799600.
func (in input) arrivals() (*trace.Capture, error) {
	c := &trace.Capture{Format: FormatArrivals, Resolution: time.Microsecond, SharedClock: true}
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
		row := arrivalRow{cols: cols}
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
		t.Session = &trace.Session{ID: t.ID}
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
	t = &trace.Turn{Start: r.at, End: trace.NoTime, TTFT: trace.NoTime, Cached: trace.Unknown, Reasoning: trace.Unknown}
	if !r.dated {
		if t.Start, err = seconds("time", r.seconds); err != nil {
			return nil, err
		}
	}
	if t.Input, err = tokens("input", r.in, 1); err != nil {
		return nil, err
	}
	t.Output, err = tokens("output", r.out, 0)
	return t, err
}
