package cli

import (
	"bytes"
	"context"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/convert"
	"github.com/agentsim/agentsim/trace/inspect"
	"github.com/agentsim/agentsim/trace/synth"
)

// alike fits a profile to a capture and compares what it makes with it.
func alike(t *testing.T, c *trace.Capture, programs int) (*synth.Profile, []inspect.Likeness) {
	t.Helper()
	observed, err := samples(c)
	if err != nil {
		t.Fatal(err)
	}
	p, err := fitProfile(c, observed, "x", "x.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	made, err := p.Generate(synth.Options{Programs: programs, Seed: 77})
	if err != nil {
		t.Fatal(err)
	}
	like, err := samples(made)
	if err != nil {
		t.Fatal(err)
	}
	return p, inspect.Compare(observed, like)
}

// chance is what two samples of one distribution differ by, once in a thousand times (the two-sample Kolmogorov-Smirnov test).
func chance(l inspect.Likeness) float64 {
	n, m := float64(l.Of.Count), float64(l.Made.Count)
	return 1.95 * math.Sqrt((n+m)/(n*m))
}

// TestFitRecovers fits profiles to what other profiles make. What is made of them differs from it by chance, by what a fit may
// be off, and, where distributions follow from others that go together, by what that does.
func TestFitRecovers(t *testing.T) {
	if testing.Short() {
		t.Skip("distributions of thousands of programs: not with -short")
	}
	for _, name := range synth.Profiles() {
		for seed := range uint64(3) {
			c, err := synth.Generate(name, synth.Options{Programs: 200, Seed: seed})
			if err != nil {
				t.Fatal(err)
			}
			_, list := alike(t, c, 400)
			for _, l := range list {
				if l.Made.Count == 0 && l.Of.Count < 5 {
					continue // too rare to come up again
				}
				if off := chance(l) + 0.05; !(l.Distance.Value <= off) || l.Made.Count == 0 {
					t.Errorf("%s, seed %d: %s: distance %v, want at most %.3f: %+v, made %+v", name, seed, l.Name, l.Distance, off, l.Of, l.Made)
				}
			}
		}
	}
}

// TestFitRecorded fits profiles to recorded traces, and states how close they come.
func TestFitRecorded(t *testing.T) {
	if testing.Short() {
		t.Skip("distributions of whole traces: not with -short")
	}
	const traces = "../../../../../shared/traces"
	if _, err := os.Stat(traces); err != nil {
		t.Skipf("the recorded traces are not here: %v", err)
	}
	for _, test := range []struct {
		file string
		// off is the largest distance, but of the distributions that are named.
		off    float64
		except map[string]float64
	}{
		// Long conversations with long first prompts are fewer than if these were independent.
		{"weka", 0.08, map[string]float64{"prompt of a turn": 0.2, "longest prompt": 0.25, "contexts when compacted": 0.25}},
		// A prompt that shares much is longer than others.
		{"mooncake/conversation_trace.jsonl.gz", 0.04, map[string]float64{"prompt of a turn": 0.1, "longest prompt": 0.1, "reuse in an endless cache": 0.1}},
		{"claude-code/agentcgroup", 0.05, map[string]float64{"prompt of a turn": 0.12, "longest prompt": 0.15, "subagents of a program": 0.12}},
		{"azure/AzureLLMInferenceTrace_code.csv.gz", 0.04, nil},
	} {
		c, err := convert.Open(context.Background(), []string{filepath.Join(traces, test.file)}, convert.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, list := alike(t, c, 2000)
		for _, l := range list {
			off := test.off + chance(l)
			if l.Of.Count < 100 {
				off = 0.1 + chance(l) // few to tell
			}
			if e, ok := test.except[l.Name]; ok {
				off = e
			}
			if l.Made.Count == 0 && l.Name == "time between arrivals" {
				continue
			}
			if !(l.Distance.Value <= off) {
				t.Errorf("%s: %s: distance %v, want at most %.3f: %+v, made %+v", test.file, l.Name, l.Distance, off, l.Of, l.Made)
			}
		}
	}
}

// TestFitDeterministic fits and makes the same bytes at any number of processors.
func TestFitDeterministic(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	var first []byte
	for _, procs := range []int{1, 3, 7} {
		runtime.GOMAXPROCS(procs)
		c, err := synth.Generate("subagent-fanout", synth.Options{Programs: 30, Seed: 1})
		if err != nil {
			t.Fatal(err)
		}
		p, list := alike(t, c, 50)
		text, err := p.YAML()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range list {
			text = append(text, l.Name+" "+l.Distance.String()+"\n"...)
		}
		if first == nil {
			first = text
		}
		if !bytes.Equal(text, first) {
			t.Errorf("with %d processors:\n%s\nwant\n%s", procs, text, first)
		}
	}
}
