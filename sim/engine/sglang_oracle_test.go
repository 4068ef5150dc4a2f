package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
)

// sglangOracle is the twin of the style of SGLang. It follows managers/scheduler.py (get_next_batch_to_run,
// get_new_batch_prefill, update_running_batch), schedule_policy.py, schedule_batch.py (retract_decode) and
// mem_cache/radix_cache.py of sglang/srt, release 0.5, on a tree of single blocks and batches that are lists.
type sglangOracle struct {
	walker
	kv    kvcache.Options
	root  *treeNode
	clock int64
	free  int
	gone  int64 // evicted blocks

	// batch is SGLang's running batch: requests that decode, and until the next filter those that have finished.
	batch   []*job
	full    bool
	chunked *job
	ratio   float64
	decays  int64
}

// treeNode is a node of the radix tree.
type treeNode struct {
	key      []slot
	parent   *treeNode
	children map[slot]*treeNode
	locks    int
	owner    kvcache.Owner
	access   int64
	priority int32 // the highest of the requests that entered tokens through it
}

func newSGLangOracle(o Options, cost *models.StepCost, kv kvcache.Options) *sglangOracle {
	s := &sglangOracle{walker: newWalker(o, cost), kv: kv, free: kv.Blocks, root: &treeNode{children: map[slot]*treeNode{}, locks: 1}}
	s.ratio = s.firstRatio()
	s.count = s.countBlocks
	return s
}

// countBlocks counts what is in the tree, and what requests have beside it.
func (o *sglangOracle) countBlocks() (counts [owners][kvcache.States]int) {
	o.root.each(func(n *treeNode) {
		state := o.states[n.owner]
		if n.locks > 0 {
			state = kvcache.Running
		}
		counts[n.owner][state] += len(n.key)
	})
	for _, j := range o.jobs {
		counts[j.Owner][kvcache.Running] += j.held - j.locked + j.state
	}
	return counts
}

func (o *sglangOracle) Enqueue(now time.Duration, r *Request) {
	size := o.kv.BlockSize
	o.enqueue(now, r, func(input, output int32) bool {
		return int(input)+int(output)+size+int(o.StateBlocks)*size < o.kv.Blocks*size
	})
}

// The tree.

// key is the first blocks of a request.
func key(j *job, blocks int) []slot {
	var k []slot
	for at := range blocks {
		k = append(k, slotAt(j.Path, int32(at)))
	}
	return k
}

func (o *sglangOracle) now() int64 { o.clock++; return o.clock }

func (o *sglangOracle) split(n *treeNode, at int) *treeNode {
	upper := &treeNode{key: n.key[:at], parent: n.parent, children: map[slot]*treeNode{n.key[at]: n}, locks: n.locks, owner: n.owner, access: o.now(), priority: n.priority}
	n.parent.children[n.key[0]] = upper
	n.key, n.parent = n.key[at:], upper
	return upper
}

// match goes down the tree along k and returns how much of it is there.
func (o *sglangOracle) match(k []slot) (int, *treeNode) {
	access, n, at := o.now(), o.root, 0
	for at < len(k) && n.children[k[at]] != nil {
		n = n.children[k[at]]
		n.access = access
		same := 0
		for same < len(n.key) && at+same < len(k) && n.key[same] == k[at+same] {
			same++
		}
		at += same
		if same < len(n.key) {
			return at, o.split(n, same)
		}
	}
	return at, n
}

// insert adds the first blocks of a request to the tree and returns how many of them were there.
func (o *sglangOracle) insert(j *job, blocks int) (int, *treeNode) {
	k := key(j, blocks)
	at, n := o.match(k)
	if at < len(k) {
		leaf := &treeNode{key: k[at:], parent: n, owner: j.Owner, children: map[slot]*treeNode{}, access: o.now()}
		n.children[k[at]] = leaf
		n = leaf
	}
	for up := n; up != nil; up = up.parent {
		up.priority = max(up.priority, j.Priority)
	}
	return at, n
}

