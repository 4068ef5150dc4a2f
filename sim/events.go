package sim

import "time"

// eventKind orders what happens at one instant, after step ends and before engines are scheduled.
type eventKind uint8

const (
	evFault eventKind = iota // a worker goes or comes
	evSlot                   // a program ended; its slot takes the next one
	evStart                  // a program begins
	evDone                   // a call that is not served here ends
	evRoute                  // a call reaches the router
)

// event is something that happens to a program at a time.
type event struct {
	at   time.Duration
	seq  uint64
	kind eventKind
	// call is the index of the call among the workload's; attempt is how often it was sent before, record then its
	// index among the requests.
	call, record int32
	attempt      uint8
	inst         *instance
}

// agenda is a binary heap of events in order of time, kind and sequence.
type agenda struct {
	heap []event
	seq  uint64
}

func (a *agenda) empty() bool { return len(a.heap) == 0 }

func (a *agenda) next() time.Duration { return a.heap[0].at }

func less(x, y *event) bool {
	if x.at != y.at {
		return x.at < y.at
	}
	if x.kind != y.kind {
		return x.kind < y.kind
	}
	return x.seq < y.seq
}

func (a *agenda) push(e event) {
	a.seq++
	e.seq = a.seq
	a.heap = append(a.heap, e)
	i := len(a.heap) - 1
	for i > 0 {
		up := (i - 1) / 2
		if !less(&e, &a.heap[up]) {
			break
		}
		a.heap[i] = a.heap[up]
		i = up
	}
	a.heap[i] = e
}

func (a *agenda) pop() event {
	top := a.heap[0]
	n := len(a.heap) - 1
	e := a.heap[n]
	a.heap[n] = event{}
	a.heap = a.heap[:n]
	if n == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child >= n {
			break
		}
		if child+1 < n && less(&a.heap[child+1], &a.heap[child]) {
			child++
		}
		if !less(&a.heap[child], &e) {
			break
		}
		a.heap[i] = a.heap[child]
		i = child
	}
	a.heap[i] = e
	return top
}

// deadlines is the times at which clients give up, earliest first. Calls are added nearly in order, so each finds its
// place after few steps from the back.
type deadlines struct {
	list []deadline
	head int
}

type deadline struct {
	at   time.Duration
	live int32
	seq  uint64 // of the call that held the place in lives
}

func (d *deadlines) add(x deadline) {
	if d.head > len(d.list)/2 {
		d.list = d.list[:copy(d.list, d.list[d.head:])]
		d.head = 0
	}
	d.list = append(d.list, x)
	i := len(d.list) - 1
	for ; i > d.head && d.list[i-1].at > x.at; i-- {
		d.list[i] = d.list[i-1]
	}
	d.list[i] = x
}

func (d *deadlines) empty() bool { return d.head == len(d.list) }
