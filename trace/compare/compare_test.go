package compare

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// call is a turn of a test: times in ms, of 1000 prompt tokens and 11 generated ones.
type call struct {
	id, status              string
	start, ttft, total, hit int
}

// compile makes a workload of sessions, by id in the order given.
func compile(t *testing.T, ids []string, calls map[string][]call) *trace.Workload {
	t.Helper()
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	c := &trace.Capture{Format: "test", SharedClock: true}
	for _, id := range ids {
		s := &trace.Session{ID: id}
		s.Parent, _, _ = strings.Cut(id, "/")
		if s.Parent == id {
			s.Parent = ""
		}
		for _, q := range calls[id] {
			s.Turns = append(s.Turns, &trace.Turn{ID: q.id, Status: q.status, Start: ms(q.start), TTFT: ms(q.ttft), End: ms(q.start + q.total),
				Input: 1000, Output: 11, Cached: int32(q.hit), Reasoning: trace.Unknown})
		}
		c.Sessions = append(c.Sessions, s)
	}
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestTurnsByHand compares three turns. Their TTFT is 10 % more, 10 % less and 20 % more, so that the mean of the sizes is
// 40/3 %, their median 10 % and the bias 20/3 %. All gaps between tokens double, but for those of the last turn, which are equal.
func TestTurnsByHand(t *testing.T) {
	a := compile(t, []string{"s"}, map[string][]call{"s": {
		{"1", "", 0, 100, 200, 0}, {"2", "", 1000, 200, 300, 500}, {"3", "", 2000, 400, 500, 500}}})
	b := compile(t, []string{"s"}, map[string][]call{"s": {
		{"1", "", 50, 110, 310, 0}, {"2", "", 1000, 180, 380, 600}, {"3", "", 2000, 480, 580, 450}}})
	e := Turns(a, b)
	if e.Matched != 3 || e.Incomplete != 0 || e.Unmatched != nil || e.UnmatchedBase != nil {
		t.Errorf("matched %d, incomplete %d, unmatched %v and %v", e.Matched, e.Incomplete, e.UnmatchedBase, e.Unmatched)
	}
	want := []struct {
		phase              string
		count              int64
		mape, median, bias float64
	}{
		{"TTFT", 3, 0.4 / 3, 0.1, 0.2 / 3},
		{"TPOT", 3, 2.0 / 3, 1, 2.0 / 3},
		{"request", 3, (0.55 + 80.0/300 + 0.16) / 3, 80.0 / 300, (0.55 + 80.0/300 + 0.16) / 3},
		{"program", 1, 30.0 / 2500, 30.0 / 2500, 30.0 / 2500}, // from 0 to 2500 ms, from 50 to 2580 ms
		{"hit tokens", 3, 0.05, 0.05, 0.05 / 3},               // 0, 10 and -5 points of the prompt
	}
	for i, w := range want {
		p := e.Phases[i]
		if p.Name != w.phase || p.Count != w.count || !near(p.MAPE, w.mape) || !near(p.Median, w.median) || !near(p.Bias, w.bias) {
			t.Errorf("phase %d is %s of %d: MAPE %v, median %v, bias %v, want %+v", i, p.Name, p.Count, p.MAPE, p.Median, p.Bias, w)
		}
	}
}

func near(f report.Figure, want float64) bool { return f.Known && math.Abs(f.Value-want) < 1e-9 }

// What is not completed, or not told, is in no phase.
func TestTurnsLeaveOut(t *testing.T) {
	a := compile(t, []string{"s"}, map[string][]call{"s": {{"1", "", 0, 100, 200, -1}, {"2", "", 1000, 100, 200, 5}}})
	b := compile(t, []string{"s"}, map[string][]call{"s": {{"1", "", 0, 100, 200, 5}, {"2", "error", 1000, 100, 200, 5}}})
	e := Turns(a, b)
	var counts []int64
	for _, p := range e.Phases {
		counts = append(counts, p.Count)
	}
	// The hits of the first are not known in a, and the program of b did not complete.
	if got := fmt.Sprint(e.Matched, e.Incomplete, counts); got != "2 1 [1 1 1 0 0]" {
		t.Errorf("matched, incomplete and phases are %s", got)
	}
}

// TestMatch names calls SESSION:ID.
func TestMatch(t *testing.T) {
	work := func(sessions ...string) *trace.Workload { // "s 1 2 3": a session and the ids of its calls
		var ids []string
		calls := map[string][]call{}
		for _, s := range sessions {
			words := strings.Fields(s)
			ids = append(ids, words[0])
			for i, id := range words[1:] {
				calls[words[0]] = append(calls[words[0]], call{id: id, start: 1000 * i, ttft: 10, total: 100})
			}
		}
		return compile(t, ids, calls)
	}
	for _, test := range []struct {
		name     string
		a, b     *trace.Workload
		pairs    string
		ofA, ofB unmatched
		programs int
	}{
		{"the same", work("s a b", "s/sub c"), work("s a b", "s/sub c"), "s:a=s:a s:b=s:b s/sub:c=s/sub:c", unmatched{}, unmatched{}, 1},
		{"ids win over places", work("s a b c"), work("s b c"), "s:b=s:b s:c=s:c", unmatched{turn: 1}, unmatched{}, 0},
		{"places where no id is shared", work("s a b c"), work("s x y"), "s:a=s:x s:b=s:y", unmatched{turn: 1}, unmatched{}, 0},
		{"a session is missing", work("s a", "t b"), work("u c", "t b"), "t:b=t:b", unmatched{session: 1}, unmatched{session: 1}, 1},
		{"copies against one", work("s a"), work("s a", "s#1 a#1"), "s:a=s:a s:a=s#1:a#1", unmatched{}, unmatched{}, 2},
		{"one against copies", work("s a", "s#1 a#1"), work("s a"), "s:a=s:a s#1:a#1=s:a", unmatched{}, unmatched{}, 2},
		{"copies against copies", work("s a", "s#1 a#1"), work("s a", "s#1 a#1"), "s:a=s:a s#1:a#1=s#1:a#1", unmatched{}, unmatched{}, 2},
		{"an id that ends like a copy's", work("s#x a", "#1 b"), work("s c", "1 d"), "", unmatched{session: 2}, unmatched{session: 2}, 0},
	} {
		m := match(test.a, test.b)
		var pairs []string
		name := func(w *trace.Workload, i int32) string { return w.Calls[i].Turn.Session.ID + ":" + w.Calls[i].Turn.ID }
		for _, p := range m.pairs {
			pairs = append(pairs, name(test.a, p.a)+"="+name(test.b, p.b))
		}
		if got := strings.Join(pairs, " "); got != test.pairs || m.ofA != test.ofA || m.ofB != test.ofB {
			t.Errorf("%s: matched %q, want %q; unmatched %+v and %+v, want %+v and %+v", test.name, got, test.pairs, m.ofA, m.ofB, test.ofA, test.ofB)
		}
		if n := len(m.programs(test.a, test.b)); n != test.programs {
			t.Errorf("%s: %d programs, want %d", test.name, n, test.programs)
		}
	}
}
