package synth

import (
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// childrenOf returns the sessions of a capture by the end of the turn that spawned them.
func childrenOf(c *trace.Capture, parent string) map[time.Duration][]*trace.Session {
	children := map[time.Duration][]*trace.Session{}
	for _, s := range c.Sessions {
		if s.Parent == parent {
			children[s.Turns[0].Start] = append(children[s.Turns[0].Start], s)
		}
	}
	return children
}

// TestRounds checks that a planner sends executors out in rounds, waits for the last of each, and reads what all of them
// answered; that executors begin with a prompt of their own, the same in all programs; and that the last turn is a report.
func TestRounds(t *testing.T) {
	c := generate(t, "deep-research", Options{Programs: 20, Seed: 2, Set: []string{"answer=5000:5000", "compact=0"}})
	prompts := map[bool]uint64{} // first hash of the system prompt, by whether the session is a subagent
	for _, s := range c.Sessions {
		child := s.Parent != ""
		if h := s.Turns[0].Chain()[0]; prompts[child] == 0 {
			prompts[child] = h
		} else if h != prompts[child] {
			t.Errorf("%s begins with another prompt", s.ID)
		}
		if last := s.Turns[len(s.Turns)-1]; last.Output != 5000 {
			t.Errorf("%s answers with %d tokens in the end, want 5000", s.ID, last.Output)
		}
		if child {
			continue
		}
		rounds := childrenOf(c, s.ID)
		for i, u := range s.Turns[:len(s.Turns)-1] {
			round := rounds[u.End]
			if n := len(round); n < 3 || n > 5 {
				t.Fatalf("%s spawns %d executors, want 3 to 5", u.ID, n)
			}
			end, answers := u.End, int32(0)
			for _, child := range round {
				last := child.Turns[len(child.Turns)-1]
				end, answers = max(end, last.End), answers+last.Output
			}
			next := s.Turns[i+1]
			if next.Start != end || next.Input != u.Input+u.Output+answers {
				t.Errorf("%s: starts at %v with %d tokens, want at %v with %d", next.ID, next.Start, next.Input, end, u.Input+u.Output+answers)
			}
		}
		if len(rounds) != len(s.Turns)-1 {
			t.Errorf("%s: %d rounds for %d turns", s.ID, len(rounds), len(s.Turns))
		}
	}
	if prompts[true] == prompts[false] {
		t.Error("executors begin with the prompt of planners")
	}
}

// TestBackground checks that a root does not wait for subagents in the background, and that Link sees it so.
func TestBackground(t *testing.T) {
	c := generate(t, "deep-research", Options{Programs: 5, Set: []string{"background=1", "tool.search=0.1:0.1", "tool.fetch=0.1:0.1"}})
	for _, s := range c.Sessions {
		if s.Parent != "" {
			continue
		}
		for i, u := range s.Turns[1:] {
			if got := u.Start - s.Turns[i].End; got != 100*time.Millisecond {
				t.Errorf("%s starts %v after the turn before, want 100ms", u.ID, got)
			}
		}
	}
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Sessions {
		for _, u := range s.Turns {
			for _, d := range u.Deps {
				if d.Kind == trace.KindJoin {
					t.Fatalf("%s waits for %s", u.ID, d.Turn.ID)
				}
			}
		}
	}
}

// TestPeople checks what comes between the turns of a conversation.
func TestPeople(t *testing.T) {
	c := generate(t, "chat", Options{Programs: 20, Seed: 4, Set: []string{"human-wait=30:30", "message=7:7", "turns=5:5"}})
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Sessions {
		if len(s.Tools) > 0 {
			t.Fatalf("%s calls tools", s.ID)
		}
		for i, u := range s.Turns[1:] {
			before := s.Turns[i]
			if u.Trigger != "user_message" || u.Gap != (trace.Gap{Human: 30 * time.Second}) || u.Input != before.Input+before.Output+7 {
				t.Errorf("%s: %s after %+v with %d tokens after %d + %d", u.ID, u.Trigger, u.Gap, u.Input, before.Input, before.Output)
			}
		}
	}
}

// TestRewrites checks prompts of which the cache keeps the beginning alone, and answers that the next prompt leaves out.
func TestRewrites(t *testing.T) {
	constant := []string{"block=64", "system=128", "task=1000:1000", "turns=3:3", "output=100:100", "result=50:50"}
	s := generate(t, "mini-swe-agent", Options{Programs: 1, Set: append(constant, "rewrites=1", "lost=576:576", "dropped=1", "remains=0.5:0.5")}).Sessions[0]
	check(t, s, []wantTurn{
		{input: 1128, output: 100, blocks: 18, ttft: 162800, start: s.Turns[0].Start.Microseconds(), end: s.Turns[0].End.Microseconds()},
		// 1128 + half of 100. Of 17 whole blocks 9 are lost; 1178 - 8 x 64 tokens are new.
		{input: 1178, output: 100, shared: 8, blocks: 19, ttft: 116600, start: s.Turns[1].Start.Microseconds(), end: s.Turns[1].End.Microseconds()},
		{input: 1228, output: 100, shared: 9, blocks: 20, ttft: 115200, start: s.Turns[2].Start.Microseconds(), end: s.Turns[2].End.Microseconds()},
	})
	before, after := s.Turns[0].Chain(), s.Turns[1].Chain()
	if before[7] != after[7] || before[8] == after[8] {
		t.Error("the rewritten prompt does not share 8 blocks")
	}
}
