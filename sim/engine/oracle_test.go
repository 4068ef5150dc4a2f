package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
)

// walker is what the slow and obvious twins of Engine share: they walk their batch in every step.
type walker struct {
	Options
	*holdings
	cost *models.StepCost
	jobs map[*Request]*job
	// running is in order of admission; scheduled are those of the step in flight, in the order of its scheduling.
	waiting, running, scheduled []*job
	coming                      []*job // arrived too late for the step to be scheduled next
	aborts                      []*job

	busy       bool
	start, end time.Duration
	frac       models.Fixed // of the end, beyond whole nanoseconds
	own        models.Fixed // of the step, in lockstep: what the rank does by itself
	tokens     int64        // of the step
	ends       []time.Duration
	stats      Stats
	outside    Outside // shares of the step in flight, as 1 or 0
	gaps       int64
	gapSum     time.Duration
}

// job is a request in a twin.
type job struct {
	*Request
	blocks    blockTable
	computed  int32 // vLLM's num_computed_tokens, the step in flight included
	chunk     int32 // tokens of the step in flight
	generated int32
	decoding  bool
	high      int32
	last      time.Duration // of the latest token
	done      bool
	number    int   // of its arrival
	most      int32 // output tokens to reserve for

	// Of what lies outside: it waits for KV; the tokens that it has from there while it waits, of which fetched were not
	// cached; a load has failed.
	loading         bool
	loaded, fetched int32
	unloadable      bool

	// Under SGLang: the node in which its tokens in the tree end, the blocks of these, and all that it has.
	node   *treeNode
	locked int
	held   int
	state  int // blocks that do not grow
}

// tokens is vLLM's num_tokens: prompt and output so far.
func (j *job) tokens() int32 { return j.Input + j.generated }

func newWalker(o Options, cost *models.StepCost) walker {
	return walker{Options: o, holdings: newHoldings(), cost: cost, jobs: map[*Request]*job{}}
}

func (o *walker) Next() time.Duration {
	if o.busy {
		return o.end
	}
	return Never
}

// enqueue adds a request. Its longest output is what its client asks for, where that fits.
func (o *walker) enqueue(now time.Duration, r *Request, fits func(input, output int32) bool) {
	j := &job{Request: r, blocks: blockTable{path: r.Path, owner: r.Owner}, most: r.Output}
	if r.MaxOutput > r.Output && fits(r.Input, r.MaxOutput) {
		j.most = r.MaxOutput
	}
	o.jobs[r] = j
	j.number = len(o.jobs)
	if o.Async && len(o.running) > 0 && (o.busy || o.end == now) {
		o.coming = append(o.coming, j)
		return
	}
	o.wait(j)
}

// wait puts a request behind the others, or where its rank belongs.
func (o *walker) wait(j *job) {
	i := len(o.waiting)
	for o.Ranked && i > 0 && o.behind(o.waiting[i-1], j) {
		i--
	}
	o.waiting = slices.Insert(o.waiting, i, j)
}

// behind tells whether a is behind b in rank, then arrival.
func (o *walker) behind(a, b *job) bool {
	return a.Rank > b.Rank || a.Rank == b.Rank && a.number > b.number
}

func (o *walker) Cancel(now time.Duration, r *Request) {
	j := o.jobs[r]
	if i := slices.Index(o.coming, j); i >= 0 {
		o.coming = slices.Delete(o.coming, i, i+1)
		j.done = true
	} else if i := slices.Index(o.waiting, j); i >= 0 {
		o.waiting = slices.Delete(o.waiting, i, i+1)
		j.done = true
	} else if !j.done {
		o.aborts = append(o.aborts, j)
	}
}

func (o *walker) Tokens(now time.Duration, r *Request) int32 {
	j := o.jobs[r]
	if o.busy {
		return j.computed - j.chunk
	}
	return j.computed
}

func (o *walker) truncate(now time.Duration) {}

