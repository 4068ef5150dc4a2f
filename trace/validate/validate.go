// Package validate says what is wrong with a Dynamo request trace, where, and what to do about it: what Dynamo's own
// loader refuses as errors, what is suspicious as warnings.
package validate

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"github.com/agentsim/agentsim/trace"
)

// Schema names the JSON form of a Report.
const Schema = "agentsim.validate.v1"

// Report is what was found in a trace.
type Report struct {
	Schema string `json:"schema"`
	// Files, Rows, Requests, Tools, Payloads and Sessions count what was read.
	Files    int `json:"files"`
	Rows     int `json:"rows"`
	Requests int `json:"requests"`
	Tools    int `json:"tools"`
	Payloads int `json:"payloads"`
	Sessions int `json:"sessions"`
	// Errors and Warnings count all findings. LostRows counts rows that could not be read or written.
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	LostRows int `json:"lost_rows"`
	// Found has the rules that something was found by, errors first.
	Found []*Found `json:"found"`
}

// Found is what was found by one rule.
type Found struct {
	Rule
	Count int `json:"count"`
	// Places are the first MaxPlaces of them.
	Places []Place `json:"places"`
}

// MaxPlaces bounds Found.Places.
const MaxPlaces = 10

// Place is where something was found. Line counts from 1; 0 is the whole file.
type Place struct {
	File    string `json:"file"`
	Line    int    `json:"line,omitempty"`
	Message string `json:"message"`
}

func (p Place) String() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d", p.File, p.Line)
}

// Check reads a trace. The error is one of reading; whatever is wrong with the trace is in the report. Memory grows with
// the number of requests and of different hashes.
func Check(ctx context.Context, segments []trace.Segment, progress trace.Progress) (*Report, error) {
	c := newChecker()
	known := knownKeys()
	err := trace.MapLines(ctx, segments, progress, func(chunk trace.Chunk) (lines, error) {
		out := lines{file: chunk.File, read: chunk.Read}
		for number, text := range chunk.Lines {
			out.lines = append(out.lines, parse(number, text, known))
		}
		return out, nil
	}, func(l lines) error {
		c.lines(l)
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.segments(segments)
	c.finish()
	return c.report(), nil
}

// lines is what the lines of a chunk say.
type lines struct {
	file  string
	read  trace.ReadReport
	lines []line
}

// line is one line: a record, or what is wrong with it.
type line struct {
	number  int
	record  *trace.Record
	wrong   Rule
	message string
	unknown []string // keys
	bodies  bool     // there are prompts, answers or headers in it
	cut     bool     // payload_complete, and no response
}

func parse(number int, text []byte, known keys) line {
	l := line{number: number}
	record, err := trace.ParseRecord(text)
	switch {
	case err == nil:
		l.record = record
	case json.Valid(text) && (text[0] != '{' || bytes.Contains(text, []byte(`"event"`)) && !hasObject(text, "event")):
		l.wrong, l.message = ignoredRule, fmt.Sprintf("%.40q is no record", text)
		return l
	case json.Valid(text):
		l.wrong, l.message = shapeRule, fmt.Sprintf("a value has another type than its key takes: %v", err)
		return l
	default:
		l.wrong, l.message = notJSONRule, fmt.Sprintf("a row of %d bytes is not JSON", len(text))
		return l
	}
	body := text
	if event, ok := objectAt(text, "event"); ok {
		body = event
	}
	l.unknown = known.unknown(body, "")
	l.inspectBodies(body)
	return l
}

// checker gathers findings.
type checker struct {
	found map[string]*Found
	sum   Report
	file  string
	state
}

func newChecker() *checker {
	return &checker{found: map[string]*Found{}, sum: Report{Schema: Schema}, state: newState()}
}

// note adds a finding at a place.
func (c *checker) note(rule Rule, at Place, format string, args ...any) {
	f := c.found[rule.Name]
	if f == nil {
		f = &Found{Rule: rule}
		c.found[rule.Name] = f
	}
	if f.Count++; rule.Severity == Error {
		c.sum.Errors++
	} else {
		c.sum.Warnings++
	}
	if len(f.Places) < MaxPlaces {
		at.Message = fmt.Sprintf(format, args...)
		f.Places = append(f.Places, at)
	}
}

// once adds a finding if the rule has none with that subject yet.
func (c *checker) once(rule Rule, subject string, at Place, format string, args ...any) {
	key := rule.Name + " " + subject
	if len(c.said) < maxSubjects && !c.said[key] {
		c.said[key] = true
		c.note(rule, at, format, args...)
	}
}

// maxSubjects bounds how many different subjects are told apart.
const maxSubjects = 1000

func (c *checker) lines(l lines) {
	c.sum.Files += l.read.Files
	for _, w := range l.read.Warnings {
		c.note(damageRule, Place{File: l.file}, "%s", w)
	}
	if l.read.LostBytes > 0 || len(l.read.Warnings) > 0 {
		c.sum.LostRows++ // how many, nobody knows
	}
	for _, line := range l.lines {
		at := Place{File: l.file, Line: line.number}
		c.sum.Rows++
		if line.record == nil {
			if line.wrong == notJSONRule {
				c.sum.LostRows++
			}
			c.note(line.wrong, at, "%s", line.message)
			continue
		}
		for _, key := range line.unknown {
			c.once(unknownKeyRule, key, at, "%s", key)
		}
		if line.bodies {
			c.once(privateRule, "", at, "from here on")
		}
		if line.cut {
			c.note(completeRule, at, "request %q", line.record.Payload.RequestID)
		}
		c.record(at, line.record)
	}
}

// report returns the findings in the order of the rules.
func (c *checker) report() *Report {
	r := c.sum
	r.Sessions = len(c.order)
	r.Found = []*Found{}
	for _, rule := range rules {
		if f := c.found[rule.Name]; f != nil {
			r.Found = append(r.Found, f)
		}
	}
	return &r
}
