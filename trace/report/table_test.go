package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/clipperhouse/displaywidth"
)

// deployment is a run with just the figures that the table and the verdict use. Times are in s, shares from 0 to 1.
type deployment struct {
	name                               string
	programsPerHour, outputPerS        float64
	ttft50, ttft99, tpot, makespan     float64
	hit, reprefill                     float64
	preemptions                        int64
	rejected, failed, unfinished       int64
	singleTurn                         bool
	requestsPerS, meanE2E, meanProgram float64
}

func (d deployment) run() *Run {
	const total = 412
	r := &Run{Name: d.name, Status: RunDone, Workload: Workload{Programs: 40, Sessions: 52, Turns: total}}
	if d.singleTurn {
		r.Workload.Programs = total
	}
	known := func(v float64) Figure {
		if v == 0 {
			return Figure{}
		}
		return Known(v)
	}
	r.Requests = Requests{Total: total, Rejected: d.rejected, Failed: d.failed, Unfinished: d.unfinished}
	r.Requests.Completed = total - d.rejected - d.failed - d.unfinished
	r.Throughput.ProgramsPerHour = known(d.programsPerHour)
	r.Throughput.OutputTokensPerS = known(d.outputPerS)
	r.Throughput.RequestsPerS = known(d.requestsPerS)
	r.LatencyMs.TTFT = Distribution{P50: known(1000 * d.ttft50), P99: known(1000 * d.ttft99)}
	r.LatencyMs.TPOT.P50 = known(1000 * d.tpot)
	r.LatencyMs.E2E.Mean = known(1000 * d.meanE2E)
	r.Programs.MakespanS = Distribution{P50: known(d.makespan), Mean: known(d.meanProgram)}
	r.KV.HitRate, r.KV.ReprefillTimeShare = known(d.hit), known(d.reprefill)
	r.Preemptions = Known(d.preemptions)
	return r
}

func threePolicies() []*Run {
	return []*Run{
		deployment{
			name: "round-robin", programsPerHour: 361, outputPerS: 12345, ttft50: 0.812, ttft99: 3.512, tpot: 0.0183,
			makespan: 312, hit: 0.52, reprefill: 0.131, preemptions: 40,
		}.run(),
		deployment{
			name: "kv", programsPerHour: 412, outputPerS: 14345, ttft50: 0.512, ttft99: 4.112, tpot: 0.0184,
			makespan: 272, hit: 0.71, reprefill: 0.041, preemptions: 3,
		}.run(),
		deployment{
			name: "thunderagent,workers=4,engine.kv_blocks=x0.5", programsPerHour: 425, outputPerS: 14845, ttft50: 0.412,
			ttft99: 39.1, tpot: 0.0163, makespan: 292, hit: 0.81, reprefill: 0.01, rejected: 8, failed: 4,
		}.run(),
		{Name: "too-big", Status: RunFailed, Error: "model needs 214 GiB of weights per GPU, h100-sxm has 80"},
	}
}

func TestTableGolden(t *testing.T) {
	for _, test := range []struct {
		file string
		runs []*Run
		opts TableOptions
	}{
		{"table-100.txt", threePolicies(), TableOptions{}},
		{"table-80.txt", threePolicies(), TableOptions{Width: 80}},
		{"table-140.txt", threePolicies(), TableOptions{Width: 140}},
		{"table-color.txt", threePolicies(), TableOptions{Color: true}},
		{"table-one.txt", threePolicies()[:1], TableOptions{}},
		{"table-small.txt", []*Run{Build(smallInput())}, TableOptions{}},
	} {
		var buf bytes.Buffer
		if err := WriteTable(&buf, test.runs, test.opts); err != nil {
			t.Errorf("%s: %v", test.file, err)
		}
		golden(t, test.file, buf.Bytes())
	}
}