// admitted notes the admission of a request.
func (o *walker) admitted(j *job, now time.Duration) Outcome {
	if j.Preemptions == 0 {
		j.Admitted, j.Hit, j.Brought = now, j.computed, j.fetched
	} else {
		j.ReadmitHit += j.computed
		j.Readmit += j.tokens()
	}
	return Outcome{j.Request, Admitted}
}

// preempted makes a request forget what it has computed.
func (o *walker) preempted(j *job) Outcome {
	j.high = max(j.high, j.computed)
	j.computed, j.decoding = 0, false
	j.Preemptions++
	o.stats.Preemptions++
	return Outcome{j.Request, Preempted}
}

// scheduleTokens puts the next n tokens of a request into the step.
func (o *walker) scheduleTokens(j *job, n int32) {
	if !j.decoding {
		j.Computed += n
		j.Recomputed.Preemption += max(0, min(j.computed+n, j.high)-j.computed)
		o.stats.PrefillTokens += int64(n)
	}
	j.chunk = n
	j.computed += n
	o.scheduled = append(o.scheduled, j)
}

// launch starts the step, with used blocks: its time is a sum over the batch.
func (o *walker) launch(used int) {
	var batch models.Batch
	context, windowed := int64(0), int64(0)
	for _, j := range o.scheduled {
		n, past := int64(j.chunk), int64(j.computed-j.chunk)
		if j.decoding {
			batch.Decodes++
			batch.Drafts += int(n - 1)
			context += past + n
			windowed += min(past+n, int64(o.cost.Window()))
			continue
		}
		batch.Prefills++
		batch.PrefillTokens += int(n)
		batch.PrefillPairs += n * (2*past + n)
		batch.PrefillContext += past + n
	}
	attention := o.cost.PerContext()*models.Fixed(context) + o.cost.PerWindow()*models.Fixed(windowed)
	o.stats.PeakUsed = max(o.stats.PeakUsed, used)
	o.outside = outsideOf(o.cost.Profile(), batch, context)
	o.busy, o.own, o.tokens = true, max(1, o.cost.Own(batch)+attention), batch.Tokens()
	if !o.Lockstep {
		o.takes(max(1, o.cost.Base(batch)+attention))
	}
}

// takes sets the time of the step.
func (o *walker) takes(step models.Fixed) {
	o.busy = true
	o.frac += step
	o.start, o.end = o.end, o.end+time.Duration(o.frac/models.FixedPerNs)
	o.frac %= models.FixedPerNs
}

// endStep emits the tokens of the step. After each prefill, chunk or token of a request that goes on it calls goesOn, and
// ends after its last token.
func (o *walker) endStep(goesOn, ends func(*job)) []Outcome {
	o.pass(o.end)
	o.busy = false
	o.stats.Steps++
	o.stats.Busy += o.end - o.start
	o.stats.Outside.addStep(o.outside, o.end-o.start)
	o.outside = Outside{} // should the rank run along with others next
	o.ends = append(o.ends, o.end)
	var outcomes []Outcome
	for _, j := range o.scheduled {
		drafts := max(0, j.chunk-1)
		j.chunk = 0
		if j.decoding {
			o.endDecode(j, drafts)
			if j.generated == j.Output {
				j.done = true
				ends(j)
				outcomes = append(outcomes, Outcome{j.Request, Finished})
			}
			continue
		}
		if j.computed < j.tokens() {
			goesOn(j) // a chunk of its prompt
			continue
		}
		if j.Output > 0 {
			j.generated++
		}
		if j.generated > 1 {
			o.gaps++
			o.gapSum += o.end - j.last + o.cost.TokenDelay()
		}
		j.last = o.end
		outcomes = append(outcomes, Outcome{j.Request, FirstToken})
		if j.decoding = true; j.generated >= j.Output {
			j.done = true
			ends(j)
			outcomes = append(outcomes, Outcome{j.Request, Finished})
		} else {
			goesOn(j)
		}
	}
	o.scheduled = nil
	return outcomes
}

