package cli

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/agentsim/agentsim/router/thunderagent"
)

// tickWatch finds the tick of a frontend that was asked for.
type tickWatch struct {
	now, best *explainedTick
}

// explainedTick is a tick of a program scheduler.
type explainedTick struct {
	AtNs     int64             `json:"at_ns"`
	Frontend int               `json:"frontend"`
	Workers  []explainedWorker `json:"workers"`
	// Decisions are in order, Stayed the programs that are paused after the tick.
	Decisions []explainedEvent `json:"decisions"`
	Stayed    []stayed         `json:"stayed_paused"`
}

// explainedWorker is the account of a worker, in tokens.
type explainedWorker struct {
	Worker     int32 `json:"worker"`
	UsedBefore int64 `json:"used_before"`
	UsedAfter  int64 `json:"used_after"`
	Capacity   int64 `json:"capacity"`
	PauseAbove int64 `json:"pause_above"`
	PauseTo    int64 `json:"pause_to"`
	ResumeTo   int64 `json:"resume_to"`
	Reasoning  int64 `json:"reasoning_programs"`
	Acting     int64 `json:"acting_programs"`
}

// stayed is a program that is paused after a tick.
type stayed struct {
	Session  string `json:"session"`
	Tokens   int64  `json:"tokens"`
	Need     int64  `json:"need"`
	Held     bool   `json:"request_held"`
	PausedNs int64  `json:"paused_ns"` // all told
	Why      string `json:"why"`
}

// ticked looks at a table before and after a tick, and keeps the tick that was asked for: the first at a given time or
// later, or the first of those with the most decisions.
func (x *explanation) ticked(frontend int, at time.Duration, before bool, t *thunderagent.Table) {
	watch := x.ticks[frontend]
	if watch == nil {
		watch = &tickWatch{}
		x.ticks[frontend] = watch
	}
	if before {
		watch.now = &explainedTick{AtNs: int64(at), Frontend: frontend, Decisions: []explainedEvent{}, Stayed: []stayed{}}
		for _, a := range t.Accounts() {
			watch.now.Workers = append(watch.now.Workers, explainedWorker{Worker: a.Worker, UsedBefore: a.Used})
		}
		x.during = watch
		return
	}
	x.during = nil
	wanted := watch.best == nil && at >= x.tickAt
	if x.tickAt < 0 {
		wanted = watch.best == nil || len(watch.now.Decisions) > len(watch.best.Decisions)
	}
	if wanted {
		watch.best = watch.now
		x.settleTick(watch.best, at, t)
	}
}

// settleTick adds what a table looks like after the tick.
func (x *explanation) settleTick(tick *explainedTick, at time.Duration, t *thunderagent.Table) {
	accounts := t.Accounts()
	for i, a := range accounts {
		w := &tick.Workers[i]
		w.UsedAfter, w.Capacity, w.PauseAbove, w.PauseTo, w.ResumeTo = a.Used, a.Capacity, a.PauseAbove, a.PauseTo, a.ResumeTo
		w.Reasoning, w.Acting = a.Reasoning, a.Acting
	}
	room := func(a thunderagent.Account) int64 { return a.ResumeTo - a.Used }
	for _, p := range t.Programs(at) {
		if !p.Paused {
			continue
		}
		s := stayed{Session: x.sessionName(p.Session), Tokens: p.Tokens, Need: t.Need(p.Tokens), Held: p.Held, PausedNs: int64(p.PausedFor)}
		justPaused := slices.ContainsFunc(tick.Decisions, func(d explainedEvent) bool {
			return d.Session == s.Session && d.What == string(thunderagent.Paused)
		})
		switch {
		case len(accounts) == 0:
			s.Why = "no worker is there"
		case justPaused:
			s.Why = "paused at this tick"
		default:
			roomiest := slices.MaxFunc(accounts, func(a, b thunderagent.Account) int { return cmp.Compare(room(a), room(b)) })
			largest := slices.MaxFunc(accounts, func(a, b thunderagent.Account) int { return cmp.Compare(a.ResumeTo, b.ResumeTo) })
			switch {
			case s.Need > largest.ResumeTo:
				s.Why = fmt.Sprintf("larger than any worker below its resume ceiling of %s: leaves by resume_timeout only", grouped(largest.ResumeTo))
			case s.Need > room(roomiest):
				s.Why = fmt.Sprintf("the most room is %s, on worker %d", grouped(max(0, room(roomiest))), roomiest.Worker)
			default:
				s.Why = fmt.Sprintf("fits now on worker %d: the next tick looks again", roomiest.Worker)
			}
		}
		tick.Stayed = append(tick.Stayed, s)
	}
	slices.SortStableFunc(tick.Stayed, func(a, b stayed) int { return cmp.Compare(a.Need, b.Need) })
}

// sessionName names the session that a program scheduler knows by a number.
func (x *explanation) sessionName(key uint64) string {
	name := x.w.Sessions[uint32(key)].ID
	if copy := key >> 32; copy > 0 {
		name += fmt.Sprintf("#%d", copy)
	}
	return name
}
