package convert

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/goccy/go-json"

	"github.com/agentsim/agentsim/trace"
)

// maxWaits bounds the dependencies of one row.
const maxWaits = 1 << 16

// agentic reads agentic Mooncake.
func (in input) agentic() (*trace.Capture, error) { return in.mooncakeRows(FormatAgentic) }

func isAgentic(l *look) bool {
	return strings.HasPrefix(l.keys["schema"], "dynamo.agentic_mooncake") ||
		l.has("request_id") && l.hasAny("wait_for", "dependencies", "tool_wait_ms", "request_kind")
}

// readWaitFor reads wait_for of agentic Mooncake v1: the ids of requests whose end is waited for.
func (r *mooncakeRow) readWaitFor(s *scanner) {
	r.explicit = true
	if s.null() {
		return
	}
	for ok := s.array(); ok; ok = s.more() {
		if r.waitFor = append(r.waitFor, s.name()); len(r.waitFor) > maxWaits {
			s.fail("more than %d requests in wait_for", maxWaits)
		}
	}
}

// readDependencies reads dependencies of agentic Mooncake v2. A replay_barrier counts as a sequence edge.
func (r *mooncakeRow) readDependencies(s *scanner) {
	r.explicit = true
	if s.null() {
		return
	}
	for ok := s.array(); ok; ok = s.more() {
		var w trace.Wait
		delay := 0.0
		for key, ok := s.object(); ok; key, ok = s.next() {
			switch string(key) {
			case "request_id":
				w.ID = s.name()
			case "trigger":
				trigger := s.str()
				if w.OnDispatch = trigger == "dispatch"; !w.OnDispatch && trigger != "completion" && trigger != "" {
					s.fail("trigger %q: want completion or dispatch", trigger)
				}
			case "delay_ms", "delay":
				if delay = s.float(); math.IsNaN(delay) {
					delay = 0
				}
			case "relation":
				switch s.str() {
				case "spawn":
					w.Kind = trace.KindSpawn
				case "join":
					w.Kind = trace.KindJoin
				}
			default:
				s.skip()
			}
		}
		var err error
		if w.Delay, err = optionalMs("delay_ms", delay); err != nil {
			s.fail("%w", err)
		}
		if r.turn.Waits = append(r.turn.Waits, w); len(r.turn.Waits) > maxWaits {
			s.fail("more than %d dependencies", maxWaits)
		}
	}
}

// setWaits gives an agentic row its dependencies. In v1 it starts delay and tool_wait_ms after the last end that it
// waits for; without any, at its timestamp. In v2 each dependency has its own delay.
func (r *mooncakeRow) setWaits(delay time.Duration) error {
	t := r.turn
	t.Explicit = true
	toolWait, err := optionalMs("tool_wait_ms", r.toolWait)
	if err != nil {
		return err
	}
	toolWait, delay = max(toolWait, 0), max(delay, 0) // not told is none
	for _, id := range r.waitFor {
		t.Waits = append(t.Waits, trace.Wait{ID: id, Delay: delay + toolWait})
	}
	switch {
	case len(r.waitFor) > 0:
		t.Gap.Tool = toolWait
		t.Start = trace.NoTime
	case len(t.Waits) == 0 && t.Start == trace.NoTime:
		return fmt.Errorf("request %q waits for nothing and has no timestamp: when does it start?", t.ID)
	}
	if took, err := optionalMs("recorded_api_time_ms", r.apiTime); err != nil {
		return err
	} else if took != trace.NoTime && t.Start != trace.NoTime {
		t.End = t.Start + took
	}
	return nil
}

// readOwn reads what Write put into a row beyond agentic Mooncake.
func (r *mooncakeRow) readOwn(s *scanner) {
	if s.peek() != '{' {
		s.skip()
		return
	}
	r.own = &agenticEx{}
	if err := json.Unmarshal(s.span(), r.own); err != nil {
		s.fail("agentsim: %w", err)
	}
}

// setOwn gives the row's call what Write put into it.
func (r *mooncakeRow) setOwn() error {
	t, x := r.turn, r.own
	for _, f := range []struct {
		from *int32
		to   *int32
		most int32
	}{{x.CachedTokens, &t.Cached, t.Input}, {x.ReasoningTokens, &t.Reasoning, t.Output}} {
		if f.from != nil && *f.from >= 0 && *f.from <= f.most {
			*f.to = *f.from
		}
	}
	for _, f := range []struct {
		name string
		from *float64
		to   *time.Duration
	}{{"ttft_ms", x.TTFT, &t.TTFT}, {"tool_ms", x.Tool, &t.Gap.Tool}, {"human_ms", x.Human, &t.Gap.Human}} {
		if f.from == nil {
			continue
		}
		var err error
		if *f.to, err = optionalMs("agentsim."+f.name, *f.from); err != nil {
			return err
		}
	}
	t.Trigger, t.Compaction, t.Final, t.Status = x.Trigger, x.Compaction, x.Final, x.Status
	t.Inferred |= trace.FieldsNamed(x.Inferred)
	return nil
}

// checkWaits refuses dependencies on unknown requests and on each other.
func checkWaits(c *trace.Capture, byID map[string]*trace.Turn) error {
	const (
		entered = 1 + iota
		done
	)
	state := make(map[*trace.Turn]int, len(byID))
	type step struct {
		turn *trace.Turn
		next int // index into its waits
	}
	var path []step
	for _, s := range c.Sessions {
		for _, root := range s.Turns {
			if state[root] == 0 {
				state[root] = entered
				path = append(path[:0], step{turn: root})
			}
			for len(path) > 0 {
				at := &path[len(path)-1]
				t := at.turn
				if at.next == len(t.Waits) {
					state[t] = done
					path = path[:len(path)-1]
					continue
				}
				on := byID[t.Waits[at.next].ID]
				at.next++
				switch {
				case on == nil:
					return waitError(t, "request %q waits for %q, which is not in the trace", t.ID, t.Waits[at.next-1].ID)
				case state[on] == entered:
					return waitError(t, "request %q waits for %q (%s:%d), which waits for it in turn", t.ID, on.ID, on.File, on.Line)
				case state[on] == 0:
					state[on] = entered
					path = append(path, step{turn: on})
				}
			}
		}
	}
	return nil
}

func waitError(t *trace.Turn, format string, args ...any) error {
	return &trace.InputError{File: t.File, Line: int(t.Line), Err: fmt.Errorf(format, args...)}
}
