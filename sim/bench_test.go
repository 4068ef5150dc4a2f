package sim

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/convert"
	"github.com/agentsim/agentsim/trace/events"
	"github.com/agentsim/agentsim/trace/synth"
)

// BenchmarkTurns simulates short programs, 512 at a time on 64 workers behind the kv router, with a working set of 3
// times the KV capacity. The time per turn should not depend on the number of turns.
func BenchmarkTurns(b *testing.B) {
	for _, turns := range []int{10_000, 100_000, 1_000_000} {
		b.Run(fmt.Sprint(turns), func(b *testing.B) {
			if turns > 100_000 && testing.Short() {
				b.Skip("a million turns take 10 s")
			}
			c, d := shortPrograms(b, turns)
			benchmarkRun(b, c, d, "turn")
		})
	}
}

// BenchmarkThunderAgent simulates the same programs behind kv and behind ThunderAgent, with room for all and under pressure. A
// turn should take at most a quarter more time with ThunderAgent.
func BenchmarkThunderAgent(b *testing.B) {
	for _, blocks := range []string{"3000", "450"} {
		for _, policy := range []string{"kv", "thunderagent"} {
			b.Run(fmt.Sprintf("blocks=%s/%s", blocks, policy), func(b *testing.B) {
				c, d := shortPrograms(b, 100_000)
				d.Engine.KVBlocks = blocks
				d.Router.Policy = policy
				benchmarkRun(b, c, d, "turn")
			})
		}
	}
}

// BenchmarkTiers simulates the same programs without KV below the GPU, with a host tier, and with all tiers and actions, of which
// the slow remote one is overloaded. A turn should take at most twice the time with the former.
func BenchmarkTiers(b *testing.B) {
	for _, variant := range []struct {
		name   string
		change func(*Deployment)
	}{
		{"none", func(*Deployment) {}},
		{"host", func(d *Deployment) { d.KV.Host.Capacity = "x2" }},
		{"all", func(d *Deployment) {
			d.KV.Host.Capacity, d.KV.Disk.Capacity, d.KV.Remote.Capacity, d.KV.Policy = "x1", "x2", "x64", "all"
		}},
	} {
		b.Run(variant.name, func(b *testing.B) {
			c, d := shortPrograms(b, 100_000)
			variant.change(&d)
			benchmarkRun(b, c, d, "turn")
		})
	}
}

// BenchmarkEvents simulates the same programs behind ThunderAgent under pressure, without events and with them, and with tiers
// of which there is more to tell.
func BenchmarkEvents(b *testing.B) {
	for _, tiers := range []string{"0", "4GiB"} {
		for _, told := range []bool{false, true} {
			b.Run(fmt.Sprintf("host=%s/told=%v", tiers, told), func(b *testing.B) {
				c, d := shortPrograms(b, 100_000)
				d.Router.Policy = "thunderagent"
				if tiers != "0" {
					d.KV.Host.Capacity, d.KV.Policy = tiers, "all"
				}
				o, n := Options{}, 0
				if told {
					o.Events = func(*events.Event) { n++ }
				}
				benchmarkOptions(b, c, d, "turn", o)
				b.ReportMetric(float64(n)/float64(b.N), "events")
			})
		}
	}
}

// BenchmarkAccounts simulates the programs of BenchmarkTurns, and the requests of BenchmarkPlain, which leap, without accounts
// of who holds KV and with them.
func BenchmarkAccounts(b *testing.B) {
	for _, kept := range []bool{false, true} {
		b.Run(fmt.Sprintf("turns/kept=%v", kept), func(b *testing.B) {
			c, d := shortPrograms(b, 100_000)
			benchmarkOptions(b, c, d, "turn", Options{Accounts: kept})
		})
		b.Run(fmt.Sprintf("plain/kept=%v", kept), func(b *testing.B) {
			benchmarkPlain(b, Options{Accounts: kept}, func(*Deployment) {})
		})
	}
}

// shortPrograms returns programs of 10 turns and the deployment of BenchmarkTurns.
func shortPrograms(b *testing.B, turns int) (*trace.Capture, Deployment) {
	b.Helper()
	c, err := synth.Generate("mini-swe-agent", synth.Options{Programs: turns / 10, Seed: 1,
		Set: []string{"turns=10", "output=40", "result=100"}})
	if err != nil {
		b.Fatal(err)
	}
	d := Default()
	d.Model, d.Workers, d.Engine.KVBlocks = "llama-3.1-8b", 64, "450"
	d.Load.Mode, d.Load.Concurrency = "concurrency", 512
	return c, d
}

// BenchmarkPlain simulates 20,000 requests of 512 prompt and 512 output tokens on 4 workers. With drafts every step walks its
// batch; with data-parallel ranks, 4 of them step together.
func BenchmarkPlain(b *testing.B) {
	for _, variant := range []struct {
		name   string
		change func(*Deployment)
	}{
		{"leaps", func(*Deployment) {}},
		{"drafts", func(d *Deployment) { d.Engine.Speculative = Speculative{"eagle", 3, "[0.8, 0.6, 0.4]", ""} }},
		{"ranks", func(d *Deployment) {
			d.Model, d.Workers, d.Parallelism = "qwen3-30b-a3b", 1, Parallelism{Tensor: 1, Pipeline: 1, Data: 4, Expert: 4}
		}},
	} {
		b.Run(variant.name, func(b *testing.B) { benchmarkPlain(b, Options{}, variant.change) })
	}
}

func benchmarkPlain(b *testing.B, o Options, change func(*Deployment)) {
	c, err := synth.Generate("plain", synth.Options{Programs: 20_000, Seed: 1, Set: []string{"input=512", "output=512", "rate=40"}})
	if err != nil {
		b.Fatal(err)
	}
	d := Default()
	d.Model, d.Workers, d.Router.Policy, d.Load.Mode = "qwen3-14b", 4, "least-loaded", "recorded"
	change(&d)
	benchmarkOptions(b, c, d, "request", o)
}

// BenchmarkMooncake simulates the published conversation trace of 12,031 requests on 8 workers, in blocks of 512.
func BenchmarkMooncake(b *testing.B) {
	path := filepath.Join("..", "..", "shared", "traces", "mooncake", "conversation_trace.jsonl.gz")
	if _, err := os.Stat(path); err != nil {
		b.Skip("no shared traces beside the repository: ", err)
	}
	c, err := convert.Open(context.Background(), []string{path}, convert.Options{})
	if err != nil {
		b.Fatal(err)
	}
	d := Default()
	d.Model, d.Workers, d.Router.Policy, d.Engine.BlockSize, d.Load.Mode = "qwen3-14b", 8, "round-robin", 512, "recorded"
	benchmarkRun(b, c, d, "request")
}

// benchmarkRun times the simulation alone: not the reading, not the compiling.
func benchmarkRun(b *testing.B, c *trace.Capture, d Deployment, unit string) {
	b.Helper()
	benchmarkOptions(b, c, d, unit, Options{})
}

func benchmarkOptions(b *testing.B, c *trace.Capture, d Deployment, unit string, o Options) {
	b.Helper()
	if err := c.Link(); err != nil {
		b.Fatal(err)
	}
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		b.Fatal(err)
	}
	p, err := d.Resolve()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Run(context.Background(), w, p, o); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(w.Calls)), "ns/"+unit)
}
