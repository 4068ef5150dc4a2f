package router

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// always is the free of workers that take everything.
func always(*Class, int32) bool { return true }

// waitingIn returns a queue of one class with the given order.
func waitingIn(order string) *queue {
	return newQueue([]Class{{Name: "all", Policy: order, Quantum: 1}})
}

// order empties a queue and returns the IDs in the order in which they go.
func order(w *queue) (ids []int32) {
	for q := w.next(always); q != nil; q = w.next(always) {
		ids = append(ids, q.ID)
	}
	return ids
}

func TestQueueOrder(t *testing.T) {
	// arrival is a request of so many tokens, cached ones included, that comes after so many seconds.
	type arrival struct {
		after, jump   float64
		strict        uint32
		input, cached int64
	}
	for _, test := range []struct {
		name, policy string
		arrivals     []arrival
		want         []int32
	}{
		{"fcfs: by arrival", "fcfs", []arrival{{after: 1}, {after: 2}, {after: 3}}, []int32{0, 1, 2}},
		{"fcfs is the default", "", []arrival{{after: 1, input: 9}, {after: 2, input: 1}}, []int32{0, 1}},
		// Scores 0-1 = -1, 5-3 = 2, 1-3 = -2: a jump is worth that many seconds of waiting.
		{"fcfs: jumps", "fcfs", []arrival{{after: 1}, {after: 3, jump: 5}, {after: 3, jump: 1}}, []int32{1, 0, 2}},
		{"fcfs: a jump of just the wait ties, the first to come goes first", "fcfs",
			[]arrival{{after: 1}, {after: 3, jump: 2}}, []int32{0, 1}},
		{"fcfs: jumps below 0 count as 0", "fcfs", []arrival{{after: 1, jump: -10}, {after: 2}}, []int32{0, 1}},
		{"fcfs: strict priority is above every jump", "fcfs",
			[]arrival{{jump: 1e9}, {after: 1, strict: 1}, {after: 2, strict: 7}, {after: 3, strict: 1}}, []int32{2, 1, 3, 0}},
		{"lcfs: the last first", "lcfs", []arrival{{after: 1}, {after: 2}, {after: 3}}, []int32{2, 1, 0}},
		{"lcfs: jumps", "lcfs", []arrival{{after: 1, jump: 9}, {after: 2}}, []int32{0, 1}},
		// Uncached 60, 20 and 30 tokens.
		{"wspt: the least to compute first", "wspt",
			[]arrival{{input: 100, cached: 40}, {input: 100, cached: 80}, {input: 30}}, []int32{1, 2, 0}},
		// Scores (1+2)/60 = 1/20, 1/20 and 1/15.
		{"wspt: weighted", "wspt", []arrival{{input: 60, jump: 2}, {input: 20}, {input: 15}}, []int32{2, 0, 1}},
		{"wspt: all cached counts as one token", "wspt", []arrival{{input: 2}, {input: 50, cached: 64}, {input: 1}}, []int32{1, 2, 0}},
	} {
		w := waitingIn(test.policy)
		for i, a := range test.arrivals {
			q := unbound(Request{ID: int32(i), Input: int32(a.input), StrictPriority: a.strict, PriorityJump: a.jump})
			w.push(time.Duration(a.after*1e9), q, w.classes[0], -1, a.cached)
		}
		if got := order(w); !slices.Equal(got, test.want) {
			t.Errorf("%s: got %v, want %v", test.name, got, test.want)
		}
	}
}

// Lanes of exact workers go in the common order, but a busy worker holds up its own lane alone.
func TestQueueLanes(t *testing.T) {
	w := waitingIn("fcfs")
	for i, exact := range []int32{3, -1, 3, 5, -1} {
		w.push(time.Duration(i), unbound(Request{ID: int32(i)}), w.classes[0], exact, 0)
	}
	busy := map[int32]bool{3: true}
	free := func(_ *Class, exact int32) bool { return !busy[exact] }
	var got []int32
	for q := w.next(free); q != nil; q = w.next(free) {
		got = append(got, q.ID)
	}
	if want := []int32{1, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("while worker 3 is busy: %v, want %v", got, want)
	}
	if got := order(w); !slices.Equal(got, []int32{0, 2}) {
		t.Errorf("then: %v, want [0 2]", got)
	}
}

