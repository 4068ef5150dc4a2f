package convert

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/agentsim/agentsim/trace"
)

func benchmarkOpen(b *testing.B, path string, turns int) {
	args := []string{filepath.Join(sharedTraces(b), path)}
	segments, err := trace.Find(args, nil)
	if err != nil {
		b.Fatal(err)
	}
	var stored int64
	for _, s := range segments {
		stored += s.Size
	}
	b.SetBytes(stored)
	b.ReportAllocs()
	for b.Loop() {
		c, err := Open(context.Background(), args, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if c.Read.Calls != turns {
			b.Fatalf("%d calls, want %d", c.Read.Calls, turns)
		}
	}
}

// 300 conversations, 34.4 million hash ids, 167 MB of JSON.
func BenchmarkOpenWeka(b *testing.B) { benchmarkOpen(b, "weka", 18771) }

func BenchmarkOpenMooncake(b *testing.B) {
	benchmarkOpen(b, "mooncake/conversation_trace.jsonl.gz", 12031)
}

func BenchmarkOpenArrivals(b *testing.B) {
	benchmarkOpen(b, "azure/AzureLLMInferenceTrace_code.csv.gz", 8819)
}
