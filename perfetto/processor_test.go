package perfetto

import (
	"context"
	"encoding/csv"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTraceProcessor asks Perfetto's own trace processor about files, where TRACE_PROCESSOR names one
// (https://get.perfetto.dev/trace_processor).
func TestTraceProcessor(t *testing.T) {
	binary := os.Getenv("TRACE_PROCESSOR")
	if binary == "" {
		t.Skip("TRACE_PROCESSOR names no trace_processor_shell")
	}
	run, predicted := predict(t, "mini-swe-agent", "thunderagent", "6000")
	below, tiered := predict(t, "mini-swe-agent", "kv", "2000", withTiers)
	moved := int64(0)
	for _, m := range below.KV.Transfers {
		moved += m.Bytes
	}
	total := run.Programs.ToolS.Mean.Value * float64(run.Programs.ToolS.Count)
	for _, test := range []struct {
		name    string
		sources []Source
		queries map[string]string // and what they give
	}{
		{"recorded", sources(t)[:1], map[string]string{
			`select count(*) from slice where category like 'turn%'`:                                                                                     "7",
			`select dur from slice where name = 'turn 1' and ts = 0`:                                                                                     "2500000000",
			`select count(*) from slice s join args a using (arg_set_id) where a.key = 'debug.decode_worker_id' and a.string_value = '9007199254740993'`: "2",
			`select count(*) from flow f join slice s on s.id = f.slice_out where s.name = 'turn 1'`:                                                     "4",
		}},
		{"side by side", sources(t), map[string]string{`select count(*) from track where parent_id is null and name in ('day', 'run')`: "2"}},
		{"predicted", []Source{predicted}, map[string]string{
			`select cast(round(sum(dur) / 1e3) as int) from slice where category like '%tool_time%'`: fmt.Sprintf("%.0f", total*1e6),
			`select count(*) from slice where category = 'step' and dur < 0`:                         "0",
		}},
		{"with tiers", []Source{tiered}, map[string]string{
			`select sum(a.int_value) from slice s join args a using (arg_set_id) where a.key = 'debug.bytes' and s.category like 'transfer%'`: fmt.Sprint(moved),
			`select count(*) from flow f join slice s on s.id = f.slice_out where s.name = 'fetch'`:                                           fmt.Sprint(below.KV.Transfers["fetch"].Count),
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.pftrace")
			f, err := os.Create(path)
			if err != nil {
				t.Fatal(err)
			}
			summary, _, err := Write(context.Background(), f, test.sources, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			queries := map[string]string{
				`select count(*) from stats where severity in ('error', 'data_loss') and value > 0`: "0",
				`select count(*) from slice where dur < 0`:                                          "0",
				`select count(*) from slice`:                                                        fmt.Sprint(summary.Slices + summary.Instants),
				`select count(*) from flow`:                                                         fmt.Sprint(summary.Arrows),
				`select count(*) from counter`:                                                      fmt.Sprint(summary.Counters),
			}
			for query, want := range test.queries {
				queries[query] = want
			}
			for query, want := range queries {
				if got := ask(t, binary, path, query); got != want {
					t.Errorf("%s: %s, want %s", query, got, want)
				}
			}
		})
	}
}

// ask returns the one value that a query gives.
func ask(t *testing.T, binary, path, query string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	file := filepath.Join(t.TempDir(), "query.sql")
	if err := os.WriteFile(file, []byte(query+";\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(ctx, binary, "-q", file, path).Output()
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(out))).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatalf("%s: %v in %q", query, err, out)
	}
	return rows[1][0]
}
