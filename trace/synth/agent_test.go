package synth

import (
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// chain expands a turn's block hashes.
func chain(t *trace.Turn) []uint64 {
	if t.Base == nil {
		return t.Hashes
	}
	return append(chain(t.Base)[:t.Shared:t.Shared], t.Hashes...)
}

// TestChains builds every prompt out of tokens, each with a number of its own, and checks that two blocks have the
// same hash exactly if they end the same prompt prefix. As a token follows one prefix only, its number stands for
// that prefix.
func TestChains(t *testing.T) {
	const block, system = 64, 192
	c := generate(t, "mini-swe-agent", Options{Programs: 50, Set: busy})
	fresh := system
	extend := func(tokens []int, n int32) []int {
		tokens = tokens[:len(tokens):len(tokens)]
		for len(tokens) < int(n) {
			fresh++
			tokens = append(tokens, fresh)
		}
		return tokens
	}
	var systemTokens []int
	for i := range system {
		systemTokens = append(systemTokens, i)
	}
	hashOf, tokenOf := map[int]uint64{}, map[uint64]int{}
	compactions := 0
	for _, s := range c.Sessions {
		tokens := systemTokens
		for _, u := range s.Turns {
			tokens = extend(tokens, u.Input)
			hashes := chain(u)
			if got, want := len(hashes), (len(tokens)+block-1)/block; got != want {
				t.Fatalf("%s: %d hashes for %d tokens, want %d", u.ID, got, len(tokens), want)
			}
			for b, h := range hashes {
				last := tokens[min((b+1)*block, len(tokens))-1]
				if old, ok := hashOf[last]; ok && old != h {
					t.Fatalf("%s block %d: hash %x, but the same tokens had %x", u.ID, b, h, old)
				}
				if old, ok := tokenOf[h]; ok && old != last {
					t.Fatalf("%s block %d: hash %x stood for other tokens", u.ID, b, h)
				}
				hashOf[last], tokenOf[h] = h, last
			}
			if u.Compaction {
				compactions++
				tokens = systemTokens
			}
		}
	}
	if compactions < 50 {
		t.Errorf("%d compactions in 50 programs: too few to test", compactions)
	}
}

// TestStructure checks what holds in every program.
func TestStructure(t *testing.T) {
	c := generate(t, "claude-code", Options{Programs: 50, Set: append(busy, "compact=15000")})
	if c.Format != "synth" || c.Resolution != time.Nanosecond || !c.SharedClock {
		t.Errorf("capture says format %q, resolution %v, shared clock %v", c.Format, c.Resolution, c.SharedClock)
	}
	ids := map[string]bool{}
	byID := map[string]*trace.Session{}
	calls, tools, children := 0, 0, 0
	for _, s := range c.Sessions {
		byID[s.ID] = s
		calls += len(s.Turns)
		tools += len(s.Tools)
		spans := s.Tools
		for i, u := range s.Turns {
			last := i == len(s.Turns)-1
			if ids[u.ID] {
				t.Fatalf("two turns are named %s", u.ID)
			}
			ids[u.ID] = true
			if u.Final != last || u.End <= u.Start || u.TTFT <= 0 || u.Start+u.TTFT > u.End || u.Output < 1 {
				t.Fatalf("%s: final %v, %v..%v, ttft %v, output %d", u.ID, u.Final, u.Start, u.End, u.TTFT, u.Output)
			}
			if called := len(u.ToolCalls) > 0; called == (last || u.Compaction) {
				t.Fatalf("%s: calls tools %v", u.ID, u.ToolCalls)
			}
			if last {
				continue
			}
			next := s.Turns[i+1]
			if u.Compaction {
				if next.Input != 12992+u.Output || next.Start != u.End || next.Trigger != "other" {
					t.Fatalf("%s follows a compaction with output %d: %+v", next.ID, u.Output, next)
				}
				continue
			}
			if next.Input <= u.Input+u.Output {
				t.Fatalf("%s: prompt of %d tokens after %d + %d", next.ID, next.Input, u.Input, u.Output)
			}
			span := spans[0]
			spans = spans[1:]
			if call := u.ToolCalls[0]; span.ID != call.ID || span.Class != call.Name || span.Start != u.End || span.End != next.Start {
				t.Fatalf("between %s and %s runs %+v", u.ID, next.ID, span)
			}
		}
		if s.Parent == "" {
			continue
		}
		// The parent waits in one tool span for the whole of the child.
		children++
		joined := false
		for _, span := range byID[s.Parent].Tools {
			joined = joined || span.Class == "subagent" && span.Start == s.Turns[0].Start && span.End == s.Turns[len(s.Turns)-1].End
		}
		if !joined {
			t.Errorf("%s does not wait for its subagent %s", s.Parent, s.ID)
		}
	}
	if children == 0 || calls != c.Read.Calls || tools != c.Read.Tools {
		t.Errorf("%d subagents; %d calls and %d tools, counted %d and %d", children, calls, tools, c.Read.Calls, c.Read.Tools)
	}
}

// TestMeans compares what 2000 programs hold with what the profiles promise.
func TestMeans(t *testing.T) {
	for _, name := range []string{"mini-swe-agent", "openhands", "claude-code"} {
		t.Run(name, func(t *testing.T) {
			const programs = 2000
			p, err := Find(name)
			if err != nil {
				t.Fatal(err)
			}
			a := p.profile.(*agent)
			c := generate(t, name, Options{Programs: programs, Seed: 11})

			var roots, rootTurns, children, childTurns, task, childTask, results, resultTokens, outputs, outputTokens, spans float64
			var toolTime time.Duration
			for _, s := range c.Sessions {
				turns := 0.0
				for i, u := range s.Turns {
					if u.Compaction {
						continue
					}
					turns++
					outputs++
					outputTokens += float64(u.Output)
					if i > 0 && !s.Turns[i-1].Compaction && s.Turns[i-1].ToolCalls[0].Name == "bash" {
						results++
						resultTokens += float64(u.Input - s.Turns[i-1].Input - s.Turns[i-1].Output)
					}
				}
				first := float64(s.Turns[0].Input) - a.system.min
				if s.Parent == "" {
					roots, rootTurns, task = roots+1, rootTurns+turns, task+first
				} else {
					children, childTurns, childTask = children+1, childTurns+turns, childTask+first
				}
				for _, span := range s.Tools {
					if span.Class == "bash" {
						spans++
						toolTime += span.End - span.Start
					}
				}
			}
			near(t, "task", task/roots, a.task.mean())
			near(t, "turns", rootTurns/roots, a.turns.mean())
			near(t, "output", outputTokens/outputs, a.output.mean())
			near(t, "result", resultTokens/results, a.result.mean())
			near(t, "tool", toolTime.Seconds()/spans, a.tools[0].time.mean())
			if a.subagents == 0 {
				if children > 0 {
					t.Errorf("%v subagents, want none", children)
				}
				return
			}
			near(t, "subagents", children/(rootTurns-roots), a.subagents)
			near(t, "subagent-turns", childTurns/children, a.childTurns.mean())
			near(t, "subagent-task", childTask/children, a.childPrompt.mean())
		})
	}
}

// TestBounds checks that no program exceeds what check computes for it.
func TestBounds(t *testing.T) {
	for _, set := range [][]string{
		nil,
		busy,
		{"turns=5000:5000", "output=3000", "tool=3600"},
		{"turns=3:3", "task=1000000:1000000", "compact=2000"},
		{"subagents=1", "turns=30", "compact=2000", "summary=0.5:0.5"},
	} {
		a := miniSWEAgent().(*agent)
		if err := override(a.params(), set); err != nil {
			t.Fatal(err)
		}
		if err := a.check(1); err != nil {
			t.Fatal(err)
		}
		for seed := range uint64(20) {
			c := a.generate(1, seed)
			for _, s := range c.Sessions {
				for _, u := range s.Turns {
					if n := float64(u.Input + u.Output); n > a.longest() {
						t.Fatalf("%v: %s holds %v tokens, longest() says %v", set, u.ID, n, a.longest())
					}
				}
			}
			turns := c.Sessions[0].Turns
			if d := (turns[len(turns)-1].End - turns[0].Start).Seconds(); d > a.slowest() {
				t.Fatalf("%v: program of %v s, slowest() says %v", set, d, a.slowest())
			}
		}
	}
}

func BenchmarkAgent(b *testing.B) {
	for _, name := range []string{"mini-swe-agent", "claude-code"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			calls := 0
			for b.Loop() {
				calls += generate(b, name, Options{Programs: 1000}).Read.Calls
			}
			b.ReportMetric(float64(calls)/b.Elapsed().Seconds(), "calls/s")
		})
	}
}

// BenchmarkMillionCalls has a goal: less than 3 s and 1 GB.
func BenchmarkMillionCalls(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		b.ReportMetric(float64(generate(b, "mini-swe-agent", Options{Programs: 20300}).Read.Calls), "calls")
	}
}

// BenchmarkPlain has a goal: 20,000 requests in less than 20 ms.
func BenchmarkPlain(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		generate(b, "plain", Options{Programs: 20000})
	}
}
