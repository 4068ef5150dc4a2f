package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkStreams answers a thousand streams at a time, clients and server on the same cores, and tells how far the server
// fell behind its own clock. A step of a thousand decodes takes 50 ms: 20,000 tokens a second.
func BenchmarkStreams(b *testing.B) {
	d := deployment()
	d.Cost.Decode = 50 * time.Millisecond
	d.Engine.MaxNumSeqs, d.Engine.KVBlocks = 1024, "100000"
	s, url := start(b, d, Options{})
	const streams, tokens = 1000, 100
	for b.Loop() {
		var wait sync.WaitGroup
		var events atomic.Int64
		for i := range streams {
			wait.Go(func() {
				r, err := send(context.Background(), url, "/v1/completions",
					fmt.Sprintf(`{"prompt":%s,"max_tokens":%d,"ignore_eos":true,%s}`, ids(20*i, 20), tokens, streamed))
				if err != nil || !r.done {
					b.Errorf("stream %d: %+v, %v", i, r, err)
				}
				events.Add(int64(r.events))
			})
		}
		wait.Wait()
		if events.Load() != streams*tokens {
			b.Errorf("%d events, want %d", events.Load(), streams*tokens)
		}
	}
	lag := s.Lag()
	b.ReportMetric(lag.P99.Seconds()*1e3, "lag-p99-ms")
	b.ReportMetric(lag.Max.Seconds()*1e3, "lag-max-ms")
	b.ReportMetric(float64(b.N*streams*tokens)/b.Elapsed().Seconds(), "tokens/s")
}
