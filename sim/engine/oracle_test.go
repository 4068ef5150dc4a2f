package engine

import (
	"maps"
	"slices"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
)

// oracle is the slow and obvious twin of Engine: it walks its batch in every step, on a pool of single blocks. It
// follows vLLM 0.19: vllm/v1/core/sched/scheduler.py (schedule, update_from_output) and kv_cache_manager.py
// (allocate_slots, free).
type oracle struct {
	Options
	cost *models.StepCost
	pool *blockPool
	jobs map[*Request]*job
	// running is in order of admission; scheduled are those of the step in flight, in the order of its scheduling.
	waiting, running, scheduled []*job
	aborts                      []*job

	busy       bool
	start, end time.Duration
	frac       models.Fixed // of the end, beyond whole nanoseconds
	ends       []time.Duration
	stats      Stats
	gaps       int64
	gapSum     time.Duration
}

// job is a request in the oracle.
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
}

// tokens is vLLM's num_tokens: prompt and output so far.
func (j *job) tokens() int32 { return j.Input + j.generated }

func newOracle(o Options, cost *models.StepCost, kv kvcache.Options) *oracle {
	return &oracle{Options: o, cost: cost, pool: newBlockPool(kv), jobs: map[*Request]*job{}}
}

func (o *oracle) Next() time.Duration {
	if o.busy {
		return o.end
	}
	return Never
}

func (o *oracle) Enqueue(now time.Duration, r *Request) {
	j := &job{Request: r, blocks: blockTable{path: r.Path}}
	o.jobs[r] = j
	o.waiting = append(o.waiting, j)
}

func (o *oracle) Cancel(now time.Duration, r *Request) {
	j := o.jobs[r]
	if i := slices.Index(o.waiting, j); i >= 0 {
		o.waiting = slices.Delete(o.waiting, i, i+1)
		j.done = true
	} else if !j.done {
		o.aborts = append(o.aborts, j)
	}
}

func (o *oracle) Tokens(now time.Duration, r *Request) int32 {
	j := o.jobs[r]
	if o.busy {
		return j.computed - j.chunk
	}
	return j.computed
}

func (o *oracle) truncate(now time.Duration) {}

// Schedule is schedule of vLLM, repeated when all running requests were preempted: that step takes no time.
func (o *oracle) Schedule(now time.Duration) ([]Outcome, error) {
	for _, j := range o.aborts {
		if !j.done {
			o.running = slices.DeleteFunc(o.running, func(other *job) bool { return other == j })
			o.pool.release(&j.blocks)
			j.done = true
		}
	}
	o.aborts = nil
	if o.end != now {
		o.end, o.frac = now, 0
	}
	var outcomes []Outcome
	preempted := true
	for preempted && len(o.scheduled) == 0 {
		var more []Outcome
		more, preempted = o.scheduleStep(now)
		outcomes = append(outcomes, more...)
	}
	if len(o.scheduled) == 0 {
		if len(o.waiting) > 0 {
			return outcomes, errStuck
		}
		return outcomes, nil
	}
	o.launch()
	return outcomes, nil
}

func (o *oracle) scheduleStep(now time.Duration) (outcomes []Outcome, preempted bool) {
	budget := int32(o.MaxBatchedTokens)
running:
	for i := 0; i < len(o.running) && budget > 0; i++ {
		j := o.running[i]
		n := min(j.tokens()-j.computed, budget)
		for !o.pool.grow(&j.blocks, j.computed+n) {
			victim := o.running[len(o.running)-1]
			o.running = o.running[:len(o.running)-1]
			o.pool.release(&victim.blocks)
			victim.high = max(victim.high, victim.computed)
			victim.computed, victim.decoding = 0, false
			victim.Preemptions++
			o.waiting = slices.Insert(o.waiting, 0, victim)
			o.stats.Preemptions++
			outcomes = append(outcomes, Outcome{victim.Request, Preempted})
			preempted = true
			if victim == j {
				break running
			}
		}
		o.scheduleTokens(j, n)
		budget -= n
	}
	for !preempted && budget > 0 && len(o.waiting) > 0 && len(o.running) < o.MaxSeqs {
		j := o.waiting[0]
		size := int32(o.pool.BlockSize)
		hits := o.pool.lookup(j.Path, (j.tokens()-1)/size)
		n := min(j.tokens()-hits*size, budget)
		reserve := hits*size + n
		if o.ReserveFull {
			reserve = j.tokens()
		}
		if !o.pool.admit(&j.blocks, hits, hits*size+n, reserve, o.StateBlocks) {
			break
		}
		o.waiting = o.waiting[1:]
		o.running = append(o.running, j)
		j.computed = hits * size
		if j.Preemptions == 0 {
			j.Admitted, j.Hit = now, j.computed
		} else {
			j.ReadmitHit += j.computed
			j.Readmit += j.tokens()
		}
		outcomes = append(outcomes, Outcome{j.Request, Admitted})
		o.scheduleTokens(j, n)
		budget -= n
	}
	return outcomes, preempted
}

