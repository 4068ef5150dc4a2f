package kvcache

// run is a range of blocks [from, to) of one node that are alike in all respects: who refers to them, and where they
// stand in the free queue. A run without node is blocks without reusable content.
type run struct {
	node       *node
	from, to   int32
	refs       int32 // onWay, in a Store, when they are not there yet
	pins       int32 // of the references those of pins
	owner      Owner
	copy       int64 // 0 for primary runs; spare runs are numbered
	class      Class
	queued     bool
	prev, next *run
}

// onWay stands for references to blocks that are still being written.
const onWay = -1

// queue is a free queue of runs. From head to tail is the order of eviction; inside a run the last block goes first.
type queue struct {
	class      Class
	head, tail *run
}

func (q *queue) push(r *run) {
	r.queued, r.prev, r.next = true, q.tail, nil
	if q.tail == nil {
		q.head = r
	} else {
		q.tail.next = r
	}
	q.tail = r
}

// before inserts r in front of at.
func (q *queue) before(at, r *run) {
	r.queued, r.prev, r.next = true, at.prev, at
	if at.prev == nil {
		q.head = r
	} else {
		at.prev.next = r
	}
	at.prev = r
}

func (q *queue) remove(r *run) {
	if r.prev == nil {
		q.head = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		q.tail = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.queued, r.prev, r.next = false, nil, nil
}

// state is how the run's blocks are held.
func (r *run) state() State {
	switch {
	case r.refs == 0:
		return idle
	case r.refs == r.pins:
		return Pinned
	default:
		return Running
	}
}

// list is the list of the node that holds the run.
func (r *run) list() *[]*run {
	if r.copy != 0 {
		return &r.node.spare
	}
	return &r.node.runs
}
