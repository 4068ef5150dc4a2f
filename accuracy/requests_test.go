package accuracy

import (
	"context"
	"math"
	"path/filepath"
	"testing"
	"time"
)

func TestRequests(t *testing.T) {
	runs, err := Requests(filepath.Join(groundTruth(t), "llmservingsim-vllm"))
	if err != nil {
		t.Fatal(err)
	}
	for _, run := range runs {
		res, err := run.simulate(context.Background(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var e2e, bias, ttft float64
		for i := range run.Truth {
			q, p := &run.Truth[i], &res.Requests[i]
			e := float64(p.End-p.Arrival)/float64(q.End-q.Arrival) - 1
			e2e += math.Abs(e) / float64(len(run.Truth))
			bias += e / float64(len(run.Truth))
			ttft += (ms(p.FirstToken-p.Arrival) - ms(q.FirstToken-q.Arrival)) / float64(len(run.Truth))
			if i%20 == 0 {
				t.Logf("%d arr %.2f in %d out %d: first %.2f %.2f end %.2f %.2f", i, q.Arrival.Seconds(), q.Input, q.Output, q.FirstToken.Seconds(), p.FirstToken.Seconds(), q.End.Seconds(), p.End.Seconds())
			}
		}
		t.Logf("%s: e2e MAPE %.2f bias %.2f ttft bias %.0f ms, measured %v predicted %v", run.Name, 100*e2e, 100*bias, ttft, run.Parts[0].Measured, run.Parts[0].sum(res.Requests))
		var series float64
		for i, n := range run.Running {
			series += math.Abs(float64(runningAt(res.Requests, time.Duration(i+1)*time.Second))-n) / float64(len(run.Running))
		}
		t.Logf("running: mean abs diff %.2f of %d", series, len(run.Running))
	}
}
