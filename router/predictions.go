package router

import (
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// predictions are the blocks that workers should hold: those of each prompt for ttl since it was last sent there
// (Dynamo's approximate indexer). Nothing is known of evictions.
type predictions struct {
	ttl   time.Duration
	index *index
	sent  map[place][]visit // the last visits of a node, each shorter than those before it
	due   []visit           // all visits, the oldest first
	head  int               // those before it have expired
}

// place is a prefix-tree node on a worker.
type place struct {
	key    trace.Key
	worker int32
}

// visit is a prompt that held a node's blocks [from, to) when it was sent.
type visit struct {
	at time.Duration
	place
	from, to int32
}

func newPredictions(ttl time.Duration, workers int) *predictions {
	return &predictions{ttl: ttl, index: newIndex(workers), sent: make(map[place][]visit)}
}

// add notes that a prompt was sent to worker at now.
func (p *predictions) add(now time.Duration, worker int32, path []trace.Span, prompt int32) {
	p.expire(now)
	for _, s := range path {
		if s.From >= prompt {
			break
		}
		v := visit{now, place{s.Key, worker}, s.From, min(s.To, prompt)}
		p.due = append(p.due, v)
		visits := p.sent[v.place]
		for len(visits) > 0 && visits[len(visits)-1].to <= v.to {
			visits = visits[:len(visits)-1]
		}
		p.sent[v.place] = append(visits, v)
		p.index.store(int(worker), trace.Span{Key: s.Key, From: v.from, To: v.to})
	}
}

// expire ends the blocks whose last visit was ttl ago.
func (p *predictions) expire(now time.Duration) {
	for ; p.head < len(p.due) && p.due[p.head].at+p.ttl <= now; p.head++ {
		v := p.due[p.head]
		visits := p.sent[v.place]
		gone := 0 // visits are in the order in which they came
		for gone < len(visits) && visits[gone].at <= v.at {
			gone++
		}
		if gone == 0 {
			continue
		}
		from, to := v.from, visits[0].to
		if visits = slices.Delete(visits, 0, gone); len(visits) == 0 {
			delete(p.sent, v.place)
		} else {
			p.sent[v.place] = visits
			from = visits[0].to
		}
		p.index.remove(int(v.worker), trace.Span{Key: v.key, From: from, To: to})
	}
	// Expired visits make room once they are half of the list.
	if 2*p.head >= len(p.due) {
		p.due = p.due[:copy(p.due, p.due[p.head:])]
		p.head = 0
	}
}

// clear forgets the blocks of a worker.
func (p *predictions) clear(worker int) {
	p.index.clear(worker)
	for at := range p.sent {
		if at.worker == int32(worker) {
			delete(p.sent, at)
		}
	}
	kept := slices.DeleteFunc(p.due[p.head:], func(v visit) bool { return v.worker == int32(worker) })
	p.due = p.due[:copy(p.due, kept)]
	p.head = 0
}
