package convert

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
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

// BenchmarkOpenClaude reads the uncompressed transcripts of real sessions, one processor at work.
func BenchmarkOpenClaude(b *testing.B) {
	segments, _, err := find([]string{filepath.Join(sharedTraces(b), "claude-code", "agentcgroup")}, nil, formatNamed(FormatClaude))
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	var bytes int64
	for i, s := range segments {
		text, err := s.Head(1 << 30)
		if err != nil {
			b.Fatal(err)
		}
		bytes += int64(len(text))
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%02d.jsonl", i)), text, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	b.SetBytes(bytes)
	b.ReportAllocs()
	for b.Loop() {
		c, err := Open(context.Background(), []string{dir}, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if c.Read.Calls < 1000 {
			b.Fatalf("%d calls", c.Read.Calls)
		}
	}
}
