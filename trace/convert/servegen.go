package convert

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

const (
	// serveGenWindow is the length of a client's last window, whose end no other begins.
	serveGenWindow = 600 * time.Second
	// maxDrawn bounds the calls that are drawn.
	maxDrawn = 1 << 22
	// maxOutcomes bounds the values of one distribution, maxWindows the windows of one client.
	maxOutcomes = 1 << 20
	maxWindows  = 1 << 20
)

// Sample says which calls to draw from distributions. The same sample gives the same calls.
type Sample struct {
	Seed uint64
	// From is where in the recorded time to begin, For how long to go on; 0 is to the end.
	From, For time.Duration
}

// serveGenClient is one client of ServeGen (github.com/alibaba/ServeGen): how often it calls, and how long prompts and
// answers are, by windows of time.
type serveGenClient struct {
	name    string
	rates   []serveGenRate
	lengths []serveGenLengths
}

// serveGenRate is a row of CHUNK-trace.csv: arrivals of a window, with gaps of a family and a shape. The scale in the file
// is not used: the rate says as much, and the two do not agree.
type serveGenRate struct {
	start  time.Duration
	rate   float64 // calls per second
	family string
	shape  float64
}

// serveGenLengths are the distributions of CHUNK-dataset.json from a time on.
type serveGenLengths struct {
	start  time.Duration
	input  []outcomes // to be added up: text, and images, audio and video in tokens
	output outcomes
	reason outcomes // the share of the output that is reasoning
}

func isServeGen(l *look) bool {
	if len(l.columns) == 6 {
		numbers := 0
		for _, i := range []int{0, 1, 2, 4, 5} {
			if _, err := strconv.ParseFloat(l.columns[i], 64); err == nil {
				numbers++
			}
		}
		return numbers == 5 && slices.Contains([]string{"", "gamma", "weibull", "exponential"}, l.columns[3])
	}
	for key, kind := range l.keys {
		if _, err := strconv.ParseFloat(key, 64); err != nil || kind != "{" {
			return false
		}
	}
	return len(l.keys) > 0 && bytes.Contains(l.text, []byte(`_tokens"`))
}

// serveGen draws calls from the clients that the files describe.
func (in input) serveGen() (*trace.Capture, error) {
	clients, read, err := in.serveGenClients()
	if err != nil {
		return nil, err
	}
	var sessions []*session
	for _, c := range clients {
		if sessions, err = c.draw(in.opts.Sample, sessions, &read); err != nil {
			return nil, &trace.InputError{File: in.segments[0].Path, Err: fmt.Errorf("client %s: %w", c.name, err)}
		}
	}
	if s := in.opts.Sample; len(sessions) == 0 && (s.From > 0 || s.For > 0) {
		to := "to its end"
		if s.For > 0 {
			to = "to " + (s.From + s.For).String()
		}
		return nil, &trace.InputError{File: in.segments[0].Path, Err: fmt.Errorf("no calls from %v %s of the recorded time: "+
			"draw from another (agentsim import has --from and --for)", s.From, to)}
	}
	c, err := in.join(&trace.Capture{Format: FormatServeGen, Resolution: time.Microsecond, SharedClock: true}, 0, sessions, &read)
	if err != nil {
		return nil, err
	}
	c.Rebase()
	return c, nil
}

// serveGenClients reads the files of all clients, each a pair of which the names differ in the ending only.
func (in input) serveGenClients() ([]*serveGenClient, trace.ReadReport, error) {
	type part struct {
		client *serveGenClient
		file   string
		rates  bool
		read   trace.ReadReport
	}
	var report trace.ReadReport
	clients := map[string]*serveGenClient{}
	err := trace.MapFiles(in.ctx, in.segments, in.opts.Progress, func(c trace.Chunk) (part, error) {
		p := part{client: &serveGenClient{}, file: c.File, read: c.Read}
		var err error
		if text := bytes.TrimSpace(c.Data); bytes.HasPrefix(text, []byte{'{'}) {
			err = p.client.parseLengths(text)
		} else {
			p.rates = true
			err = p.client.parseRates(c, &p.read)
		}
		if err != nil {
			return p, &trace.InputError{File: c.File, Err: err}
		}
		return p, nil
	}, func(p part) error {
		report.Add(&p.read)
		name := strings.TrimSuffix(p.file, ".gz")
		name = strings.TrimSuffix(strings.TrimSuffix(name, "-trace.csv"), "-dataset.json")
		c := clients[name]
		if c == nil {
			c = &serveGenClient{name: name}
			clients[name] = c
		}
		if p.rates {
			c.rates = p.client.rates
		} else {
			c.lengths = p.client.lengths
		}
		return nil
	})
	if err != nil {
		return nil, report, err
	}
	var list []*serveGenClient
	for _, name := range slices.Sorted(maps.Keys(clients)) {
		c := clients[name]
		if len(c.rates) == 0 || len(c.lengths) == 0 {
			return nil, report, &trace.InputError{File: name, Err: errors.New("only one of the client's two files is here: name CHUNK-trace.csv and CHUNK-dataset.json")}
		}
		list = append(list, c)
	}
	// What is drawn does not hang on the folder: clients are called as their files are, and by a number where two are equal.
	taken := map[string]int{}
	for _, c := range list {
		base := filepath.Base(c.name)
		c.name = base
		if taken[base]++; taken[base] > 1 {
			c.name = fmt.Sprintf("%s#%d", base, taken[base])
		}
	}
	return list, report, nil
}

