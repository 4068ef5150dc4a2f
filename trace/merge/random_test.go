package merge_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/merge"
)

// Whatever two recordings tell, each call of the server is in the result once, each call of the harness is one of them at most, and
// the order in which sessions and calls were read changes nothing.
func TestRandomRecordings(t *testing.T) {
	merges := 0
	for seed := range uint64(400) {
		random := rand.New(rand.NewPCG(seed, 1))
		ahead := time.Duration(random.IntN(7200)-3600) * time.Second
		options := merge.Options{KeepUnserved: random.IntN(2) == 0}
		if random.IntN(3) == 0 {
			options.Ahead = &ahead
		}
		var first string
		for round := range 2 {
			server, harness := randomPair(rand.New(rand.NewPCG(seed, 2)), ahead)
			if round == 1 {
				shuffle(random, server)
				shuffle(random, harness)
			}
			calls, tools := server.Read.Calls, harness.Read.Tools
			c, report, err := merge.Merge(merge.Source{Name: "server", Capture: server}, []merge.Source{{Name: "harness", Capture: harness}}, options)
			got := fmt.Sprint(err)
			if err == nil {
				merges++
				h := &report.Harnesses[0]
				got = outline(c) + matched(h) + fmt.Sprint(h.Differs, report.Known, report.Merged, report.Unheard, report.Adopted)
				if report.Merged.Calls != calls+h.Kept || h.Matched()+h.Unserved != h.Calls || h.Matched()+report.Unheard != calls {
					t.Fatalf("seed %d: %d calls of the server: %+v", seed, calls, report)
				}
				if report.Merged.Tools+h.ToolsLost != tools {
					t.Fatalf("seed %d: %d of %d tools", seed, report.Merged.Tools, tools)
				}
				if err := c.Link(); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if round == 0 {
				first = got
			} else if diff := cmp.Diff(first, got); diff != "" {
				t.Fatalf("seed %d: in another order: %s", seed, diff)
			}
		}
	}
	if merges < 400 {
		t.Errorf("only %d of 800 merges were not refused", merges)
	}
}

// randomPair makes two recordings of a few calls with much in common: lengths, ids, times.
func randomPair(random *rand.Rand, ahead time.Duration) (server, harness *trace.Capture) {
	recording := func() *trace.Capture {
		return &trace.Capture{Format: "test", Resolution: time.Millisecond, SharedClock: true, Epoch: epoch}
	}
	server, harness = recording(), recording()
	sessions := map[*trace.Capture]map[string]*trace.Session{server: {}, harness: {}}
	add := func(c *trace.Capture, session string, turn trace.Turn) *trace.Session {
		s := sessions[c][session]
		if s == nil {
			s = &trace.Session{ID: session}
			sessions[c][session] = s
			c.Sessions = append(c.Sessions, s)
		}
		turn.Session, turn.TTFT, turn.Cached, turn.Reasoning = s, trace.NoTime, trace.Unknown, trace.Unknown
		s.Turns = append(s.Turns, &turn)
		c.Read.Calls++
		return s
	}
	for i := range 5 + random.IntN(40) {
		start := time.Duration(i) * time.Duration(random.IntN(3000)) * time.Millisecond
		turn := trace.Turn{ID: fmt.Sprint("s", i), Start: start, End: start + time.Second, Input: int32(1 + random.IntN(40)), Output: int32(1 + random.IntN(3))}
		seen := turn
		seen.ID, seen.Start, seen.End = fmt.Sprint("h", i), start+ahead, start+ahead+time.Second+time.Duration(random.IntN(300))*time.Millisecond
		if random.IntN(8) == 0 {
			seen.Aliases = []string{turn.ID}
		}
		if random.IntN(100) == 0 { // a wrong one
			seen.Aliases = []string{fmt.Sprint("s", random.IntN(i+1))}
		}
		if random.IntN(10) == 0 {
			seen.Inferred, seen.Input = trace.FieldInput, 7
		}
		if random.IntN(10) == 0 {
			seen.Inferred |= trace.FieldOutput
		}
		if random.IntN(10) > 0 || i == 0 {
			session := turn.ID
			if random.IntN(2) == 0 {
				session = fmt.Sprint("chain", random.IntN(4))
			}
			add(server, session, turn)
		}
		if random.IntN(10) > 0 || i == 0 {
			s := add(harness, fmt.Sprint("agent", random.IntN(4)), seen)
			if random.IntN(2) == 0 {
				s.Tools = append(s.Tools, trace.ToolSpan{ID: fmt.Sprint("t", i), Class: "bash", Start: seen.End, End: seen.End + time.Second})
				harness.Read.Tools++
			}
		}
	}
	return server, harness
}

func shuffle(random *rand.Rand, c *trace.Capture) {
	random.Shuffle(len(c.Sessions), func(i, j int) { c.Sessions[i], c.Sessions[j] = c.Sessions[j], c.Sessions[i] })
	for _, s := range c.Sessions {
		random.Shuffle(len(s.Turns), func(i, j int) { s.Turns[i], s.Turns[j] = s.Turns[j], s.Turns[i] })
		slices.Reverse(s.Tools)
	}
}

// BenchmarkMerge merges the halves of a workload.
func BenchmarkMerge(b *testing.B) {
	for _, programs := range []int{100, 400} {
		b.Run(fmt.Sprint(programs), func(b *testing.B) {
			for range b.N {
				b.StopTimer()
				server := serverHalf(invented(b, "claude-code", programs))
				harness := harnessHalf(invented(b, "claude-code", programs), time.Minute, time.Millisecond)
				calls := server.Read.Calls
				b.StartTimer()
				_, report, err := merge.Merge(merge.Source{Capture: server}, []merge.Source{{Capture: harness}}, merge.Options{})
				if err != nil || report.Harnesses[0].Matched() < calls*99/100 {
					b.Fatalf("%v: %s", err, matched(&report.Harnesses[0]))
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*calls), "ns/call")
			}
		})
	}
}
