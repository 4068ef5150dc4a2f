package synth

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// golden compares got with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; see what changed with go test ./trace/synth -update and git diff. Got:\n%s", file, got)
	}
}

func generate(t testing.TB, profile string, o Options) *trace.Capture {
	t.Helper()
	c, err := Generate(profile, o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// dump writes everything that a session holds.
func dump(sessions []*trace.Session) string {
	var b strings.Builder
	for _, s := range sessions {
		fmt.Fprintf(&b, "session %s parent=%q class=%q final=%v\n", s.ID, s.Parent, s.Class, s.Final)
		for _, t := range s.Turns {
			fmt.Fprintf(&b, "  %s %v..%v ttft=%v in=%d out=%d %s", t.ID, t.Start, t.End, t.TTFT, t.Input, t.Output, t.Trigger)
			if t.Base != nil {
				fmt.Fprintf(&b, " base=%s+%d", t.Base.ID, t.Shared)
			}
			fmt.Fprintf(&b, " %x", t.Hashes)
			if t.Compaction {
				b.WriteString(" compaction")
			}
			if t.Final {
				b.WriteString(" final")
			}
			for _, c := range t.ToolCalls {
				fmt.Fprintf(&b, " calls %s as %s", c.Name, c.ID)
			}
			b.WriteString("\n")
		}
		for _, s := range s.Tools {
			fmt.Fprintf(&b, "  tool %s %s %v..%v %s\n", s.ID, s.Class, s.Start, s.End, s.Status)
		}
	}
	return b.String()
}

// busy has all that a profile can do: subagents and compactions, in small programs.
var busy = []string{"turns=8", "subagents=0.2", "subagent-turns=4", "compact=3000"}

// TestGolden pins the bytes of a workload: a change of them is a change of every published result.
func TestGolden(t *testing.T) {
	c := generate(t, "mini-swe-agent", Options{Programs: 2, Seed: 7, Set: append(busy, "block=512", "system=512")})
	golden(t, "busy.golden", dump(c.Sessions))
	golden(t, "plain.golden", dump(generate(t, "plain", Options{Programs: 5, Set: []string{"input=10:1000"}}).Sessions))
}

func TestDescribe(t *testing.T) {
	for _, name := range Profiles() {
		golden(t, "describe-"+name+".golden", Describe(name))
	}
	if got := Describe("none"); !strings.Contains(got, "mini-swe-agent, openhands, claude-code, deep-research") {
		t.Errorf("Describe of an unknown profile = %q, want the known ones", got)
	}
}

// TestProgramsStandAlone checks that a program depends neither on how many there are nor on how many threads make
// them, but on the seed.
func TestProgramsStandAlone(t *testing.T) {
	for _, profile := range Profiles() {
		t.Run(profile, func(t *testing.T) {
			o := Options{Programs: 100, Seed: 3}
			if testing.Short() {
				o.Programs = 20
			}
			switch profile {
			case "mini-swe-agent":
				o.Set = busy
			case "claude-code":
				o.Set = append(busy, "compact=15000")
			}
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
			many := dump(generate(t, profile, o).Sessions)
			for _, procs := range []int{2, 7} {
				runtime.GOMAXPROCS(procs)
				if dump(generate(t, profile, o).Sessions) != many {
					t.Errorf("GOMAXPROCS=%d changes the workload", procs)
				}
			}
			o.Programs = 10
			ten := dump(generate(t, profile, o).Sessions)
			if !strings.HasPrefix(many, ten) {
				t.Error("the first 10 of many programs differ from 10 programs")
			}
			o.Seed = 4
			if dump(generate(t, profile, o).Sessions) == ten {
				t.Error("another seed makes the same workload")
			}
		})
	}
}

// TestSubagentsLeaveTheirParentsAlone checks that what a root session says and hears from its shell stays the same
// when some of its turns call a subagent.
func TestSubagentsLeaveTheirParentsAlone(t *testing.T) {
	without := generate(t, "mini-swe-agent", Options{Programs: 1})
	with := generate(t, "mini-swe-agent", Options{Programs: 1, Set: []string{"subagents=0.1"}})
	if len(with.Sessions) < 2 {
		t.Fatal("no subagent in this program: the test needs another seed")
	}
	a, b := without.Sessions[0], with.Sessions[0]
	if len(a.Turns) != len(b.Turns) {
		t.Fatalf("%d turns with subagents, %d without", len(b.Turns), len(a.Turns))
	}
	for i, x := range a.Turns {
		y := b.Turns[i]
		if x.Output != y.Output {
			t.Errorf("%s: output %d with subagents, %d without", x.ID, y.Output, x.Output)
		}
		if i == 0 || b.Turns[i-1].ToolCalls[0].Name == "subagent" {
			continue
		}
		if grown, want := y.Input-b.Turns[i-1].Input, x.Input-a.Turns[i-1].Input; grown != want {
			t.Errorf("%s: prompt grows by %d with subagents, by %d without", x.ID, grown, want)
		}
	}
}

// TestByHand follows a program without randomness.
func TestByHand(t *testing.T) {
	constant := []string{"block=64", "system=128", "task=100:100", "turns=4:4", "output=11:11", "result=39:39", "tool=1:1", "rate=0"}
	t.Run("loop", func(t *testing.T) {
		s := generate(t, "mini-swe-agent", Options{Programs: 1, Set: constant}).Sessions[0]
		check(t, s, []wantTurn{
			// TTFT = 50 ms + 0.1 ms x 228 new tokens; then 10 x 20 ms. ceil(228/64) = 4 blocks, all new.
			{input: 228, blocks: 4, ttft: 72800, start: 0, end: 272800},
			// 228 + 11 + 39 = 278 tokens, 39 new to the server; 3 full blocks shared, ceil(278/64) = 5.
			{input: 278, shared: 3, blocks: 5, ttft: 53900, start: 1272800, end: 1526700},
			{input: 328, shared: 4, blocks: 6, ttft: 53900, start: 2526700, end: 2780600},
			{input: 378, shared: 5, blocks: 6, ttft: 53900, start: 3780600, end: 4034500},
		})
	})
	t.Run("subagent", func(t *testing.T) {
		c := generate(t, "mini-swe-agent", Options{Programs: 1,
			Set: append(constant, "turns=2:2", "subagents=1", "subagent-turns=2:2", "subagent-task=10:10")})
		check(t, c.Sessions[0], []wantTurn{
			{input: 228, blocks: 4, ttft: 72800, start: 0, end: 272800},
			// The subagent's last answer is the result: 228 + 11 + 11.
			{input: 250, shared: 3, blocks: 4, ttft: 51100, start: 1777700, end: 2028800},
		})
		check(t, c.Sessions[1], []wantTurn{
			// 128 + 10 tokens; the system prompt is known.
			{input: 138, shared: 2, blocks: 3, ttft: 51000, start: 272800, end: 523800},
			{input: 188, shared: 2, blocks: 3, ttft: 53900, start: 1523800, end: 1777700},
		})
		if got, want := c.Sessions[1].Parent, c.Sessions[0].ID; got != want {
			t.Errorf("subagent's parent = %q, want %q", got, want)
		}
	})
	t.Run("compaction", func(t *testing.T) {
		s := generate(t, "mini-swe-agent", Options{Programs: 1,
			Set: append(constant, "task=1000:1000", "turns=3:3", "compact=1170", "summary=0.1:0.1")}).Sessions[0]
		check(t, s, []wantTurn{
			{input: 1128, blocks: 18, ttft: 162800, start: 0, end: 362800},
			// 1128 + 50 > 1170: this prompt is summarized in 117 tokens.
			{input: 1178, output: 117, shared: 17, blocks: 19, ttft: 53900, start: 1362800, end: 3736700, compaction: true},
			// 128 + 117.
			{input: 245, shared: 2, blocks: 4, ttft: 61700, start: 3736700, end: 3998400},
			{input: 295, shared: 3, blocks: 5, ttft: 53900, start: 4998400, end: 5252300},
		})
	})
}

// wantTurn is what a turn must hold. Times are in microseconds; an output of 0 stands for 11 tokens.
type wantTurn struct {
	input, output    int32
	shared           int32
	blocks           int
	start, ttft, end int64
	compaction       bool
}

func check(t *testing.T, s *trace.Session, want []wantTurn) {
	t.Helper()
	if len(s.Turns) != len(want) {
		t.Fatalf("%s has %d turns, want %d", s.ID, len(s.Turns), len(want))
	}
	for i, u := range s.Turns {
		w := want[i]
		if w.output == 0 {
			w.output = 11
		}
		got := wantTurn{u.Input, u.Output, u.Shared, int(u.Shared) + len(u.Hashes),
			u.Start.Microseconds(), u.TTFT.Microseconds(), u.End.Microseconds(), u.Compaction}
		if got != w {
			t.Errorf("%s:\n got %+v\nwant %+v", u.ID, got, w)
		}
	}
}

func TestPlain(t *testing.T) {
	const n = 20000
	c := generate(t, "plain", Options{Programs: n, Set: []string{"input=500:1500", "output=64", "rate=8"}})
	if c.BlockSize != 0 || len(c.Sessions) != n || c.Read.Calls != n {
		t.Fatalf("block size %d, %d sessions, %d calls; want 0, %d, %d", c.BlockSize, len(c.Sessions), c.Read.Calls, n, n)
	}
	var input int
	var last time.Duration
	for i, s := range c.Sessions {
		u := s.Turns[0]
		if want := fmt.Sprintf("p%06d", i); s.ID != want || u.ID != want+"-t000" {
			t.Fatalf("session %d has ids %q and %q", i, s.ID, u.ID)
		}
		if u.Input < 500 || u.Input > 1500 || u.Output != 64 || u.Hashes != nil {
			t.Fatalf("%s: input %d, output %d, %d hashes", u.ID, u.Input, u.Output, len(u.Hashes))
		}
		if u.Start < last {
			t.Fatalf("%s starts before its predecessor", u.ID)
		}
		last = u.Start
		input += int(u.Input)
	}
	near(t, "mean input", float64(input)/n, 1000)
	near(t, "rate", n/last.Seconds(), 8)
}

// near checks got within 3% of want.
func near(t *testing.T, what string, got, want float64) {
	t.Helper()
	if got < 0.97*want || got > 1.03*want {
		t.Errorf("%s = %.4g, want %.4g within 3%%", what, got, want)
	}
}