// Class a may dispatch 100 tokens in its turn, b 50.
//
//	round 1: a has 100, not 150; b has 50, takes the 50 of b0
//	round 2: a has 200, takes 150 of a0, keeps 50, not 60; b has 50, takes b1
//	round 3: a has 150, takes 60 of a1 and 60 of a2, keeps 30, not 100; b has 50, not 120
//	round 4: a has 130, takes a3; b has 100, not 120
//	round 5: a is empty; b has 150, takes b2
func TestDeficitRoundRobin(t *testing.T) {
	w := newQueue([]Class{{Name: "a", Quantum: 100}, {Name: "b", Quantum: 50}})
	push := func(class int, costs ...int32) {
		for _, cost := range costs {
			w.push(0, unbound(Request{ID: cost, Input: cost}), w.classes[class], -1, 0)
		}
	}
	push(0, 150, 60, 60, 100)
	push(1, 50, 50, 120)
	if got, want := order(w), []int32{50, 150, 50, 60, 60, 100, 120}; !slices.Equal(got, want) {
		t.Errorf("costs in order %v, want %v", got, want)
	}
	// A turn lasts while the credit does: a spends its 100 before b comes.
	push(0, 30, 31, 32, 33)
	push(1, 50, 40)
	if got, want := order(w), []int32{30, 31, 32, 50, 33, 40}; !slices.Equal(got, want) {
		t.Errorf("costs in order %v, want %v", got, want)
	}
	for _, c := range w.classes {
		if c.deficit != 0 || c.requests != 0 || c.tokens != 0 {
			t.Errorf("class %s is left with %+v", c.Name, c)
		}
	}
}

// A class that only waits for workers gains nothing meanwhile; the others go on.
func TestBlockedClassSavesNoCredit(t *testing.T) {
	w := newQueue([]Class{{Name: "a", Quantum: 10}, {Name: "b", Quantum: 10}})
	for i := range 6 {
		w.push(0, unbound(Request{ID: int32(i), Input: 10}), w.classes[i%2], -1, 0)
	}
	onlyB := func(c *Class, _ int32) bool { return c.Name == "b" }
	for _, want := range []int32{1, 3} {
		if q := w.next(onlyB); q == nil || q.ID != want {
			t.Fatalf("got %v, want request %d", q, want)
		}
	}
	if a := w.classes[0]; a.deficit != 0 {
		t.Errorf("class a has saved %d tokens", a.deficit)
	}
	if got, want := order(w), []int32{0, 5, 2, 4}; !slices.Equal(got, want) {
		t.Errorf("then %v, want %v", got, want)
	}
}

// slowQueue is the queue as it is documented: one list, searched from end to end, and rounds one after the other.
type slowQueue struct {
	classes []Class
	list    []slowEntry
	deficit []int64
	turn    int
	within  bool // the class at turn-1 still has its turn
}

type slowEntry struct {
	q     *Request
	class int
	exact int32
	score float64
	cost  int64
}

func (s *slowQueue) push(now time.Duration, q *Request, class int, exact int32, cached int64) {
	cost := int64(q.Input) - cached
	if cost < 1 {
		cost = 1
	}
	jump := q.PriorityJump
	if jump < 0 {
		jump = 0
	}
	e := slowEntry{q, class, exact, jump - now.Seconds(), cost}
	switch s.classes[class].Policy {
	case "wspt":
		e.score = (1 + jump) / float64(cost)
	case "lcfs":
		e.score = jump + now.Seconds()
	}
	at := len(s.list) // behind its equals
	for at > 0 && (s.list[at-1].q.StrictPriority < q.StrictPriority ||
		s.list[at-1].q.StrictPriority == q.StrictPriority && s.list[at-1].score < e.score) {
		at--
	}
	s.list = slices.Insert(s.list, at, e)
}

// drop takes out the entry at i; a class without any has no credit.
func (s *slowQueue) drop(i int) {
	class := s.list[i].class
	s.list = slices.Delete(s.list, i, i+1)
	if !slices.ContainsFunc(s.list, func(e slowEntry) bool { return e.class == class }) {
		s.deficit[class] = 0
	}
}

