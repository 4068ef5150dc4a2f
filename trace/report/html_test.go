package report

import (
	"bytes"
	"context"
	"fmt"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// sweepReport is two policies at four concurrencies, with the state over time of each run, and a recording on no axis.
func sweepReport() *Report {
	runs := []*Run{deployment{name: "recorded", ttft50: 0.4, ttft99: 2, hit: 0.8}.run()}
	for p, policy := range []string{"kv", "thunderagent"} {
		for i, n := range []int{8, 16, 32, 64} {
			d := deployment{
				name: fmt.Sprintf("%s concurrency=%d", policy, n), axes: []Axis{{"router.policy", policy}, {"load.concurrency", fmt.Sprint(n)}},
				programsPerHour: 100 * float64(i+1), ttft50: 0.05 * float64(n), ttft99: 0.01 * float64(n*n), hit: 0.9 - 0.2*float64(i),
				reprefill: 0.1 * float64(i), meanProgram: 300,
			}
			if p == 1 {
				d.programsPerHour, d.hit, d.reprefill, d.paused = 120*float64(i+1), 0.95, 0.02, 5*float64(i)
			}
			r := d.run()
			r.KV.CapacityTokens, r.KV.WorkingSetTokens = Known(400_000), Known(10_000)
			r.KV.SpaceTime = NewSpaceTime(1000, 400, 100, 50, 150)
			r.Series = &Series{Step: 10 * time.Second, Capacity: 400_000}
			for s := range int64(50) {
				r.Series.Samples = append(r.Series.Samples, Sample{Running: 3000 * s, Cached: 4000 * s, Wanted: 13_000 * s, Accounted: 6000 * s,
					Programs: int64(n), Held: s / 5 * int64(p), RequestsRunning: s % 7, RequestsWaiting: s / 10})
			}
			if p == 1 {
				r.Scheduler = &Scheduler{Pauses: 12, Resumes: 12, PausedPeak: 9}
			}
			runs = append(runs, r)
		}
	}
	verdict := Judge(runs, Evidence{})
	return &Report{Trace: &Trace{Format: "dynamo", Files: []string{"day.jsonl"}, Calls: 412}, Runs: runs, Verdict: &verdict}
}

func mustHTML(t *testing.T, r *Report) string {
	t.Helper()
	var buf bytes.Buffer
	if err := WriteHTML(&buf, r); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

func TestHTMLGolden(t *testing.T) {
	small := smallReport()
	small.Runs[0].Series = &Series{Step: time.Second, Capacity: 20_000, Samples: []Sample{
		{}, {Running: 2000, Cached: 1000, Wanted: 3000, Programs: 2, RequestsRunning: 2}, {Running: 1000, Cached: 3000, Wanted: 2000, Programs: 1},
	}}
	golden(t, "small.html", []byte(mustHTML(t, small)))
	mustHTML(t, &Report{}) // nothing at all is a page too
}

// A page has what its charts need, and the charts what a reader needs.
func TestHTMLTells(t *testing.T) {
	page := mustHTML(t, sweepReport())
	for _, part := range []string{
		"<h2>By load.concurrency</h2>", "KV full at 40", "fill the KV capacity of 400k tokens", "concurrent programs (load.concurrency)",
		"<h3>Throughput (programs per hour)</h3>", "<h3>Time to first token, p99</h3>", "s, logarithmic", "Where the KV capacity went",
		"charged by the scheduler", "programs paused or held", "contexts of live programs (cut off; the most is 637k)", "time since the start of the run (s)",
		`<th scope="row">recorded</th>`, `<th scope="row">thunderagent concurrency=64</th>`, "<h3>Program scheduler</h3>",
	} {
		if !strings.Contains(page, part) {
			t.Errorf("the page lacks %q", part)
		}
	}
	bars := mustHTML(t, &Report{Runs: threePolicies()})
	for _, part := range []string{"<h2>By run</h2>", "<h3>Time to first token, median</h3>", "too-big failed: model needs 214 GiB"} {
		if !strings.Contains(bars, part) {
			t.Errorf("the page without a sweep lacks %q", part)
		}
	}
}

// Nothing is fetched, and the size is in proportion: what is drawn of many runs is bounded.
func TestHTMLIsSelfContainedAndSmall(t *testing.T) {
	r := sweepReport()
	page := mustHTML(t, r)
	for _, outside := range []string{"http:", "https:", "url(", "@import", "<script", "<link", "<img", "src="} {
		if strings.Contains(page, outside) {
			t.Errorf("the page contains %q", outside)
		}
	}
	if len(page) > 150_000 {
		t.Errorf("%d bytes for nine runs", len(page))
	}
	row := r.Runs[1]
	for i := range 1000 {
		more := *row
		more.Name, more.Axes = fmt.Sprintf("row %d", i), []Axis{{"router.policy", fmt.Sprint("p", i)}, {"load.concurrency", "8"}}
		r.Runs = append(r.Runs, &more)
	}
	if page := mustHTML(t, r); len(page) > 2_000_000 {
		t.Errorf("%d bytes for 1009 runs", len(page))
	}
}

// tag is one that the template has: names come into text and into attributes that are quoted.
var (
	tag        = regexp.MustCompile(`^/?(svg|path|rect|text|g|title|h[1-3]|ul|li|p|section|header|figure|div|details|summary|pre|table|thead|tbody|tr|th|td|html|head|body|meta|style|!DOCTYPE)( html| open|( [a-zA-Z-]+="[^"]*"))*\s*/?$`)
	attributes = regexp.MustCompile(` ([a-zA-Z-]+)="`)
	known      = map[string]bool{"class": true, "viewBox": true, "role": true, "aria-label": true, "aria-hidden": true, "d": true, "x": true, "y": true,
		"dx": true, "dy": true, "width": true, "height": true, "scope": true, "charset": true, "name": true, "content": true, "http-equiv": true, "lang": true}
)

// checkTags fails when the page has tags or attributes that its template has not.
func checkTags(t *testing.T, page string) {
	t.Helper()
	for i, part := range strings.Split(page, "<") {
		if i == 0 {
			continue
		}
		inside, _, closed := strings.Cut(part, ">")
		if !closed || !tag.MatchString(inside) {
			t.Fatalf("a tag that the template does not have: <%.200s", part)
		}
		for _, a := range attributes.FindAllStringSubmatch(inside, -1) {
			if !known[a[1]] {
				t.Fatalf("an attribute that the template does not have: <%.200s", part)
			}
		}
	}
}

// named puts a text wherever a page shows one that comes from outside.
func named(text string) *Report {
	r := sweepReport()
	r.Runs = r.Runs[:4]
	r.Trace.Files, r.Trace.Format, r.Version = []string{text}, text, text
	for i, run := range r.Runs[1:] {
		run.Name = text + fmt.Sprint(i)
		run.Axes[0].Value = text + run.Axes[0].Value
		run.Warnings, run.Approximations = []string{text}, []string{text}
		run.Config = fmt.Appendf(nil, `{"name": %q}`, text)
	}
	r.Runs = append(r.Runs, &Run{Name: text, Status: RunFailed, Error: text})
	r.Verdict = &Verdict{Text: text, Winner: text, Reasons: []string{text}}
	return r
}

func FuzzHTMLEscapesNames(f *testing.F) {
	for _, text := range []string{
		"kv", "", `<script>alert(1)</script>`, `" onload="alert(1)`, `'><img src=x onerror=alert(1)>`, "</text></svg><iframe>", "]]>", "{{.Title}}",
		"&lt;b&gt;", "</style><style>*{}", "--><!--", "a\x00b\x1b[31m\xff\xfe", strings.Repeat("模型", 2000), "javascript:alert(1)",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		checkTags(t, mustHTML(t, named(text)))
	})
}

// TestHTMLInABrowser draws the pages with a real browser: nothing is wider than the window, no two labels of a chart
// overlap, and the lines are there in their colours.
func TestHTMLInABrowser(t *testing.T) {
	browser := ""
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && browser == "" {
			browser = path
		}
	}
	if browser == "" {
		t.Skip("no chromium on this machine")
	}
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	long := sweepReport()
	for _, r := range long.Runs {
		r.Name += strings.Repeat("-and-more-of-the-same-WWW", 5)
	}
	for _, test := range []struct {
		name  string
		page  string
		width int
		want  []color.RGBA
	}{
		{"sweep", mustHTML(t, sweepReport()), 1280, []color.RGBA{{0x00, 0x63, 0xa6, 0xff}, {0xc8, 0x4a, 0x00, 0xff}}}, // the lines of two families
		{"sweep on a phone", mustHTML(t, sweepReport()), 500, []color.RGBA{{0x00, 0x63, 0xa6, 0xff}, {0xc8, 0x4a, 0x00, 0xff}}},
		{"long names", mustHTML(t, long), 800, []color.RGBA{{0x00, 0x63, 0xa6, 0xff}}},
		{"bars", mustHTML(t, &Report{Runs: threePolicies()}), 1000, []color.RGBA{{0x00, 0x63, 0xa6, 0xff}}},
		{"side by side", mustSideBySideHTML(t, sides(sideRun(40, 100), sideRun(40, 120), sideRun(30, 150))), 900,
			[]color.RGBA{{0x00, 0x63, 0xa6, 0xff}, {0xc8, 0x4a, 0x00, 0xff}}}, // the points of two runs
	} {
		dir := t.TempDir()
		file, shot := filepath.Join(dir, "page.html"), filepath.Join(dir, "page.png")
		if err := os.WriteFile(file, []byte(test.page), 0o644); err != nil {
			t.Fatal(err)
		}
		const height = 1600
		browse(t, browser, dir, test.width, height, "--screenshot="+shot, "file://"+file)
		checkShot(t, test.name, shot, test.width, height, test.want)

		open := strings.ReplaceAll(test.page, "<details>", "<details open>")
		open = regexp.MustCompile(`<meta http-equiv[^>]*>`).ReplaceAllString(open, "")
		if err := os.WriteFile(file, []byte(open+layoutProbe), 0o644); err != nil {
			t.Fatal(err)
		}
		dom := browse(t, browser, dir, test.width, height, "--dump-dom", "file://"+file)
		_, found, _ := strings.Cut(dom, `data-found="`)
		found, _, closed := strings.Cut(found, `"`)
		if !closed || found != "nothing" {
			t.Errorf("%s: the layout is wrong: %q", test.name, found)
		}
	}
}

