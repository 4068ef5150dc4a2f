package main

import (
	"fmt"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
)

func policies() []study {
	return []study{
		{name: "tools: Continuum with short regular tools and with long stochastic ones",
			source: paper + ": ahead of vLLM on SWE-bench with GLM-4.6 (213 to 140 with 96 programs), behind on HLE with Qwen3-8B on a GPU of 32 GB (3.4 to 5.1 with 24, " +
				"3.1 to 4.8 with 48), whose tools take up to hundreds of seconds", quick: true, run: tools},
		{name: "fetch or recompute: a context of 50,000 tokens, Qwen3-Coder-30B-A3B fp8, TP2, nothing else runs",
			source: "ai-dynamo/dynamo PR 10202: KV moves at 5.96 GB/s between H200s, where 50,000 tokens of 48 KiB take 0.42 s, and their prefill at 22,500 tokens/s 2.2 s",
			quick:  true, run: fetchOrRecompute},
		{name: "leave the GPU while tools run: mini-SWE-agent with tools of 20 s, GLM-4.6 fp8, 40 programs, 1 TB of host memory",
			source: "what must be: with fast links and KV to spare, less is held, and as much is done", quick: true, run: leaveGPU},
	}
}

// The context, what a tool adds to it, and the KV blocks of 16 tokens.
const (
	fetched = 50_000
	added   = 160
	block   = 16
)

// returning is a session with that context that calls a tool for a minute.
func returning() (*trace.Workload, error) {
	turn := func(id string, tokens int, start, end time.Duration) *trace.Turn {
		t := &trace.Turn{ID: id, Start: start, End: end, Input: int32(tokens), Output: 1, TTFT: trace.NoTime, Cached: trace.Unknown, Reasoning: trace.Unknown}
		for i := range tokens / block {
			t.Hashes = append(t.Hashes, uint64(i+1))
		}
		return t
	}
	c := &trace.Capture{Format: "shapes", BlockSize: block, Resolution: time.Millisecond, SharedClock: true, Sessions: []*trace.Session{{ID: "session",
		Turns: []*trace.Turn{turn("before", fetched, 0, 10*time.Second), turn("after", fetched+added, 70*time.Second, 80*time.Second)}}}}
	if err := c.Link(); err != nil {
		return nil, err
	}
	return c.Compile(trace.OutputsInferred)
}

// alone is a deployment for that session, whose KV has left the GPU after the first turn: for good, or to the host, from where
// it comes back at a rate.
func alone(do string, rate float64, fetch string) sim.Deployment {
	d := served(pod(1, "20GiB"), "kv")
	d.Load = sim.Default().Load
	d.Load.Mode = "closed"
	d.KV.Offload, d.KV.Fetch, d.KV.Rules = "demand", fetch, []sim.KVRule{{On: "tool-start", Do: do}}
	d.KV.Host.Read = fmt.Sprintf("%.6fMB/s", rate/1e6)
	return d
}

func fetchOrRecompute(l *lab) ([]check, error) {
	w, err := returning()
	if err != nil {
		return nil, err
	}
	p, err := alone("demote", 6e9, "always").Resolve()
	if err != nil {
		return nil, err
	}
	// What a fetch spares is the steps of the whole prompt but for that of its last tokens.
	spared, step := models.Fixed(0), int64(p.Engine.MaxNumBatchedTokens)
	prefill := func(past, n int64) models.Fixed {
		return p.Cost.Base(models.Batch{Prefills: 1, PrefillTokens: int(n), PrefillPairs: n * (2*past + n), PrefillContext: past + n})
	}
	for past := int64(0); past < fetched+added; past += step {
		spared += prefill(past, min(step, fetched+added-past))
	}
	spared -= prefill(fetched, added)
	bytes := float64(p.Capacity.KVBytesPerToken) * float64(p.Parallelism.Tensor) * fetched
	even := bytes / (spared.Duration() - p.KV.Host.Latency).Seconds()

	rates := []float64{5.96e9, 1.01 * even, 0.99 * even}
	setups := []setup{{w, alone("drop", 6e9, "always")}}
	for _, rate := range rates {
		setups = append(setups, setup{w, alone("demote", rate, "always")}, setup{w, alone("demote", rate, "faster")})
	}
	o, err := l.run(setups...)
	if err != nil {
		return nil, err
	}
	ttft := func(o *outcome) float64 {
		q := &o.run.Requests[1]
		return (q.FirstToken - q.Arrival).Seconds()
	}
	seconds := func(x float64) string { return fmt.Sprintf("%.3f s", x) }
	recompute := ttft(&o[0])
	list := []check{
		shown("KV of the context, GB", 2.4576, bytes/1e9, number),
		shown("first token after recomputing it", 2.2, recompute, seconds),
		shown("first token after a fetch at 5.96 GB/s", 0.42, ttft(&o[1]), seconds),
		shown("rate at which both take as long, GB/s", nan, even/1e9, number),
	}
	for i, what := range []string{"5.96 GB/s", "1% above the break-even", "1% below the break-even"} {
		low, high := 0.0, 1.0
		if rates[i] < even {
			low, high = 1, none
		}
		list = append(list, within("fetch / recompute, "+what, nan, ttft(&o[1+2*i])/recompute, low, high, func(x float64) string { return fmt.Sprintf("%.4fx", x) }),
			within("fetch when faster / recompute, "+what, nan, ttft(&o[2+2*i])/recompute, 0, 1, func(x float64) string { return fmt.Sprintf("%.4fx", x) }))
	}
	return list, nil
}

