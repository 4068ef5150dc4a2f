package replay_test

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/agentsim/agentsim/replay"
	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/replay/prompts"
	"github.com/agentsim/agentsim/trace"
)

// oneCore replays with one processor for the client.
func oneCore(b *testing.B, url string, w *trace.Workload, o plan.Options, inFlight int) *replay.Result {
	b.Helper()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	p, err := plan.New(w, o)
	if err != nil {
		b.Fatal(err)
	}
	c, err := client.New(client.Options{URLs: []string{url}})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	ids, err := prompts.TokenIDs(prompts.DefaultLowID, prompts.DefaultHighID)
	if err != nil {
		b.Fatal(err)
	}
	result, err := replay.Run(b.Context(), replay.Options{Plan: p, Client: c, Prompts: prompts.NewMaker(w, ids, 1, prompts.Scale{}), MaxInFlight: inFlight})
	if err != nil || result.Failed > 0 || result.Unsent() > 0 {
		b.Fatalf("%v: %d failed, %d unsent", err, result.Failed, result.Unsent())
	}
	return result
}

// BenchmarkStreams keeps 1,000 streams of 25 tokens a second open once all have begun. The ramp at both ends counts too.
func BenchmarkStreams(b *testing.B) {
	const streams, tokens, rounds = 1000, 25, 10
	url, _ := startServer(b, "trivial", "36ms")
	var turns []turn
	for s := range streams {
		for r := range rounds {
			at := s + r*1000
			turns = append(turns, turn{fmt.Sprint("s", s), "", at, at + 900, 16, tokens, nil})
		}
	}
	w := compile(b, turns...)
	for b.Loop() {
		result := oneCore(b, url, w, plan.Options{}, 0)
		l := result.Report(replay.About{}).Replay
		b.ReportMetric(streams*tokens*rounds/result.End.Seconds(), "events/s")
		b.ReportMetric(l.LagMs.P50.Value, "lag-p50-ms")
		b.ReportMetric(l.LagMs.P99.Value, "lag-p99-ms")
		b.ReportMetric(l.CPUShare.Value*100, "cpu-%")
	}
}

// BenchmarkRequests sends requests for 20 tokens as fast as one core can.
func BenchmarkRequests(b *testing.B) {
	const requests, sessions = 100_000, 200
	url, _ := startServer(b, "trivial", "0s")
	var turns []turn
	for s := range sessions {
		for r := range requests / sessions {
			turns = append(turns, turn{fmt.Sprint("s", s), "", r * 10, r*10 + 5, 16, 20, nil})
		}
	}
	w := compile(b, turns...)
	for b.Loop() {
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		result := oneCore(b, url, w, plan.Options{Timing: plan.ASAP}, 64)
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(requests/result.End.Seconds(), "requests/s")
		b.ReportMetric(requests*20/result.End.Seconds(), "events/s")
		b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/requests, "kept-B/request")
		runtime.KeepAlive(result)
	}
}

// BenchmarkLongPrompts sends 10,000 prompts of 100,000 tokens, 64 at a time: 6 GB of bodies.
func BenchmarkLongPrompts(b *testing.B) {
	const requests = 10_000
	url, _ := startServer(b, "trivial", "0s")
	var turns []turn
	for s := range requests {
		turns = append(turns, turn{fmt.Sprint("s", s), "", 0, 5, 100_000, 1, nil})
	}
	w := compile(b, turns...)
	for b.Loop() {
		result := oneCore(b, url, w, plan.Options{Timing: plan.ASAP}, 64)
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(requests/result.End.Seconds(), "requests/s")
		b.ReportMetric(float64(m.Sys)/(1<<20), "process-MiB")
	}
}
