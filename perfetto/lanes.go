package perfetto

import (
	"container/heap"
	"slices"
	"sort"
	"time"
)

// lanes gives intervals that come in order of start a lane each, so that no two on a lane overlap: the lowest that is
// free. A lane is free again at the end of its interval.
type lanes struct {
	busy busyLanes
	free freeLanes
	used int
}

func (l *lanes) take(start, end time.Duration) int {
	if l.used == 1 && len(l.busy) == 1 && l.busy[0].until <= start { // as nearly always
		l.busy[0].until = end
		return 0
	}
	for len(l.busy) > 0 && l.busy[0].until <= start {
		heap.Push(&l.free, heap.Pop(&l.busy).(busyLane).lane)
	}
	lane := l.used
	if len(l.free) > 0 {
		lane = heap.Pop(&l.free).(int)
	} else {
		l.used++
	}
	heap.Push(&l.busy, busyLane{lane, end})
	return lane
}

// lateLanes does the same for intervals that come in order of end: each gets the lane that was free for the shortest time
// when it began.
type lateLanes struct {
	busy []busyLane // by end, as these come
}

// maxLate bounds the lanes: more at once nobody can look at.
const maxLate = 1 << 12

// take tells that there is no lane when all are taken.
func (l *lateLanes) take(start, end time.Duration) (lane int, ok bool) {
	free := sort.Search(len(l.busy), func(i int) bool { return l.busy[i].until > start })
	switch {
	case free > 0:
		lane = l.busy[free-1].lane
		l.busy = slices.Delete(l.busy, free-1, free)
	case len(l.busy) == maxLate:
		return 0, false
	default:
		lane = len(l.busy)
	}
	l.busy = append(l.busy, busyLane{lane, end})
	return lane, true
}

type busyLane struct {
	lane  int
	until time.Duration
}

// busyLanes is a heap by end.
type busyLanes []busyLane

func (h busyLanes) Len() int           { return len(h) }
func (h busyLanes) Less(i, j int) bool { return h[i].until < h[j].until }
func (h busyLanes) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *busyLanes) Push(x any)        { *h = append(*h, x.(busyLane)) }
func (h *busyLanes) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}

// freeLanes is a heap by number.
type freeLanes []int

func (h freeLanes) Len() int           { return len(h) }
func (h freeLanes) Less(i, j int) bool { return h[i] < h[j] }
func (h freeLanes) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *freeLanes) Push(x any)        { *h = append(*h, x.(int)) }
func (h *freeLanes) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
