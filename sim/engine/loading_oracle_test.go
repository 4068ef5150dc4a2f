package engine

import (
	"cmp"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// outsider is what the oracle knows of KV outside. Of vLLM's two queues of waiting requests, skipped is the one of those
// that were set aside (skipped_waiting); those in it that still wait for KV are loading.
type outsider struct {
	source  *Source
	skipped []*job
	passed  []*job // of both, those that the step being filled sets aside or leaves aside
	landed  []landed
	guests  []*job // to be invited
	lodged  []*job // loading
	pins    []*kept
	holds   map[int]*blockTable
	orders  int64
}

// kept is the pin of a session.
type kept struct {
	session     uint64
	rank, order int64
	until       time.Duration
	blocks      blockTable
}

func (o *oracle) useSource(s *Source) { o.source, o.holds = s, map[int]*blockTable{} }

func (o *oracle) Landed(now time.Duration, r *Request, tokens int32) {
	o.landed = append(o.landed, landed{r, tokens})
}

func (o *oracle) Prefetch(now time.Duration, r *Request, until time.Duration, began func(now time.Duration, tokens int32)) {
	r.guest = &guest{until, began}
	j := &job{Request: r, blocks: blockTable{path: r.Path}}
	o.jobs[r] = j
	o.guests = append(o.guests, j)
}

func (o *oracle) hold(id int, path []trace.Span, limit int32) {
	t := &blockTable{path: path}
	hits, room := o.pool.lookup(path, limit), len(o.pool.free)
	if o.Style == TRTLLM {
		room -= o.promised()
	}
	for o.pool.idle(path, hits) > room {
		hits--
	}
	o.pool.hit(t, hits)
	o.holds[id] = t
}

func (o *oracle) letGo(now time.Duration, id int) {
	o.pool.release(o.holds[id])
	delete(o.holds, id)
}

// Cancel is finish_requests of vLLM.
func (o *oracle) Cancel(now time.Duration, r *Request) {
	j := o.jobs[r]
	i := slices.Index(o.skipped, j)
	if i < 0 {
		o.walker.Cancel(now, r)
		return
	}
	o.skipped = slices.Delete(o.skipped, i, i+1)
	if j.loading {
		o.source.Cancel(now, r)
	}
	o.giveUp(j)
	j.done, j.loading = true, false
}

// giveUp takes from a waiting request what it has loaded.
func (o *oracle) giveUp(j *job) {
	o.pool.release(&j.blocks)
	j.loaded, j.fetched = 0, 0
}

// head is the queue whose first request is next.
func (o *oracle) head() *[]*job {
	switch {
	case len(o.skipped) == 0 && len(o.waiting) == 0:
		return nil
	case len(o.skipped) == 0 || o.Ranked && len(o.waiting) > 0 && o.behind(o.skipped[0], o.waiting[0]):
		return &o.waiting
	}
	return &o.skipped
}

// skip puts those that were passed over among the skipped, sorted where they have ranks.
func (o *oracle) skip() {
	o.skipped, o.passed = append(o.passed, o.skipped...), nil
	if o.Ranked {
		slices.SortFunc(o.skipped, func(a, b *job) int {
			if o.behind(a, b) {
				return 1
			}
			return -1
		})
	}
}

// reach asks what a waiting request can have.
func (o *oracle) reach(now time.Duration, j *job, hits, limit int32) (tokens int32, coming bool) {
	if o.source == nil || j.unloadable {
		return 0, false
	}
	return o.source.Reach(now, j.Request, hits, limit)
}

func (o *oracle) load(now time.Duration, j *job, hits, tokens int32) {
	j.loading, j.loaded, j.fetched = true, tokens, tokens-hits*int32(o.pool.BlockSize)
	o.source.Load(now, j.Request, tokens-j.fetched, tokens)
}

// land is _update_waiting_for_remote_kv for all of which it was told.
func (o *oracle) land() {
	for _, l := range o.landed {
		j := o.jobs[l.Request]
		if !j.loading {
			continue
		}
		j.loading = false
		if l.tokens < j.loaded {
			o.giveUp(j)
			j.unloadable = true
		} else if j.loaded > 0 {
			o.pool.hash(&j.blocks, j.loaded)
		}
		if i := slices.Index(o.lodged, j); i >= 0 {
			o.lodged = slices.Delete(o.lodged, i, i+1)
			if j.loaded > 0 {
				o.unpin(j.Session)
				o.orders++
				o.stats.Pinned++
				o.pins = append(o.pins, &kept{j.Session, j.Rank, o.orders, j.guest.until, j.blocks})
			}
		}
	}
	o.landed = nil
}

func (o *oracle) unpin(session uint64) {
	if i := slices.IndexFunc(o.pins, func(p *kept) bool { return p.session == session }); i >= 0 {
		o.pool.release(&o.pins[i].blocks)
		o.pins = slices.Delete(o.pins, i, i+1)
	}
}

// endLeases ends the pins that have had their time, in its order.
func (o *oracle) endLeases(now time.Duration) {
	for {
		var first *kept
		for _, p := range o.pins {
			if p.until <= now && (first == nil || cmp.Or(cmp.Compare(p.until, first.until), cmp.Compare(p.order, first.order)) < 0) {
				first = p
			}
		}
		if first == nil {
			return
		}
		o.unpin(first.session)
	}
}

// makeRoom ends the pin of the highest rank, of these the youngest, or lets a request surrender.
func (o *oracle) makeRoom() bool {
	if len(o.pins) == 0 {
		return o.surrender()
	}
	last := slices.MaxFunc(o.pins, func(a, b *kept) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(a.order, b.order))
	})
	o.unpin(last.session)
	o.stats.Unpinned++
	return true
}

// surrender takes its blocks from the last request that has loaded, where nobody else will free any.
func (o *oracle) surrender() bool {
	if len(o.running) > 1 || len(o.running) == 0 && !o.quiet() {
		return false
	}
	for _, j := range slices.Backward(o.skipped) {
		if j.loaded > 0 && !j.loading {
			o.giveUp(j)
			return true
		}
	}
	return false
}

// quiet tells that nothing loads and nothing is held; waits that a request could begin.
func (o *oracle) quiet() bool {
	held := 0
	for _, t := range o.holds {
		held += len(t.ids)
	}
	return held == 0 && len(o.lodged) == 0 && !slices.ContainsFunc(o.skipped, func(j *job) bool { return j.loading })
}

func (o *oracle) waits() bool {
	return len(o.waiting) > 0 || slices.ContainsFunc(o.skipped, func(j *job) bool { return !j.loading })
}

// invite begins the loads of prefetches.
func (o *oracle) invite(now time.Duration) {
	size := int32(o.pool.BlockSize)
	for _, j := range o.guests {
		limit := j.Input / size
		hits := o.pool.lookup(j.Path, limit)
		tokens, coming := o.reach(now, j, hits, limit)
		blocks := int(tokens / size)
		if o.Style == TRTLLM {
			blocks += o.promised()
		}
		if coming || tokens <= hits*size || !o.pool.reserve(&j.blocks, hits, tokens, blocks, 0) {
			j.guest.began(now, 0)
			continue
		}
		j.guest.began(now, tokens-hits*size)
		o.lodged = append(o.lodged, j)
		o.load(now, j, hits, tokens)
	}
	o.guests = nil
}
