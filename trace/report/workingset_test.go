package report

import (
	"testing"
	"time"
)

// Program 0 has a session of two requests and, at the same time, a subagent's; program 1 has one request:
//
//	program 0  session 0  0 s ── 100 tokens ── 4 s ── 200 tokens ── 6 s
//	           session 1            2 s ── 50 tokens ── 3 s
//	program 1  session 2            2 s ── 400 tokens ── 4 s
func TestWorkingSet(t *testing.T) {
	request := func(program, session int32, from, to time.Duration, tokens int32) Request {
		return Request{Program: program, Session: session, Status: Completed, Arrival: from * time.Second, End: to * time.Second,
			Input: tokens - 10, Output: 10}
	}
	requests := []Request{
		request(0, 0, 0, 1, 100), request(0, 0, 4, 6, 200), request(0, 1, 2, 3, 50), request(1, 2, 2, 4, 400),
		{Program: 2, Session: 3, Status: Rejected, Arrival: 0, End: 9 * time.Second, Input: 1e6},
	}
	for _, test := range []struct {
		window Window
		want   float64
	}{
		{Window{}, (4*100 + 2*200 + 1*50 + 2*400) / float64(6+2)},
		{Window{2 * time.Second, 5 * time.Second}, (2*100 + 1*200 + 1*50 + 2*400) / float64(3+2)},
	} {
		checkFigures(t, []figureTest{{"working set", workingSet(requests, test.window), test.want}})
	}
	if f := workingSet(nil, Window{}); f.Known {
		t.Errorf("the working set of nothing is %v", f.Value)
	}
}

// The terms of a space-time cost add up to the total; what nobody holds is unused.
func TestNewSpaceTime(t *testing.T) {
	s := NewSpaceTime(1000, 400, 100, 50, 150)
	checkFigures(t, []figureTest{
		{"decode", s.Decode.Share, 0.4}, {"prefill", s.Prefill.Share, 0.1}, {"recompute", s.Recompute.Share, 0.05},
		{"caching", s.Caching.Share, 0.15}, {"unused", s.Unused.TokenS, 300},
	})
	if NewSpaceTime(0, 0, 0, 0, 0) != nil {
		t.Error("no capacity, or no time, has a space-time cost")
	}
}

func TestDoneIsARollouts(t *testing.T) {
	in := Input{Rollout: true, Programs: []Program{
		{First: time.Second, Last: 4 * time.Second, Completed: true}, {Last: 8 * time.Second, Completed: true}, {Last: 20 * time.Second},
	}}
	done := Build(in).Programs.DoneS
	checkFigures(t, []figureTest{{"half", done.P50, 6}, {"last", done.Max, 8}})
	if in.Rollout = false; Build(in).Programs.DoneS.Count != 0 {
		t.Error("done_s of programs that did not all begin at the start")
	}
}
