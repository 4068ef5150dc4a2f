package report

import (
	"math"
	"time"
)

// Aliases repeat figures under the names of other tools, where the definitions agree, so that scripts written for
// those work on a report.
type Aliases struct {
	// AIPerf holds metrics as in profile_export_aiperf.json.
	AIPerf map[string]AIPerfMetric `json:"aiperf,omitempty"`
	// AISimulate holds the flat keys of prediction.json. Its percentiles are rounded ranks, ours are interpolated; its
	// duration ends with the last completed request, ours with the last request.
	AISimulate map[string]Figure `json:"aisimulate,omitempty"`
}

// AIPerfMetric is one metric of AIPerf's export. Single numbers have a unit and an average only.
type AIPerfMetric struct {
	Unit  string `json:"unit"`
	Avg   Figure `json:"avg,omitzero"`
	Min   Figure `json:"min,omitzero"`
	Max   Figure `json:"max,omitzero"`
	P1    Figure `json:"p1,omitzero"`
	P5    Figure `json:"p5,omitzero"`
	P10   Figure `json:"p10,omitzero"`
	P25   Figure `json:"p25,omitzero"`
	P50   Figure `json:"p50,omitzero"`
	P75   Figure `json:"p75,omitzero"`
	P90   Figure `json:"p90,omitzero"`
	P95   Figure `json:"p95,omitzero"`
	P99   Figure `json:"p99,omitzero"`
	Std   Figure `json:"std,omitzero"`
	Count int64  `json:"count,omitempty"`
	Sum   Figure `json:"sum,omitzero"`
}

// aliases names the figures of a run; s holds the sorted latencies in ms.
func aliases(run *Run, in *Input, s samples) Aliases {
	a := Aliases{AIPerf: aiperf(run, in, s), AISimulate: map[string]Figure{}}
	t := &run.Throughput
	flat := func(name string, f Figure) {
		if f.Known {
			a.AISimulate[name] = f
		}
	}
	flat("num_requests", Known(run.Requests.Total))
	flat("completed_requests", Known(run.Requests.Completed))
	flat("request_throughput_rps", t.RequestsPerS)
	flat("input_throughput_tok_s", t.InputTokensPerS)
	flat("output_throughput_tok_s", t.OutputTokensPerS)
	flat("goodput_request_throughput_rps", t.GoodputRequestsPerS)
	flat("first_admission_prefix_cache_reused_ratio", run.KV.HitRate)
	for name, d := range map[string]Distribution{
		"ttft": run.LatencyMs.TTFT, "tpot": run.LatencyMs.TPOT, "itl": run.LatencyMs.ITL, "e2e_latency": run.LatencyMs.E2E,
	} {
		flat("mean_"+name+"_ms", d.Mean)
		flat("min_"+name+"_ms", d.Min)
		flat("max_"+name+"_ms", d.Max)
		flat("median_"+name+"_ms", d.P50)
		flat("p90_"+name+"_ms", d.P90)
		flat("p95_"+name+"_ms", d.P95)
		flat("p99_"+name+"_ms", d.P99)
	}
	return a
}

// aiperf is the metrics of AIPerf 0.13 (aiperf/metrics/types). Its duration is that of completed requests, from the first that
// was sent to the last token; but it divides by that of the run.
func aiperf(run *Run, in *Input, s samples) map[string]AIPerfMetric {
	first, last := None, None
	var good, prompts, hits int64
	for i := range in.Requests {
		r := &in.Requests[i]
		if r.Status != Completed || !in.Window.Contains(r.Arrival) {
			continue
		}
		if first < 0 || r.Arrival < first {
			first = r.Arrival
		}
		last = max(last, r.End)
		if aiperfGood(r, in.SLO) {
			good++
		}
		if r.Hit >= 0 {
			prompts += int64(r.Input)
			hits += int64(r.Hit)
		}
	}
	metrics := map[string]AIPerfMetric{}
	single := func(name, unit string, f Figure) {
		if f.Known {
			metrics[name] = AIPerfMetric{Unit: unit, Avg: f}
		}
	}
	single("request_count", "requests", Known(run.Requests.Completed))
	if first >= 0 {
		single("benchmark_duration", "sec", Seconds(last-first))
	}
	t := &run.Throughput
	single("request_throughput", "requests/sec", t.RequestsPerS)
	single("output_token_throughput", "tokens/sec", t.OutputTokensPerS)
	if t.GoodputRequestsPerS.Known {
		single("goodput", "requests/sec", ratio(float64(good), run.DurationS.Value))
	}
	single("overall_usage_prompt_cache_read_pct", "%", ratio(100*float64(hits), float64(prompts)))
	for name, list := range map[string][]float64{
		"time_to_first_token": s.ttft,
		"inter_token_latency": s.tpot,
		"request_latency":     s.e2e,
	} {
		if len(list) > 0 {
			metrics[name] = aiperfMetric(list)
		}
	}
	return metrics
}

// aiperfGood tells whether a request counts as goodput: one without the time that is bounded does not.
func aiperfGood(r *Request, slo SLO) bool {
	first := r.FirstToken >= 0 && r.Output >= 1 && r.FirstToken-r.Arrival <= slo.TTFT
	gaps := time.Duration(r.Output - 1)
	even := r.FirstToken >= 0 && gaps >= 1 && r.End-r.FirstToken <= slo.ITL*gaps
	return (first || slo.TTFT == 0) && (even || slo.ITL == 0)
}

// aiperfMetric sums up sorted latencies in ms. Std is that of the population.
func aiperfMetric(sorted []float64) AIPerfMetric {
	avg := Mean(sorted)
	var squares float64
	for _, v := range sorted {
		squares += float64((v - avg) * (v - avg))
	}
	n := len(sorted)
	at := func(q float64) Figure { return Known(Quantile(sorted, q)) }
	return AIPerfMetric{
		Unit: "ms",
		Avg:  Known(avg), Min: Known(sorted[0]), Max: Known(sorted[n-1]),
		P1: at(0.01), P5: at(0.05), P10: at(0.1), P25: at(0.25), P50: at(0.5), P75: at(0.75),
		P90: at(0.9), P95: at(0.95), P99: at(0.99),
		Std:   Known(math.Sqrt(squares / float64(n))),
		Count: int64(n),
		Sum:   Known(float64(avg * float64(n))),
	}
}