// lock adds a lock of a request to the nodes down to n, or takes one away. A node whose owner has ended passes to who locks
// it alone.
func (o *sglangOracle) lock(j *job, n *treeNode, by int) {
	for ; n != nil && n != o.root; n = n.parent {
		if n.locks == 0 || n.locks+by == 0 {
			n.owner = heir(&o.states, n.owner, j.Owner)
		}
		n.locks += by
	}
}

// each calls f for all nodes below n.
func (n *treeNode) each(f func(*treeNode)) {
	for _, c := range n.children {
		f(c)
		c.each(f)
	}
}

func (o *sglangOracle) evictable() int {
	total := 0
	o.root.each(func(n *treeNode) {
		if n.locks == 0 {
			total += len(n.key)
		}
	})
	return total
}

func (o *sglangOracle) evictIfNeeded(want int) {
	if o.free >= want {
		return
	}
	for got := 0; got < want; {
		var oldest *treeNode
		o.root.each(func(n *treeNode) {
			if n.locks == 0 && len(n.children) == 0 && (oldest == nil || n.priority < oldest.priority ||
				n.priority == oldest.priority && n.access < oldest.access) {
				oldest = n
			}
		})
		if oldest == nil {
			return
		}
		delete(oldest.parent.children, oldest.key[0])
		got += len(oldest.key)
		o.free += len(oldest.key)
		o.gone += int64(len(oldest.key))
	}
}

func (o *sglangOracle) resident() map[slot]bool {
	set := map[slot]bool{}
	o.root.each(func(n *treeNode) {
		for _, s := range n.key {
			set[s] = true
		}
	})
	return set
}

func (o *sglangOracle) evicted() int64 { return o.gone }

// cacheUnfinished enters what a request has computed into the tree.
func (o *sglangOracle) cacheUnfinished(j *job) {
	if !o.kv.PrefixCaching {
		return
	}
	full := int(j.computed) / o.kv.BlockSize
	had, n := o.insert(j, full)
	o.free += had - j.locked
	o.lock(j, n, 1)
	o.lock(j, j.node, -1)
	j.node, j.locked = n, full
}

// cacheFinished does so for the last time, and frees all.
func (o *sglangOracle) cacheFinished(j *job) {
	if o.kv.PrefixCaching {
		full := int(j.computed) / o.kv.BlockSize
		had, _ := o.insert(j, full)
		o.free += had - j.locked + j.held - full
		o.lock(j, j.node, -1)
	} else {
		o.free += j.held
	}
	o.free += int(o.StateBlocks)
	j.node, j.locked, j.held, j.state = nil, 0, 0, 0
}

// The scheduler.

func (o *sglangOracle) firstRatio() float64 { return min(1, initRatio*o.SGLang.Conservativeness) }

// newTokenRatio has decayed decays times.
func (o *sglangOracle) newTokenRatio() float64 {
	first := o.firstRatio()
	if last := first * minRatio; o.decays > 0 {
		return max(o.ratio-float64(o.decays)*(first-last)/ratioSteps, last)
	}
	return o.ratio
}

func (o *sglangOracle) pages(tokens int32) int {
	return (int(tokens) + o.kv.BlockSize - 1) / o.kv.BlockSize
}

// Schedule is an iteration of the event loop, or two when the first found nothing but finished requests.
func (o *sglangOracle) Schedule(now time.Duration) ([]Outcome, error) {
	o.pass(now)
	for _, j := range o.aborts {
		if j.done {
			continue
		}
		j.done = true
		if i := slices.Index(o.waiting, j); i >= 0 {
			o.waiting = slices.Delete(o.waiting, i, i+1)
			continue
		}
		if o.chunked == j {
			o.chunked = nil
		}
		o.cacheFinished(j)
	}
	o.aborts = nil
	if o.end != now {
		o.end, o.frac = now, 0
	}
	var outcomes []Outcome
	for range 2 {
		outcomes = append(outcomes, o.prefill(now)...)
		if len(o.scheduled) == 0 {
			outcomes = append(outcomes, o.decode()...)
		}
		if len(o.scheduled) > 0 {
			o.launch(o.kv.Blocks - o.free - o.evictable())
			return outcomes, nil
		}
		o.ratio, o.decays = o.firstRatio(), 0 // the server idles
	}
	if len(o.waiting) > 0 {
		return outcomes, errStuck
	}
	return outcomes, nil
}

