package convert

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// replayBlock is the tokens per hash of what TraceLab's workloads are known to share.
const replayBlock = 16

// replayRow is a round of a workload of TraceLab's session_runner. Times are milliseconds; NaN is not told.
type replayRow struct {
	session            string
	index              int64
	prefix, in, out    int64
	arrival, toolAfter float64
	at                 place
}

func isTracelabReplay(l *look) bool {
	return !slices.ContainsFunc([]string{"round_idx", "prefix_len", "input_len", "output_len"}, func(name string) bool { return !slices.Contains(l.columns, name) })
}

// parseReplay reads a row whose columns have the given names.
func parseReplay(text []byte, names []string) (*replayRow, error) {
	fields := splitRow(text)
	if len(fields) > 0 && len(names) > 0 && strings.EqualFold(string(fields[0]), names[0]) {
		return nil, errHeader
	}
	r := &replayRow{index: -1, prefix: -1, in: -1, out: -1, arrival: math.NaN(), toolAfter: math.NaN()}
	numbers := map[string]*int64{"round_idx": &r.index, "prefix_len": &r.prefix, "input_len": &r.in, "output_len": &r.out}
	times := map[string]*float64{"arrival_time": &r.arrival, "tool_wait_after_ms": &r.toolAfter}
	for i, name := range names {
		if i >= len(fields) || len(fields[i]) == 0 {
			continue
		}
		var err error
		if name == "session_id" || name == "id" {
			r.session = string(fields[i])
		}
		if to := numbers[name]; to != nil {
			*to, err = wholeField(fields[i])
		}
		if to := times[name]; to != nil {
			*to, err = strconv.ParseFloat(string(fields[i]), 64)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r, nil
}

// tracelabReplay reads the workloads that TraceLab's session_runner replays: rows of a session are its rounds, each of which
// follows the one before after tool_wait_after_ms. A prompt is prefix_len tokens of the prompt and answer before, and
// input_len new ones; sessions share nothing. Sessions begin at arrival_time, where that is told.
func (in input) tracelabReplay() (*trace.Capture, error) {
	rounds := map[string][]*replayRow{} // by file and session
	var order []string
	var read trace.ReadReport
	timed := true
	for i := range in.segments {
		columns := csvNames(in.heads[i])
		timed = timed && slices.Contains(columns, "arrival_time")
		part := in
		part.segments = in.segments[i : i+1]
		got, err := readRows(part, func(text []byte) (*replayRow, error) { return parseReplay(text, columns) }, func(at place, r *replayRow) error {
			r.at = at
			if r.session == "" {
				return at.fail(errors.New("session_id is missing"))
			}
			name := "session-" + r.session
			if i > 0 {
				name = fmt.Sprintf("file-%d-%s", i+1, name)
			}
			if rounds[name] == nil {
				order = append(order, name)
			}
			rounds[name] = append(rounds[name], r)
			return nil
		})
		if err != nil {
			return nil, err
		}
		read.Add(&got)
	}
	size := in.blockSize(replayBlock)
	var sessions []*session
	m := &mint{}
	for _, name := range order {
		s := &session{Session: trace.Session{ID: name}}
		sessions = append(sessions, s)
		rows := rounds[name]
		slices.SortStableFunc(rows, func(a, b *replayRow) int { return cmp.Compare(a.index, b.index) })
		if err := addRounds(s, rows, m, int32(size)); err != nil {
			return nil, err
		}
	}
	return in.join(&trace.Capture{Format: FormatTracelabReplay, Resolution: time.Millisecond, SharedClock: timed}, size, sessions, &read)
}

// addRounds makes calls of the rounds of a session, which are in their order.
func addRounds(s *session, rows []*replayRow, m *mint, size int32) error {
	var before *trace.Turn
	var chain []uint64 // of the blocks of the prompt before and its answer
	wait := time.Duration(0)
	for i, r := range rows {
		t := r.at.turn()
		t.ID = s.ID + "/" + strconv.FormatInt(r.index, 10)
		if i > 0 && r.index == rows[i-1].index || r.index < 0 {
			return r.at.fail(fmt.Errorf("round_idx %d of %s: missing, or used before", r.index, s.ID))
		}
		prefix, err := tokens("prefix_len", r.prefix, 0)
		if err != nil {
			return r.at.fail(err)
		}
		fresh, err := tokens("input_len", r.in, 0)
		if err != nil {
			return r.at.fail(err)
		}
		if t.Input, err = tokens("prefix_len + input_len", int64(prefix)+int64(fresh), 1); err != nil {
			return r.at.fail(err)
		}
		if t.Output, err = tokens("output_len", r.out, 0); err != nil {
			return r.at.fail(err)
		}
		if before == nil {
			t.Trigger = "user_message"
			if t.Start, err = optionalMs("arrival_time", r.arrival); err != nil {
				return r.at.fail(err)
			}
			if t.Start == trace.NoTime {
				t.Start, t.Inferred = 0, trace.FieldStart
			}
		} else {
			t.Explicit, t.Waits = true, []trace.Wait{{ID: before.ID, Delay: wait}}
			t.Gap.Tool, t.Trigger = wait, "tool_result"
		}
		if chain, err = s.grow(m, t, chain[:min(prefix/size, int32(len(chain)))], size); err != nil {
			return r.at.fail(err)
		}
		if wait, err = optionalMs("tool_wait_after_ms", r.toolAfter); err != nil {
			return r.at.fail(err)
		}
		wait = max(wait, 0)
		before = t
	}
	return nil
}