// parseRates reads CHUNK-trace.csv, which has no header: the start of a window in seconds, calls per second, the
// coefficient of variation of the gaps, their family, its shape and its scale.
func (c *serveGenClient) parseRates(chunk trace.Chunk, read *trace.ReadReport) error {
	for number, text := range chunk.Lines {
		read.Lines++
		r, err := parseServeGenRate(text)
		if err != nil {
			if err := lose(read, chunk.File, number, text, err); err != nil {
				return err
			}
			continue
		}
		if c.rates = append(c.rates, r); len(c.rates) > maxWindows {
			return fmt.Errorf("more than %d windows", maxWindows)
		}
	}
	slices.SortStableFunc(c.rates, func(a, b serveGenRate) int { return cmp.Compare(a.start, b.start) })
	return nil
}

func parseServeGenRate(text []byte) (r serveGenRate, err error) {
	fields := splitRow(text)
	if len(fields) != 6 {
		return r, fmt.Errorf("%d columns, want 6", len(fields))
	}
	var numbers [3]float64 // start, rate, shape
	for i, field := range []int{0, 1, 4} {
		if numbers[i], err = strconv.ParseFloat(string(fields[field]), 64); err != nil || math.IsNaN(numbers[i]) || math.IsInf(numbers[i], 0) {
			return r, fmt.Errorf("column %d: %q is not a number", field+1, fields[field])
		}
	}
	if r.start, err = seconds("the start of the window", numbers[0]); err != nil {
		return r, err
	}
	r.rate, r.shape, r.family = numbers[1], numbers[2], strings.ToLower(string(fields[3]))
	switch {
	case r.rate < 0 || r.rate > maxDrawn:
		return r, fmt.Errorf("%g calls per second", r.rate)
	case r.rate > 0 && !slices.Contains([]string{"gamma", "weibull", "exponential"}, r.family):
		return r, fmt.Errorf("gaps of the family %q: known are Gamma, Weibull and Exponential", fields[3])
	case r.rate > 0 && r.family != "exponential" && !(r.shape >= 0.01 && r.shape <= 1e6):
		return r, fmt.Errorf("a shape of %g: want 0.01 to 1e6", r.shape)
	}
	return r, nil
}

// parseLengths reads CHUNK-dataset.json: by the start of a window in seconds, distributions as texts of Python dicts.
func (c *serveGenClient) parseLengths(text []byte) error {
	s := &scanner{data: text}
	for key, ok := s.object(); ok; key, ok = s.next() {
		at, err := strconv.ParseFloat(string(key), 64)
		if err != nil {
			s.fail("the window %.40q is not a number of seconds", key)
			break
		}
		w := serveGenLengths{}
		if w.start, err = seconds("the window", at); err != nil {
			s.fail("%w", err)
			break
		}
		for key, ok := s.object(); ok; key, ok = s.next() {
			name := string(key)
			known := slices.Contains([]string{"input_tokens", "text_tokens", "image_tokens", "audio_tokens", "video_tokens", "output_tokens", "reason_ratio"}, name)
			if !known || s.peek() != '"' {
				s.skip()
				continue
			}
			o, err := parseDict(s.text())
			if err != nil {
				s.fail("%s: %w", name, err)
				break
			}
			switch name {
			case "output_tokens":
				w.output = o
			case "reason_ratio":
				w.reason = o
			default:
				if !o.empty() {
					w.input = append(w.input, o)
				}
			}
		}
		if len(w.input) > 0 && !w.output.empty() {
			c.lengths = append(c.lengths, w)
		}
	}
	slices.SortStableFunc(c.lengths, func(a, b serveGenLengths) int { return cmp.Compare(a.start, b.start) })
	if err := s.end(); err != nil {
		return err
	}
	if len(c.lengths) == 0 {
		return errors.New("no window has distributions of the lengths of prompts and answers")
	}
	return nil
}

// parseDict reads the text of a Python dict of numbers: values and their weights, {526: 0.25, 0.5: 1e-05}.
func parseDict(text []byte) (o outcomes, err error) {
	s := &scanner{data: text}
	s.expect('{')
	sum := 0.0
	for more := s.err == nil && !s.accept('}'); more; {
		value := s.float()
		s.expect(':')
		weight := s.float()
		if s.err == nil && !(weight >= 0 && weight <= 1e9 && math.Abs(value) <= maxTokens) {
			s.fail("%g with the weight %g", value, weight)
		}
		sum += weight
		if o.values, o.below = append(o.values, value), append(o.below, sum); len(o.values) > maxOutcomes {
			s.fail("more than %d values", maxOutcomes)
		}
		if more = s.err == nil && !s.accept('}'); more {
			s.expect(',')
			more = s.err == nil && !s.accept('}')
		}
	}
	return o, s.end()
}
