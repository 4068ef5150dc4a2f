package server

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/agentsim/agentsim/sim"
)

// counters are what vLLM counts, since the server started.
type counters struct {
	prompt, generation, queries, hits, preemptions int64
	finished                                       map[string]int64
	ttft, itl, e2e, queue, prefill, decode         histogram
}

// The buckets of vLLM's histograms, in seconds (vllm/v1/metrics/loggers.py, 0.19).
var (
	ttftBuckets = []float64{0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560}
	itlBuckets  = []float64{0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80}
	longBuckets = []float64{0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680}
)

func newCounters() *counters {
	return &counters{finished: map[string]int64{"stop": 0, "length": 0, "abort": 0},
		ttft: newHistogram(ttftBuckets), itl: newHistogram(itlBuckets), e2e: newHistogram(longBuckets),
		queue: newHistogram(longBuckets), prefill: newHistogram(longBuckets), decode: newHistogram(longBuckets)}
}

// tokens counts tokens of a stream that came out at a time.
func (c *counters) tokens(st *stream, at time.Duration, n int64) {
	if n == 0 {
		return
	}
	c.generation += n
	if st.first == 0 {
		st.first = at
		c.ttft.add(at - st.arrived)
		c.prefill.add(at - st.admitted)
		n--
	} else {
		c.itl.add(at - st.last)
		n--
	}
	c.itl.addMany(0, n) // came out together
	st.last = at
}

// complete counts a request that has all its tokens.
func (c *counters) complete(st *stream, ch sim.Change) {
	c.finished[st.reason()]++
	c.preemptions += int64(ch.Request.Preemptions)
	c.e2e.add(ch.At - st.arrived)
	c.decode.add(ch.At - st.first)
}

// histogram counts durations in buckets.
type histogram struct {
	bounds []float64
	counts []int64 // one more than bounds
	sum    float64
}

func newHistogram(bounds []float64) histogram {
	return histogram{bounds: bounds, counts: make([]int64, len(bounds)+1)}
}

func (h *histogram) add(d time.Duration) { h.addMany(d, 1) }

func (h *histogram) addMany(d time.Duration, n int64) {
	s := max(d, 0).Seconds()
	i, _ := slices.BinarySearch(h.bounds, s)
	h.counts[i] += n
	h.sum += s * float64(n)
}

// metrics answers with counters and gauges in Prometheus' text format, under vLLM's names.
func (s *Server) metrics(w http.ResponseWriter, r *http.Request) {
	var text bytes.Buffer
	if err := s.do(r.Context(), func(c *core) { c.write(&text) }); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = text.WriteTo(w)
}

// write writes all metrics.
func (c *core) write(w io.Writer) {
	p, n := c.server.plan, c.counts
	m := metricWriter{w, fmt.Sprintf("model_name=%q", c.server.options.Names[0])}
	running, waiting, used := make([]float64, p.Ranks), make([]float64, p.Ranks), make([]float64, p.Ranks)
	for rank := range p.Ranks {
		load := c.service.Load(rank)
		running[rank], waiting[rank] = float64(load.Running), float64(load.Waiting)
		used[rank] = float64(load.Used) / float64(load.Blocks)
	}
	waiting[0] += float64(c.service.Kept()) // by the frontends, of which vLLM has none
	m.ranks("vllm:num_requests_running", "Requests that hold KV blocks.", running)
	m.ranks("vllm:num_requests_waiting", "Requests that wait.", waiting)
	m.ranks("vllm:kv_cache_usage_perc", "Share of the KV blocks that requests hold, 0 to 1.", used)
	m.counter("vllm:prefix_cache_queries", "Prompt tokens of admitted requests.", float64(n.queries))
	m.counter("vllm:prefix_cache_hits", "Of them those found cached.", float64(n.hits))
	m.counter("vllm:num_preemptions", "Preemptions of requests that have ended.", float64(n.preemptions))
	m.counter("vllm:prompt_tokens", "Prompt tokens of admitted requests.", float64(n.prompt))
	m.counter("vllm:generation_tokens", "Generated tokens.", float64(n.generation))
	m.head("vllm:request_success_total", "Requests that have ended.", "counter")
	for _, reason := range slices.Sorted(maps.Keys(n.finished)) {
		m.line("vllm:request_success_total", fmt.Sprintf("finished_reason=%q", reason), float64(n.finished[reason]))
	}
	m.histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", &n.ttft)
	m.histogram("vllm:inter_token_latency_seconds", "Between tokens.", &n.itl)
	m.histogram("vllm:e2e_request_latency_seconds", "From arrival to the last token.", &n.e2e)
	m.histogram("vllm:request_queue_time_seconds", "From arrival to admission.", &n.queue)
	m.histogram("vllm:request_prefill_time_seconds", "From admission to the first token.", &n.prefill)
	m.histogram("vllm:request_decode_time_seconds", "From the first token to the last.", &n.decode)
	m.head("vllm:cache_config_info", "The KV cache.", "gauge")
	for rank := range p.Ranks {
		m.line("vllm:cache_config_info", fmt.Sprintf(`engine="%d",block_size="%d",num_gpu_blocks="%d",enable_prefix_caching="%v",gpu_memory_utilization="%v"`,
			rank, p.Engine.BlockSize, p.Blocks, p.Engine.PrefixCaching, p.Engine.GPUMemoryUtilization), 1)
	}
	if stats := c.service.Scheduler(); stats != nil {
		m.counter("agentsim:scheduler_pauses", "Programs paused by the program scheduler.", float64(stats.Pauses))
		m.counter("agentsim:scheduler_resumes", "Programs resumed by it.", float64(stats.Resumes))
		m.counter("agentsim:scheduler_deferred", "Requests that it held.", float64(stats.Deferred))
	}
	m.head("agentsim:clock_lag_seconds", "How late the server came to what was due on its own clock.", "gauge")
	m.line("agentsim:clock_lag_seconds", `quantile="0.99"`, c.late.Quantile(0.99)/1e9)
	m.line("agentsim:clock_lag_seconds", `quantile="1"`, c.latest.Seconds())
}

// metricWriter writes metrics that share labels.
type metricWriter struct {
	w      io.Writer
	labels string
}

func (m metricWriter) head(name, help, kind string) {
	fmt.Fprintf(m.w, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

func (m metricWriter) line(name, labels string, value float64) {
	if labels != "" {
		labels += ","
	}
	fmt.Fprintf(m.w, "%s{%s%s} %s\n", name, labels, m.labels, strconv.FormatFloat(value, 'g', -1, 64))
}

// ranks writes a gauge of each engine.
func (m metricWriter) ranks(name, help string, values []float64) {
	m.head(name, help, "gauge")
	for i, v := range values {
		m.line(name, fmt.Sprintf(`engine="%d"`, i), v)
	}
}

func (m metricWriter) counter(name, help string, value float64) {
	m.head(name+"_total", help, "counter")
	m.line(name+"_total", "", value)
}

func (m metricWriter) histogram(name, help string, h *histogram) {
	m.head(name, help, "histogram")
	sum := int64(0)
	for i, n := range h.counts {
		sum += n
		bound := "+Inf"
		if i < len(h.bounds) {
			bound = strconv.FormatFloat(h.bounds[i], 'f', -1, 64)
		}
		m.line(name+"_bucket", fmt.Sprintf("le=%q", bound), float64(sum))
	}
	m.line(name+"_sum", "", h.sum)
	m.line(name+"_count", "", float64(sum))
}
