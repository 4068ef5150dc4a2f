package perfetto

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// slicesPerTurn is how many slices come of a turn of manyTurns: itself, three stages, a wait for a tool, and that tool.
const slicesPerTurn = 6

// manyTurns is a linked capture of sessions of 50 turns each.
func manyTurns(turns int) *trace.Capture {
	c := &trace.Capture{Format: "dynamo", Resolution: time.Millisecond, SharedClock: true, Epoch: 1_700_000_000_000}
	ms := time.Millisecond
	worker := uint64(1) << 60
	for i := 0; i < turns; i += 50 {
		s := &trace.Session{ID: fmt.Sprintf("session-%06d", i/50)}
		for n := range min(50, turns-i) {
			start := time.Duration(i)*ms + time.Duration(n)*3*time.Second
			id := fmt.Sprintf("%s-%02d", s.ID, n)
			s.Turns = append(s.Turns, &trace.Turn{ID: id, Model: "a-model", Start: start, End: start + 2*time.Second,
				TTFT: 300 * ms, Input: 4000, Output: 200, Cached: 3900, Reasoning: trace.Unknown, Trigger: "tool_result", File: "trace.jsonl.gz", Line: int32(i + n),
				ToolCalls: []trace.ToolCall{{ID: id, Name: "bash"}}, Session: s,
				Detail: &trace.Detail{CallerID: id, PrefillWait: 100 * ms, Prefill: 200 * ms, ITL: 10 * ms, KVTransfer: trace.NoTime,
					HitRate: 0.9, QueueDepth: int64(n % 3), Workers: &trace.Worker{PrefillWorkerID: &worker, DecodeWorkerID: &worker}, FinishReason: "tool_calls"}})
		}
		c.Sessions = append(c.Sessions, s)
	}
	if err := c.Link(); err != nil {
		panic(err)
	}
	return c
}

// BenchmarkWrite draws captures that are in memory. The peak is of the heap above the capture itself.
func BenchmarkWrite(b *testing.B) {
	for _, format := range []string{"pftrace", "json"} {
		for _, slices := range []int{10_000, 100_000, 1_000_000} {
			b.Run(fmt.Sprintf("%s/%d", format, slices), func(b *testing.B) {
				c := manyTurns(slices / slicesPerTurn)
				runtime.GC()
				var before, now runtime.MemStats
				runtime.ReadMemStats(&before)
				peak := uint64(0)
				var s Summary
				b.ReportAllocs()
				for b.Loop() {
					out := &sampled{every: 4 << 20, take: func() {
						runtime.ReadMemStats(&now)
						peak = max(peak, now.HeapAlloc)
					}}
					var err error
					if s, _, err = Write(context.Background(), out, []Source{{Label: "a", Capture: c}}, Options{JSON: format == "json"}); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(max(peak, before.HeapAlloc)-before.HeapAlloc)/1e6, "peak-MB")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(s.Slices), "ns/slice")
			})
		}
	}
}

// sampled discards what is written and looks at the heap now and then.
type sampled struct {
	written, every int
	take           func()
}

func (s *sampled) Write(p []byte) (int, error) {
	if s.written += len(p); s.written >= s.every {
		s.written = 0
		s.take()
	}
	return io.Discard.Write(p)
}
