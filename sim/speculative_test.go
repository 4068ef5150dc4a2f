package sim

import (
	"slices"
	"strings"
	"testing"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/synth"
)

// drafting is a deployment that verifies 3 drafts a step, half of which are accepted after accepted ones.
func drafting() Deployment {
	d := Default()
	d.Model, d.Parallelism.Tensor, d.Engine.KVBlocks = "qwen3-14b", 1, "2000"
	d.Engine.Speculative = Speculative{Method: "ngram", Tokens: 3, Acceptance: "0.5"}
	d.Load.Mode, d.Load.Concurrency = "concurrency", 8
	return d
}

// TestAcceptanceShares: a number is that of each draft after accepted ones; a list has the shares of steps.
func TestAcceptanceShares(t *testing.T) {
	for _, test := range []struct {
		text string
		want []float64
		err  string
	}{
		{"0.5", []float64{0.5, 0.25, 0.125}, ""},
		{"1", []float64{1, 1, 1}, ""},
		{"[0.8, 0.6,0.6]", []float64{0.8, 0.6, 0.6}, ""},
		{"", nil, "not set"},
		{"[0.8, 0.6]", nil, "2 shares for 3 tokens"},
		{"[0.8]", nil, "1 shares for 3 tokens"},
		{"[0.6, 0.8, 0.1]", nil, "rises"},
		{"1.1", nil, "not a share"},
		{"NaN", nil, "not a share"},
		{"high", nil, "not a share"},
	} {
		got, err := Acceptance(test.text).shares(3)
		switch {
		case !slices.Equal(got, test.want):
			t.Errorf("%q: %v, want %v", test.text, got, test.want)
		case (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err):
			t.Errorf("%q: error %v, want %q", test.text, err, test.err)
		}
	}
}

// TestSpeculativeRefused: settings that contradict each other, or that no engine has here.
func TestSpeculativeRefused(t *testing.T) {
	for _, test := range []struct {
		change func(*Deployment)
		want   string
	}{
		{func(d *Deployment) { d.Engine.Speculative.Method = "" }, "engine.speculative.method: not set"},
		{func(d *Deployment) { d.Engine.Speculative.Method = "lookahead" }, `"lookahead"`},
		{func(d *Deployment) { d.Engine.Speculative.Tokens = 65 }, "engine.speculative.tokens: 65 is out of range"},
		{func(d *Deployment) { d.Engine.Kind = "sglang" }, "engine.speculative: simulated for engine.kind vllm, not for sglang"},
		{func(d *Deployment) { d.Engine.Speculative.DraftModel = "no-such-model" }, "engine.speculative.draft_model"},
		{func(d *Deployment) {
			d.Engine.Speculative.Method, d.Engine.Speculative.DraftModel = "draft_model", "qwen3-8b"
			d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens = 512, 1023
		}, "1023 leave 511 for a step"},
	} {
		d := drafting()
		test.change(&d)
		if _, err := d.Resolve(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %q", err, test.want)
		}
	}
	d := drafting()
	d.Engine.Speculative.Tokens = 0 // so that it can be an axis
	if p, err := d.Resolve(); err != nil || p.speculation != nil {
		t.Errorf("0 tokens: %v, speculation %v", err, p.speculation)
	}
}

// TestDraftsInARun: every request ends with all its tokens, the same drafts are accepted on other hardware, and the report
// counts them.
func TestDraftsInARun(t *testing.T) {
	c, err := synth.Generate("mini-swe-agent", synth.Options{Programs: 20, Seed: 1, Set: []string{"turns=5", "output=60"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		t.Fatal(err)
	}
	var speculations []*report.Speculation
	for _, tensor := range []int{1, 2} {
		d := drafting()
		d.Parallelism.Tensor = tensor
		res := mustRun(t, w, d)
		decoded := int64(0) // all tokens but the first ones
		for _, q := range res.Requests {
			if q.Status != report.Completed {
				t.Fatalf("request %d: %v", q.Turn, q.Status)
			}
			decoded += int64(q.Output) - 1
		}
		if e := res.Engines[0]; e.DecodeTokens != decoded || e.Preemptions > 0 {
			t.Errorf("%d tokens decoded in spite of %d preemptions, want %d", e.DecodeTokens, e.Preemptions, decoded)
		}
		speculations = append(speculations, res.Report(nil, nil).Speculation)
	}
	a, b := speculations[0], speculations[1]
	if *a != *b {
		t.Errorf("on one GPU %+v, on two %+v", a, b)
	}
	if mean := a.AcceptedPerStep.Value; mean < 0.82 || mean > 0.93 { // 0.5 + 0.25 + 0.125
		t.Errorf("%v accepted per step, want 0.875", mean)
	}
}
