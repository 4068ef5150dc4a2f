package report

// Tiering is what was done with the KV of sessions below the GPUs in the measured window: in the memory of hosts, on
// drives, in a pool for all workers, and on the GPUs of other workers. It is zero for deployments with none of these.
type Tiering struct {
	// FetchedTokens is the part of HitTokens that requests waited for until it was brought from below, instead of computing
	// it; PrefetchedTokens the part that had been brought before the request came.
	FetchedTokens    Figure `json:"fetched_tokens,omitzero"`
	PrefetchedTokens Figure `json:"prefetched_tokens,omitzero"`
	// Tiers are by name: host, disk, remote, and peer for the GPUs and hosts of other workers.
	Tiers map[string]Tier `json:"tiers,omitempty"`
	// Transfers are by cause: fetch (a request waits), prefetch (one is expected), offload (the GPU may lose it, or has),
	// demote (it shall leave the GPU), spill (to a lower tier), handoff (from prefill to decode).
	Transfers map[string]Transfers `json:"transfers,omitempty"`
	// Links are the kinds of links over which something moved.
	Links []Link `json:"links,omitempty"`
	// Actions are what became of what the policy wanted, by action.
	Actions map[string]Action `json:"actions,omitempty"`
}

// Tier is one level below the GPUs' caches, of all workers together.
type Tier struct {
	// CapacityTokens is absent for peers. PeakUtilization is of the worker whose tier was the fullest.
	CapacityTokens  Figure `json:"capacity_tokens,omitzero"`
	PeakUtilization Figure `json:"peak_utilization,omitzero"`
	// ReadTokens came from there to GPUs, for requests that waited or were expected.
	ReadTokens Figure `json:"read_tokens,omitzero"`
}

// Transfers sums up transfers of one cause that ended in the window.
type Transfers struct {
	// Count were done, Stopped ended before that. Bytes is what moved in all.
	Count   int64 `json:"count"`
	Stopped int64 `json:"stopped,omitempty"`
	Bytes   int64 `json:"bytes"`
	// Seconds is the sum of their durations, waits for other transfers included; GBPerS is bytes over that.
	Seconds Figure `json:"seconds"`
	GBPerS  Figure `json:"gb_per_s,omitzero"`
}

// Link is a link, or all links of a kind.
type Link struct {
	Name string `json:"name"`
	// Count is how many there are; absent for a worker's own.
	Count int `json:"count,omitempty"`
	// GBPerS is the rate of one.
	GBPerS Figure `json:"gb_per_s"`
	// Bytes is those of transfers that have ended; BusyShare the share of the window for which anything moved, the mean of
	// all, BusiestShare that of the busiest.
	Bytes        int64  `json:"bytes"`
	BusyShare    Figure `json:"busy_share,omitzero"`
	BusiestShare Figure `json:"busiest_share,omitzero"`
}

// Action counts what became of one action of a KV policy.
type Action struct {
	// Accepted were done, Clipped in part, for want of room. Deferred were put off; what became of them then counts again.
	// Refused were not done: there was no room, or nothing left to do it to.
	Accepted int64 `json:"accepted"`
	Clipped  int64 `json:"clipped"`
	Deferred int64 `json:"deferred"`
	Refused  int64 `json:"refused"`
	// Late were under way when the session went on; a pin that had expired by then is late too. Wasted were done, but the
	// session did not use what they brought.
	Late   int64 `json:"late"`
	Wasted int64 `json:"wasted"`
	// Bytes is the KV that accepted and clipped ones pinned, moved, computed or freed; LateBytes what late ones had by then, or
	// were about to, WastedBytes what wasted ones brought, which is in Bytes too.
	Bytes       int64 `json:"bytes"`
	LateBytes   int64 `json:"late_bytes"`
	WastedBytes int64 `json:"wasted_bytes"`
	// Seconds is the sum of the times from when accepted and clipped ones were wanted until they were done, a prefetch until it
	// began. It is not known of fetch.
	Seconds Figure `json:"seconds,omitzero"`
}

// done counts the actions that were carried out.
func (a Action) done() int64 { return a.Accepted + a.Clipped }

// tiers are the names of Tiering.Tiers, nearest first; transferCauses and kvActions those of Transfers and Actions.
var (
	tierNames      = []string{"host", "disk", "remote", "peer"}
	transferCauses = []string{"fetch", "prefetch", "offload", "demote", "spill", "handoff"}
	actionNames    = []string{"pin", "unpin", "demote", "prefetch", "drop", "evict-last", "evict-first", "fetch", "speculate"}
)

// broughtShare is the share of prompt tokens that was brought to GPUs from below instead of being computed.
func broughtShare(r *Run) Figure {
	kv := &r.KV
	if !kv.FetchedTokens.Known || kv.PromptTokens.Value <= 0 {
		return Figure{}
	}
	return Known((kv.FetchedTokens.Value + kv.PrefetchedTokens.Value) / kv.PromptTokens.Value)
}

// movedGB is what moved to and from the GPUs' caches, in GB.
func movedGB(r *Run) Figure {
	if r.KV.Tiers == nil {
		return Figure{}
	}
	sum := int64(0)
	for _, cause := range transferCauses {
		sum += r.KV.Transfers[cause].Bytes
	}
	return Known(float64(sum) / 1e9)
}

// tierEntries are the columns about tiers and links.
func tierEntries() []entry {
	list := []entry{
		figureOf("fetched tokens", func(r *Run) Figure { return r.KV.FetchedTokens }, number),
		rareFigure("prefetched tokens", func(r *Run) Figure { return r.KV.PrefetchedTokens }),
	}
	for _, name := range tierNames {
		list = append(list,
			figureOf(name+" capacity tokens", func(r *Run) Figure { return r.KV.Tiers[name].CapacityTokens }, number),
			figureOf(name+" peak", func(r *Run) Figure { return r.KV.Tiers[name].PeakUtilization }, percent),
			rareFigure("tokens from "+name, func(r *Run) Figure { return r.KV.Tiers[name].ReadTokens }))
	}
	for _, cause := range transferCauses {
		list = append(list,
			rareFigure(cause+" GB", func(r *Run) Figure { return Known(float64(r.KV.Transfers[cause].Bytes) / 1e9) }),
			figureOf(cause+" GB/s", func(r *Run) Figure { return r.KV.Transfers[cause].GBPerS }, number))
	}
	return append(list, entry{head: "busiest link", of: func(r *Run) string {
		if l := busiest(r); l != nil {
			return l.Name + " " + percent(l.BusiestShare.Value)
		}
		return unknownText
	}})
}

// actionEntries are the columns about what a policy wanted, and what became of it.
func actionEntries() []entry {
	var list []entry
	for _, name := range actionNames {
		for _, c := range []struct {
			what string
			of   func(Action) int64
		}{{"", Action.done}, {" deferred", func(a Action) int64 { return a.Deferred }}, {" refused", func(a Action) int64 { return a.Refused }},
			{" late", func(a Action) int64 { return a.Late }}, {" wasted", func(a Action) int64 { return a.Wasted }}} {
			list = append(list, rareFigure(name+c.what, func(r *Run) Figure { return Known(float64(c.of(r.KV.Actions[name]))) }))
		}
	}
	return list
}

// busiest is the link that is busy for the largest share of the time; nil for none.
func busiest(r *Run) *Link {
	var most *Link
	for i := range r.KV.Links {
		if l := &r.KV.Links[i]; most == nil || l.BusiestShare.Value > most.BusiestShare.Value {
			most = l
		}
	}
	return most
}
