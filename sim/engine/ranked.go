package engine

import (
	"cmp"
	"slices"
)

// ranking is waiting requests in order of rank, those of equal rank in order of arrival, beside the list that links
// them: a request finds its place in it by bisection.
type ranking []*Request

// later compares two requests of an engine that is Ranked: the one that waits behind the other, and loses its blocks
// before it, is the greater.
func later(a, b *Request) int {
	return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.arrival, b.arrival))
}

func (q ranking) place(r *Request) int {
	i, _ := slices.BinarySearchFunc(q, r, later)
	return i
}

// wait puts a request among the waiting ones: behind all of them, or where its rank belongs.
func (e *Engine) wait(r *Request) {
	r.state = waiting
	if !e.Ranked {
		e.waiting.pushBack(r)
		return
	}
	i := e.ranking.place(r)
	if i == len(e.ranking) {
		e.waiting.pushBack(r)
	} else {
		e.waiting.insert(r, e.ranking[i])
	}
	e.ranking = slices.Insert(e.ranking, i, r)
	if i == 0 {
		e.style.freed() // another head is to be tried
	}
}

// leaveWaiting takes a request out of the waiting ones.
func (e *Engine) leaveWaiting(r *Request) {
	e.waiting.remove(r)
	if e.Ranked {
		i := e.ranking.place(r)
		e.ranking = slices.Delete(e.ranking, i, i+1)
	}
}

// victim is the running request that loses its blocks when another lacks one: the last that was admitted, or of an
// engine that is Ranked the last in rank (vLLM: max of priority and arrival).
func (e *Engine) victim() *Request {
	v := e.running.tail
	if e.Ranked {
		for r := v.prev; r != nil; r = r.prev {
			if later(r, v) > 0 {
				v = r
			}
		}
	}
	return v
}

// stall takes the decodes from r on, in running order, out of the step to come.
func (v *vllm) stall(r *Request) {
	for ; r != nil; r = r.next {
		if r.state != decoding {
			continue
		}
		v.pauseDecode(r)
		v.pool.StopDecode(&r.table)
		r.state = stalled
		v.stalled = append(v.stalled, r)
	}
	v.joined = slices.DeleteFunc(v.joined, func(r *Request) bool { return r.state == stalled }) // they join anew
}

// resume lets those go on that sat a step out.
func (v *vllm) resume() {
	v.sat = len(v.stalled) > 0
	for _, r := range v.stalled {
		if r.state == stalled {
			v.beginDecode(r, r.computed)
		}
	}
	v.stalled = v.stalled[:0]
}
