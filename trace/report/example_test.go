package report_test

import (
	"fmt"
	"os"
	"time"

	"github.com/agentsim/agentsim/trace/report"
)

// Two deployments ran the same two programs of two turns each. The second one finds the first turn's prompt in its
// cache, so the second turn starts sooner.
func Example() {
	deployment := func(name string, hit int32, prefill time.Duration) *report.Run {
		var requests []report.Request
		var programs []report.Program
		for p := range int32(2) {
			start := time.Duration(p) * time.Second
			first := report.Request{
				Turn: 2 * p, Program: p, Status: report.Completed, Input: 8000, Output: 101, Computed: 8000,
				Arrival: start, Admitted: start, FirstToken: start + 800*time.Millisecond, End: start + 1800*time.Millisecond,
			}
			arrival := first.End + 200*time.Millisecond // a tool runs
			second := report.Request{
				Turn: 2*p + 1, Program: p, Status: report.Completed, Input: 10000, Output: 101, Hit: hit, Computed: 10000 - hit,
				Arrival: arrival, Admitted: arrival, FirstToken: arrival + prefill, End: arrival + prefill + time.Second,
			}
			requests = append(requests, first, second)
			programs = append(programs, report.Program{
				Index: p, First: first.Arrival, Last: second.End, Completed: true, Tool: 200 * time.Millisecond, Paused: report.None,
			})
		}
		return report.Build(report.Input{
			Name: name, Requests: requests, Programs: programs,
			Workload: report.Workload{Programs: 2, Sessions: 2, Turns: 4, InputTokens: 36000, OutputTokens: 404},
		})
	}
	runs := []*report.Run{
		deployment("round-robin", 0, time.Second),
		deployment("kv", 8000, 200*time.Millisecond),
	}
	if err := report.WriteTable(os.Stdout, runs, report.TableOptions{Width: 80}); err != nil {
		fmt.Println(err)
	}
	verdict := report.Judge(runs, report.Evidence{FixedLoad: true})
	fmt.Println(verdict.Text)
	fmt.Println("trusted:", verdict.Trusted)
	// Output:
	// requests    programs      TTFT        TTFT    TPOT    program   hit
	// run              done          /h    p50 ms       p99 s  p50 ms     mean s  rate
	// ────────────────────────────────────────────────────────────────────────────────
	// round-robin       4/4  1.44k       900           1         10       4         0%
	// kv                4/4  1.71k +19%  500 -44%  0.800 -20%    10 =  3.20 -20%   44%
	// = is a change of less than 1%; changes are against the first row, round-robin
	// not shown at this width: output tok/s
	// kv has the lowest mean program time: 3.20 s, 20% less than round-robin, with a p99 TTFT of 0.800 s against 1 s; hit rate 44% against 0%.
	// trusted: true
}
