package report

// Holding is KV bytes times the time for which they were held, in GiB·s, by how: while a request referred to them, while
// only pins did, and else by what the session was doing that computed them, or that used them last after the end of that.
type Holding struct {
	Running Figure `json:"running"`
	Pinned  Figure `json:"pinned"`
	// Tool and Human are waits for tools and for people, Other all other ones: the session's next request was queued, or ran
	// without these blocks.
	Tool  Figure `json:"tool"`
	Human Figure `json:"human"`
	Other Figure `json:"other"`
	// Paused is while a program scheduler held the session back.
	Paused Figure `json:"paused"`
	// EndedSubagent and Ended are after the end of the session, of a subagent or a root.
	EndedSubagent Figure `json:"ended_subagent"`
	Ended         Figure `json:"ended"`
}

// Total is the sum over all states, in GiB·s.
func (h *Holding) Total() float64 {
	sum := 0.0
	for _, f := range h.figures() {
		sum += f.Value
	}
	return sum
}

func (h *Holding) figures() []Figure {
	return []Figure{h.Running, h.Pinned, h.Tool, h.Human, h.Other, h.Paused, h.EndedSubagent, h.Ended}
}

// Holder is a program, by its root session, and what its sessions held.
type Holder struct {
	Program  string  `json:"program"`
	HeldGiBS Holding `json:"held_gib_s"`
}

// heldIdle is the KV on GPUs that no request referred to, in GiB·s; not known where nobody kept account.
func heldIdle(r *Run) Figure {
	h := r.KV.HeldGiBS
	if h == nil {
		return Figure{}
	}
	return Known(h.Total() - h.Running.Value)
}

// holdingEntries are of runs with accounts of KV.
var holdingEntries = []entry{
	heldEntry("running", func(h *Holding) Figure { return h.Running }),
	heldEntry("pinned", func(h *Holding) Figure { return h.Pinned }),
	heldEntry("tool", func(h *Holding) Figure { return h.Tool }),
	heldEntry("human", func(h *Holding) Figure { return h.Human }),
	heldEntry("other waits", func(h *Holding) Figure { return h.Other }),
	heldEntry("paused", func(h *Holding) Figure { return h.Paused }),
	heldEntry("ended subagents", func(h *Holding) Figure { return h.EndedSubagent }),
	heldEntry("ended", func(h *Holding) Figure { return h.Ended }),
}

func heldEntry(head string, of func(*Holding) Figure) entry {
	return rareFigure(head, func(r *Run) Figure { return of(r.KV.HeldGiBS) })
}