// EndStep processes the batch's result and merges a batch of prompts into the running one.
func (o *sglangOracle) EndStep() []Outcome {
	step := o.scheduled
	if len(step) == 0 { // a rank of a group that has nothing to do
		return o.endStep(nil, nil)
	}
	prefilled := !step[0].decoding
	outcomes := o.endStep(o.cacheUnfinished, o.cacheFinished)
	if !prefilled {
		return outcomes
	}
	var merged []*job
	for _, j := range step {
		if !j.done && j != o.chunked {
			merged = append(merged, j)
		}
	}
	if len(merged) < len(step) {
		o.full = false
	}
	if len(merged) > 0 && len(o.batch) == 0 {
		o.full = false
	}
	o.batch = append(o.batch, merged...)
	return outcomes
}

// calcPriority sorts the waiting queue by longest prefix.
func (o *sglangOracle) calcPriority() {
	if !o.SGLang.LongestPrefix || !o.kv.PrefixCaching || len(o.waiting) > maxSorted {
		return
	}
	prefix := map[*job]int{}
	late := map[*job]bool{}
	var seen [][]slot
	for _, j := range o.waiting {
		k := key(j, int(j.tokens()-1)/o.kv.BlockSize)
		prefix[j], _ = o.match(k)
		if prefix[j]*o.kv.BlockSize > inBatch {
			continue
		}
		for _, other := range seen {
			same := 0
			for same < len(k) && same < len(other) && k[same] == other[same] {
				same++
			}
			late[j] = late[j] || same*o.kv.BlockSize >= inBatch
		}
		if !late[j] {
			seen = append(seen, k)
		}
	}
	slices.SortStableFunc(o.waiting, func(a, b *job) int {
		if late[a] || late[b] {
			return map[bool]int{true: 1}[late[a]] - map[bool]int{true: 1}[late[b]]
		}
		return cmp.Compare(prefix[b], prefix[a])
	})
}

