package convert

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/hash"
)

const (
	// servingSimBlock is the tokens per block of prompts that come as token ids.
	servingSimBlock = 16
	// maxSubRequests bounds the calls of one agentic row.
	maxSubRequests = 1 << 16
)

// servingSimRow is one row of an LLMServingSim workload: a call, or a session of calls.
type servingSimRow struct {
	session string
	arrival int64 // nanoseconds; -1 when not told
	calls   []servingSimCall
}

type servingSimCall struct {
	in, out       int64
	tool          int64 // nanoseconds from its end to the next call
	inIDs, outIDs []uint32
}

func isServingSim(l *look) bool {
	return l.has("input_toks", "output_toks") || l.has("session_id", "sub_requests")
}

func parseServingSim(text []byte) (*servingSimRow, error) {
	r := &servingSimRow{arrival: -1}
	s := &scanner{data: text}
	plain, agentic := servingSimCall{in: -1, out: -1}, false
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "session_id":
			r.session = s.name()
		case "arrival_time_ns":
			r.arrival = s.integer()
		case "sub_requests":
			agentic = true
			for ok := s.array(); ok; ok = s.more() {
				call := servingSimCall{in: -1, out: -1}
				for key, ok := s.object(); ok; key, ok = s.next() {
					call.read(s, string(key))
				}
				if r.calls = append(r.calls, call); len(r.calls) > maxSubRequests {
					s.fail("more than %d sub_requests", maxSubRequests)
				}
			}
		default:
			plain.read(s, string(key))
		}
	}
	if !agentic {
		r.calls = []servingSimCall{plain}
	}
	return r, s.end()
}

func (c *servingSimCall) read(s *scanner, key string) {
	switch key {
	case "input_toks":
		c.in = s.integer()
	case "output_toks":
		c.out = s.integer()
	case "tool_duration_ns":
		c.tool = s.integer()
	case "input_tok_ids":
		c.inIDs = s.tokenIDs()
	case "output_tok_ids":
		c.outIDs = s.tokenIDs()
	default:
		s.skip()
	}
}

// tokenIDs reads an array of token ids.
func (s *scanner) tokenIDs() []uint32 {
	if s.null() {
		return nil
	}
	var ids []uint32
	for ok := s.array(); ok; ok = s.more() {
		ids = append(ids, uint32(s.whole(0, math.MaxUint32)))
	}
	return ids
}

// servingSim reads workloads of LLMServingSim. Token ids, where a row has them, give the blocks of the prompt and of the
// answer. A row with sub_requests is a session: a call begins tool_duration_ns after the end of the one before.
func (in input) servingSim() (*trace.Capture, error) {
	size := in.blockSize(servingSimBlock)
	var sessions []*session
	names := map[string]place{}
	read, err := readRows(in, parseServingSim, func(at place, r *servingSimRow) error {
		name := r.session
		if name == "" {
			name = rowName(at.segment, at.line)
		}
		if first, ok := names[name]; ok {
			return at.fail(fmt.Errorf("session_id %q was used before, at %s:%d", name, first.file, first.line))
		}
		names[name] = at
		s := &session{Session: trace.Session{ID: name, Final: true}}
		sessions = append(sessions, s)
		return r.finish(at, s, size)
	})
	if err != nil {
		return nil, err
	}
	c := &trace.Capture{Format: FormatServingSim, Resolution: time.Microsecond, SharedClock: true}
	if c, err = in.join(c, size, sessions, &read); err != nil {
		return nil, err
	}
	c.Rebase()
	return c, nil
}

// finish makes the row's calls.
func (r *servingSimRow) finish(at place, s *session, size int) (err error) {
	var before *trace.Turn
	for i, call := range r.calls {
		t := at.turn()
		t.ID = s.ID
		if len(r.calls) > 1 {
			t.ID += "/" + strconv.Itoa(i+1)
		}
		if t.Input, err = tokens("input_toks", call.in, 1); err != nil {
			return at.fail(err)
		}
		if t.Output, err = tokens("output_toks", call.out, 0); err != nil {
			return at.fail(err)
		}
		switch {
		case before != nil:
			gap := time.Duration(max(0, r.calls[i-1].tool))
			if gap > maxMs*time.Millisecond {
				return at.fail(fmt.Errorf("tool_duration_ns is %d: want 0 to %d", gap, int64(maxMs*time.Millisecond)))
			}
			t.Explicit, t.Waits = true, []trace.Wait{{ID: before.ID, Delay: gap}}
			t.Gap.Tool, t.Trigger = gap, "tool_result"
		case r.arrival < 0:
			return at.fail(errors.New("arrival_time_ns is missing or negative"))
		case r.arrival > int64(maxMs*time.Millisecond):
			return at.fail(fmt.Errorf("arrival_time_ns is %d: want 0 to %d", r.arrival, int64(maxMs*time.Millisecond)))
		default:
			t.Start = time.Duration(r.arrival)
		}
		hashes, err := call.blocks(t, size)
		if err != nil {
			return at.fail(err)
		}
		s.add(t, hashes)
		before = t
	}
	return nil
}

// blocks returns the hashes of the prompt and gives t those of its answer.
func (c *servingSimCall) blocks(t *trace.Turn, size int) ([]uint64, error) {
	if len(c.inIDs) == 0 {
		return nil, nil
	}
	if int64(len(c.inIDs)) != c.in {
		return nil, fmt.Errorf("%d input_tok_ids for %d input_toks", len(c.inIDs), c.in)
	}
	if int64(len(c.outIDs)) == c.out && c.out > 0 {
		both := append(c.inIDs[:len(c.inIDs):len(c.inIDs)], c.outIDs...)
		t.OutputHashes = hash.Blocks(both, size)[len(c.inIDs)/size:]
	}
	return hash.Blocks(c.inIDs, size), nil
}
