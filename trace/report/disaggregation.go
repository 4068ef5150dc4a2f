package report

// Disaggregation is what the workers that prefill and those that decode did in the measured window, and how prompts came from
// the former to the latter.
type Disaggregation struct {
	Prefill WorkerPool `json:"prefill"`
	Decode  WorkerPool `json:"decode"`
	// HandedOver counts requests that a worker prefilled for another, Local those that were prefilled where they were decoded.
	HandedOver int64 `json:"handed_over"`
	Local      int64 `json:"local"`
	// Bytes is the KV that was moved for those handed over.
	Bytes int64 `json:"bytes"`
	// TTFT is where the time to first token of completed requests went that were handed over.
	TTFT TTFTParts `json:"ttft"`
}

// WorkerPool is the workers of one kind.
type WorkerPool struct {
	// Ranks is their number, of each data-parallel rank on its own, Requests those that came to them.
	Ranks    int   `json:"ranks"`
	Requests int64 `json:"requests"`
	// BusyS is the sum of their busy times in seconds, BusyShare that of all their time. MeanUtilization is the share of their
	// KV blocks in use.
	BusyS           Figure `json:"busy_s,omitzero"`
	BusyShare       Figure `json:"busy_share,omitzero"`
	MeanUtilization Figure `json:"mean_utilization,omitzero"`
}

// TTFTParts are the parts of times to first token, one after the other.
type TTFTParts struct {
	Queue    TTFTPart `json:"queue"`    // up to the beginning of the prefill
	Prefill  TTFTPart `json:"prefill"`  // up to its end
	Wait     TTFTPart `json:"wait"`     // for a place on a worker that decodes
	Transfer TTFTPart `json:"transfer"` // of the KV
	Decode   TTFTPart `json:"decode"`   // up to the first token that clients see
}

// TTFTPart is a part in the mean, and as a share of the whole.
type TTFTPart struct {
	MeanMs Figure `json:"mean_ms,omitzero"`
	Share  Figure `json:"share,omitzero"`
}

// transferShare is not known without workers that only prefill.
func (r *Run) transferShare() Figure {
	if r.Disaggregation == nil {
		return Figure{}
	}
	return r.Disaggregation.TTFT.Transfer.Share
}
