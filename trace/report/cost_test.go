package report

import (
	"strings"
	"testing"
)

// A verdict says less the more of the GPU time its step times are a guess for, and when a lead is within their error.
func TestJudgeSaysHowFarStepTimesCarry(t *testing.T) {
	long := func(share float64) *Cost {
		return &Cost{Profile: "p", Priced: "m on g, tensor 2", OutsideShare: Known(share), Errors: CostErrors{E2E: Known(0.05), Throughput: Known(0.08)},
			Outside: []Outside{{"context", "contexts above 9000 tokens", Known(share)}, {"batch", "batches above 128 requests", Known(share / 10)}}}
	}
	on := func(priced string, c *Cost) *Cost { c.Priced = priced; return c }
	rr, kv, near := deployment{name: "rr", programsPerHour: 361}, deployment{name: "kv", programsPerHour: 412}, deployment{name: "near", programsPerHour: 380}
	const wins, nearWins = "kv completes the most programs per hour: 412, 14% more than rr.", "near completes the most programs per hour: 380, 5.3% more than rr."
	within := "The lead is within the error of the step times: profile p was off by 8.0% on models that it was fitted without."
	for _, test := range []struct {
		name  string
		runs  []deployment
		costs []*Cost
		want  string
	}{
		{"step times by hand", []deployment{rr, kv}, []*Cost{nil, nil}, wins},
		{"little is outside", []deployment{rr, kv}, []*Cost{long(0.049), long(0.02)}, wins},
		{"a part is outside", []deployment{rr, kv}, []*Cost{long(0.31), long(0.31)},
			wins + " 31% of GPU time is outside what profile p was measured on (contexts above 9000 tokens); read the gap as a direction."},
		{"different parts, a second cause", []deployment{rr, kv}, []*Cost{long(0.31), long(0.93)},
			wins + " An extrapolation: up to 93% of GPU time is outside what profile p was measured on (contexts above 9000 tokens, batches above 128 requests); read the gap as a direction."},
		{"nothing is inside", []deployment{kv}, []*Cost{{Profile: "p", OutsideShare: Known(1), Outside: []Outside{{"model", "model m", Known(1)}}}},
			"kv: 412 programs per hour. An extrapolation: all GPU time is outside what profile p was measured on (model m)."},
		{"nobody knows", []deployment{rr, rr}, []*Cost{{Profile: "physical", OutsideShare: Known(1), Outside: []Outside{{"profile", "no envelope", Known(1)}}}, nil},
			"Equal in programs per hour (361). An extrapolation: profile physical does not say what it was measured on."},
		{"a small lead of other GPUs", []deployment{rr, near}, []*Cost{long(0), on("m on h, tensor 2", long(0))}, nearWins + " " + within},
		{"a small lead held by the baseline", []deployment{near, rr}, []*Cost{long(0), on("m on h, tensor 2", long(0))},
			"near, the baseline, completes the most programs per hour: 380; the next, rr, has 5.0% less. " + within},
		{"the same error in both", []deployment{rr, near}, []*Cost{long(0), long(0)}, nearWins},
		{"a lead beyond the error", []deployment{rr, kv}, []*Cost{long(0), on("m on h, tensor 2", long(0))}, wins},
		{"both", []deployment{rr, near}, []*Cost{long(0.6), on("m on h, tensor 2", long(0.6))},
			nearWins + " An extrapolation: 60% of GPU time is outside what profile p was measured on (contexts above 9000 tokens, batches above 128 requests); read the gap as a direction. " + within},
	} {
		runs := runsOf(test.runs...)
		for i, r := range runs {
			r.Cost = test.costs[i]
		}
		got := Judge(runs, Evidence{})
		if got.Text != test.want {
			t.Errorf("%s:\n got %s\nwant %s", test.name, got.Text, test.want)
		}
		if !got.Trusted || !strings.HasSuffix(got.Text, strings.Join(got.Caveats, " ")) {
			t.Errorf("%s: trusted %v, caveats %q", test.name, got.Trusted, got.Caveats)
		}
	}
}

// Times are compared by the error of end-to-end times, rates by that of throughput, where it is known.
func TestErrorOf(t *testing.T) {
	c := Cost{Errors: CostErrors{E2E: Known(0.05), Throughput: Known(0.08)}}
	if got := c.errorOf(meanMakespan); got != 0.05 {
		t.Errorf("times are off by %v", got)
	}
	if got := c.errorOf(programsPerHour); got != 0.08 {
		t.Errorf("rates are off by %v", got)
	}
	c.Errors.Throughput = Figure{}
	if got := c.errorOf(programsPerHour); got != 0.05 {
		t.Errorf("rates are off by %v", got)
	}
}
