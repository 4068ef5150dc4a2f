package engine

import "container/heap"

// window keeps the sum of min(context, size) over decodes, for models with sliding-window layers. A decode counts
// with its context until that reaches the window.
type window struct {
	size    int64
	growing int64 // decodes whose context is below the window
	bases   int64 // sum of their bases
	full    int64 // decodes at the window
	cross   crossings
}

// crossings is a heap of the steps in which decodes reach the window.
type crossings []crossing

type crossing struct{ step, base int64 }

func (h crossings) Len() int           { return len(h) }
func (h crossings) Less(i, j int) bool { return h[i].step < h[j].step }
func (h crossings) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *crossings) Push(x any)        { *h = append(*h, x.(crossing)) }
func (h *crossings) Pop() any {
	old := *h
	c := old[len(old)-1]
	*h = old[:len(old)-1]
	return c
}

// enter adds a decode whose context in a step is base+step.
func (w *window) enter(base, step int64) {
	if w.size == 0 {
		return
	}
	if base+step >= w.size {
		w.full++
		return
	}
	w.growing++
	w.bases += base
	heap.Push(&w.cross, crossing{w.size - base, base})
}

// leave removes a decode at the given step.
func (w *window) leave(base, step int64) {
	if w.size == 0 {
		return
	}
	w.advance(step)
	if base+step >= w.size {
		w.full--
		return
	}
	w.growing--
	w.bases -= base
	for i, c := range w.cross {
		if c.base == base {
			heap.Remove(&w.cross, i)
			return
		}
	}
}

// advance moves decodes that have reached the window by the given step.
func (w *window) advance(step int64) {
	for len(w.cross) > 0 && w.cross[0].step <= step {
		c := heap.Pop(&w.cross).(crossing)
		w.growing--
		w.bases -= c.base
		w.full++
	}
}

// below is the number of decodes whose context still grows within the window at a step.
func (w *window) below(step int64) int64 {
	w.advance(step)
	return w.growing
}

// sum is the sum of min(context, size) at a step.
func (w *window) sum(step int64) int64 { return w.bases + w.growing*step + w.full*w.size }

// until is the number of steps from step on for which below stays as it is.
func (w *window) until(step int64) int64 {
	if len(w.cross) == 0 {
		return maxLeap
	}
	return w.cross[0].step - step
}
