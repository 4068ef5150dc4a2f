package convert

import (
	"fmt"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// mooncakeOut is a row of the Mooncake family. Times are milliseconds.
type mooncakeOut struct {
	RequestID    string   `json:"request_id,omitempty"`
	SessionID    string   `json:"session_id,omitempty"`
	Model        string   `json:"model,omitempty"`
	Timestamp    *float64 `json:"timestamp,omitempty"`
	Delay        *float64 `json:"delay,omitempty"`
	InputLength  int32    `json:"input_length"`
	OutputLength int32    `json:"output_length"`
	HashIDs      []uint64 `json:"hash_ids,omitempty"`
	hintsOut
}

// hintsOut is the scheduling hints that Dynamo's reader of Mooncake rows knows.
type hintsOut struct {
	Priority       int32  `json:"priority,omitempty"`
	StrictPriority uint32 `json:"strict_priority,omitempty"`
	PolicyClass    string `json:"policy_class,omitempty"`
}

func (w *writer) hints(t *trace.Turn) hintsOut {
	if t.Hints.OSL != 0 || t.Hints.SpeculativePrefill {
		w.lose("hints of expected lengths and of speculative prefills", 1)
	}
	return hintsOut{t.Hints.Priority, t.Hints.StrictPriority, t.Hints.PolicyClass}
}

// time tells when a call begins: some time after the one before it, where that is known.
func (o *mooncakeOut) time(w *writer, t *trace.Turn, at chained) {
	if at.before != nil && at.delay != trace.NoTime {
		o.Delay = msOf(at.delay)
	} else {
		o.Timestamp = msOf(w.begins[t].start)
	}
}

func msOf(d time.Duration) *float64 {
	ms := float64(d) / 1e6
	return &ms
}

// mooncake writes rows in the order of their starts. A call that waits for the one before it in its session alone has the
// delay from its end; others have their time.
func (w *writer) mooncake() error {
	w.loseBlockSize()
	rows := w.chains(func(before, t *trace.Turn) bool { return true })
	for _, t := range w.byStart() {
		at := rows[t]
		out := mooncakeOut{RequestID: t.ID, SessionID: at.session, Model: t.Model, InputLength: t.Input, OutputLength: t.Output,
			HashIDs: w.hashIDs(t, true), hintsOut: w.hints(t)}
		out.time(w, t, at)
		if err := w.row(&out); err != nil {
			return err
		}
	}
	return nil
}

// aiperf writes rows as AIPerf's mooncake_trace takes them. The rows of a session make one conversation, whose prompts grow by
// the answers and what the rows add, so that a prompt which does not go on from the one before begins another.
func (w *writer) aiperf() error {
	w.loseBlockSize()
	size := int32(max(w.capture.BlockSize, 1))
	rows := w.chains(func(before, t *trace.Turn) bool {
		if t.Input <= before.Input+before.Output {
			return false
		}
		a, b := before.Chain(), t.Chain()
		full := int(min(before.Input/size, int32(len(a))))
		return len(b) >= full && slices.Equal(a[:full], b[:full])
	})
	for _, t := range w.byStart() {
		at := rows[t]
		out := mooncakeOut{SessionID: at.session, InputLength: t.Input, OutputLength: t.Output}
		if at.before == nil {
			out.HashIDs = w.hashIDs(t, true)
		} else {
			out.InputLength -= at.before.Input + at.before.Output
			if w.capture.BlockSize > 0 {
				out.HashIDs = w.newIDs((out.InputLength + size - 1) / size)
			}
		}
		out.time(w, t, at)
		if err := w.row(&out); err != nil {
			return err
		}
	}
	return nil
}

// loseBlockSize tells that the rows do not say how many tokens a block has, unless it is what readers take it to be.
func (w *writer) loseBlockSize() {
	if size := w.capture.BlockSize; size > 0 && size != defaultBlockSize {
		w.lose(fmt.Sprintf("the size of blocks, %d tokens, which readers must be told", size), 1)
	}
}

// chained is where a call stands in the sessions of a format in which a call waits for the one before it and for no other.
type chained struct {
	session string
	before  *trace.Turn
	// delay is the time from the end of the call before; trace.NoTime if only the distance of the starts is known.
	delay time.Duration
}

// chains makes such sessions. A call that does not wait for the one before it, or does not follow it as the format wants,
// begins another.
func (w *writer) chains(follows func(before, t *trace.Turn) bool) map[*trace.Turn]chained {
	rows := map[*trace.Turn]chained{}
	taken := map[string]bool{}
	for _, s := range w.capture.Sessions {
		taken[s.ID] = true
	}
	for _, s := range w.capture.Sessions {
		name, n := s.ID, 1
		var before *trace.Turn
		for _, t := range s.Turns {
			at := chained{session: name}
			waits := slices.DeleteFunc(slices.Clone(t.Deps), func(d trace.Dep) bool { return d.Turn.Session != s })
			on := slices.IndexFunc(waits, func(d trace.Dep) bool { return d.Turn == before && !d.OnDispatch })
			switch {
			case before == nil:
			case on < 0 || !follows(before, t):
				w.lose("calls that do not go on from the one before, which begin sessions of their own", 1)
				for taken[at.session] {
					n++
					at.session = fmt.Sprintf("%s#%d", s.ID, n)
				}
				taken[at.session] = true
				name = at.session
			default:
				at.before, at.delay = before, waits[on].Delay
				if t.Start != trace.NoTime && before.End != trace.NoTime && !t.Explicit {
					at.delay = max(t.Start-before.End, 0)
				}
				others := len(waits) - 1
				if i := slices.IndexFunc(waits, func(d trace.Dep) bool { return d.Turn == before && d.OnDispatch }); i >= 0 && t.Start != trace.NoTime && before.Start != trace.NoTime {
					at.delay = trace.NoTime
					others--
				}
				w.lose("waits for calls of the session but the one before", others)
			}
			rows[t] = at
			before = t
		}
	}
	return rows
}
