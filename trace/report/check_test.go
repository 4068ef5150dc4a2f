package report

import (
	"strings"
	"testing"
	"time"
)

func TestCheckRequests(t *testing.T) {
	ok := Request{
		Status: Completed, Arrival: 1, Admitted: 2, FirstToken: 3, End: 3, Input: 100, Output: 1, Hit: 100, Warm: 100,
		Computed: 10, RecomputedEviction: 4, RecomputedPreemption: 3, RecomputedMigration: 3, Readmit: 5, ReadmitHit: 5,
	}
	for _, test := range []struct {
		name   string
		change func(*Request)
		want   string // part of the error; "" for none
	}{
		{"all at their bounds", func(*Request) {}, ""},
		{"unknown times and counts", func(r *Request) { r.Admitted, r.End, r.Hit, r.Computed = None, None, -1, -1 }, ""},
		{"a hit beyond the prompt", func(r *Request) { r.Hit = 101 }, "101 hit tokens in a prompt of 100"},
		{"more warm than hit", func(r *Request) { r.Hit = 99 }, "100 warm tokens in 99 hit"},
		{"more recomputed than computed", func(r *Request) { r.Computed = 9 }, "recomputed"},
		{"more readmitted hits", func(r *Request) { r.ReadmitHit = 6 }, "6 hit tokens in 5 re-admitted"},
		{"negative prompt", func(r *Request) { r.Input, r.Hit, r.Warm = -1, -1, 0 }, "negative token counts"},
		{"admitted before it arrived", func(r *Request) { r.Admitted = 0 }, "admission at 0s, before its arrival at 1ns"},
		{"ended before it began", func(r *Request) { r.FirstToken, r.End = 5, 4 }, "end at 4ns, before its first token at 5ns"},
		{"no such status", func(r *Request) { r.Status = 9 }, "status 9"},
	} {
		r := ok
		test.change(&r)
		err := CheckRequests([]Request{ok, r})
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "request 1 ")):
			t.Errorf("%s: got error %v, want request 1 and %q", test.name, err, test.want)
		}
	}
}

func TestRunCheck(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Run)
		want   string
	}{
		{"as built", func(*Run) {}, ""},
		{"a request that never ended", func(r *Run) { r.Requests.Total++ }, "requests, but"},
		{"the same in the whole run", func(r *Run) { r.Whole = &Measures{Requests: Requests{Total: 1}} }, "1 requests, but 0 ends"},
		{"too many rejections", func(r *Run) { r.Requests.Rejections[0].Count = 2 }, "2 rejections explained, but 1 rejected"},
		{"too many failures", func(r *Run) { r.Requests.Failures = []Loss{{2, "gave up"}} }, "2 failures explained, but 1 failed"},
		{"a term above the capacity", func(r *Run) { r.KV.SpaceTime = NewSpaceTime(1, 2, 0, 0, 0) }, "kv.space_time.decode is 2"},
		{"a program that held more than all", func(r *Run) {
			r.KV.HeldGiBS, r.KV.Holders = &Holding{Tool: Known(1)}, []Holder{{"p", Holding{Running: Known(2)}}}
		}, "program p held 2 GiB"},
		{"less than nothing held", func(r *Run) { r.KV.HeldGiBS = &Holding{Human: Known(-1)} }, "-1 GiB"},
		{"too many programs", func(r *Run) { r.Programs.Completed = 99 }, "99 of"},
		{"more hits than prompts", func(r *Run) { r.KV.HitTokens = Known(1e9) }, "hit tokens in"},
		{"recomputed", func(r *Run) { r.KV.Recomputed.Eviction = Known(1e9) }, "tokens recomputed"},
		{"a share above 1", func(r *Run) { r.KV.ReprefillTimeShare = Known(1.1) }, "kv.reprefill_time_share is 1.1"},
		{"more latencies than requests", func(r *Run) { r.LatencyMs.E2E.Count = 99 }, "99 latencies"},
	} {
		run := Build(smallInput())
		test.change(run)
		err := run.Check()
		switch {
		case test.want == "" && err != nil:
			t.Errorf("%s: %v", test.name, err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
			t.Errorf("%s: got error %v, want %q", test.name, err, test.want)
		}
	}
}

// What Build makes of rows that pass CheckRequests passes Check.
func FuzzBuild(f *testing.F) {
	f.Add([]byte("a few bytes that become requests, five for each of them"), int64(0), int64(40))
	f.Fuzz(func(t *testing.T, b []byte, from, to int64) {
		in := Input{Name: "fuzz", Gaps: new(Gaps), SLO: SLO{TTFT: 50, ITL: 3, Program: 100}}
		if from >= 0 && to > from {
			in.Window = Window{time.Duration(from), time.Duration(to)}
		}
		for ; len(b) >= 5; b = b[5:] {
			at := func(i int) time.Duration { return time.Duration(b[i]) - 1 }
			r := Request{
				Status: Status(b[0] % 4), Arrival: at(1), Admitted: at(2), FirstToken: at(3), End: at(4),
				Input: int32(b[0]), Output: int32(b[1] % 4), Hit: int32(b[2]) - 1, Computed: int32(b[3]) - 1,
			}
			in.Requests = append(in.Requests, r)
			in.Programs = append(in.Programs, Program{
				First: at(1), Last: at(4), Completed: r.Status == Completed, Solo: at(2), Tool: at(3),
			})
		}
		if CheckRequests(in.Requests) != nil {
			return
		}
		run := Build(in)
		if err := run.Check(); err != nil {
			t.Error(err)
		}
		if run.Requests.Total > int64(len(in.Requests)) {
			t.Errorf("%d requests reported of %d", run.Requests.Total, len(in.Requests))
		}
	})
}