// outsideOf has a 1 for each bound of the profile's envelope that a step breaks.
func outsideOf(p *models.Profile, b models.Batch, context int64) (o Outside) {
	if p == nil {
		return o
	}
	sides := func(r models.Range, n int) (s Sides) {
		if n < r.Least {
			s.Below = 1
		}
		if n > r.Most {
			s.Above = 1
		}
		return s
	}
	sequences := b.Decodes + b.Prefills
	o.Batch = sides(p.Envelope.Batch, sequences)
	o.Context = sides(p.Envelope.Context, int(context+b.PrefillContext)/sequences)
	if b.Prefills > 0 {
		o.NewTokens = sides(p.Envelope.NewTokens, b.PrefillTokens)
	}
	if !p.Envelope.Contains(b, context) {
		o.Any = 1
	}
	return o
}

// addStep adds a step's time where the step has a 1.
func (o *Outside) addStep(step Outside, took time.Duration) {
	o.Any += step.Any * took
	for _, s := range []struct{ sum, step *Sides }{
		{&o.Batch, &step.Batch}, {&o.Context, &step.Context}, {&o.NewTokens, &step.NewTokens},
	} {
		s.sum.Below += s.step.Below * took
		s.sum.Above += s.step.Above * took
	}
}

// endDecode gives a decoding request its next token and the drafts before it that stand, and forgets the KV of the others.
func (o *walker) endDecode(j *job, drafts int32) {
	accepted := int32(0)
	if drafts > 0 {
		accepted = o.Speculation.accepted(j.Seed, j.generated, drafts)
		o.stats.Drafts.Steps++
		o.stats.Drafts.Tokens += int64(drafts)
		o.stats.Drafts.Accepted += int64(accepted)
	}
	j.computed -= drafts - accepted
	o.gapSum += o.end - j.last
	j.last = o.end
	for range 1 + accepted {
		if j.generated < j.Output {
			j.generated++
			o.stats.DecodeTokens++
			o.gaps++
			o.gapSum += o.cost.TokenDelay()
		}
	}
}

// twin is a slow machine with a diary.
type twin interface {
	machine
	diary() *walker
	resident() map[slot]bool
	evicted() int64
}

func (o *walker) diary() *walker { return o }

func newTwin(w *workload, cost *models.StepCost) twin {
	if w.Style == SGLang {
		return newSGLangOracle(w.Options, cost, w.kv)
	}
	return newOracle(w.Options, cost, w.kv)
}

// oracle is the twin of the styles of vLLM and TensorRT-LLM, on a pool of single blocks. It follows vLLM 0.19:
// vllm/v1/core/sched/scheduler.py (schedule, update_from_output) and kv_cache_manager.py (allocate_slots, free).
type oracle struct {
	walker
	outsider
	pool *blockPool
}

func newOracle(o Options, cost *models.StepCost, kv kvcache.Options) *oracle {
	or := &oracle{walker: newWalker(o, cost), pool: newBlockPool(kv)}
	or.count, or.pool.states = or.pool.count, &or.states
	return or
}

func (o *oracle) resident() map[slot]bool { return o.pool.resident() }
func (o *oracle) evicted() int64          { return o.pool.evicted }

func (o *oracle) Enqueue(now time.Duration, r *Request) {
	if slices.ContainsFunc(o.pins, func(p *kept) bool { return p.session == r.Session }) {
		r.Rank -= pinnedFirst
	}
	o.enqueue(now, r, func(input, output int32) bool {
		return o.pool.blocksFor(input+max(0, output-1)+int32(o.Speculation.slots()))+int(o.StateBlocks) <= o.pool.Blocks
	})
}

