package sim

import (
	"slices"
	"strconv"
)

// gate lets at most limit programs send requests, and the others in the order in which they came once one ends: a fixed
// cap on concurrency, what people use who have no program scheduler. The zero value lets all through.
type gate struct {
	limit, active int
	waiting       []*instance // that hold requests back, in order of arrival
}

// admit tells whether a request may go on; else it waits for its program.
func (g *gate) admit(l *live) bool {
	inst := l.inst
	if g.limit == 0 || inst.admitted {
		return true
	}
	if g.active < g.limit && len(g.waiting) == 0 {
		g.letIn(inst)
		return true
	}
	if len(inst.kept) == 0 {
		g.waiting = append(g.waiting, inst)
	}
	inst.kept = append(inst.kept, l)
	return false
}

// forget takes out a request that waits here.
func (g *gate) forget(l *live) {
	inst := l.inst
	if inst.kept = slices.DeleteFunc(inst.kept, func(k *live) bool { return k == l }); len(inst.kept) == 0 {
		g.waiting = slices.DeleteFunc(g.waiting, func(w *instance) bool { return w == inst })
	}
}

// next admits the program that has waited longest, if there is room, and returns its requests.
func (g *gate) next() []*live {
	if len(g.waiting) == 0 || g.active >= g.limit {
		return nil
	}
	inst := g.waiting[0]
	g.waiting = g.waiting[1:]
	g.letIn(inst)
	kept := inst.kept
	inst.kept = nil
	return kept
}

// letIn lets a program send requests. One that is cut short takes no place: it would never leave it.
func (g *gate) letIn(inst *instance) {
	inst.admitted = true
	if !inst.cut {
		g.active++
	}
}

// open lets requests on that the gate kept, after a program has ended or was cut short.
func (r *run) open(ended *instance) {
	if ended.admitted {
		r.gate.active--
	}
	for kept := r.gate.next(); kept != nil; kept = r.gate.next() {
		for _, l := range kept {
			l.held += r.now - l.cameAt
			if r.options.Observe != nil {
				r.tell(l, Event{What: LetIn})
			}
			r.enter(l)
		}
	}
}

// maxPrograms reads router.max_programs: a number, or 0 for "" and "none". "auto" is settled by whoever compares runs.
func (p *Plan) maxPrograms() (int, error) {
	switch s := p.Router.MaxPrograms; s {
	case "", "none":
		return 0, nil
	case "auto":
		return 0, bad("router.max_programs", "auto is searched for by comparing runs; give a number here")
	default:
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > 1<<24 {
			return 0, bad("router.max_programs", "%q is not none, auto, or a number from 1 to %d", s, 1<<24)
		}
		return n, nil
	}
}