// prefill is get_new_batch_prefill with its PrefillAdder.
func (o *sglangOracle) prefill(now time.Duration) (outcomes []Outcome) {
	if (o.full || len(o.waiting) == 0) && o.chunked == nil {
		return nil
	}
	slots := o.MaxSeqs - len(o.batch)
	if slots <= 0 && o.chunked == nil {
		o.full = true
		return nil
	}
	o.calcPriority()
	size := o.kv.BlockSize
	toCome := int64(0)
	for _, j := range o.batch {
		if !j.done {
			toCome += int64(min(j.most-j.generated, clipNewTokens))
		}
	}
	offset := float64(toCome) * o.newTokenRatio()
	current, input, chunk := 0, o.SGLang.MaxPrefillTokens, o.MaxBatchedTokens
	have := func() int { return (o.free + o.evictable()) * size }
	newStates := 0
	var list []*job
	take := func(j *job, n, output int) {
		list = append(list, j)
		o.scheduleTokens(j, int32(n))
		n = (n + size - 1) / size * size
		offset += float64(n + output + size)
		current += n
		input -= n
		chunk -= n
	}
	if j := o.chunked; j != nil {
		rem := min(chunk, int(float64(have())-offset))
		if rem <= 0 {
			rem = chunk
		}
		n := int(j.tokens() - j.computed)
		if n > rem {
			take(j, rem, 0)
		} else {
			o.chunked = nil
			take(j, n, min(int(j.most-j.generated), clipNewTokens))
		}
	}
	for _, j := range slices.Clone(o.waiting) {
		if len(list) >= slots {
			o.full = true
			break
		}
		hits, node := 0, (*treeNode)(nil)
		if o.kv.PrefixCaching {
			hits, node = o.match(key(j, int(j.tokens()-1)/size))
		}
		n := int(j.tokens()) - hits*size
		output := min(int(j.most-j.generated), clipNewTokens)
		o.lock(j, node, 1)
		whole := (n + size - 1) / size * size
		switch {
		case float64(n+output+size+int(o.StateBlocks)*size) >= float64(have())-offset:
			o.full = true
			n = 0
		case whole >= input && len(list) > 0:
			n = 0
		case whole > chunk:
			if n = chunk / size * size; n > 0 {
				o.chunked = j
				output = 0
			}
		}
		if n == 0 {
			o.lock(j, node, -1)
			break
		}
		o.waiting = slices.DeleteFunc(o.waiting, func(other *job) bool { return other == j })
		j.node, j.locked, j.held, j.state = node, hits, hits, int(o.StateBlocks)
		j.computed = int32(hits * size)
		outcomes = append(outcomes, o.admitted(j, now))
		newStates += int(o.StateBlocks)
		offset += float64(int(o.StateBlocks) * size)
		take(j, n, output)
		if float64(have())-offset <= 0 || have()-current <= 0 {
			o.full = true
			break
		}
		if input <= 0 || chunk <= 0 {
			break
		}
	}
	// prepare_for_extend: blocks for all at once.
	want := 0
	for _, j := range list {
		want += int(j.chunk)
	}
	if size > 1 {
		want = (want + (len(list)+1)*size - 1) / size
	}
	o.evictIfNeeded(want + newStates)
	o.free -= newStates
	for _, j := range list {
		o.free -= o.pages(j.computed) - j.held
		j.held = o.pages(j.computed)
	}
	if o.free < 0 {
		panic("prefill out of memory")
	}
	return outcomes
}

// decode is update_running_batch.
func (o *sglangOracle) decode() (outcomes []Outcome) {
	before := len(o.batch)
	o.batch = slices.DeleteFunc(o.batch, func(j *job) bool { return j.done })
	if len(o.batch) == 0 {
		o.full = false
		return nil
	}
	size := o.kv.BlockSize
	need := func() int {
		n := 0
		for _, j := range o.batch {
			if int(j.computed)%size == 0 {
				n++
			}
		}
		return n
	}
	enough := func() bool {
		o.evictIfNeeded(need())
		return o.free >= need()
	}
	if enough() {
		o.decays++
	} else {
		outcomes = o.retract(enough)
	}
	if len(o.batch) < before {
		o.full = false
	}
	if size > 1 {
		o.evictIfNeeded(len(o.batch))
	}
	for _, j := range o.batch {
		if int(j.computed)%size == 0 {
			o.free--
			j.held++
		}
		o.scheduleTokens(j, 1)
	}
	return outcomes
}

// retract is retract_decode.
func (o *sglangOracle) retract(enough func() bool) (outcomes []Outcome) {
	for first := true; (first || !enough()) && len(o.batch) > 1; first = false {
		victim := o.batch[0]
		for _, j := range o.batch[1:] { // the last of those with the least output and the longest prompt
			if j.generated < victim.generated || j.generated == victim.generated && j.Input >= victim.Input {
				victim = j
			}
		}
		o.batch = slices.DeleteFunc(o.batch, func(j *job) bool { return j == victim })
		o.free += victim.held - victim.locked + int(o.StateBlocks)
		o.lock(victim, victim.node, -1)
		victim.node, victim.locked, victim.held, victim.state = nil, 0, 0, 0
		outcomes = append(outcomes, o.preempted(victim))
		o.wait(victim)
	}
	output, most := 0, 0
	for _, j := range o.batch {
		output += int(j.generated) + retractSteps
		most += int(j.most)
	}
	o.ratio, o.decays = min(1, float64(output)/float64(most+1)), 0
	return outcomes
}