func leaveGPU(l *lab) ([]check, error) {
	w, err := l.workload("mini-swe-agent", "tool=20:20")
	if err != nil {
		return nil, err
	}
	var setups []setup
	names := []string{"lru", "offload-on-tool", "prefetch-before-return"}
	for _, policy := range names {
		d := served(glm(1, 40), "kv")
		d.KV.Host.Capacity, d.KV.Policy = "1TB", policy
		setups = append(setups, setup{w, d})
	}
	accounted := *l
	accounted.accounts = true
	o, err := accounted.run(setups...)
	if err != nil {
		return nil, err
	}
	// What the sessions held that had not ended.
	held := func(o *outcome) float64 {
		h := o.figures.KV.HeldGiBS
		return h.Total() - h.Ended.Value - h.EndedSubagent.Value
	}
	var list []check
	for i, name := range names {
		list = append(list, shown(name+": steps/min", nan, o[i].turnsPerMin(), number),
			shown(name+": KV of live sessions on the GPUs, GiB·s", nan, held(&o[i]), number))
	}
	for i, name := range names[1:] {
		list = append(list, within(name+" / lru: steps/min", nan, o[i+1].turnsPerMin()/o[0].turnsPerMin(), 0.98, none, times),
			within(name+" / lru: KV held", nan, held(&o[i+1])/held(&o[0]), 0, 0.7, times))
	}
	ttft := func(o *outcome) float64 { return o.figures.LatencyMs.TTFT.P50.Value }
	return append(list, within("prefetch-before-return / offload-on-tool: p50 TTFT", nan, ttft(&o[2])/ttft(&o[1]), 0, 0.95, times)), nil
}

// small is Qwen3-8B on a GPU that has room for as much KV as one of 32 GB: 0.9 of it without 16.4 GB of weights and 1 GB
// besides, at 144 KiB a token.
func small(programs int) sim.Deployment {
	d := deploy("qwen3-8b", 1, 1, programs)
	d.GPU, d.DType.Weights, d.Engine.KVBlocks = "l40s", "bf16", "4600"
	d.Load.Duration, d.Workload.MaxContext = 2*time.Hour, "truncate"
	return d
}

// tools checks the leases of Continuum's paper rather than its preview, which ignores the spread of a tool's times.
func tools(l *lab) ([]check, error) {
	var list []check
	large := glm(1, 96)
	large.Load.Duration = 30 * time.Minute
	for _, c := range []struct {
		what, tool           string
		d                    sim.Deployment
		published, low, high float64
	}{
		{"tools of 0.5 s each, GLM-4.6, 96 programs", "tool=0.5:0.5", large, 213.0 / 140, 1.05, none},
		{"tools of 5 s each, GLM-4.6, 96 programs", "tool=5:5", large, nan, 1.05, none},
		{"tools of 0.5 s each, Qwen3-8B, 48 programs", "tool=0.5:0.5", small(48), nan, 1.05, none},
		{"tools of 60 s in the mean, Qwen3-8B, 24 programs", "tool=60", small(24), 3.4 / 5.1, 0, 0.95},
		{"tools of 60 s in the mean, Qwen3-8B, 48 programs", "tool=60", small(48), 3.1 / 4.8, 0, 0.95},
	} {
		w, err := l.workload("mini-swe-agent", c.tool)
		if err != nil {
			return nil, err
		}
		leased, first, pinned := served(c.d, "kv"), served(c.d, "kv"), served(c.d, "kv")
		leased.Engine.Scheduling = "continuum"
		first.KV.Policy, first.Engine.Scheduling = "continuum", "priority" // which lets pinned sessions go first
		pinned.KV.Policy = "continuum"
		o, err := l.run(setup{w, served(c.d, "kv")}, setup{w, leased}, setup{w, first}, setup{w, pinned})
		if err != nil {
			return nil, err
		}
		of := func(i int) float64 { return o[i].turnsPerMin() / o[0].turnsPerMin() }
		list = append(list, within(c.what+": Continuum / vLLM", c.published, of(1), c.low, c.high, times),
			within(c.what+": kv.policy continuum, pinned sessions first / vLLM", nan, of(2), c.low, c.high, times),
			// In order of arrival a pin often ends before its request has its turn: it only withholds.
			within(c.what+": kv.policy continuum alone / vLLM", nan, of(3), 0, 1.02, times))
	}
	return list, nil
}