// Schedule is schedule of vLLM, repeated when all running requests were preempted: that step takes no time.
func (o *oracle) Schedule(now time.Duration) ([]Outcome, error) {
	o.pass(now)
	for _, j := range o.aborts {
		if !j.done {
			o.leaves(j)
			j.done = true
		}
	}
	o.aborts = nil
	o.endLeases(now)
	if !o.Async || len(o.running) == 0 {
		o.land()
	}
	if o.end != now {
		o.end, o.frac = now, 0
	}
	var outcomes []Outcome
	for again := true; again && len(o.scheduled) == 0; {
		more, preempted := o.scheduleStep(now)
		outcomes = append(outcomes, more...)
		again = preempted || len(o.coming) > 0 || len(o.landed) > 0
		for _, j := range o.coming {
			o.wait(j)
		}
		o.coming = nil
		o.land()
		if len(o.scheduled) == 0 {
			again = again || o.waits() && o.makeRoom()
		}
	}
	o.invite(now)
	if len(o.scheduled) == 0 {
		if o.waits() && o.quiet() {
			return outcomes, errStuck
		}
		return outcomes, nil
	}
	o.launch(o.pool.Blocks - len(o.pool.free))
	return outcomes, nil
}

// leaves takes a request out of the running ones.
func (o *oracle) leaves(j *job) {
	o.running = slices.DeleteFunc(o.running, func(other *job) bool { return other == j })
	o.pool.release(&j.blocks)
}

// EndStep is update_from_output of vLLM.
func (o *oracle) EndStep() []Outcome { return o.endStep(func(*job) {}, o.leaves) }

// promised counts the blocks that those requests may still take that run or have loaded.
func (o *oracle) promised() int {
	blocks := 0
	for _, j := range slices.Concat(o.running, o.skipped, o.passed) {
		if len(j.blocks.ids) == 0 {
			continue
		}
		blocks += o.pool.blocksFor(j.Input+max(0, j.most-1)) - len(j.blocks.ids)
	}
	return blocks
}

// lookahead is vLLM's num_lookahead_tokens.
func (o *oracle) lookahead() int32 {
	if o.Speculation == nil || !o.Speculation.Model {
		return 0
	}
	return int32(o.Speculation.Tokens)
}

func (o *oracle) scheduleStep(now time.Duration) (outcomes []Outcome, preempted bool) {
	budget := int32(o.MaxBatchedTokens)
running:
	for i := 0; i < len(o.running) && budget > 0; i++ {
		j := o.running[i]
		n := j.tokens() - j.computed
		if j.decoding && o.Speculation != nil {
			n += int32(o.Speculation.Tokens)
		}
		n = min(n, budget)
		for !o.pool.grow(&j.blocks, min(j.computed+n, j.tokens()), j.computed+n+o.lookahead()) {
			if o.makeRoom() {
				continue
			}
			victim := o.running[len(o.running)-1]
			if o.Ranked {
				victim = slices.MaxFunc(o.running, func(a, b *job) int {
					if o.behind(a, b) {
						return 1
					}
					return -1
				})
			}
			if k := slices.Index(o.scheduled, victim); k >= 0 { // a decode: it gives its token back
				o.scheduled = slices.Delete(o.scheduled, k, k+1)
				budget += victim.chunk
				victim.computed -= victim.chunk
				victim.chunk = 0
				i--
			}
			o.leaves(victim)
			if o.Ranked {
				o.wait(victim)
			} else {
				o.waiting = slices.Insert(o.waiting, 0, victim)
			}
			outcomes = append(outcomes, o.preempted(victim))
			preempted = true
			if victim == j {
				break running
			}
		}
		o.scheduleTokens(j, n)
		budget -= n
	}
	for !preempted && budget > 0 && len(o.running) < o.MaxSeqs {
		queue := o.head()
		if queue == nil {
			break
		}
		j := (*queue)[0]
		if j.loading {
			*queue = (*queue)[1:]
			o.passed = append(o.passed, j)
			continue
		}
		n, room, aside := o.tryWaiting(now, j, budget)
		if aside {
			*queue = (*queue)[1:]
			o.passed = append(o.passed, j)
			continue
		}
		if !room {
			break
		}
		*queue = (*queue)[1:]
		o.running = append(o.running, j)
		outcomes = append(outcomes, o.admitted(j, now))
		o.unpin(j.Session)
		j.loaded, j.fetched, j.unloadable = 0, 0, false
		o.scheduleTokens(j, n)
		budget -= n
	}
	o.skip()
	return outcomes, preempted
}

