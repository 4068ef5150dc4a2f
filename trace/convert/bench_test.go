package convert

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/goccy/go-json"

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

// benchmarkPlain reads text that is not compressed, one processor at work. What it does a second is text, not stored bytes.
func benchmarkPlain(b *testing.B, dir string, bytes int64, calls int, opts Options) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	b.SetBytes(bytes)
	b.ReportAllocs()
	for b.Loop() {
		c, err := Open(context.Background(), []string{dir}, opts)
		if err != nil {
			b.Fatal(err)
		}
		if c.Read.Calls < calls {
			b.Fatalf("%d calls, want %d", c.Read.Calls, calls)
		}
	}
}

// uncompressed writes recorded traces into a folder as they were before they were compressed.
func uncompressed(b *testing.B, path string, format *Format) (dir string, bytes int64) {
	segments, _, err := find(context.Background(), []string{filepath.Join(sharedTraces(b), path)}, nil, format)
	if err != nil {
		b.Fatal(err)
	}
	dir = b.TempDir()
	for i, s := range segments {
		text, err := s.Head(1 << 30)
		if err != nil {
			b.Fatal(err)
		}
		bytes += int64(len(text))
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.jsonl", i)), text, 0o644); err != nil {
			b.Fatal(err)
		}
	}
	return dir, bytes
}

func BenchmarkOpenClaude(b *testing.B) {
	dir, bytes := uncompressed(b, "claude-code/agentcgroup", formatNamed(FormatClaude))
	benchmarkPlain(b, dir, bytes, 1000, Options{})
}

func BenchmarkOpenLMCache(b *testing.B) {
	dir, bytes := uncompressed(b, "lmcache-agent", formatNamed(FormatLMCache))
	benchmarkPlain(b, dir, bytes, 847, Options{})
}

// Traces of hashes, one processor at work.
func BenchmarkOpenPlainWeka(b *testing.B) {
	dir, bytes := uncompressed(b, "weka", nil)
	benchmarkPlain(b, dir, bytes, 18771, Options{})
}

// Rows of 250 bytes, half of them hashes.
func BenchmarkOpenPlainMooncake(b *testing.B) {
	dir, bytes := uncompressed(b, "mooncake/conversation_trace.jsonl.gz", nil)
	benchmarkPlain(b, dir, bytes, 12031, Options{})
}

// Rows of 2 KB as Dynamo writes them.
func BenchmarkOpenPlainDynamo(b *testing.B) {
	dir, _ := uncompressed(b, "dynamo", nil)
	rows, err := os.ReadFile(filepath.Join(dir, "000.jsonl"))
	if err != nil {
		b.Fatal(err)
	}
	var text strings.Builder
	for i := range 50 {
		name := strings.NewReplacer(`"request_id":"`, fmt.Sprintf(`"request_id":"%d-`, i), `"session_id":"`, fmt.Sprintf(`"session_id":"%d-`, i))
		text.WriteString(name.Replace(string(rows)))
	}
	benchmarkText(b, text.String(), 50*17, Options{})
}

// Rows of long prompts, of sessions that run beside each other.
func BenchmarkOpenPlainLongMooncake(b *testing.B) { benchmarkWritten(b, FormatMooncake) }

func BenchmarkOpenPlainAgentic(b *testing.B) { benchmarkWritten(b, FormatAgentic) }

func BenchmarkOpenPlainLongDynamo(b *testing.B) {
	c := longPrompts(b)
	var text strings.Builder
	records, _ := Records(c)
	for r := range records {
		row, err := json.Marshal(struct {
			Timestamp int64         `json:"timestamp"`
			Event     *trace.Record `json:"event"`
		}{*r.EventTimeMs, r})
		if err != nil {
			b.Fatal(err)
		}
		text.Write(append(row, '\n'))
	}
	benchmarkText(b, text.String(), c.Read.Calls, Options{})
}

// benchmarkWritten reads what Write makes of long prompts.
func benchmarkWritten(b *testing.B, format string) {
	c := longPrompts(b)
	var text strings.Builder
	if _, err := Write(&text, format, c); err != nil {
		b.Fatal(err)
	}
	benchmarkText(b, text.String(), c.Read.Calls, Options{BlockSize: c.BlockSize})
}

// longPrompts are some of the calls that BenchmarkOpenPlainWeka reads, linked.
func longPrompts(b *testing.B) *trace.Capture {
	c, err := Open(context.Background(), []string{filepath.Join(sharedTraces(b), "weka", "trace_00*.json.gz")}, Options{})
	if err == nil {
		err = c.Link()
	}
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// benchmarkText reads a text of rows.
func benchmarkText(b *testing.B, text string, calls int, opts Options) {
	dir := b.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "rows.jsonl"), []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	benchmarkPlain(b, dir, int64(len(text)), calls, opts)
}

// BenchmarkOpenBailian reads 20,000 rows of 2 to 5 turns with 64 hashes each, as long as those that are published.
func BenchmarkOpenBailian(b *testing.B) {
	var text strings.Builder
	for i := range 20000 {
		parent := -1
		if i%4 > 0 {
			parent = i - 1
		}
		fmt.Fprintf(&text, `{"chat_id": %d, "parent_chat_id": %d, "timestamp": %d.25, "input_length": 1024, "output_length": 132, "type": "text", "turn": %d, "hash_ids": [`, i, parent, i, i%4+1)
		for k := range 64 {
			if k > 0 {
				text.WriteString(", ")
			}
			fmt.Fprint(&text, (i/4)*100+k+1000*(k/(16*(i%4+1))))
		}
		text.WriteString("]}\n")
	}
	benchmarkText(b, text.String(), 20000, Options{})
}