// layoutProbe notes in the page what is wider than the window and which labels of a chart overlap. What scrolls in a box of
// its own may be wider.
const layoutProbe = `<script>
const found = [];
if (document.documentElement.scrollWidth > innerWidth) found.push("page is " + document.documentElement.scrollWidth + " wide");
for (const e of document.querySelectorAll("body *")) {
  if (!e.closest(".scroll, pre") && e.getBoundingClientRect().right > innerWidth + 0.5) found.push(e.tagName + " " + e.textContent.slice(0, 40));
}
for (const chart of document.querySelectorAll("svg.chart")) {
  const frame = chart.getBoundingClientRect();
  const labels = [...chart.querySelectorAll("text")].filter(l => l.textContent);
  const boxes = labels.map(l => l.getBoundingClientRect());
  boxes.forEach((a, i) => {
    if (a.left < frame.left - 1 || a.right > frame.right + 1) found.push("cut off: " + labels[i].textContent);
    boxes.slice(0, i).forEach((b, j) => {
      if (a.left < b.right - 1 && b.left < a.right - 1 && a.top < b.bottom - 3 && b.top < a.bottom - 3) found.push("overlap: " + labels[j].textContent + " / " + labels[i].textContent);
    });
  });
}
document.body.setAttribute("data-found", found.length ? found.slice(0, 5).join("; ").replaceAll('"', "'") : "nothing");
</script>`

// browse runs a browser without a window and returns what it prints.
func browse(t *testing.T, browser, dir string, width, height int, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, browser, append([]string{"--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
		"--force-device-scale-factor=1", "--user-data-dir=" + filepath.Join(dir, "profile"), fmt.Sprintf("--window-size=%d,%d", width, height)}, args...)...)
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v", browser, err)
	}
	return string(out)
}

// checkShot verifies a picture's size, and that the colours are in it, each in enough pixels for a line.
func checkShot(t *testing.T, name, file string, width, height int, want []color.RGBA) {
	t.Helper()
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	picture, err := png.Decode(f)
	if err != nil {
		t.Fatal(err)
	}
	if size := picture.Bounds().Size(); size.X != width || size.Y != height {
		t.Errorf("%s: the picture is %v, want %d×%d", name, size, width, height)
	}
	counts := map[color.RGBA]int{}
	for y := range height {
		for x := range width {
			r, g, b, a := picture.At(x, y).RGBA()
			counts[color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), uint8(a >> 8)}]++
		}
	}
	for _, c := range want {
		if counts[c] < 300 {
			t.Errorf("%s: %d pixels are of colour %v, want a line of it", name, counts[c], c)
		}
	}
}
