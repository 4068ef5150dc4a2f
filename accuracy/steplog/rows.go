package steplog

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/goccy/go-json"
)

// headSize is how much of a file says what it is, in bytes.
const headSize = 1 << 16

// parserOf chooses by the beginning of a file: JSON lines, CSV with a header, or the text of a log.
func parserOf(head []byte) lineParser {
	head = bytes.TrimSpace(bytes.TrimPrefix(head, []byte("\ufeff")))
	if bytes.HasPrefix(head, []byte{'{'}) {
		return parseJSON
	}
	line, _, _ := bytes.Cut(head, []byte{'\n'})
	if columns := cells(line); slices.Contains(columns, "step_us") {
		return csvParser(columns)
	}
	return parseText
}

// plain is a row of the plain format; nil is a column that is not there or empty.
type plain struct {
	PrefillTokens  *float64 `json:"prefill_tokens"`
	Prefills       *float64 `json:"prefills"`
	PrefillContext *float64 `json:"prefill_context"`
	PrefillPairs   *float64 `json:"prefill_pairs"`
	Decodes        *float64 `json:"decodes"`
	DecodeContext  *float64 `json:"decode_context"`
	StepUs         *float64 `json:"step_us"`
}

// column is the field of a column; nil for one that is not read.
func (r *plain) column(name string) **float64 {
	return map[string]**float64{
		"prefill_tokens": &r.PrefillTokens, "prefills": &r.Prefills, "prefill_context": &r.PrefillContext, "prefill_pairs": &r.PrefillPairs,
		"decodes": &r.Decodes, "decode_context": &r.DecodeContext, "step_us": &r.StepUs,
	}[name]
}

func (r *plain) entry() (entry, error) {
	e := entry{Step: unknown("plain")}
	if r.PrefillTokens == nil || r.Prefills == nil || r.Decodes == nil || r.StepUs == nil {
		return e, errors.New("want prefill_tokens, prefills, decodes and step_us")
	}
	if r.PrefillPairs != nil { // Σ n·past + n²/2 may end in a half
		twice := 2 * *r.PrefillPairs
		r.PrefillPairs = &twice
	}
	err := cmp.Or(whole("prefill_tokens", r.PrefillTokens, &e.PrefillTokens), whole("prefills", r.Prefills, &e.Prefills),
		whole("decodes", r.Decodes, &e.Decodes), whole("prefill_context", r.PrefillContext, &e.PrefillContext),
		whole("prefill_pairs, doubled,", r.PrefillPairs, &e.PrefillPairs), whole("decode_context", r.DecodeContext, &e.DecodeContext))
	if err == nil {
		e.Time, err = duration(*r.StepUs / 1e6)
	}
	return e, err
}

// whole sets a count of at most 10^14 where there is one.
func whole[T int | int64](name string, v *float64, into *T) error {
	if v == nil {
		return nil
	}
	if !(*v >= 0 && *v <= 1e14) || *v != math.Trunc(*v) {
		return fmt.Errorf("%s is %g, want a whole number from 0", name, *v)
	}
	*into = T(*v)
	return nil
}

func cells(line []byte) []string {
	fields := bytes.Split(line, []byte{','})
	list := make([]string, len(fields))
	for i, f := range fields {
		list[i] = string(bytes.Trim(f, " \t\r\""))
	}
	return list
}

// csvParser reads rows under a header; other columns than those of plain are passed over.
func csvParser(columns []string) lineParser {
	return func(line []byte) (entry, error) {
		row := cells(line)
		if slices.Equal(row, columns) { // the header; joined files repeat it
			return entry{}, errNoStep
		}
		if len(row) != len(columns) {
			return entry{}, fmt.Errorf("%d cells under %d columns", len(row), len(columns))
		}
		var r plain
		for i, cell := range row {
			at := r.column(columns[i])
			if at == nil || cell == "" {
				continue
			}
			v, err := strconv.ParseFloat(cell, 64)
			if err != nil {
				return entry{}, fmt.Errorf("%s is %q, want a number", columns[i], cell)
			}
			*at = &v
		}
		return r.entry()
	}
}

