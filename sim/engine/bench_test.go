package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
)

// styled returns the options of a style, with room for a batch.
func styled(style Style, batch int) Options {
	return Options{Style: style, MaxSeqs: batch, MaxBatchedTokens: 1 << 20, ReserveFull: true,
		SGLang: SGLangOptions{MaxPrefillTokens: 1 << 20, Conservativeness: 0.01}}
}

// pageSize is a style's own.
func pageSize(style Style) int { return [...]int{VLLM: 16, SGLang: 1, TRTLLM: 32}[style] }

// decodes returns an engine on which a batch of requests has begun to decode, with room for 1000 leaps, and the time.
func decodes(b *testing.B, style Style, batch int) (*Engine, time.Duration) {
	b.Helper()
	size := pageSize(style)
	e, err := New(styled(style, batch), costs[2], kvcache.Options{BlockSize: size, Blocks: 1 << 30, PrefixCaching: true}, nil)
	if err != nil {
		b.Fatal(err)
	}
	for i := range batch {
		e.Enqueue(0, &Request{ID: int32(i), Path: node(trace.NodeID(i+1), 1<<26), Input: 1000 + 7*int32(i), Output: 1 << 30})
	}
	if _, err := e.Schedule(0); err != nil {
		b.Fatal(err)
	}
	now := e.Next()
	e.EndStep()
	return e, now
}

// benchmarkLeaps measures leaps of a batch of decodes: of one step each, or as long as they come.
func benchmarkLeaps(b *testing.B, style Style, batch int, single bool) {
	e, now := decodes(b, style, batch)
	steps, leaps := int64(0), 0
	b.ReportAllocs()
	for b.Loop() {
		if leaps++; leaps%1000 == 0 {
			b.StopTimer()
			steps += e.Stats.Steps
			e, now = decodes(b, style, batch)
			b.StartTimer()
		}
		if _, err := e.Schedule(now); err != nil {
			b.Fatal(err)
		}
		if single {
			e.truncate(now)
		}
		now = e.Next()
		e.EndStep()
	}
	b.ReportMetric(float64(steps+e.Stats.Steps)/float64(leaps), "steps/op")
}

// BenchmarkDecodeStep is a single step of decodes: its time does not depend on the size of the batch.
func BenchmarkDecodeStep(b *testing.B) {
	for _, batch := range []int{16, 64, 256} {
		b.Run(fmt.Sprintf("vllm/batch=%d", batch), func(b *testing.B) { benchmarkLeaps(b, VLLM, batch, true) })
		b.Run(fmt.Sprintf("sglang/batch=%d", batch), func(b *testing.B) { benchmarkLeaps(b, SGLang, batch, true) })
	}
}

// BenchmarkLeap is as many steps as are taken at once: its time does not depend on their number.
func BenchmarkLeap(b *testing.B) {
	for _, batch := range []int{16, 256} {
		b.Run(fmt.Sprintf("vllm/batch=%d", batch), func(b *testing.B) { benchmarkLeaps(b, VLLM, batch, false) })
		b.Run(fmt.Sprintf("sglang/batch=%d", batch), func(b *testing.B) { benchmarkLeaps(b, SGLang, batch, false) })
	}
}

// BenchmarkRequest is a whole request on an otherwise idle engine: 60 nodes of its prompt, of 320 tokens each, are cached,
// and it generates 200 tokens in a node of its own.
func BenchmarkRequest(b *testing.B) {
	for style, name := range []string{VLLM: "vllm", SGLang: "sglang", TRTLLM: "trtllm"} {
		b.Run(name, func(b *testing.B) { benchmarkRequest(b, Style(style)) })
	}
}

func benchmarkRequest(b *testing.B, style Style) {
	size := pageSize(style)
	blocks := int32(320 / size)
	e, err := New(styled(style, 256), costs[2], kvcache.Options{BlockSize: size, Blocks: 160_000 / size, PrefixCaching: true}, NewHistory(2000))
	if err != nil {
		b.Fatal(err)
	}
	path := node(1, blocks)
	for i := range trace.NodeID(60) {
		path = below(path, i+2, blocks)
	}
	r := &Request{}
	now := time.Duration(0)
	output := trace.NodeID(0)
	b.ReportAllocs()
	for b.Loop() {
		output = (output + 1) % 1000
		path[60].Key = trace.MakeKey(1000+output, 0)
		*r = Request{Path: path, Input: 60*320 + 100, Output: 200}
		e.Enqueue(now, r)
		for r.state != idle {
			if _, err := e.Schedule(now); err != nil {
				b.Fatal(err)
			}
			now = e.Next()
			e.EndStep()
		}
	}
}
