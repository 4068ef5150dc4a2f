package report

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/clipperhouse/displaywidth"
)

// deployment is a run with just the figures that the table and the verdict use. Times are in s, shares from 0 to 1.
type deployment struct {
	name                               string
	programsPerHour, outputPerS        float64
	ttft50, ttft99, tpot               float64
	hit, reprefill                     float64
	preemptions                        int64
	accepted                           float64 // draft tokens per step
	rejected, failed, unfinished       int64
	why                                string // of the rejections, or of the failures without any
	singleTurn                         bool
	requestsPerS, meanE2E, meanProgram float64
	model, tool, human                 float64 // mean s of a program
	inSLO                              float64 // of requestsPerS
	gpus                               int
	paused                             float64 // mean s of a program
	done                               float64 // s until all programs of a rollout are done
	axes                               []Axis
}

func (d deployment) run() *Run {
	const total = 412
	r := &Run{
		Name: d.name, Status: RunDone, GPUs: d.gpus, Axes: d.axes,
		Workload: Workload{Programs: 40, Sessions: 52, Turns: total},
	}
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
	if d.why != "" {
		r.Requests.Rejections = []Loss{{d.rejected, d.why}}
	}
	if d.why != "" && d.rejected == 0 {
		r.Requests.Failures = []Loss{{d.failed, d.why}}
	}
	r.Requests.Completed = total - d.rejected - d.failed - d.unfinished
	r.Throughput.ProgramsPerHour = known(d.programsPerHour)
	r.Throughput.OutputTokensPerS = known(d.outputPerS)
	r.Throughput.RequestsPerS = known(d.requestsPerS)
	r.LatencyMs.TTFT = Distribution{P50: known(1000 * d.ttft50), P99: known(1000 * d.ttft99)}
	r.LatencyMs.TPOT.P50 = known(1000 * d.tpot)
	r.LatencyMs.E2E.Mean = known(1000 * d.meanE2E)
	r.Throughput.GoodputRequestsPerS = known(d.inSLO * d.requestsPerS)
	r.Programs.MakespanS.Mean = known(d.meanProgram)
	r.Programs.ModelS.Mean, r.Programs.ToolS.Mean, r.Programs.HumanS.Mean = known(d.model), known(d.tool), known(d.human)
	r.Programs.PausedS.Mean = known(d.paused)
	r.Programs.DoneS = Distribution{P50: known(d.done / 2), P90: known(d.done * 0.9), P99: known(d.done * 0.99), Max: known(d.done)}
	r.KV.HitRate, r.KV.ReprefillTimeShare = known(d.hit), known(d.reprefill)
	r.Preemptions = Known(d.preemptions)
	if d.accepted > 0 {
		r.Speculation = &Speculation{AcceptedPerStep: Known(d.accepted)}
	}
	return r
}

func threePolicies() []*Run {
	return []*Run{
		deployment{
			name: "round-robin", programsPerHour: 361, outputPerS: 12345, ttft50: 0.812, ttft99: 3.512, tpot: 0.0183,
			meanProgram: 312, hit: 0.52, reprefill: 0.131, preemptions: 40,
		}.run(),
		deployment{
			name: "kv", programsPerHour: 412, outputPerS: 14345, ttft50: 0.512, ttft99: 4.112, tpot: 0.0184,
			meanProgram: 272, hit: 0.71, reprefill: 0.041, preemptions: 3,
		}.run(),
		deployment{
			name: "thunderagent,workers=4,engine.kv_blocks=x0.5", programsPerHour: 425, outputPerS: 14845, ttft50: 0.412,
			ttft99: 39.1, tpot: 0.0163, meanProgram: 292, hit: 0.81, reprefill: 0.01, rejected: 8, failed: 4,
		}.run(),
		{Name: "too-big", Status: RunFailed, Error: "model needs 214 GiB of weights per GPU, h100-sxm has 80"},
	}
}

// paused is a rollout under schedulers that pause programs.
func paused() []*Run {
	var runs []*Run
	for i, name := range []string{"kv", "thunderagent dynamo-native", "thunderagent paper"} {
		d := deployment{
			name: name, programsPerHour: 361, outputPerS: 12345, ttft50: 0.812, ttft99: 3.512, tpot: 0.0183, requestsPerS: 5, inSLO: 0.9,
			meanProgram: 312, hit: 0.52, reprefill: 0.131, preemptions: 40, done: 1500,
		}
		if i > 0 {
			d.programsPerHour, d.hit, d.reprefill, d.ttft99, d.paused, d.done = 530, 0.93, 0.02, 45.1, 12*float64(i), 1100
		}
		runs = append(runs, d.run())
	}
	return runs
}