// No line is longer than asked, for any number of runs, and what is left out is named.
func TestTableFits(t *testing.T) {
	for _, names := range []string{"kv%d", "a-deployment-with-a-name-that-nobody-wants-to-read-%d", "模型部署%d"} {
		var runs []*Run
		for i := range 12 {
			d := deployment{
				name: fmt.Sprintf(names, i), programsPerHour: 361 * float64(i+1), outputPerS: 12345, ttft50: 0.812, ttft99: 3.512,
				tpot: 0.0183, makespan: 312, hit: 0.52, reprefill: 0.131, preemptions: 40, failed: int64(i % 3),
			}
			runs = append(runs, d.run())
		}
		for width := 40; width < 160; width++ {
			var buf bytes.Buffer
			if err := WriteTable(&buf, runs, TableOptions{Width: width}); err != nil {
				t.Fatal(err)
			}
			for line := range strings.Lines(buf.String()) {
				if n := displaywidth.String(strings.TrimSuffix(line, "\n")); n > width {
					t.Fatalf("width %d: a line has %d characters: %s", width, n, line)
				}
			}
			text := strings.Join(strings.Fields(buf.String()), " ")
			if !strings.Contains(text, "pre- ") && !strings.Contains(text, "preemptions") {
				t.Fatalf("width %d: preemptions are neither shown nor named as left out:\n%s", width, buf.String())
			}
		}
	}
}

func TestTableLeavesUnknownColumnsOut(t *testing.T) {
	r := &Run{Name: "recorded", Status: RunDone, Measures: Measures{Requests: Requests{Total: 2, Completed: 2}}}
	r.LatencyMs.TTFT.P50 = Known(100)
	var buf bytes.Buffer
	if err := WriteTable(&buf, []*Run{r}, TableOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := buf.String(); !strings.Contains(got, "TTFT") || strings.Contains(got, "TPOT") || strings.Contains(got, "rate") || strings.Contains(got, "-\n") {
		t.Errorf("want only TTFT:\n%s", got)
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 3: "3", 412: "412", 999: "999", 999.4: "999", 999.5: "1.00k", 999.6: "1.00k", 1240: "1.24k", 12345: "12.3k",
		123456: "123k", 999_999: "1.00M", 1.5e9: "1.50G", 7e12: "7.00e+12", 41.23: "41.2", 9.996: "10.0", 4.123: "4.12",
		0.5: "0.500", 0.0412: "0.041", 0.0001: "1.0e-04", -1240: "-1.24k",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
	for s, want := range map[float64]string{
		0.0004: "0.400 ms", 0.412: "412 ms", 0.9996: "1.00 s", 3.1: "3.10 s", 312: "312 s", 750: "12.5 min", 90000: "25 h",
	} {
		if got := duration(s); got != want {
			t.Errorf("duration(%v) = %q, want %q", s, got, want)
		}
	}
	for share, want := range map[float64]string{0: "0%", 0.041: "4.1%", 0.0994: "9.9%", 0.0996: "10%", 0.712: "71%", 1: "100%"} {
		if got := percent(share); got != want {
			t.Errorf("percent(%v) = %q, want %q", share, got, want)
		}
	}
	for _, test := range []struct {
		value, base float64
		want        string
	}{
		{412, 361, "+14%"}, {300, 361, "-17%"}, {100.9, 100, "="}, {99.1, 100, "="}, {101, 100, "+1%"}, {0, 0, "="},
		{5, 0, ""}, {0, 5, "-100%"}, {999, 100, "+899%"}, {1400, 100, "x14"},
	} {
		if got := change(test.value, test.base); got != test.want {
			t.Errorf("change(%v, %v) = %q, want %q", test.value, test.base, got, test.want)
		}
	}
}

func TestShorten(t *testing.T) {
	for _, test := range []struct {
		name  string
		limit int
		want  string
	}{
		{"kv", 12, "kv"},
		{"exactly-12-c", 12, "exactly-12-c"},
		{"router=kv,workers=2", 12, "router…ers=2"},
		{"router=kv,workers=2", 13, "router…kers=2"},
		{"red\x1b[31m\n", 12, "red�[31m�"},
		{"long", 1, "l…g"},
	} {
		if got := shorten(test.name, test.limit); got != test.want {
			t.Errorf("shorten(%q, %d) = %q, want %q", test.name, test.limit, got, test.want)
		}
	}
}
