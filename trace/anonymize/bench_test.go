package anonymize

import (
	"strings"
	"testing"
)

// BenchmarkRows measures the rewriting of rows on one core.
func BenchmarkRows(b *testing.B) {
	chain := make([]uint64, 2000)
	for i := range chain {
		chain[i] = uint64(i)*0x9e3779b97f4a7c15 + 1
	}
	formats := newFormats()
	for _, bench := range []struct{ name, format, row string }{
		{"Request", "dynamo", strings.TrimSpace(request("r-1", "s", 0, 32000, chain...))},
		{"ClaudeCode", "claude-code", strings.Split(strings.ReplaceAll(claudeMain, "nobody knows why", strings.Repeat("nobody knows why ", 100)), "\n")[1]},
	} {
		b.Run(bench.name, func(b *testing.B) {
			r := newRewriter(Options{Key: testKey(b)})
			b.SetBytes(int64(len(bench.row)))
			b.ReportAllocs()
			for b.Loop() {
				r.out = r.out[:0]
				r.line("bench", 1, []byte(bench.row), formats[bench.format].row)
			}
		})
	}
}
