package perfetto

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/events"
)

// sources are the two small traces of testdata, side by side.
func sources(t *testing.T) []Source {
	t.Helper()
	f, err := events.Open("testdata/run.events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return []Source{{Label: "day", Capture: open(t, "testdata/day.jsonl")}, {Label: "run", Capture: open(t, "testdata/run.trace.jsonl"), Events: f}}
}

func TestScope(t *testing.T) {
	for _, test := range []struct {
		name   string
		source int
		scope  Scope
		// what is left: calls by request id, and groups of the source
		turns, groups string
	}{
		{"all", 0, Scope{}, "lone r-1 r-2 r-3 r-4 r-5 r-6", "job7:root lone worker 9007199254740993 worker 9007199254740995 rank 1"},
		{"a session with its subagents", 0, Scope{Session: "job7:root"}, "r-1 r-2 r-3 r-4 r-5 r-6", "job7:root worker 9007199254740993 worker 9007199254740995 rank 1"},
		{"a subagent, in its parent", 0, Scope{Session: "job7:kid"}, "r-2", "job7:root worker 9007199254740993"},
		{"a worker by id", 0, Scope{Worker: "9007199254740993"}, "r-2 r-3", "job7:root worker 9007199254740993"},
		{"a worker by number", 0, Scope{Worker: "0"}, "r-1", "job7:root worker 9007199254740995 rank 1"},
		{"a time", 0, Scope{From: 4500 * time.Millisecond, To: 5250 * time.Millisecond}, "r-3", "job7:root worker 9007199254740993"},
		{"up to a time", 0, Scope{To: time.Second}, "lone r-1", "job7:root lone worker 9007199254740995 rank 1"},
		{"a worker of a run", 1, Scope{Worker: "1"}, "a-2", "a program scheduler worker 1"},
		{"a session of a run", 1, Scope{Session: "b"}, "b-1", "b"},
		{"another", 1, Scope{Session: "a"}, "a-1 a-2", "a program scheduler worker 0 worker 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			in := draw(t, Options{Scope: test.scope}, sources(t)[test.source])
			var turns, groups []string
			for _, s := range in.slices {
				if s.is(catTurn) {
					turns = append(turns, s.args["request_id"].(string))
				}
			}
			for _, track := range in.tracks {
				if track.parent == 1 && track.explicit {
					groups = append(groups, track.name)
				}
			}
			slices.Sort(turns)
			slices.Sort(groups)
			if got := strings.Join(turns, " "); got != test.turns {
				t.Errorf("calls %s, want %s", got, test.turns)
			}
			if got := strings.Join(groups, " "); got != test.groups {
				t.Errorf("groups %s, want %s", got, test.groups)
			}
		})
	}
}

func TestScopeOfWhatIsNotThere(t *testing.T) {
	for _, test := range []struct {
		scope Scope
		want  string
	}{
		{Scope{Session: "nobody"}, `day: nothing to draw: no session "nobody" in the trace; the first is "job7:root"`},
		{Scope{Worker: "7"}, `day: nothing to draw: no worker "7"; there are 2, from 9007199254740995 rank 1 to 9007199254740993`},
		{Scope{From: time.Hour}, `nothing to draw: all has ended by 9s, before 1h0m0s`},
	} {
		_, _, err := Write(context.Background(), &bytes.Buffer{}, sources(t), Options{Scope: test.scope})
		if !errors.Is(err, ErrScope) || err.Error() != test.want {
			t.Errorf("%+v: %v, want %s", test.scope, err, test.want)
		}
	}
}

// A counter that does not change in the scope is there all the same, with what it is when the scope begins.
func TestCountersBeginWithTheScope(t *testing.T) {
	in := draw(t, Options{Scope: Scope{From: 4500 * time.Millisecond, To: 4800 * time.Millisecond}}, sources(t)[0])
	begun := map[string]bool{}
	for _, track := range in.tracks {
		if v := track.values; len(v) == 1 && v[0].at == 4500*time.Millisecond && v[0].v == 1 {
			begun[track.name] = true
		}
	}
	for _, name := range []string{"programs live", "requests running"} {
		if !begun[name] {
			t.Errorf("%s is not 1 from 4.5s on", name)
		}
	}
}

// A replay completes the calls that it cancels as the recorded client did; on the timeline they are cancelled.
func TestCancelledCallOfAReplay(t *testing.T) {
	source := sources(t)[1]
	turn := source.Capture.Sessions[0].Turns[0]
	turn.Status = trace.Cancelled
	in := draw(t, Options{}, source)
	at := slices.IndexFunc(in.slices, func(s *slice) bool { return s.is(catTurn) && s.args["request_id"] == turn.ID })
	if s := in.slices[at]; s.name != "turn 1 cancelled" || !s.is(catCancelled) || s.args["run.status"] != "completed" {
		t.Errorf("%s %v of run status %v", s.name, s.categories, s.args["run.status"])
	}
}

// Two traces lie side by side: what is in each is what a file of it alone has.
func TestSideBySide(t *testing.T) {
	list := sources(t)
	both := draw(t, Options{}, list...).dump()
	cut := strings.Index(both, "\nrun\n")
	if cut < 0 {
		t.Fatal("no group of the second trace")
	}
	tracks := func(dump string) string { // without the arrows
		at := slices.IndexFunc(strings.Split(dump, "\n"), func(line string) bool { return strings.Contains(line, " -> ") })
		return strings.Join(strings.Split(dump, "\n")[:at], "\n")
	}
	list = sources(t)
	if diff := gocmp.Diff(tracks(draw(t, Options{}, list[0]).dump()), both[:cut]); diff != "" {
		t.Errorf("day (-alone +beside):\n%s", diff)
	}
	if diff := gocmp.Diff(tracks(draw(t, Options{}, list[1]).dump()), tracks(both[cut+1:])); diff != "" {
		t.Errorf("run (-alone +beside):\n%s", diff)
	}
}

func TestWithout(t *testing.T) {
	whole, reduced := draw(t, Options{}, sources(t)...), draw(t, Options{NoStages: true, NoCounters: true, AbsoluteTime: true}, sources(t)...)
	if reduced.counters != 0 || whole.counters == 0 {
		t.Errorf("%d counters, without them %d", whole.counters, reduced.counters)
	}
	if i := slices.IndexFunc(reduced.slices, func(s *slice) bool { return s.is(catStage) }); i >= 0 {
		t.Errorf("stage %q without stages", reduced.slices[i].name)
	}
	// The first trace began on 2026-09-21; the second tells no time of day and stays at 0.
	at := map[string]time.Duration{}
	for _, s := range reduced.slices {
		if s.is(catTurn) {
			at[s.args["request_id"].(string)] = s.at
		}
	}
	if got, want := at["r-3"], 1_790_000_004_000*time.Millisecond; got != want {
		t.Errorf("r-3 began at %v, want %v", got, want)
	}
	if got, want := at["a-2"], 1_300_000_250*time.Nanosecond; got != want {
		t.Errorf("a-2 began at %v, want %v", got, want)
	}
	if got := whole.clocks[clockRealtime] - whole.clocks[clockBoottime]; got != 1_790_000_000_000_000_000 {
		t.Errorf("time 0 is %d", got)
	}
}
