package convert

import (
	"context"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// writeClient writes the two files of a client into a folder.
func writeClient(t testing.TB, dir, name, rates, lengths string) {
	for path, text := range map[string]string{name + "-trace.csv": rates, name + "-dataset.json": lengths} {
		if err := os.WriteFile(filepath.Join(dir, path), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// A client calls twice in the first second, never in the second, and four times a second in the last, which lasts 600 s. In the
// first its prompts have 10 + 5 tokens, later 20.
func TestServeGen(t *testing.T) {
	dir := t.TempDir()
	writeClient(t, dir, "chunk-1", "0,2,1,Exponential,0,0\n1,0,0,,0,0\n2,4,1,Gamma,0.5,9\n",
		`{"0":{"text_tokens":"{10: 1.0}","image_tokens":"{5: 0.5, 6: 0.0}","output_tokens":"{3: 1}","reason_ratio":"{0.5: 1.0}"},"1":{"input_tokens":"{}","output_tokens":"{}"},"2":{"input_tokens":"{20: 0.25}","output_tokens":"{0: 1e-05}"}}`)
	sample := func(s Sample) *trace.Capture {
		c, err := Open(context.Background(), []string{dir}, Options{Sample: s})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := sample(Sample{Seed: 7})
	if c.Read.Calls != 2+4*600 {
		t.Fatalf("%d calls, want %d", c.Read.Calls, 2+4*600)
	}
	for i, s := range c.Sessions {
		turn := s.Turns[0]
		input, output, reasoning := int32(20), int32(0), int32(trace.Unknown)
		if i < 2 {
			input, output, reasoning = 15, 3, 2
		}
		if turn.Input != input || turn.Output != output || turn.Reasoning != reasoning {
			t.Fatalf("call %d: %d+%d tokens, %d of reasoning", i, turn.Input, turn.Output, turn.Reasoning)
		}
	}
	if describe(sample(Sample{Seed: 7})) != describe(c) || describe(sample(Sample{Seed: 8})) == describe(c) {
		t.Error("the calls do not hang on the seed alone")
	}
	part := sample(Sample{Seed: 7, From: 100 * time.Second, For: 10 * time.Second})
	for _, s := range part.Sessions {
		if !slices.ContainsFunc(c.Sessions, func(all *trace.Session) bool { return all.ID == s.ID }) {
			t.Errorf("call %s is not in the longer sample", s.ID)
		}
	}
	_, err := Open(context.Background(), []string{dir}, Options{Sample: Sample{From: time.Second, For: time.Second}})
	if err == nil || !strings.Contains(err.Error(), "no calls from 1s to 2s of the recorded time") {
		t.Errorf("a second without calls: %v", err)
	}
	if n := part.Read.Calls; n < 10 || n > 90 {
		t.Errorf("%d calls in 10 s at a rate of 4 per second", n)
	}
}

// The gaps have the coefficient of variation of their family: 1/√k for a gamma distribution of shape k; for Weibull's by
// its moments Γ(1+1/k) and Γ(1+2/k).
func TestServeGenGaps(t *testing.T) {
	weibull := func(k float64) float64 {
		m := math.Gamma(1 + 1/k)
		return math.Sqrt(math.Gamma(1+2/k)/(m*m) - 1)
	}
	for _, c := range []struct {
		family string
		shape  float64
		want   float64
	}{{"gamma", 4, 0.5}, {"gamma", 0.25, 2}, {"weibull", 2, weibull(2)}, {"weibull", 0.7, weibull(0.7)}, {"exponential", 0, 1}} {
		w := serveGenRate{family: c.family, shape: c.shape}
		times := w.arrivals(rand.New(rand.NewPCG(1, 2)), 200000, time.Hour)
		var sum, squares float64
		for i := 1; i < len(times); i++ {
			gap := float64(times[i] - times[i-1])
			sum += gap
			squares += gap * gap
		}
		n := float64(len(times) - 1)
		if cv := math.Sqrt(squares/n-sum/n*sum/n) / (sum / n); math.Abs(cv/c.want-1) > 0.03 {
			t.Errorf("%s with shape %g: the gaps vary by %.3f, want %.3f", c.family, c.shape, cv, c.want)
		}
	}
}

func TestParseDict(t *testing.T) {
	o, err := parseDict([]byte("{526: 0.25, 0.5: 1e-05,}"))
	if err != nil || !slices.Equal(o.values, []float64{526, 0.5}) || !slices.Equal(o.below, []float64{0.25, 0.25 + 1e-05}) {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := parseDict([]byte("{}")); err != nil || !o.empty() {
		t.Errorf("%+v, %v", o, err)
	}
	for _, bad := range []string{"", "{", "{1}", "{1: }", "{1: 2", "{1: -1}", "{1: nan}", "{1: 2} + 3", "{__import__('os'): 1}", "{1e300: 1}"} {
		if _, err := parseDict([]byte(bad)); err == nil {
			t.Errorf("%q was read", bad)
		}
	}
}

func TestServeGenErrors(t *testing.T) {
	dir := t.TempDir()
	writeClient(t, dir, "chunk-1", "0,2,1,Gamma,1,0\n", `{"0":{"input_tokens":"{1: 1}","output_tokens":"{1: 1}"}}`)
	_, err := Open(context.Background(), []string{filepath.Join(dir, "chunk-1-trace.csv")}, Options{})
	if err == nil || !strings.Contains(err.Error(), "only one of the client's two files is here") {
		t.Errorf("one file: %v", err)
	}
}

// Windows of ServeGen's clients: as many calls as their rates say.
func TestServeGenShared(t *testing.T) {
	dir := sharedTraces(t)
	for _, c := range []struct {
		path     string
		from     time.Duration
		calls    int
		reasoned bool
	}{
		// Rows 225000 and 225600 have rates of 7/6 and 17/6 per second, for 600 s each.
		{"servegen/language/m-large", 225000 * time.Second, 700 + 1700, false},
		{"servegen/multimodal/mm-image", 0, 709 + 630, false}, // 1.18167 and 1.05 per second
		{"servegen/reason/deepseek-r1", 0, 0, true},
	} {
		got, err := Open(context.Background(), []string{filepath.Join(dir, c.path)}, Options{Sample: Sample{From: c.from, For: 1200 * time.Second}})
		if err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		if c.calls > 0 && got.Read.Calls != c.calls {
			t.Errorf("%s: %d calls, want %d", c.path, got.Read.Calls, c.calls)
		}
		if turn := got.Sessions[0].Turns[0]; (turn.Reasoning != trace.Unknown) != c.reasoned {
			t.Errorf("%s: reasoning %d", c.path, turn.Reasoning)
		}
	}
}

func FuzzServeGen(f *testing.F) {
	f.Add("0,2,1,Exponential,0,0\n1,0,0,,0,0\n2,4,1,Gamma,0.5,9\n", `{"0":{"input_tokens":"{1: 1}","output_tokens":"{1: 1}"}}`)
	f.Fuzz(func(t *testing.T, rates, lengths string) {
		dir := t.TempDir()
		writeClient(t, dir, "c", rates, lengths)
		c, err := Open(context.Background(), []string{filepath.Join(dir, "c-trace.csv"), filepath.Join(dir, "c-dataset.json")}, Options{Sample: Sample{For: time.Minute}})
		if err == nil {
			checkCapture(t, c)
		}
	})
}
