package convert

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

const (
	// blisBlock is the tokens per block of the prefixes that groups of BLIS requests share.
	blisBlock = 16
	// epochUs tells Unix times in microseconds from relative ones.
	epochUs = 1e14
)

// blisRow is one request of a BLIS trace (inference-sim, trace_version 2). Times are microseconds; 0 is not told, except
// for the arrival.
type blisRow struct {
	id, session, group, model, class, status string
	round                                    int64
	in, out, prefix, serverIn                int64
	reasonRatio                              float64
	arrival, send, first, last               int64
	think                                    int64 // -1 when not told

	turn *trace.Turn
}

func isBLIS(l *look) bool {
	has := func(name string) bool { return slices.Contains(l.columns, name) }
	return has("arrival_time_us") && has("input_tokens") && has("output_tokens") || isBLISHeader(l.text)
}

// isBLISHeader tells whether a file is the YAML header that stands beside the CSV file.
func isBLISHeader(head []byte) bool {
	return bytes.HasPrefix(bytes.TrimSpace(head), []byte("trace_version:"))
}

// parseBLIS reads a row whose columns have the given names.
func parseBLIS(text []byte, names []string) (*blisRow, error) {
	fields, err := csvRow(text)
	if err != nil {
		return nil, err
	}
	if len(fields) > 0 && len(names) > 0 && strings.EqualFold(fields[0], names[0]) {
		return nil, errHeader
	}
	r := &blisRow{in: -1, out: -1, arrival: -1, think: -1}
	numbers := map[string]*int64{"round_index": &r.round, "input_tokens": &r.in, "output_tokens": &r.out, "prefix_length": &r.prefix,
		"server_input_tokens": &r.serverIn, "arrival_time_us": &r.arrival, "send_time_us": &r.send,
		"first_chunk_time_us": &r.first, "last_chunk_time_us": &r.last, "think_time_us": &r.think}
	texts := map[string]*string{"request_id": &r.id, "session_id": &r.session, "prefix_group": &r.group, "model": &r.model,
		"slo_class": &r.class, "status": &r.status}
	for i, name := range names {
		if i >= len(fields) || fields[i] == "" {
			continue
		}
		if to := texts[name]; to != nil {
			*to = fields[i]
		}
		if to := numbers[name]; to != nil {
			if *to, err = wholeField([]byte(fields[i])); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
		if name == "reason_ratio" {
			if r.reasonRatio, err = strconv.ParseFloat(fields[i], 64); err != nil || !(r.reasonRatio >= 0 && r.reasonRatio <= 1) {
				return nil, fmt.Errorf("reason_ratio %q is not between 0 and 1", fields[i])
			}
		}
	}
	return r, nil
}

// csvRow splits a row of a CSV file. Fields may be quoted, and then hold commas.
func csvRow(text []byte) ([]string, error) {
	if bytes.IndexByte(text, '"') >= 0 {
		return csv.NewReader(bytes.NewReader(text)).Read()
	}
	return strings.Split(string(text), ","), nil
}

// blis reads BLIS traces: a CSV file, and the YAML file beside it if that is given too. A call starts when it was sent, else
// when it arrived. Where arrivals and sends count from different origins, arrivals say when and sends only how long, with a
// warning. Prompts of one prefix_group share the first prefix_length tokens; nothing else is known to be shared.
func (in input) blis() (*trace.Capture, error) {
	var rows []*blisRow
	var read trace.ReadReport
	for i, segment := range in.segments {
		if isBLISHeader(in.heads[i]) {
			if err := checkBLISHeader(segment.Path, in.heads[i]); err != nil {
				return nil, err
			}
			read.Files++
			continue
		}
		columns := csvNames(in.heads[i])
		part := in
		part.segments = in.segments[i : i+1]
		got, err := readRows(part, func(text []byte) (*blisRow, error) { return parseBLIS(text, columns) }, func(at place, r *blisRow) error {
			at.segment = i
			if err := r.finish(at); err != nil {
				return at.fail(err)
			}
			rows = append(rows, r)
			return nil
		})
		if err != nil {
			return nil, err
		}
		read.Add(&got)
	}
	if err := setBLISTimes(rows, &read); err != nil {
		return nil, err
	}
	size := in.blockSize(blisBlock)
	sessions, err := blisSessions(rows, int32(size))
	if err != nil {
		return nil, err
	}
	c, err := in.join(&trace.Capture{Format: FormatBLIS, Resolution: time.Microsecond, SharedClock: true}, size, sessions, &read)
	if err != nil {
		return nil, err
	}
	if zero := c.Rebase(); zero > epochUs*time.Microsecond {
		c.Epoch = zero.Milliseconds()
	}
	return c, nil
}

// checkBLISHeader refuses a version and a unit of time that are not known.
func checkBLISHeader(file string, head []byte) error {
	for line := range strings.Lines(string(head)) {
		key, value, _ := strings.Cut(line, ":")
		value = strings.Trim(strings.TrimSpace(value), `"'`)
		if key == "trace_version" && value != "2" || key == "time_unit" && !slices.Contains([]string{"us", "microseconds"}, value) {
			return &trace.InputError{File: file, Err: fmt.Errorf("%s is %q: only version 2 with times in microseconds is known", key, value)}
		}
	}
	return nil
}

// finish makes the row's call, without its times.
func (r *blisRow) finish(at place) (err error) {
	t := at.turn()
	r.turn = t
	t.ID = cmp.Or(r.id, rowName(at.segment, at.line))
	if at.segment > 0 && r.id != "" {
		t.ID = fmt.Sprintf("file-%d-%s", at.segment+1, r.id) // files number their requests from 0
	}
	t.Model, t.Hints.PolicyClass = r.model, r.class
	input := r.in
	if r.group != "" {
		input += r.prefix
	}
	if r.serverIn > 0 {
		input = r.serverIn // as the server counted it, prefix included
	}
	if t.Input, err = tokens("input_tokens", input, 1); err != nil {
		return err
	}
	if t.Output, err = tokens("output_tokens", r.out, 0); err != nil {
		return err
	}
	if r.reasonRatio > 0 {
		t.Reasoning = int32(math.Round(r.reasonRatio * float64(t.Output)))
	}
	if r.status != "" && r.status != "ok" {
		t.Status = "error"
	}
	for _, us := range []int64{r.send, r.first, r.last, r.arrival} {
		if us > maxMs*1000 || us < -1 {
			return fmt.Errorf("a time of %d microseconds: want 0 to %g", us, maxMs*1000)
		}
	}
	if r.arrival < 0 {
		return errors.New("arrival_time_us is missing")
	}
	return nil
}

// setBLISTimes gives the calls their times. All arrivals must count from one origin, and all times of one call's answer.
func setBLISTimes(rows []*blisRow, read *trace.ReadReport) error {
	epoch := func(us int64) bool { return us > epochUs }
	var apart *blisRow
	for _, r := range rows {
		at := place{file: r.turn.File, line: int(r.turn.Line)}
		if first := rows[0]; epoch(r.arrival) != epoch(first.arrival) {
			return at.fail(fmt.Errorf("arrival_time_us is %d, but %d at %s:%d: one counts from 1970 and one does not, so they have no common origin",
				r.arrival, first.arrival, first.turn.File, first.turn.Line))
		}
		sent := cmp.Or(r.send, r.arrival)
		for _, us := range []int64{r.first, r.last} {
			if us > 0 && epoch(us) != epoch(sent) {
				return at.fail(fmt.Errorf("the answer came at %d, but the call was sent at %d: one counts from 1970 and one does not, so they have no common origin", us, sent))
			}
		}
		start := sent
		if epoch(sent) != epoch(r.arrival) {
			start = r.arrival
			apart = cmp.Or(apart, r)
		}
		t := r.turn
		t.Start = time.Duration(start) * time.Microsecond
		if r.first >= sent && r.first > 0 {
			t.TTFT = time.Duration(r.first-sent) * time.Microsecond
		}
		if r.last >= sent && r.last > 0 {
			t.End = t.Start + time.Duration(r.last-sent)*time.Microsecond
		}
	}
	if apart != nil {
		read.Warn(fmt.Sprintf("%s:%d: send_time_us is %d and arrival_time_us %d, of different origins: calls start at their arrivals, and sends only say how long they took",
			apart.turn.File, apart.turn.Line, apart.send, apart.arrival))
	}
	return nil
}

// blisSessions gathers the calls of sessions in the order of their rounds.
func blisSessions(rows []*blisRow, size int32) ([]*session, error) {
	m := &mint{}
	slices.SortStableFunc(rows, func(a, b *blisRow) int {
		return cmp.Or(cmp.Compare(a.turn.Start, b.turn.Start), cmp.Compare(a.round, b.round))
	})
	var sessions []*session
	byID := map[string]*session{}
	for _, r := range rows {
		name := r.turn.ID
		if r.session != "" {
			name = "session-" + r.session
		}
		s := byID[name]
		if s == nil {
			s = &session{Session: trace.Session{ID: name, Class: r.class}}
			byID[name] = s
			sessions = append(sessions, s)
		} else {
			before := s.calls[len(s.calls)-1]
			switch {
			case r.think >= 0:
				r.turn.Explicit, r.turn.Waits = true, []trace.Wait{{ID: before.ID, Delay: time.Duration(r.think) * time.Microsecond}}
			case before.End == trace.NoTime:
				r.turn.Explicit, r.turn.Waits = true, followStart(before, r.turn)
			}
		}
		var hashes []uint64
		if r.group != "" && r.prefix > 0 {
			shared := int32(min(r.prefix, int64(r.turn.Input))) / size
			var err error
			hashes, err = m.chain(nil, shared, "prefix group "+r.group, 0)
			if err == nil {
				hashes, err = m.chain(hashes, (r.turn.Input+size-1)/size, r.turn.ID, 0)
			}
			if err != nil {
				return nil, place{file: r.turn.File, line: int(r.turn.Line)}.fail(err)
			}
		}
		s.add(r.turn, hashes)
	}
	return sessions, nil
}
