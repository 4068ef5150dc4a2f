package thunderagent

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Stats count decisions since the start.
type Stats struct {
	Admitted      int64 // requests that went out at once
	Deferred      int64 // requests that were held
	Pauses        int64 // programs paused, marked ones included
	Marks         int64 // programs to be paused at the end of their turn
	Resumes       int64 // programs that were resumed, forced ones included
	ForcedResumes int64
	Migrations    int64 // requests sent to another worker than the session's request before
	Expired       int64 // programs forgotten because they were idle for too long
	Evicted       int64 // programs forgotten because the table was full
	PausedPeak    int64 // most programs paused or held at a time

	// Paused is the sum of the time that programs were paused or held.
	Paused time.Duration
	// LongestWait is the longest that a request was, or has been, held.
	LongestWait time.Duration
	// Waits are over the requests that were held and let go: smallest-first makes the large ones wait.
	Waits Moments

	// Programs and PausedPrograms are in the table now, and Used is charged to all workers.
	Programs, PausedPrograms int64
	Used                     int64
	// Ticks counts those at which use was measured. UsedPeak is the most that was charged to all workers at one, before
	// pausing.
	Ticks    int64
	UsedPeak int64
	// MaxOver is the most by which the use of a worker exceeded its capacity at a tick, before pausing.
	MaxOver int64
}

// Add adds the counts of another table. Peaks add up too: an upper bound of what both had at a time.
func (s *Stats) Add(o Stats) {
	s.Admitted += o.Admitted
	s.Deferred += o.Deferred
	s.Pauses += o.Pauses
	s.Marks += o.Marks
	s.Resumes += o.Resumes
	s.ForcedResumes += o.ForcedResumes
	s.Migrations += o.Migrations
	s.Expired += o.Expired
	s.Evicted += o.Evicted
	s.PausedPeak += o.PausedPeak
	s.Paused += o.Paused
	s.LongestWait = max(s.LongestWait, o.LongestWait)
	s.Waits.N += o.Waits.N
	s.Waits.Size += o.Waits.Size
	s.Waits.Wait += o.Waits.Wait
	s.Waits.SizeSize += o.Waits.SizeSize
	s.Waits.WaitWait += o.Waits.WaitWait
	s.Waits.Cross += o.Waits.Cross
	s.Programs += o.Programs
	s.PausedPrograms += o.PausedPrograms
	s.Used += o.Used
	s.Ticks += o.Ticks
	s.UsedPeak += o.UsedPeak
	s.MaxOver = max(s.MaxOver, o.MaxOver)
}

// Moments are the sums behind the mean and correlation of sizes in tokens and waits in seconds.
type Moments struct {
	N                                     int64
	Size, Wait, SizeSize, WaitWait, Cross float64
}

func (m *Moments) add(size int64, wait time.Duration) {
	s, w := float64(size), wait.Seconds()
	m.N++
	m.Size += s
	m.Wait += w
	m.SizeSize += s * s
	m.WaitWait += w * w
	m.Cross += s * w
}

// Correlation returns Pearson's coefficient of size and wait, and whether it is defined.
func (m Moments) Correlation() (float64, bool) {
	n := float64(m.N)
	spread := (n*m.SizeSize - m.Size*m.Size) * (n*m.WaitWait - m.Wait*m.Wait)
	if !(spread > 0) {
		return 0, false
	}
	return (n*m.Cross - m.Size*m.Wait) / math.Sqrt(spread), true
}

// Stats returns the counts so far.
func (t *Table) Stats(now time.Duration) Stats {
	s := t.stats
	s.Programs, s.PausedPrograms = int64(len(t.programs)), int64(len(t.paused))
	for _, e := range t.paused {
		s.Paused += now - e.pausedSince
	}
	if e := t.deferred.head; e != nil {
		s.LongestWait = max(s.LongestWait, now-e.deferredSince)
	}
	for w := range t.workers {
		s.Used += t.Used(w)
	}
	return s
}

// Program is the state of one program.
type Program struct {
	Session uint64
	Worker  int32 // assigned, -1 for none
	Turns   int32 // requests begun
	Tokens  int64 // held, or needed for the request that is held; with what the running one has generated
	Acting  bool  // a tool runs, as opposed to a request
	Paused  bool
	Held    bool // paused, with a request
	Marked  bool // to be paused when its request ends
	Waiting int  // requests that wait
	// PausedFor is the time that the session was paused or held, all told.
	PausedFor time.Duration
}

// Program returns the state of a session's program, and whether it has one.
func (t *Table) Program(now time.Duration, session uint64) (Program, bool) {
	e := t.entries[session]
	if e == nil || !e.known {
		return Program{}, false
	}
	return t.program(now, e), true
}

// Programs returns the states of all programs by session.
func (t *Table) Programs(now time.Duration) []Program {
	all := make([]Program, len(t.programs))
	for i, e := range t.programs {
		all[i] = t.program(now, e)
	}
	slices.SortFunc(all, func(a, b Program) int { return cmp.Compare(a.Session, b.Session) })
	return all
}

func (t *Table) program(now time.Duration, e *entry) Program {
	return Program{
		Session: e.session, Worker: e.worker, Turns: e.turns, Tokens: t.size(e),
		Acting: e.acting, Paused: e.paused, Held: e.deferredSince != none, Marked: e.marked,
		Waiting: len(e.waiting), PausedFor: t.pausedFor(now, e),
	}
}

// PausedFor returns the time that a session was paused or held, all told. It is known until the session has neither a
// program nor a request.
func (t *Table) PausedFor(now time.Duration, session uint64) time.Duration {
	if e := t.entries[session]; e != nil {
		return t.pausedFor(now, e)
	}
	return 0
}

func (t *Table) pausedFor(now time.Duration, e *entry) time.Duration {
	if e.paused {
		return e.pausedFor + now - e.pausedSince
	}
	return e.pausedFor
}

// Need returns the room that a worker must have for a program of that many tokens.
func (t *Table) Need(tokens int64) int64 { return t.settings.need(tokens) }

// Account is what the programs of a worker are charged, and the lines that it is held against, in tokens.
type Account struct {
	Worker         int32
	Used, Capacity int64
	// Above PauseAbove programs are paused until PauseTo is met; up to ResumeTo paused ones are resumed, and up to AdmitTo
	// new ones admitted.
	PauseAbove, PauseTo, ResumeTo, AdmitTo int64
	// Reasoning and Acting are programs.
	Reasoning, Acting int64
}

// Accounts returns the accounts of the workers that are there.
func (t *Table) Accounts() []Account {
	var all []Account
	for w := range t.workers {
		on := &t.workers[w]
		if !on.alive {
			continue
		}
		line := func(of float64) int64 { return share(on.capacity, of) }
		all = append(all, Account{Worker: int32(w), Used: t.Used(w), Capacity: on.capacity,
			PauseAbove: line(t.settings.PauseThreshold), PauseTo: line(t.settings.PauseTarget),
			ResumeTo: line(t.settings.resumeCeiling()), AdmitTo: line(t.settings.AdmitCeiling),
			Reasoning: on.reasoning.programs, Acting: on.acting.programs})
	}
	return all
}