// scheduleTokens puts the next n tokens of a request into the step.
func (o *oracle) scheduleTokens(j *job, n int32) {
	if !j.decoding {
		j.Computed += n
		j.Recomputed.Preemption += max(0, min(j.computed+n, j.high)-j.computed)
		o.stats.PrefillTokens += int64(n)
	} else {
		o.stats.DecodeTokens++
	}
	j.chunk = n
	j.computed += n
	o.scheduled = append(o.scheduled, j)
}

// launch starts the step: its time is a sum over the batch.
func (o *oracle) launch() {
	var batch models.Batch
	context, windowed := int64(0), int64(0)
	for _, j := range o.scheduled {
		n, past := int64(j.chunk), int64(j.computed-j.chunk)
		if j.decoding {
			batch.Decodes++
			context += past + n
			windowed += min(past+n, int64(o.cost.Window()))
			continue
		}
		batch.Prefills++
		batch.PrefillTokens += int(n)
		batch.PrefillPairs += n * (2*past + n)
		batch.PrefillContext += past + n
	}
	step := o.cost.Base(batch) + o.cost.PerContext()*models.Fixed(context) + o.cost.PerWindow()*models.Fixed(windowed)
	o.frac += max(1, step)
	o.start, o.end = o.end, o.end+time.Duration(o.frac/models.FixedPerNs)
	o.frac %= models.FixedPerNs
	o.busy = true
	o.stats.PeakUsed = max(o.stats.PeakUsed, o.pool.Blocks-len(o.pool.free))
}

// EndStep is update_from_output of vLLM.
func (o *oracle) EndStep() []Outcome {
	o.busy = false
	o.stats.Steps++
	o.stats.Busy += o.end - o.start
	o.ends = append(o.ends, o.end)
	var outcomes []Outcome
	for _, j := range o.scheduled {
		j.chunk = 0
		if j.computed < j.tokens() {
			continue // a chunk of its prompt
		}
		if j.Output > 0 {
			j.generated++
		}
		if j.generated > 1 {
			o.gaps++
			o.gapSum += o.end - j.last + o.cost.TokenDelay()
		}
		j.last = o.end
		if !j.decoding {
			j.decoding = true
			outcomes = append(outcomes, Outcome{j.Request, FirstToken})
		}
		if j.generated >= j.Output {
			o.running = slices.DeleteFunc(o.running, func(other *job) bool { return other == j })
			o.pool.release(&j.blocks)
			j.done = true
			outcomes = append(outcomes, Outcome{j.Request, Finished})
		}
	}
	o.scheduled = nil
	return outcomes
}

// blockPool is a KV cache block by block: a free queue of block numbers, and for each slot the blocks that hold it,
// oldest first (vllm/v1/core/block_pool.py).
type blockPool struct {
	kvcache.Options
	refs    []int
	holds   map[int]slot // of hashed blocks
	cached  map[slot][]int
	free    []int
	evicted int64
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
}

func newBlockPool(o kvcache.Options) *blockPool {
	p := &blockPool{Options: o, refs: make([]int, o.Blocks), holds: map[int]slot{}, cached: map[slot][]int{}}
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

func (p *blockPool) admit(t *blockTable, hits, tokens, reserve, extra int32) bool {
	idle := 0
	for i := range hits {
		if p.refs[p.cached[slotAt(t.path, i)][0]] == 0 {
			idle++
		}
	}
	if p.blocksFor(reserve)-int(hits)+idle+int(extra) > len(p.free) {
		return false
	}
	for i := range hits {
		id := p.cached[slotAt(t.path, i)][0]
		if p.refs[id]++; p.refs[id] == 1 {
			p.free = slices.DeleteFunc(p.free, func(other int) bool { return other == id })
		}
		t.ids = append(t.ids, id)
	}
	t.hashed = hits
	for range extra {
		t.extra = append(t.extra, p.take())
	}
	return p.grow(t, tokens)
}

func (p *blockPool) blocksFor(tokens int32) int { return (int(tokens) + p.BlockSize - 1) / p.BlockSize }

// grow is allocate_slots: new blocks up to tokens, and the full ones into the cache at once.
func (p *blockPool) grow(t *blockTable, tokens int32) bool {
	if p.blocksFor(tokens)-len(t.ids) > len(p.free) {
		return false
	}
	for len(t.ids) < p.blocksFor(tokens) {
		t.ids = append(t.ids, p.take())
	}
	for ; p.PrefixCaching && t.hashed < tokens/int32(p.BlockSize); t.hashed++ {
		s, id := slotAt(t.path, t.hashed), t.ids[t.hashed]
		p.holds[id] = s
		p.cached[s] = append(p.cached[s], id)
	}
	return true
}

func (p *blockPool) take() int {
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
	p.refs[id] = 1
	return id
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
