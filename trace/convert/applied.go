package convert

import (
	"fmt"
	"strconv"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// appliedBlock is the tokens per block of the prompts of Applied Compute's workloads.
const appliedBlock = 16

// appliedRow is one session of Applied Compute's agentic workloads: counts of tokens, and the seconds of its tools.
type appliedRow struct {
	turns, input, final int64
	outputs, results    []int64
	latencies           []float64
}

func isApplied(l *look) bool {
	return l.has("assistant_response_length", "tool_call_output_length")
}

func parseApplied(text []byte) (*appliedRow, error) {
	r := &appliedRow{turns: -1, input: -1, final: -1}
	s := &scanner{data: text}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "num_turns":
			r.turns = s.integer()
		case "input_prompt_length":
			r.input = s.integer()
		case "final_assistant_response_length":
			r.final = s.integer()
		case "assistant_response_length":
			r.outputs = s.integers()
		case "tool_call_output_length":
			r.results = s.integers()
		case "tool_call_latency":
			for ok := s.array(); ok; ok = s.more() {
				r.latencies = append(r.latencies, s.float())
			}
		default:
			s.skip()
		}
	}
	return r, s.end()
}

func (s *scanner) integers() []int64 {
	var list []int64
	for ok := s.array(); ok; ok = s.more() {
		list = append(list, s.integer())
	}
	return list
}

// applied reads Applied Compute's agentic workloads: a row is a session of num_turns calls with a tool after each, and a
// last call. A prompt is the one before, its answer and the tool's result, so what calls of a session share is known. There
// are no times of arrival: all sessions begin at 0, each on a clock of its own.
func (in input) applied() (*trace.Capture, error) {
	size := in.blockSize(appliedBlock)
	var sessions []*session
	m := &mint{}
	read, err := readRows(in, parseApplied, func(at place, r *appliedRow) error {
		s := &session{Session: trace.Session{ID: rowName(at.segment, at.line), Final: true}}
		sessions = append(sessions, s)
		return r.finish(at, s, m, int32(size))
	})
	if err != nil {
		return nil, err
	}
	return in.join(&trace.Capture{Format: FormatApplied, Resolution: time.Microsecond}, size, sessions, &read)
}

func (r *appliedRow) finish(at place, s *session, m *mint, size int32) error {
	n := len(r.outputs)
	if r.turns >= 0 && int64(n) != r.turns || len(r.results) != n || len(r.latencies) != n {
		return at.fail(fmt.Errorf("num_turns is %d, but there are %d assistant_response_length, %d tool_call_output_length and %d tool_call_latency",
			r.turns, n, len(r.results), len(r.latencies)))
	}
	context := r.input // tokens of the prompt
	var before *trace.Turn
	var chain []uint64 // of the full blocks of the prompt before and its answer
	for i := range n + 1 {
		t := at.turn()
		t.ID = s.ID + "/" + strconv.Itoa(i+1)
		var err error
		if t.Input, err = tokens("the prompt", context, 1); err != nil {
			return at.fail(err)
		}
		output := r.final
		if i < n {
			output = r.outputs[i]
		}
		if t.Output, err = tokens("the answer", output, 0); err != nil {
			return at.fail(err)
		}
		if before == nil {
			t.Start, t.Inferred = 0, trace.FieldStart
			t.Trigger = "user_message"
		} else {
			gap, err := seconds("tool_call_latency", r.latencies[i-1])
			if err != nil {
				return at.fail(err)
			}
			t.Explicit, t.Waits = true, []trace.Wait{{ID: before.ID, Delay: gap}}
			t.Gap.Tool, t.Trigger = gap, "tool_result"
		}
		if chain, err = s.grow(m, t, chain, size); err != nil {
			return at.fail(err)
		}
		before = t
		if i < n {
			if r.results[i] < 0 || r.results[i] > maxTokens {
				return at.fail(fmt.Errorf("tool_call_output_length is %d: want 0 to %d tokens", r.results[i], maxTokens))
			}
			context += output + r.results[i]
		}
	}
	return nil
}