// grid is workers × kv_blocks × policies. The smallest caches reject the long prompts.
func grid() []*Run {
	var runs []*Run
	for w, workers := range []string{"1", "2"} {
		for k, blocks := range []string{"x0.01", "x1"} {
			for p, policy := range []string{"round-robin", "kv"} {
				d := deployment{
					name: "workers=" + workers + " kv_blocks=" + blocks + " " + policy, gpus: 4 * (w + 1),
					axes:            []Axis{{"workers", workers}, {"engine.kv_blocks", blocks}, {"router.policy", policy}, {"seed", "1"}},
					programsPerHour: 300 * float64(w+1), outputPerS: 9000 * float64(w+1), ttft50: 0.8, ttft99: 3.5 - float64(p),
					tpot: 0.018, meanProgram: 312, hit: 0.5, reprefill: 0.2 - 0.1*float64(p), requestsPerS: 5, inSLO: 0.9,
				}
				if k == 0 {
					d.programsPerHour, d.rejected, d.why = 800, 200, "a call needs 12300 blocks, a worker has 190 (engine.kv_blocks)"
				}
				runs = append(runs, d.run())
			}
		}
	}
	return runs
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
		{"table-grid.txt", grid(), TableOptions{}},
		{"table-grid-80.txt", grid(), TableOptions{Width: 80}},
		{"table-scheduler.txt", paused(), TableOptions{}},
		{"table-scheduler-140.txt", paused(), TableOptions{Width: 140}},
		{"table-small.txt", []*Run{Build(smallInput())}, TableOptions{}},
	} {
		var buf bytes.Buffer
		if err := WriteTable(&buf, test.runs, test.opts); err != nil {
			t.Errorf("%s: %v", test.file, err)
		}
		golden(t, test.file, buf.Bytes())
	}
}

// No line is longer than asked, no two rows look the same, and what is left out is named, for any number of runs.
func TestTableFits(t *testing.T) {
	many := func(d func(i int) deployment) []*Run {
		var runs []*Run
		for i := range 12 {
			d := d(i)
			d.programsPerHour, d.outputPerS, d.ttft50, d.ttft99, d.tpot = 361*float64(i+1), 12345, 0.812, 3.512, 0.0183
			d.meanProgram, d.hit, d.reprefill, d.preemptions, d.requestsPerS, d.inSLO = 312, 0.52, 0.131, 40, 5, 0.9
			runs = append(runs, d.run())
		}
		return runs
	}
	named := func(format string) []*Run {
		return many(func(i int) deployment { return deployment{name: fmt.Sprintf(format, i), failed: int64(i % 3)} })
	}
	step := 3
	if testing.Short() {
		step = 11
	}
	for _, test := range []struct {
		name  string
		runs  []*Run
		least int // width
	}{
		{"short names", named("kv%d"), 40},
		{"long names", named("a-deployment-with-a-name-that-nobody-wants-to-read-%d"), 40},
		{"names that differ in the middle", named("workers=1 kv_blocks=x0.%d round-robin with more of the same"), 40},
		{"wide characters", named("模型部署%d"), 40},
		{"one name", named("kv%.0s"), 40},
		{"axes", many(func(i int) deployment {
			return deployment{
				name: fmt.Sprintf("workers=%d policy=%d", i/3, i%3), gpus: 8 * (1 + i/3),
				axes: []Axis{{"workers", fmt.Sprint(i / 3)}, {"router.policy", fmt.Sprint("a-long-policy-", i%3)}},
			}
		}), 50},
		{"many axes", many(func(i int) deployment {
			d := deployment{name: fmt.Sprintf("all of them %d", i)}
			for a := range 9 {
				d.axes = append(d.axes, Axis{fmt.Sprintf("engine.axis_number_%d", a), fmt.Sprintf("value %d", i)})
			}
			return d
		}), 40},
	} {
		for count := 2; count <= 12; count += 5 {
			for width := test.least; width < 160; width += step {
				var buf bytes.Buffer
				if err := WriteTable(&buf, test.runs[:count], TableOptions{Width: width}); err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(buf.String()) {
					if n := displaywidth.String(strings.TrimSuffix(line, "\n")); n > width {
						t.Fatalf("%s, width %d: a line has %d characters: %s", test.name, width, n, line)
					}
				}
				l := newLayout(test.runs[:count])
				l.fit(width)
				seen := map[string]bool{}
				for row := range count {
					shown := ""
					for _, c := range l.names {
						shown += c.cells[row].value + "|"
					}
					if seen[shown] {
						t.Fatalf("%s, width %d: two rows look the same:\n%s", test.name, width, buf.String())
					}
					seen[shown] = true
				}
				text := strings.Join(strings.Fields(buf.String()), " ")
				if !strings.Contains(text, "preempts") && !strings.Contains(text, "preemptions") {
					t.Fatalf("%s, width %d: preemptions are neither shown nor named as left out:\n%s", test.name, width, buf.String())
				}
			}
		}
	}
}

