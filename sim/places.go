package sim

import (
	"time"

	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/sim/memory"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/events"
)

// places is what a journal has told of where KV lies and moves, where there is anything below the GPUs.
type places struct {
	at       time.Duration // of the last sample
	tiers    []int         // their blocks, in the order of memory.EachTier
	busy     []time.Duration
	sessions map[uint64]*located
	all      []*located // in the order in which they came
}

// located is where the KV of a session lay at the last sample.
type located struct {
	key  uint64
	told events.Residency
	seen time.Duration
}

func newPlaces() places { return places{sessions: map[uint64]*located{}} }

// sessionID names a session as the records do.
func (j *journal) sessionID(key uint64) string {
	return j.r.w.Sessions[int32(key)].ID + copySuffix(uint32(key>>32))
}

// locate tells where KV lies at a time up to which nothing more happens, and what the links did since the last time.
func (j *journal) locate(at time.Duration) {
	if j.r.memory == nil {
		return
	}
	p := &j.places
	i := 0
	j.r.memory.EachTier(func(place memory.Place, used int) {
		if i == len(p.tiers) {
			p.tiers = append(p.tiers, 0)
		}
		if used != p.tiers[i] {
			p.tiers[i] = used
			j.r.options.Events(&events.Event{At: at, Tier: &events.Tier{Worker: int32(place.Rank), Level: place.Level.String(), Used: used}})
		}
		i++
	})
	j.locateSessions(at)
	i = 0
	j.r.memory.EachLink(at, func(rank int, kind string, busy time.Duration) {
		if i == len(p.busy) {
			p.busy = append(p.busy, 0)
		}
		if since := busy - p.busy[i]; since > 0 {
			p.busy[i] = busy
			j.r.options.Events(&events.Event{At: at, Link: &events.Link{Worker: int32(rank), Name: kind, Took: at - p.at, Busy: since}})
		}
		i++
	})
	p.at = at
}

// locateSessions tells where the KV of the sessions lies that have moved, grown or shrunk since the last time: of those with a
// request that has begun what this holds, of the others what is left of their trails.
func (j *journal) locateSessions(at time.Duration) {
	for worker, on := range j.trails.on {
		e := j.r.engines[worker]
		for _, x := range on {
			j.located(at, x.session, worker, e.Here(x.path), x.path)
		}
	}
	for _, l := range j.r.lives {
		if l.seq != 0 && l.inEngine() && j.trails.of[l.Session] == nil {
			q, worker := l.at()
			j.located(at, l.Session, int(worker), j.r.engines[worker].Held(q), q.Path)
		}
	}
	p := &j.places
	going := p.all[:0]
	for _, s := range p.all {
		if s.seen == at {
			going = append(going, s)
			continue
		}
		delete(p.sessions, s.key)
		if gone := (events.Residency{Session: s.told.Session, Worker: s.told.Worker}); gone != s.told {
			j.r.options.Events(&events.Event{At: at, Residency: &gone})
		}
	}
	clear(p.all[len(going):])
	p.all = going
}

// located tells of a session that has so many blocks on a worker's GPUs, and there and in tiers those of a path.
func (j *journal) located(at time.Duration, session uint64, worker, gpu int, path []trace.Span) {
	p := &j.places
	s := p.sessions[session]
	if s == nil {
		s = &located{key: session, told: events.Residency{Session: j.sessionID(session), Worker: int32(worker)}}
		p.sessions[session], p.all = s, append(p.all, s)
	}
	s.seen = at
	tiers := j.r.memory.Here(worker, path)
	now := events.Residency{Session: s.told.Session, Worker: int32(worker), GPU: gpu,
		Host: tiers[memory.Host], Disk: tiers[memory.Disk], Remote: tiers[memory.Remote]}
	if now != s.told {
		s.told = now
		j.r.options.Events(&events.Event{At: at, Residency: &now})
	}
}

// moved tells of a transfer that has ended.
func (j *journal) moved(now time.Duration, t memory.Transfer) {
	place := func(p memory.Place) events.Place {
		return events.Place{Worker: int32(p.Rank), Level: p.Level.String()}
	}
	e := &events.Transfer{Cause: t.Cause.String(), From: place(t.From), To: place(t.To), Bytes: t.Bytes, Took: now - t.Began, Outcome: events.Done}
	if t.Stopped {
		e.Outcome = events.Stopped
	}
	switch session := t.Session; {
	case session == memory.Nobody:
	case session > memory.Nobody: // what is computed for it ahead of its request
		e.Session = j.sessionID(^session)
	default:
		e.Session = j.sessionID(session)
	}
	if q := t.Request; q != nil {
		e.Request = j.requestID(q)
	}
	j.tell(events.Event{Transfer: e})
}

// requestID names a request as the records do; "" for those that nobody has sent.
func (j *journal) requestID(q *engine.Request) string {
	if q.Guest() {
		return ""
	}
	l := j.r.lives[q.ID]
	if l.background {
		return ""
	}
	return j.r.w.Calls[l.call].Turn.ID + copySuffix(l.inst.copy)
}

// acted tells what became of an action on a session, after how long.
func (j *journal) acted(do kvAction, became outcome, s *stay, blocks int32, took time.Duration) {
	if j != nil {
		j.tell(events.Event{Action: &events.Action{What: kvActionNames[do], Outcome: outcomeNames[became], Session: j.sessionID(s.key), Worker: int32(s.worker), Blocks: blocks, Took: took}})
	}
}
