package engine

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
)

// SGLang's constants (sglang/srt/environ.py, managers/schedule_policy.py).
const (
	clipNewTokens = 4096 // of an estimate of output to come
	initRatio     = 0.7  // share of the output to come that is reserved
	minRatio      = 0.14 // of initRatio
	ratioSteps    = 600  // decode steps from the one to the other
	retractSteps  = 20   // decode steps in hand when the ratio is estimated anew
)

// SGLangOptions are settings that only SGLang has.
type SGLangOptions struct {
	// MaxPrefillTokens bounds the prompt tokens of a step (max_prefill_tokens), but for its first request.
	MaxPrefillTokens int
	// Conservativeness scales the output that is reserved for (schedule_conservativeness).
	Conservativeness float64
	// LongestPrefix lets waiting requests with more cached tokens go first (schedule_policy lpm) instead of those that
	// came first (fcfs).
	LongestPrefix bool
}

// sglang is the scheduler of SGLang 0.5 without overlap (sglang/srt/managers: scheduler.py, schedule_policy.py,
// schedule_batch.py):
//   - When a batch of prompts can be formed it runs alone, and decodes wait. One request at a time may be prefilled in
//     chunks; its next chunk comes first.
//   - A waiting request is admitted when its tokens and its output fit beside a share of the output that running
//     requests may still generate. That share, the new token ratio, falls with every decode step.
//   - The first that does not fit makes the batch full: nothing is tried again until a step after a request has left it.
//   - When decodes lack blocks, those with the least output lose theirs and wait again, behind the others.
type sglang struct {
	*Engine
	tree  *kvcache.Radix
	queue queue
	adder adder // of the batch being formed
	full  bool  // batch_is_full

	// The new token ratio was ratio when the decode step since was scheduled.
	ratio float64
	since int64
}

// useSGLang gives the engine SGLang's cache and scheduler.
func (e *Engine) useSGLang(kv kvcache.Options) error {
	s := e.Options.SGLang
	if e.MaxSeqs < 1 || e.MaxBatchedTokens < kv.BlockSize || s.MaxPrefillTokens < 1 || !(s.Conservativeness > 0) {
		return fmt.Errorf("engine: max_num_seqs is %d, chunks are of %d tokens, max_prefill_tokens is %d and schedule_conservativeness %g: want all positive, and chunks of a page at least",
			e.MaxSeqs, e.MaxBatchedTokens, s.MaxPrefillTokens, s.Conservativeness)
	}
	tree, err := kvcache.NewRadix(kv)
	if err != nil {
		return err
	}
	e.cache, e.kv, e.clip.size = tree, &tree.Ledger, 1
	g := &sglang{Engine: e, tree: tree}
	g.ratio = g.firstRatio()
	e.style = g
	return nil
}

// fits leaves room for the page that an admission counts beyond the tokens.
func (g *sglang) fits(input, output int32) bool {
	size := g.kv.BlockSize
	return int(input)+int(output)+size+int(g.StateBlocks)*size < g.kv.Blocks*size
}

func (g *sglang) admits() bool { return g.waiting.size > 0 && !g.full }
func (g *sglang) freed()       {}
func (g *sglang) room() int    { return g.kv.Free() }

func (g *sglang) check() error {
	sum := int64(0)
	for r := g.running.head; r != nil; r = r.next {
		if r.state == decoding {
			sum += min(int64(r.limit)-g.output(r), clipNewTokens)
		}
	}
	if got := g.toCome(); got != sum {
		return fmt.Errorf("engine: aggregates count %d tokens to come, the batch has %d", got, sum)
	}
	return nil
}

// spare: with pages of several tokens SGLang asks for one for each decode, whether they need it or not.
func (g *sglang) spare() int {
	if g.kv.BlockSize > 1 && g.kv.Cached() > 0 {
		return int(g.decodes)
	}
	return 0
}

