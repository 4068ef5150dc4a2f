package trace_test

import (
	"testing"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/synth"
)

// miniSWE makes about 50,000 turns of 1,000 programs.
func miniSWE(b *testing.B) (c *trace.Capture, turns int) {
	c, err := synth.Generate("mini-swe-agent", synth.Options{Programs: 1000, Seed: 1})
	if err != nil {
		b.Fatal(err)
	}
	for _, s := range c.Sessions {
		turns += len(s.Turns)
	}
	return c, turns
}

// BenchmarkLinkMiniSWE links anew each time: it takes the edges of the last time away.
func BenchmarkLinkMiniSWE(b *testing.B) {
	c, turns := miniSWE(b)
	b.ReportAllocs()
	for b.Loop() {
		for _, s := range c.Sessions {
			for _, t := range s.Turns {
				t.Deps = t.Deps[:0]
			}
		}
		if err := c.Link(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(turns), "ns/turn")
}

func BenchmarkCompileMiniSWE(b *testing.B) {
	c, turns := miniSWE(b)
	if err := c.Link(); err != nil {
		b.Fatal(err)
	}
	allocs := testing.AllocsPerRun(1, func() {
		if _, err := c.Compile(trace.OutputsInferred); err != nil {
			b.Fatal(err)
		}
	})
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Compile(trace.OutputsInferred); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(turns), "ns/turn")
	b.ReportMetric(allocs/float64(turns), "allocs/turn")
}

// BenchmarkPath takes the paths of all calls in turn.
func BenchmarkPath(b *testing.B) {
	c, _ := miniSWE(b)
	if err := c.Link(); err != nil {
		b.Fatal(err)
	}
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		b.Fatal(err)
	}
	for copies, name := range []string{"first", "repeated"} {
		b.Run(name, func(b *testing.B) {
			var path []trace.Span
			spans, i := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				call := &w.Calls[i%len(w.Calls)]
				path = w.Path(call.End, call.Computed(), 16, uint32(copies), path[:0])
				spans += len(path)
				i++
			}
			b.ReportMetric(float64(spans)/float64(i), "spans/path")
		})
	}
}