// tryWaiting gives a waiting request its blocks, for the next n of its tokens or for those that are to be brought.
func (o *oracle) tryWaiting(now time.Duration, j *job, budget int32) (n int32, room, aside bool) {
	size := int32(o.pool.BlockSize)
	if j.loaded > 0 {
		n = min(j.tokens()-j.loaded, budget)
		if o.ReserveFull && o.pool.blocksFor(j.tokens())-len(j.blocks.ids) > len(o.pool.free) ||
			!o.pool.grow(&j.blocks, j.loaded+n, j.loaded+n+o.lookahead()) {
			return n, false, false
		}
		j.computed = j.loaded
		return n, true, false
	}
	limit := (j.tokens() - 1) / size
	hits := o.pool.lookup(j.Path, limit)
	if o.Speculation != nil && o.Speculation.Hidden && hits > 0 {
		hits--
	}
	tokens, coming := o.reach(now, j, hits, limit)
	if coming {
		j.loading = true
		return 0, false, true
	}
	if tokens > hits*size {
		if !o.pool.reserve(&j.blocks, hits, tokens, o.reserve(j, tokens), o.StateBlocks) {
			return 0, false, false
		}
		o.load(now, j, hits, tokens)
		return 0, true, true
	}
	n = min(j.tokens()-hits*size, budget)
	if !o.pool.admit(&j.blocks, hits, hits*size+n, o.reserve(j, hits*size+n), o.StateBlocks) {
		return n, false, false
	}
	j.computed = hits * size
	return n, true, false
}

// reserve is the blocks that must be there for a request that is to have so many tokens next.
func (o *oracle) reserve(j *job, tokens int32) int {
	switch {
	case o.Style == TRTLLM:
		return o.pool.blocksFor(j.Input+max(0, j.most-1)) + o.promised()
	case o.ReserveFull:
		return o.pool.blocksFor(j.tokens())
	}
	return o.pool.blocksFor(tokens)
}

// blockPool is a KV cache block by block: a free queue of block numbers, and for each slot the blocks that hold it,
// oldest first (vllm/v1/core/block_pool.py).
type blockPool struct {
	kvcache.Options
	refs    []int
	holds   map[int]slot // of hashed blocks
	cached  map[slot][]int
	free    []int
	owners  []kvcache.Owner
	evicted int64
	states  *[owners]kvcache.State
}

// slot is block number at of a node: what vLLM names by a hash.
type slot struct {
	key trace.Key
	at  int32
}

// blockTable is the blocks of one request.
type blockTable struct {
	path       []trace.Span
	ids, extra []int
	hashed     int32
	owner      kvcache.Owner
}

func newBlockPool(o kvcache.Options) *blockPool {
	p := &blockPool{Options: o, refs: make([]int, o.Blocks), owners: make([]kvcache.Owner, o.Blocks), holds: map[int]slot{}, cached: map[slot][]int{}}
	for i := range o.Blocks {
		p.free = append(p.free, i)
	}
	return p
}

func slotAt(path []trace.Span, at int32) slot {
	for _, s := range path {
		if s.From <= at && at < s.To {
			return slot{s.Key, at}
		}
	}
	panic("a path is as long as its request")
}

func (p *blockPool) lookup(path []trace.Span, limit int32) int32 {
	for i := range limit {
		if len(p.cached[slotAt(path, i)]) == 0 {
			return i
		}
	}
	return limit
}

func (p *blockPool) admit(t *blockTable, hits, tokens int32, reserve int, extra int32) bool {
	if !p.reserve(t, hits, tokens, reserve, extra) {
		return false
	}
	p.hash(t, tokens)
	return true
}