// forwardPass is Dynamo's forward-pass metrics, version 1: a step's wall_time in seconds, and sums over its requests.
type forwardPass struct {
	WallTime  *float64 `json:"wall_time"`
	Scheduled *struct {
		Prefills      *float64 `json:"num_prefill_requests"`
		PrefillTokens *float64 `json:"sum_prefill_tokens"`
		PrefillPast   *float64 `json:"sum_prefill_kv_tokens"` // prefix hits and earlier chunks
		Decodes       *float64 `json:"num_decode_requests"`
		DecodeContext *float64 `json:"sum_decode_kv_tokens"`
	} `json:"scheduled_requests"`
}

// iterationStats is TensorRT-LLM's JSON, as its metrics endpoint has it.
type iterationStats struct {
	Iter   int64    `json:"iter"`
	Rank   int64    `json:"attentionDpRank"`
	Mode   string   `json:"schedulerMode"`
	Device *float64 `json:"prevDeviceStepTimeMS"`
	Host   *float64 `json:"hostStepTimeMS"`
	Loop   *float64 `json:"iterLatencyMS"` // of two steps under the overlap scheduler
	Batch  *struct {
		Prefills      *float64 `json:"numContextRequests"`
		PrefillTokens *float64 `json:"numCtxTokens"`
		PrefillPast   *float64 `json:"numCtxKvTokens"`
		Decodes       *float64 `json:"numGenRequests"`
		DecodeContext *float64 `json:"numGenKvTokens"`
	} `json:"inflightBatchingStats"`
}

// parseJSON reads an object of any of the formats.
func parseJSON(line []byte) (entry, error) {
	var o struct {
		plain
		forwardPass
		iterationStats
		FPM *forwardPass `json:"fpm"`
	}
	if err := json.Unmarshal(line, &o); err != nil {
		return entry{}, fmt.Errorf("not a JSON object of a step: %w", err)
	}
	switch {
	case o.FPM != nil:
		return o.FPM.entry()
	case o.Scheduled != nil:
		return o.forwardPass.entry()
	case o.Batch != nil:
		return o.iterationStats.entry()
	case o.StepUs != nil:
		return o.plain.entry()
	}
	return entry{}, errNoStep
}

func (f *forwardPass) entry() (entry, error) {
	s := f.Scheduled
	if f.WallTime == nil || s == nil {
		return entry{}, errors.New("forward-pass metrics without wall_time or scheduled_requests")
	}
	e, err := sums("dynamo", s.Prefills, s.PrefillTokens, s.PrefillPast, s.Decodes, s.DecodeContext)
	if err == nil {
		e.Time, err = duration(*f.WallTime)
	}
	return e, err
}

func (t *iterationStats) entry() (entry, error) {
	b := t.Batch
	e, err := sums("trtllm", b.Prefills, b.PrefillTokens, b.PrefillPast, b.Decodes, b.DecodeContext)
	if err != nil {
		return e, err
	}
	e.iter, e.rank = t.Iter, strconv.FormatInt(t.Rank, 10)
	switch {
	case t.Device != nil:
		e.kind = lagging
		e.before, err = duration(*t.Device / 1e3)
	case t.Host != nil:
		e.Time, err = duration(*t.Host / 1e3)
	case t.Loop != nil && t.Mode == "non_overlap":
		e.Time, err = duration(*t.Loop / 1e3)
	default:
		e.kind = untimed
	}
	return e, err
}

// sums is a step of which the sums over its requests are known.
func sums(format string, prefills, prefillTokens, past, decodes, decodeContext *float64) (entry, error) {
	e := entry{Step: unknown(format)}
	err := cmp.Or(whole("prefill requests", prefills, &e.Prefills), whole("prefill tokens", prefillTokens, &e.PrefillTokens),
		whole("past of prefills", past, &e.PrefillContext), whole("decode requests", decodes, &e.Decodes),
		whole("context of decodes", decodeContext, &e.DecodeContext))
	if past != nil {
		e.PrefillContext += int64(e.PrefillTokens)
	}
	return e, err
}
