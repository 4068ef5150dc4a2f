package replay

import (
	"bytes"
	"context"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/trace/report"
)

// The figures of servers that are watched: counters, then gauges.
const (
	queriedTokens = iota
	cachedTokens
	promptTokens
	generatedTokens
	preemptions
	energy
	counters // how many there are
)

const (
	running = iota + counters
	waiting
	kvUtilization
	gpuUtilization
	power
	figures
)

// metricNames says which figure a metric is, by its name without _total: of vLLM, SGLang, Dynamo's frontend and DCGM.
var metricNames = map[string]int{
	"vllm:prefix_cache_queries":            queriedTokens,
	"vllm:prefix_cache_hits":               cachedTokens,
	"vllm:prompt_tokens":                   promptTokens,
	"vllm:generation_tokens":               generatedTokens,
	"vllm:num_preemptions":                 preemptions,
	"vllm:num_requests_running":            running,
	"vllm:num_requests_waiting":            waiting,
	"vllm:kv_cache_usage_perc":             kvUtilization,
	"vllm:gpu_cache_usage_perc":            kvUtilization, // before 0.10
	"sglang:prompt_tokens":                 promptTokens,
	"sglang:cached_tokens":                 cachedTokens,
	"sglang:generation_tokens":             generatedTokens,
	"sglang:num_running_reqs":              running,
	"sglang:num_queue_reqs":                waiting,
	"sglang:token_usage":                   kvUtilization,
	"dynamo_frontend_inflight_requests":    running,
	"dynamo_frontend_queued_requests":      waiting,
	"DCGM_FI_DEV_GPU_UTIL":                 gpuUtilization,
	"DCGM_FI_DEV_POWER_USAGE":              power,
	"DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": energy,
}

// sample is the figures of a server's metrics, summed over labels. What they do not tell is NaN.
type sample [figures]float64

// reading is a sample and when it had come.
type reading struct {
	at time.Time
	sample
}

// shares are the figures of which the series of several engines are averaged, not added.
var shares = []int{kvUtilization, gpuUtilization}

// parseMetrics reads the text format of Prometheus. Lines that it does not know are skipped.
func parseMetrics(text []byte) sample {
	var s sample
	var count [figures]int
	for i := range s {
		s[i] = math.NaN()
	}
	for line := range bytes.Lines(text) {
		name, value, ok := splitMetric(strings.TrimSpace(string(line)))
		if !ok {
			continue
		}
		f, known := metricNames[strings.TrimSuffix(name, "_total")]
		if !known {
			continue
		}
		if count[f]++; count[f] == 1 {
			s[f] = 0
		}
		s[f] += value
	}
	for _, f := range shares {
		if count[f] > 1 {
			s[f] /= float64(count[f])
		}
	}
	return s
}

// splitMetric splits a line "name{labels} value [time]".
func splitMetric(line string) (name string, value float64, ok bool) {
	if line == "" || line[0] == '#' {
		return "", 0, false
	}
	rest := ""
	if i := strings.IndexByte(line, '{'); i >= 0 {
		j := strings.LastIndexByte(line, '}')
		if j < i {
			return "", 0, false
		}
		name, rest = line[:i], line[j+1:]
	} else {
		name, rest, _ = strings.Cut(line, " ")
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return "", 0, false
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	return strings.TrimSpace(name), value, err == nil && !math.IsNaN(value) && !math.IsInf(value, 0)
}

// Watch reads the metrics of servers from time to time.
type Watch struct {
	client   *client.Client
	path     string
	cancel   context.CancelFunc
	finished sync.WaitGroup
	readings [][]reading // by server
}

// NewWatch reads the metrics of every server once, and then every so often until Stop. A server without metrics is left
// alone.
func NewWatch(ctx context.Context, c *client.Client, path string, every time.Duration) *Watch {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w := &Watch{client: c, path: path, cancel: cancel, readings: make([][]reading, c.Servers())}
	for server := range w.readings {
		if w.read(ctx, server) {
			w.finished.Go(func() { w.keepReading(ctx, server, every) })
		}
	}
	return w
}

func (w *Watch) keepReading(ctx context.Context, server int, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.read(ctx, server)
		case <-ctx.Done():
			return
		}
	}
}

func (w *Watch) read(ctx context.Context, server int) bool {
	text, err := w.client.Get(ctx, server, w.path)
	if err != nil {
		return false
	}
	w.readings[server] = append(w.readings[server], reading{time.Now(), parseMetrics(text)})
	return true
}

// Stop reads the metrics a last time and sums them up. Servers without metrics are left out.
func (w *Watch) Stop() []report.Server {
	w.cancel()
	w.finished.Wait()
	var list []report.Server
	for server, readings := range w.readings {
		if len(readings) == 0 {
			continue
		}
		w.read(context.Background(), server)
		list = append(list, sumUp(w.client.Base(server), w.readings[server]))
	}
	return list
}

// sumUp sums the readings of a server up.
func sumUp(url string, readings []reading) report.Server {
	var delta [counters]report.Figure
	s := report.Server{URL: url, Readings: int64(len(readings))}
	for f := range delta {
		delta[f] = growth(readings, f, &s.Restarted)
	}
	s.PromptTokens, s.GeneratedTokens, s.Preemptions = delta[promptTokens], delta[generatedTokens], delta[preemptions]
	if e := delta[energy]; e.Known {
		s.EnergyJ = report.Known(e.Value / 1000)
	}
	queried := delta[queriedTokens]
	if !queried.Known {
		queried = delta[promptTokens] // of SGLang
	}
	if hits := delta[cachedTokens]; hits.Known && queried.Known {
		s.HitRate = report.Known(hits.Value / queried.Value)
	}
	for _, g := range []struct {
		figure int
		to     *report.Gauge
	}{{running, &s.Running}, {waiting, &s.Waiting}, {kvUtilization, &s.KVUtilization}, {gpuUtilization, &s.GPUUtilization}, {power, &s.PowerW}} {
		*g.to = gauge(readings, g.figure)
	}
	return s
}

// growth is how far a counter grew. Where it fell the server was restarted and counts from 0.
func growth(readings []reading, f int, restarted *bool) report.Figure {
	total, before := 0.0, math.NaN()
	seen := 0
	for i := range readings {
		now := readings[i].sample[f]
		if math.IsNaN(now) {
			continue
		}
		seen++
		switch {
		case math.IsNaN(before):
		case now < before:
			*restarted = true
			total += now
		default:
			total += now - before
		}
		before = now
	}
	if seen < 2 {
		return report.Figure{}
	}
	return report.Known(total)
}

func gauge(readings []reading, f int) report.Gauge {
	var values []float64
	for i := range readings {
		if v := readings[i].sample[f]; !math.IsNaN(v) {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return report.Gauge{}
	}
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return report.Gauge{Mean: report.Known(sum / float64(len(values))), Max: report.Known(slices.Max(values))}
}
