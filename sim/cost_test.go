package sim

import (
	"testing"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/trace"
)

// pricedBy is a deployment of a model on one worker with the step times of the shipped profile.
func pricedBy(profile, model string) Deployment {
	d := Default()
	d.Model, d.Parallelism.Tensor = model, 2
	d.Cost.Profile, d.Load.Mode = profile, "closed"
	return d
}

// Contexts of 20,000 tokens are above all that profile h100-vllm was measured on, those of 1000 are not. The chunks of the
// long prompt are of 8192, 8192 and 3616 tokens; the first is inside too.
func TestShareOutside(t *testing.T) {
	short := session("a", 100, trace.Turn{Input: 1000, Output: 20, Start: 0, End: 300 * ms})
	long := session("b", 200, trace.Turn{Input: 20_000, Output: 20, Start: 60_000 * ms, End: 61_000 * ms})
	w := compile(t, short, long)
	d := pricedBy("h100-vllm", "qwen3-32b")
	cost := mustRun(t, w, d).Report(nil, nil).Cost
	if len(cost.Outside) != 1 || cost.Outside[0].Cause != "context" || cost.Outside[0].What != "contexts above 9197 tokens" {
		t.Fatalf("outside are %+v, want contexts", cost.Outside)
	}
	if s := cost.OutsideShare.Value; s != cost.Outside[0].Share.Value || s < 0.3 || s > 0.9 {
		t.Errorf("%v of the time is outside, want that of two chunks and 19 decodes", s)
	}
	profile, err := models.LookupProfile("h100-vllm")
	if err != nil {
		t.Fatal(err)
	}
	model, err := models.Lookup("qwen3-32b")
	if err != nil {
		t.Fatal(err)
	}
	if want := profile.HeldOut("tpot", model); want == 0 || cost.Errors.TPOT.Value != want {
		t.Errorf("the held-out error of qwen3-32b is %v, want %v as in the profile", cost.Errors.TPOT.Value, want)
	}

	// In a window before the second request there is nothing outside, in one around it everything but its first chunk.
	d.Load.Duration = 30 * time.Second
	if s := mustRun(t, w, d).Report(nil, nil).Cost.OutsideShare; !s.Known || s.Value != 0 {
		t.Errorf("%+v outside before the long request", s)
	}
	d.Load.Warmup = 30 * time.Second
	d.Load.Duration = 60 * time.Second
	if s := mustRun(t, w, d).Report(nil, nil).Cost.OutsideShare.Value; !(s > cost.OutsideShare.Value && s < 1) {
		t.Errorf("%v outside in the window of the long request, %v in all", s, cost.OutsideShare.Value)
	}
}

// What was never measured is outside as a whole, whatever the steps are like.
func TestAllOutside(t *testing.T) {
	w := compile(t, session("a", 100, trace.Turn{Input: 1000, Output: 20, Start: 0, End: 300 * ms}))
	for _, c := range []struct{ profile, model, gpu, cause, what string }{
		{"h100-vllm", "qwen3-14b", "h100-sxm", "model", "model qwen3-14b"},
		{"h100-vllm", "qwen3-32b", "h200-sxm", "gpu", "GPU h200-sxm"},
		{"physical", "qwen3-32b", "h100-sxm", "profile", "no envelope"},
	} {
		d := pricedBy(c.profile, c.model)
		d.GPU = c.gpu
		cost := mustRun(t, w, d).Report(nil, nil).Cost
		if len(cost.Outside) != 1 || cost.Outside[0].Cause != c.cause || cost.Outside[0].What != c.what || cost.OutsideShare.Value != 1 {
			t.Errorf("%s of %s on %s: %v outside, %+v", c.profile, c.model, c.gpu, cost.OutsideShare.Value, cost.Outside)
		}
	}
	if cost := mustRun(t, w, fixed()).Report(nil, nil).Cost; cost != nil {
		t.Errorf("fixed step times rest on %+v", cost)
	}
}