// computed enters the tokens of a prefill into the tree, unless the request is finished, which does it too. The prefill
// batch is merged into the running one then: when it lost a request by that, or the running one was empty, there is room
// again.
func (g *sglang) computed(r *Request) {
	finished := r.computed == r.target && r.generated >= r.Output
	if !finished {
		g.tree.Insert(&r.table, r.computed)
	}
	if finished || r.computed < r.target || len(g.finish)+g.left == 0 {
		g.full = false
	}
}

// fill forms a batch of prompts or else the next decode step.
func (g *sglang) fill(now time.Duration) (models.Batch, bool, error) {
	again := g.full || g.left > 0
	if batch := g.prefill(now); batch.Prefills > 0 {
		return batch, false, nil
	}
	if len(g.finish) > 0 {
		return g.decode(now), false, nil
	}
	// The scheduler finds an empty batch and idles for a moment.
	g.full, g.left = false, 0
	g.ratio, g.since = g.firstRatio(), g.kv.Step
	return models.Batch{}, again && g.waiting.size > 0, nil
}

// decode lets all running requests generate a token, after it has retracted those that others need the blocks of.
func (g *sglang) decode(now time.Duration) models.Batch {
	residue := (g.kv.Step + 1) % int64(len(g.needs))
	g.tree.Evict(int(g.needs[residue]))
	if g.kv.Fresh() < int(g.needs[residue]) {
		g.retract(now, residue)
	}
	if g.kv.BlockSize > 1 {
		g.tree.Evict(len(g.finish))
	}
	g.tree.Take(int(g.needs[residue]))
	g.kv.Begin(now)
	if g.left > 0 {
		g.full, g.left = false, 0
	}
	return models.Batch{Decodes: len(g.finish)}
}

// retract takes the blocks from requests with the least output, among these the longest prompt first, until the others
// have enough for the next step, and estimates the new token ratio from these.
func (g *sglang) retract(now time.Duration, residue int64) {
	var batch []*Request
	for r := g.running.head; r != nil; r = r.next {
		batch = append(batch, r)
	}
	slices.SortStableFunc(batch, func(a, b *Request) int {
		return cmp.Or(cmp.Compare(g.output(b), g.output(a)), cmp.Compare(a.Input, b.Input))
	})
	for enough := false; !enough && len(batch) > 1; enough = g.kv.Fresh() >= int(g.needs[residue]) {
		victim := batch[len(batch)-1]
		batch = batch[:len(batch)-1]
		g.evacuate(victim, now, 0)
		g.wait(victim)
		g.tree.Evict(int(g.needs[residue]))
	}
	output, most := int64(0), int64(0)
	for _, r := range batch {
		output += g.output(r) + retractSteps
		most += int64(r.limit)
	}
	g.ratio, g.since = min(1, float64(output)/float64(most+1)), g.kv.Step+1
}

// output is the number of tokens that a decoding request has generated.
func (g *sglang) output(r *Request) int64 { return int64(r.Output) - (r.last - g.kv.Step) }

// firstRatio is the new token ratio of an idle server.
func (g *sglang) firstRatio() float64 {
	return min(1, initRatio*g.Options.SGLang.Conservativeness)
}

// newTokenRatio is the share of the output to come that is reserved now.
func (g *sglang) newTokenRatio() float64 {
	steps := g.kv.Step - g.since
	if steps == 0 {
		return g.ratio
	}
	first := g.firstRatio()
	last := first * minRatio
	return max(g.ratio-float64(steps)*(first-last)/ratioSteps, last)
}

// toCome is the output that running requests may still generate, at most clipNewTokens of each.
func (g *sglang) toCome() int64 {
	n, step := int64(len(g.finish)), g.kv.Step
	g.clip.advance(step)
	return g.ends - n*step + g.clip.sum(step) - n
}

// clipBase is the request's base in the window clip of size 1: there the sum of min(clipNewTokens - r, 0) over decodes
// with r tokens to come, of which each brings one more, is that of min(base + step, 1) - 1.
func (r *Request) clipBase() int64 { return clipNewTokens + 1 - (r.last + int64(r.limit-r.Output)) }