// reserve is admit for tokens whose blocks nobody can hit yet.
func (p *blockPool) reserve(t *blockTable, hits, tokens int32, reserve int, extra int32) bool {
	if reserve-int(hits)+p.idle(t.path, hits)+int(extra) > len(p.free) {
		return false
	}
	p.hit(t, hits)
	for range extra {
		t.extra = append(t.extra, p.take(t))
	}
	for len(t.ids) < p.blocksFor(tokens) {
		t.ids = append(t.ids, p.take(t))
	}
	return true
}

// idle counts those of the first hits blocks that nobody refers to.
func (p *blockPool) idle(path []trace.Span, hits int32) (idle int) {
	for i := range hits {
		if p.refs[p.cached[slotAt(path, i)][0]] == 0 {
			idle++
		}
	}
	return idle
}

// hit refers to the first cached blocks of a path.
func (p *blockPool) hit(t *blockTable, hits int32) {
	for i := range hits {
		id := p.cached[slotAt(t.path, i)][0]
		if p.refs[id]++; p.refs[id] == 1 {
			p.inherit(id, t)
			p.free = slices.DeleteFunc(p.free, func(other int) bool { return other == id })
		}
		t.ids = append(t.ids, id)
	}
	t.hashed = hits
}

func (p *blockPool) blocksFor(tokens int32) int { return (int(tokens) + p.BlockSize - 1) / p.BlockSize }

// grow is allocate_slots: new blocks for slots tokens, and those that tokens fill into the cache at once.
func (p *blockPool) grow(t *blockTable, tokens, slots int32) bool {
	if p.blocksFor(slots)-len(t.ids) > len(p.free) {
		return false
	}
	for len(t.ids) < p.blocksFor(slots) {
		t.ids = append(t.ids, p.take(t))
	}
	p.hash(t, tokens)
	return true
}

// hash is cache_blocks: it enters into the cache what tokens fill.
func (p *blockPool) hash(t *blockTable, tokens int32) {
	for ; p.PrefixCaching && t.hashed < tokens/int32(p.BlockSize); t.hashed++ {
		s, id := slotAt(t.path, t.hashed), t.ids[t.hashed]
		p.holds[id] = s
		p.cached[s] = append(p.cached[s], id)
	}
}

func (p *blockPool) take(t *blockTable) int {
	id := p.free[0]
	p.free = p.free[1:]
	if s, ok := p.holds[id]; ok {
		p.evicted++
		delete(p.holds, id)
		p.cached[s] = slices.DeleteFunc(p.cached[s], func(other int) bool { return other == id })
		if len(p.cached[s]) == 0 {
			delete(p.cached, s)
		}
	}
	p.refs[id], p.owners[id] = 1, t.owner
	return id
}

// inherit gives a block whose owner has ended to the request that takes it from the free queue or puts it there.
func (p *blockPool) inherit(id int, t *blockTable) {
	p.owners[id] = heir(p.states, p.owners[id], t.owner)
}

// count counts the blocks that somebody refers to and those that hold cached tokens.
func (p *blockPool) count() (counts [owners][kvcache.States]int) {
	for id, refs := range p.refs {
		if refs > 0 {
			counts[p.owners[id]][kvcache.Running]++
		} else if _, hashed := p.holds[id]; hashed {
			counts[p.owners[id]][p.states[p.owners[id]]]++
		}
	}
	return counts
}

func (p *blockPool) release(t *blockTable) {
	for _, id := range t.extra {
		p.refs[id] = 0
		p.free = slices.Insert(p.free, 0, id)
	}
	for _, id := range slices.Backward(t.ids) {
		if p.refs[id]--; p.refs[id] > 0 {
			continue
		}
		p.inherit(id, t)
		if _, hashed := p.holds[id]; hashed || !p.FreeTailFirst && p.PrefixCaching {
			p.free = append(p.free, id)
		} else {
			p.free = slices.Insert(p.free, 0, id)
		}
	}
	t.ids, t.extra, t.hashed = nil, nil, 0
}

// resident is the set of what is cached.
func (p *blockPool) resident() map[slot]bool {
	set := map[slot]bool{}
	for s := range maps.Keys(p.cached) {
		set[s] = true
	}
	return set
}
