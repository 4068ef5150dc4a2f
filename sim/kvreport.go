package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/agentsim/agentsim/sim/memory"
	"github.com/agentsim/agentsim/trace/report"
)

// KVUse is what a run has done with KV below the GPUs.
type KVUse struct {
	memory.Account
	// Actions are those of KVActions.
	Actions []Outcomes
}

// KeepsKV tells whether the deployment has tiers below the GPUs, or rules for the KV of sessions.
func (p *Plan) KeepsKV() bool { return p.memory != nil }

// kvUse is what has been done so far; nil where there is nothing below the GPUs.
func (r *run) kvUse() *KVUse {
	if r.memory == nil {
		return nil
	}
	u := &KVUse{Account: r.memory.Account()}
	if r.keeper != nil {
		u.Actions = slices.Clone(r.keeper.outcomes[:])
		fetched := &u.Actions[doFetch] // which the memory does by itself
		fetched.Accepted, fetched.Blocks = u.Loads[memory.Peer], u.Read[memory.Peer]/int64(r.plan.Engine.BlockSize)
	}
	return u
}

// countKV passes a border of the window.
func (r *run) countKV() {
	if r.memory != nil && len(r.borders) > 0 {
		r.before = r.kvUse()
		r.memory.Restart()
		return
	}
	r.closeKV()
}

// closeKV notes what was done in the window, once.
func (r *run) closeKV() {
	u := r.kvUse()
	if u == nil || r.result.KVUse != nil {
		return
	}
	if r.before != nil {
		u.Account = u.Account.Since(r.before.Account)
		for i := range u.Actions {
			u.Actions[i].subtract(&r.before.Actions[i])
		}
	}
	r.result.KVUse = u
}

// tiering reports what was done with KV below the GPUs.
func (r *Result) tiering() report.Tiering {
	u := r.KVUse
	if u == nil {
		return report.Tiering{}
	}
	t := report.Tiering{Tiers: map[string]report.Tier{}, Transfers: map[string]report.Transfers{}, Actions: map[string]report.Action{}}
	for level := memory.Host; level < memory.Levels; level++ {
		use := u.Tiers[level]
		if use.Capacity == 0 && u.Read[level] == 0 {
			continue
		}
		tier := report.Tier{ReadTokens: report.Known(u.Read[level])}
		if use.Capacity > 0 {
			tier.CapacityTokens = report.Known(int64(use.Capacity) * int64(r.Plan.Engine.BlockSize))
			tier.PeakUtilization = report.Known(float64(use.Peak) / float64(use.Most))
		}
		t.Tiers[level.String()] = tier
	}
	for cause := range memory.Causes {
		if m := &u.Moves[cause]; m.Count+m.Stopped > 0 {
			t.Transfers[cause.String()] = transfers(m)
		}
	}
	for i, o := range u.Actions {
		if o == (Outcomes{}) {
			continue
		}
		size := r.Plan.memory.BlockBytes
		a := report.Action{Accepted: o.Accepted, Clipped: o.Clipped, Deferred: o.Deferred, Refused: o.Refused, Late: o.Late, Wasted: o.Wasted,
			Bytes: o.Blocks * size, LateBytes: o.LateBlocks * size, WastedBytes: o.WastedBlocks * size}
		if kvAction(i) != doFetch {
			a.Seconds = report.Seconds(o.Took)
		}
		t.Actions[kvActionNames[i]] = a
	}
	t.Links = r.linkKinds()
	return t
}

func transfers(m *memory.Moves) report.Transfers {
	t := report.Transfers{Count: m.Count, Stopped: m.Stopped, Bytes: m.Bytes, Seconds: report.Seconds(m.Time)}
	if m.Time > 0 {
		t.GBPerS = report.Known(float64(m.Bytes) / m.Time.Seconds() / 1e9)
	}
	return t
}

// linkKinds sums up the links of all workers, by kind.
func (r *Result) linkKinds() []report.Link {
	var kinds []report.Link
	busy := map[string]time.Duration{}
	for _, l := range r.KVUse.Links {
		i := slices.IndexFunc(kinds, func(k report.Link) bool { return k.Name == l.Kind })
		if i < 0 {
			i = len(kinds)
			kinds = append(kinds, report.Link{Name: l.Kind, GBPerS: report.Known(l.Rate / 1e9)})
		}
		k := &kinds[i]
		k.Count++
		k.Bytes += l.Bytes
		busy[l.Kind] += l.Busy
		if share := r.busyShare(l.Busy, 1); share.Known {
			k.BusiestShare = report.Known(max(k.BusiestShare.Value, share.Value))
		}
	}
	for i := range kinds {
		kinds[i].BusyShare = r.busyShare(busy[kinds[i].Name], kinds[i].Count)
	}
	return slices.DeleteFunc(kinds, func(k report.Link) bool { return k.Bytes == 0 && busy[k.Name] == 0 })
}

// linksOf are the links of a worker over which anything moved.
func (r *Result) linksOf(rank int) []report.Link {
	var own []report.Link
	if r.KVUse == nil {
		return nil
	}
	for _, l := range r.KVUse.Links {
		if l.Rank == rank && l.Busy > 0 {
			own = append(own, report.Link{Name: l.Kind, GBPerS: report.Known(l.Rate / 1e9), Bytes: l.Bytes, BusyShare: r.busyShare(l.Busy, 1)})
		}
	}
	return own
}

// busyShare is the share of the measured time that n links were busy for.
func (r *Result) busyShare(busy time.Duration, n int) report.Figure {
	if length := r.length(); length > 0 {
		return report.Known(busy.Seconds() / length.Seconds() / float64(n))
	}
	return report.Figure{}
}

// kvApproximations say what figures about tiers rest on.
func (p *Plan) kvApproximations() []string {
	o := p.memory
	if o == nil || o.Host.Blocks == 0 {
		return nil
	}
	a := []string{"KV tiers evict block by block what was used last the longest ago, and a transfer is there when all of its blocks are, not layer by layer"}
	if o.Writing == memory.Back {
		a = append(a, "a step that takes the place of evicted KV waits as long as writing that takes at the full rate of the link, whatever else moves (kv.offload back)")
	}
	if n := p.kvCopies(); n > 1 {
		a = append(a, fmt.Sprintf("each of the %d copies of the KV that tensor parallelism makes is stored in tiers and moved", n))
	}
	return a
}

// kvCopies is how many GPUs of a tensor-parallel group have the same KV: all with latent attention, and as many as share a
// key-value head where there are fewer heads than GPUs.
func (p *Plan) kvCopies() int {
	m, tensor := p.Hardware.Model, p.Parallelism.Tensor
	switch {
	case m.MLA.KVRank > 0:
		return tensor
	case m.KVHeads > 0:
		return max(1, tensor/m.KVHeads)
	}
	return 1
}