func (s *slowQueue) next(free func(*Class, int32) bool) *Request {
	head := func(class int) int {
		return slices.IndexFunc(s.list, func(e slowEntry) bool { return e.class == class && free(&s.classes[class], e.exact) })
	}
	take := func(class, i int) *Request {
		q := s.list[i].q
		s.deficit[class] -= s.list[i].cost
		s.drop(i)
		s.turn, s.within = (class+1)%len(s.classes), true
		return q
	}
	heads := 0
	for class := range s.classes {
		if head(class) >= 0 {
			heads++
		}
	}
	if heads == 0 {
		return nil
	}
	if s.within {
		class := (s.turn + len(s.classes) - 1) % len(s.classes)
		if i := head(class); i >= 0 && s.list[i].cost <= s.deficit[class] {
			return take(class, i)
		}
		s.within = false
	}
	// The first round grants a quantum only to those that need it; those that follow serve nobody until one can.
	for class := s.turn; ; class = (class + 1) % len(s.classes) {
		if i := head(class); i >= 0 {
			if s.list[i].cost > s.deficit[class] {
				s.deficit[class] += s.classes[class].Quantum
			}
			if s.list[i].cost <= s.deficit[class] {
				return take(class, i)
			}
		}
		if (class+1)%len(s.classes) == s.turn {
			break
		}
	}
	for {
		for class := range s.classes {
			if head(class) >= 0 {
				s.deficit[class] += s.classes[class].Quantum
			}
		}
		for n := range s.classes {
			class := (s.turn + n) % len(s.classes)
			if i := head(class); i >= 0 && s.list[i].cost <= s.deficit[class] {
				return take(class, i)
			}
		}
	}
}

func TestQueueAgainstSlow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var classes []Class
		for i := range rapid.IntRange(1, 3).Draw(t, "classes") {
			classes = append(classes, Class{Name: fmt.Sprint(i), Policy: rapid.SampledFrom(queuePolicies).Draw(t, "policy"),
				Quantum: rapid.Int64Range(1, 200).Draw(t, "quantum")})
		}
		fast := newQueue(classes)
		slow := &slowQueue{classes: classes, deficit: make([]int64, len(classes))}
		busy := map[int32]bool{}
		free := func(c *Class, exact int32) bool { return !busy[exact] && !(busy[9] && c.Name == "0") }
		now, id := time.Duration(0), int32(0)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(0, 2).Draw(t, "seconds")) * time.Second
				q := unbound(Request{ID: id, Input: rapid.Int32Range(0, 60).Draw(t, "input"),
					StrictPriority: rapid.Uint32Range(0, 1).Draw(t, "strict"), PriorityJump: float64(rapid.IntRange(-2, 3).Draw(t, "jump"))})
				id++
				class := rapid.IntRange(0, len(classes)-1).Draw(t, "class")
				exact := rapid.Int32Range(-1, 2).Draw(t, "exact")
				cached := min(rapid.Int64Range(0, 60).Draw(t, "cached"), int64(q.Input))
				fast.push(now, q, fast.classes[class], exact, cached)
				slow.push(now, q, class, exact, cached)
			},
			"busy": func(t *rapid.T) {
				w := rapid.SampledFrom([]int32{-1, 0, 1, 2, 9}).Draw(t, "worker")
				busy[w] = !busy[w]
			},
			"next": func(t *rapid.T) {
				a, b := fast.next(free), slow.next(free)
				if a != b {
					t.Fatalf("next is %v, want %v", a, b)
				}
			},
			"remove": func(t *rapid.T) {
				if len(slow.list) == 0 {
					t.Skip("nothing waits")
				}
				i := rapid.IntRange(0, len(slow.list)-1).Draw(t, "which")
				fast.remove(slow.list[i].q)
				slow.drop(i)
			},
			"": func(t *rapid.T) {
				if fast.size != len(slow.list) {
					t.Fatalf("%d wait, want %d", fast.size, len(slow.list))
				}
				for i, c := range fast.classes {
					if c.deficit != slow.deficit[i] {
						t.Fatalf("class %d has a credit of %d, want %d", i, c.deficit, slow.deficit[i])
					}
				}
			},
		})
	})
}
