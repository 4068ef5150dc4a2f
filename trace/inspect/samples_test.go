package inspect

import (
	"math"
	"math/rand/v2"
	"reflect"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// valuesOf returns the values of samples by name.
func valuesOf(t *testing.T, c *trace.Capture) map[string][]float64 {
	t.Helper()
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	samples, err := Samples(c)
	if err != nil {
		t.Fatal(err)
	}
	values := map[string][]float64{}
	for _, s := range samples {
		values[s.Name] = s.Values
	}
	return values
}

// TestSamplesByHand measures the family of inspect_test.go: a root whose prompts have 200, 500 and 200 tokens, the last to
// write a summary after a person waited, its subagent, and another program 40 seconds later.
func TestSamplesByHand(t *testing.T) {
	got := valuesOf(t, family())
	for name, want := range map[string][]float64{
		"turns of a session":        {2, 1},
		"prompt shared by programs": {100},
		"first prompt after it":     {100, 200}, // 200 less what the other program shares; 300 less 100
		"output of a turn":          {101, 11, 1},
		"output of the last turn":   {11},
		"growth by a tool":          nil, // after the first turn came a subagent
		"turns with subagents":      {1, 0},
		"subagents at once":         {1},
		"not waited for":            {0},
		"turns that people answer":  {0, 1},
		"wait for people":           {60},
		"turns of a subagent":       {1},
		"a subagent's after it":     {100},
		"contexts when compacted":   {500}, // the next prompt is short
		"time between arrivals":     {40},
		"subagents of a program":    {1, 0},
		"longest prompt":            {500, 200, 300},
		"reuse in an endless cache": {0, 0.5, 0.5, 1. / 3, 0.5}, // the server had 250 of 500 tokens, so no more is taken to be known
	} {
		if !reflect.DeepEqual(got[name], want) {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
}

// TestGrowth measures how prompts grow, lose their ends and are waited for.
func TestGrowth(t *testing.T) {
	second := call("2", 11, 12, 150, 1, 2, 3)
	second.Input = 290 // of which 100 are the first answer, and 40 from a tool
	third := call("3", 16, 20, 10, 1, 2, 9, 9)
	third.Input = 380 // grows by 90 less than the answer; and what was behind block 2 is another
	first := call("1", 0, 10, 100, 1, 2)
	first.Input = 150
	first.ToolCalls = []trace.ToolCall{{Name: "grep"}}
	second.ToolCalls = []trace.ToolCall{{Name: "cat"}, {Name: "ls"}}
	first.Hashes = first.Hashes[:2]
	for _, u := range []*trace.Turn{second, third} {
		u.Trigger = "tool_result"
	}
	s := &trace.Session{ID: "s", Turns: []*trace.Turn{first, second, third}}
	got := valuesOf(t, &trace.Capture{BlockSize: block, SharedClock: true, Sessions: []*trace.Session{s}})
	for name, want := range map[string][]float64{
		"growth by a tool":           {40},
		"answers left out":           {0, 1},
		"growth then, of the answer": {90. / 150},
		"prompts rewritten":          {0, 0}, // block 2 of the second prompt is whole, its third is not
		"time of grep":               {1},
		"time of (several at once)":  {4},
	} {
		if !reflect.DeepEqual(got[name], want) {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
}

// TestCommon compares the common prefix that the tree tells with that of the chains themselves.
func TestCommon(t *testing.T) {
	for seed := range uint64(300) {
		c := randomCapture(rand.New(rand.NewPCG(seed, 1)))
		if err := c.Link(); err != nil {
			t.Fatal(err)
		}
		w, err := c.Compile(trace.OutputsNone)
		if err != nil {
			t.Fatal(err)
		}
		m := &measures{trail: newTrail(w)}
		for i := range w.Calls {
			for j := range w.Calls {
				a, b := w.Calls[i].Turn, w.Calls[j].Turn
				x, y := a.Chain(), b.Chain()
				equal := int32(0)
				for int(equal) < min(len(x), len(y)) && x[equal] == y[equal] {
					equal++
				}
				// A block that is not whole may be taken to be the beginning of one that is.
				least, most := 4*min(equal, a.Input/4, b.Input/4), min(4*equal+3, a.Input, b.Input)
				if got := m.common(int32(i), int32(j)); got < least || got > most {
					t.Fatalf("seed %d: %s %d %v and %s %d %v begin with %d equal tokens, want %d to %d",
						seed, a.ID, a.Input, x, b.ID, b.Input, y, got, least, most)
				}
			}
		}
		if _, err := Samples(c); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDistance compares with the definition, over all limits.
func TestDistance(t *testing.T) {
	share := func(list []float64, limit float64) float64 {
		n := 0
		for _, v := range list {
			if v <= limit {
				n++
			}
		}
		return float64(n) / float64(len(list))
	}
	rng := rand.New(rand.NewPCG(1, 1))
	draw := func() []float64 {
		list := make([]float64, 1+rng.IntN(8))
		for i := range list {
			list[i] = float64(rng.IntN(6))
		}
		return list
	}
	for range 1000 {
		a, b := draw(), draw()
		want := 0.0
		for limit := range 6 {
			want = max(want, math.Abs(share(a, float64(limit))-share(b, float64(limit))))
		}
		got := Compare([]Sample{{Name: "x", Values: a}}, []Sample{{Name: "x", Values: b}})[0]
		if math.Abs(got.Distance.Value-want) > 1e-12 || got.Of.Count != int64(len(a)) || got.Made.Count != int64(len(b)) {
			t.Fatalf("%v and %v: %+v, want a distance of %v", a, b, got, want)
		}
	}
	if alone := Compare([]Sample{{Name: "x", Values: []float64{1}}}, nil)[0]; alone.Distance.Known || alone.Made.Count != 0 {
		t.Errorf("without the other, %+v", alone)
	}
}

// TestManyTools tells apart those tools that run most.
func TestManyTools(t *testing.T) {
	s := &trace.Session{ID: "s"}
	for i := range 41 {
		u := call(string(rune('a'+i)), 2*i, 2*i+1, 1, 1)
		u.ToolCalls = []trace.ToolCall{{Name: string(rune('A' + i/2))}}
		u.Trigger = "tool_result"
		s.Turns = append(s.Turns, u)
	}
	got := valuesOf(t, &trace.Capture{BlockSize: block, Resolution: time.Millisecond, Sessions: []*trace.Session{s}})
	// 40 waits of 20 tools: 15 are told apart, of the others come ten waits.
	if n := len(got["time of "+OtherTools]); n != 10 {
		t.Errorf("%d waits for other tools, want 10", n)
	}
	// What is made like that has a tool of the others' name, and keeps the 15.
	for i, u := range s.Turns {
		if i >= 30 {
			u.ToolCalls[0].Name = OtherTools
		}
	}
	got = valuesOf(t, &trace.Capture{BlockSize: block, Resolution: time.Millisecond, Sessions: []*trace.Session{s}})
	if n := len(got["time of "+OtherTools]); n != 10 || len(got["time of O"]) != 2 {
		t.Errorf("%d waits for other tools, want 10, and %d for the last of 15, want 2", n, len(got["time of O"]))
	}
}
