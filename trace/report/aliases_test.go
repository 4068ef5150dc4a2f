package report

import (
	"bufio"
	"encoding/json"
	"maps"
	"math"
	"os"
	"slices"
	"testing"
	"time"
)

// A report of requests that AIPerf measured has AIPerf's own figures under AIPerf's names. testdata/aiperf is what AIPerf
// 0.13 wrote of a run in which every fifth request failed, some answers were of one token, and goodput was asked for: of
// its export of requests and of its summary the part that aliases have. The window is its start_time to end_time.
func TestAIPerfNamesMeanTheSame(t *testing.T) {
	const start = 1795993848_068294 * time.Microsecond
	window := Window{From: start, To: start + 1196048*time.Microsecond}
	run := Build(Input{Requests: aiperfRequests(t), Window: window, SLO: SLO{TTFT: 45 * ms, ITL: 12600 * time.Microsecond}})
	var want, got map[string]map[string]any
	text, err := os.ReadFile("testdata/aiperf/summary.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	text, err = json.Marshal(run.Aliases.AIPerf)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if a, b := slices.Sorted(maps.Keys(got)), slices.Sorted(maps.Keys(want)); !slices.Equal(a, b) {
		t.Fatalf("metrics are %q, AIPerf's %q", a, b)
	}
	for name, metric := range want {
		for key, value := range metric {
			same := got[name][key] == value
			if number, ok := value.(float64); ok {
				ours, _ := got[name][key].(float64)
				same = math.Abs(ours-number) <= 1e-6*math.Abs(number) // times are whole microseconds
			}
			if !same {
				t.Errorf("%s %s is %v, AIPerf's %v", name, key, got[name][key], value)
			}
		}
	}
}

// aiperfRequests reads requests as AIPerf exports them.
func aiperfRequests(t *testing.T) []Request {
	t.Helper()
	file, err := os.Open("testdata/aiperf/requests.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var list []Request
	for lines := bufio.NewScanner(file); lines.Scan(); {
		var row struct {
			Metadata struct {
				Start int64 `json:"request_start_ns"`
			} `json:"metadata"`
			Metrics map[string]struct{ Value float64 } `json:"metrics"`
			Error   json.RawMessage                    `json:"error"`
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		value := func(name string) float64 { return row.Metrics[name].Value }
		r := Request{Status: Completed, Arrival: time.Duration(row.Metadata.Start), Admitted: None, FirstToken: None, Computed: -1}
		r.End = r.Arrival
		if row.Error != nil {
			r.Status = Failed
		} else {
			r.FirstToken = r.Arrival + time.Duration(math.Round(value("time_to_first_token")*1e6))
			r.End = r.Arrival + time.Duration(math.Round(value("request_latency")*1e6))
			r.Input, r.Hit = int32(value("usage_prompt_tokens")), int32(value("usage_prompt_cache_read_tokens"))
			r.Output = int32(value("output_sequence_length"))
		}
		list = append(list, r)
	}
	return list
}
