package sim

import (
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// disaggregation reports what the two kinds of workers did in the measured window; nil for aggregated serving.
func (r *Result) disaggregation() *report.Disaggregation {
	p := r.Plan
	if p.prefill == nil {
		return nil
	}
	out := &report.Disaggregation{Prefill: r.pool(p.decodeRanks(), p.Ranks), Decode: r.pool(0, p.decodeRanks())}
	var parts [5]time.Duration
	count := 0
	for i := range r.Requests {
		q, h := &r.Requests[i], &r.Handovers[i]
		if !r.Window.Contains(q.Arrival) {
			continue
		}
		if h.Worker >= 0 {
			out.Prefill.Requests++
		}
		if q.Worker >= 0 {
			out.Decode.Requests++
			if h.Worker < 0 {
				out.Local++
			}
		}
		if h.Ended == report.None {
			continue
		}
		out.HandedOver++
		out.Bytes += int64(h.Blocks) * p.memory.BlockBytes
		if q.Status == report.Completed && q.FirstToken != report.None {
			count++
			for at, part := range h.parts(q) {
				parts[at] += part
			}
		}
	}
	out.TTFT = ttftParts(parts, count)
	return out
}

// parts are those of the time to first token, in the order of report.TTFTParts.
func (h *Handover) parts(q *report.Request) [5]time.Duration {
	began, came := h.Began, h.Came
	if came == report.None { // nothing was brought
		began, came = h.Ended, h.Ended
	}
	return [5]time.Duration{q.Admitted - q.Arrival, h.Ended - q.Admitted, began - h.Ended, came - began, q.FirstToken - came}
}

// ttftParts are the means and shares of sums over so many requests.
func ttftParts(sums [5]time.Duration, count int) (t report.TTFTParts) {
	whole := time.Duration(0)
	for _, sum := range sums {
		whole += sum
	}
	if whole == 0 {
		return t
	}
	for at, part := range []*report.TTFTPart{&t.Queue, &t.Prefill, &t.Wait, &t.Transfer, &t.Decode} {
		part.MeanMs = report.Known(sums[at].Seconds() * 1000 / float64(count))
		part.Share = report.Known(sums[at].Seconds() / whole.Seconds())
	}
	return t
}

// pool sums up the ranks from one up to another.
func (r *Result) pool(from, to int) report.WorkerPool {
	pool := report.WorkerPool{Ranks: to - from}
	var busy time.Duration
	used := 0.0
	for i := from; i < to; i++ {
		busy += r.Engines[i].Busy
		used += r.Engines[i].Occupancy.Used
	}
	pool.BusyS = report.Seconds(busy)
	if all := r.length().Seconds() * float64(pool.Ranks); all > 0 {
		pool.BusyShare = report.Known(busy.Seconds() / all)
		pool.MeanUtilization = report.Known(used / all / float64(r.Plan.of(from).Blocks))
	}
	return pool
}

// countPrefills counts, by rank, the requests that prefill workers served in the measured window, and what those and the workers
// that decoded them found cached: until then all that was found counts for the latter.
func (r *Result) countPrefills(requests, hits []int64) {
	for i := range r.Handovers {
		q, h := &r.Requests[i], &r.Handovers[i]
		if h.Worker < 0 || !r.Window.Contains(q.Arrival) {
			continue
		}
		requests[h.Worker]++
		hits[h.Worker] += int64(q.Hit)
		if q.Worker >= 0 {
			hits[q.Worker] += int64(h.Cached) - int64(q.Hit)
		}
	}
}

// tell says in a request's record which worker prefilled it, and as Dynamo does how long it took from there to the first token.
func (h *Handover) tell(q *report.Request, to *trace.RequestEnd) {
	if h.Worker < 0 {
		return
	}
	if to.Worker == nil { // it came to no worker that decodes
		to.Worker = new(trace.Worker)
	}
	to.Worker.PrefillWorkerID = new(uint64(h.Worker) + 1) // 0 means unset
	if h.Ended != report.None && q.FirstToken != report.None {
		to.KVTransferLatencyMs = new(float64(q.FirstToken-h.Ended) / 1e6)
	}
}