// Rows that look the same when their names are cut are numbered, and their full names stand below.
func TestTableNumbersRowsThatLookAlike(t *testing.T) {
	var runs []*Run
	for _, blocks := range []string{"x0.01", "x0.10"} {
		runs = append(runs, deployment{name: "workers=1 kv_blocks=" + blocks + " round-robin, and more", programsPerHour: 361}.run())
	}
	var buf bytes.Buffer
	if err := WriteTable(&buf, runs, TableOptions{Width: 50}); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{"\n1 workers=1", "\n2 workers=1", "\n1: workers=1 kv_blocks=x0.01 round-robin, and more\n", "\n2: workers=1 kv_blocks=x0.10 round-robin, and more\n"} {
		if !strings.Contains(buf.String(), part) {
			t.Errorf("no %q in\n%s", part, buf.String())
		}
	}
}

// Axes stand for the names only where they tell all rows apart. A recording is on no axis.
func TestTableNamesRowsByAxes(t *testing.T) {
	at := func(name string, axes ...Axis) *Run {
		return deployment{name: name, axes: axes, programsPerHour: 361}.run()
	}
	for _, test := range []struct {
		name string
		runs []*Run
		want [][]string // of each row; nil for names
	}{
		{"one axis", []*Run{at("a", Axis{"workers", "1"}), at("b", Axis{"workers", "2"})}, [][]string{{"1"}, {"2"}}},
		{
			"an axis with one value",
			[]*Run{at("a", Axis{"seed", "7"}, Axis{"workers", "1"}), at("b", Axis{"seed", "7"}, Axis{"workers", "2"})},
			[][]string{{"1"}, {"2"}},
		},
		{
			"a recording first",
			[]*Run{at("recorded"), at("a", Axis{"workers", "1"}, Axis{"gpu", "h100"}), at("b", Axis{"workers", "2"}, Axis{"gpu", "h200"})},
			[][]string{{"recorded", "-"}, {"1", "h100"}, {"2", "h200"}},
		},
		{"two configs on one axis", []*Run{at("a 1", Axis{"workers", "1"}), at("b 1", Axis{"workers", "1"}), at("b 2", Axis{"workers", "2"})}, nil},
		{"no axes", []*Run{at("a"), at("b")}, nil},
		{"one run", []*Run{at("a", Axis{"workers", "1"})}, nil},
	} {
		if got := namesByAxes(test.runs).rows; !reflect.DeepEqual(got, test.want) {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// Columns that say the same of all runs are left out: no preemptions, nothing computed twice, all within the SLO.
func TestTableLeavesNeedlessColumnsOut(t *testing.T) {
	table := func(change func(*deployment)) string {
		d := deployment{name: "a", programsPerHour: 361, requestsPerS: 5, inSLO: 1, gpus: 4}
		runs := []*Run{d.run(), nil}
		change(&d)
		runs[1] = d.run()
		var buf bytes.Buffer
		if err := WriteTable(&buf, runs, TableOptions{}); err != nil {
			t.Fatal(err)
		}
		return buf.String()
	}
	nothing := table(func(*deployment) {})
	for _, test := range []struct {
		head   string
		change func(*deployment)
	}{
		{"preempts", func(d *deployment) { d.preemptions = 1 }},
		{"wasted", func(d *deployment) { d.reprefill = 0.1 }},
		{"SLO", func(d *deployment) { d.inSLO = 0.999 }},
		{"GPUs", func(d *deployment) { d.gpus = 8 }},
		{"accepted", func(d *deployment) { d.accepted = 1.5 }},
	} {
		if strings.Contains(nothing, test.head) {
			t.Errorf("a column %q without need:\n%s", test.head, nothing)
		}
		if got := table(test.change); !strings.Contains(got, test.head) {
			t.Errorf("no column %q:\n%s", test.head, got)
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
		0.5: "0.500", 0.0412: "0.041", 0.00412: "0.00412", 0.0001: "1.0e-04", -1240: "-1.24k",
	} {
		if got := number(v); got != want {
			t.Errorf("number(%v) = %q, want %q", v, got, want)
		}
	}
	for s, want := range map[float64]string{
		0.0004: "0.400 ms", 0.412: "412 ms", 0.9996: "1.00 s", 3.1: "3.10 s", 312: "312 s", 750: "12.5 min", 90000: "25 h",
	} {
		if got := unitFor(s).text(s); got != want {
			t.Errorf("unitFor(%v) = %q, want %q", s, got, want)
		}
	}
	for share, want := range map[float64]string{0: "0%", 0.041: "4.1%", 0.0994: "9.9%", 0.0004: "<0.1%", 0.0005: "0.1%", 0.0996: "10%", 0.712: "71%", 1: "100%"} {
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
		{"red\x1b[31m\nline", 20, "red�[31m line"},
		{"long", 1, "l…g"},
		{"模型部署在这里", 9, "模型…这里"},
	} {
		if got := Shorten(test.name, test.limit); got != test.want {
			t.Errorf("Shorten(%q, %d) = %q, want %q", test.name, test.limit, got, test.want)
		}
	}
}
