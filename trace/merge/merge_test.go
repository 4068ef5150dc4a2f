package merge_test

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/merge"
)

// epoch is a Unix time in milliseconds.
const epoch = 1_790_000_000_000

// recording makes a capture of lines of words: "call ID SESSION START END INPUT OUTPUT [KEY=VALUE]..." and "tool ID SESSION
// START END [PARENT]", with times in seconds. A session of "-" is one of the call's own.
func recording(t testing.TB, text string) *trace.Capture {
	t.Helper()
	c := &trace.Capture{Format: "test", Resolution: time.Millisecond, SharedClock: true, Epoch: epoch}
	sessions := map[string]*trace.Session{}
	session := func(id string) *trace.Session {
		if sessions[id] == nil {
			sessions[id] = &trace.Session{ID: id}
			c.Sessions = append(c.Sessions, sessions[id])
		}
		return sessions[id]
	}
	for line := range strings.Lines(text) {
		var kind, id, of string
		var start, end float64
		var input, output int32
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		_, err := fmt.Sscan(line, &kind, &id, &of, &start, &end)
		if of == "-" {
			of = id
		}
		s := session(of)
		from, to := seconds(start), seconds(end)
		switch kind {
		case "tool":
			if len(words) > 5 {
				s.Parent = words[5]
			}
			s.Tools = append(s.Tools, trace.ToolSpan{ID: id, Class: "bash", Start: from, End: to, Status: "succeeded"})
			c.Read.Tools++
		case "call":
			_, err = fmt.Sscan(strings.Join(words[5:7], " "), &input, &output)
			turn := &trace.Turn{ID: id, Start: from, End: to, TTFT: trace.NoTime, Input: input, Output: output, Cached: trace.Unknown,
				Reasoning: trace.Unknown, Session: s}
			for _, word := range words[7:] {
				set(t, c, turn, word)
			}
			s.Turns = append(s.Turns, turn)
			c.Read.Calls++
		default:
			err = errors.New("want call or tool")
		}
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
	}
	return c
}

func set(t testing.TB, c *trace.Capture, turn *trace.Turn, word string) {
	key, value, _ := strings.Cut(word, "=")
	switch key {
	case "alias":
		turn.Aliases = append(turn.Aliases, value)
	case "asks":
		turn.ToolCalls = append(turn.ToolCalls, trace.ToolCall{ID: value, Name: "bash"})
	case "trigger":
		turn.Trigger = value
	case "parent":
		turn.Session.Parent = value
	case "status":
		turn.Status = value
	case "cached":
		fmt.Sscan(value, &turn.Cached)
	case "filled":
		turn.Inferred |= trace.FieldsNamed([]string{value})
	case "chain": // of blocks of 10 tokens
		c.BlockSize = 10
		for _, h := range strings.Split(value, ",") {
			var n uint64
			fmt.Sscan(h, &n)
			turn.Hashes = append(turn.Hashes, n)
		}
	default:
		t.Fatalf("what is %q?", word)
	}
}

func seconds(s float64) time.Duration { return time.Duration(s*1e3) * time.Millisecond }

// outline tells of each session its parent, its calls and its tools.
func outline(c *trace.Capture) string {
	var b strings.Builder
	for _, s := range c.Sessions {
		fmt.Fprintf(&b, "%s", s.ID)
		if s.Parent != "" {
			fmt.Fprintf(&b, " < %s", s.Parent)
		}
		b.WriteString(":")
		for _, t := range s.Turns {
			fmt.Fprintf(&b, " %s", t.ID)
		}
		for _, tool := range s.Tools {
			fmt.Fprintf(&b, " %s@%g-%g", tool.ID, tool.Start.Seconds(), tool.End.Seconds())
		}
		b.WriteString("\n")
	}
	return b.String()
}

// matched tells how calls were matched, and on what clock.
func matched(h *merge.HarnessReport) string {
	text := fmt.Sprintf("id %d, tokens %d, input %d, time %d, unserved %d", h.ByID, h.ByTokens, h.ByInput, h.ByTime, h.Unserved)
	if c := h.Clock; c != nil {
		text += fmt.Sprintf("; ahead %v±%v by %d %s", c.Ahead, c.Spread, c.Pairs, c.By)
	}
	return text
}

var cases = []struct {
	name, server, harness string
	options               merge.Options
	want                  string // outline
	matched               string
	differs               []merge.Difference
}{
	{
		name: "ids of calls, of answers and of tools, on a clock that is 3.2 s ahead",
		server: `call s1 - 0 1 100 5 alias=msg_1
			call s2 - 3 4 200 6
			call req_3 - 6 7 300 7
			call s4 - 9 10 400 8 asks=t4`,
		harness: `call msg_1 main 3.2 4.2 100 5
			call m2 main 6.2 7.2 200 6
			call m3 main 9.2 10.2 300 7 alias=req_3
			call m4 sub 12.2 13.2 400 8 asks=t4 parent=main
			tool t4 sub 13.3 14.2`,
		want:    "main: s1 s2 req_3\nsub < main: s4 t4@10.1-11\n",
		matched: "id 3, tokens 1, input 0, time 0, unserved 0; ahead 3.2s±0s by 3 calls with equal ids",
	},
	{
		name: "no ids, 3.2 s of skew and some jitter",
		server: `call s1 - 0 1 100 5
			call s2 - 3 4 200 6
			call s3 - 6 7 300 7`,
		harness: `call m1 main 3.2 4.21 100 5
			call m2 main 6.2 7.19 200 6
			tool t main 7.3 9
			call m3 main 9.2 10.2 300 7`,
		want:    "main: s1 s2 s3 t@4.1-5.8\n",
		matched: "id 0, tokens 3, input 0, time 0, unserved 0; ahead 3.2s±10ms by 3 calls with equal token counts",
	},
	{
		name: "a call that failed and was tried again: the harness tells of one, and the other stays in its conversation",
		server: `call s1 - 0 1 100 5 chain=1,2,3,4,5,6,7,8,9,10
			call s2 - 3 3.5 110 0 chain=1,2,3,4,5,6,7,8,9,10,11 status=error
			call s3 - 15 17 110 6 chain=1,2,3,4,5,6,7,8,9,10,11
			call s4 - 18 19 120 4 chain=1,2,3,4,5,6,7,8,9,10,11,12
			call s5 - 18 19 120 9 chain=71,72,73,74,75,76,77,78,79,80,81,82`,
		harness: `call m1 main 0 1 100 5
			call m2 main 3 17 110 6
			call m3 main 18 19 120 4`,
		want:    "main: s1 s2 s3 s4\ns5: s5\n",
		matched: "id 0, tokens 3, input 0, time 0, unserved 0; ahead 0s±0s by 3 calls with equal token counts",
	},
	{
		name: "an answer that was broken off: the harness has no count of it, and the server's stays",
		server: `call s1 - 0 1 100 5
			call s2 - 3 4 200 6
			call s3 - 6 7 300 7
			call s4 - 8 9 400 12 status=cancelled`,
		harness: `call m1 main 0 1 100 5
			call m2 main 3 4 200 6
			call m3 main 6 7 300 7
			call m4 main 8 9.1 400 3 filled=output_tokens`,
		want:    "main: s1 s2 s3 s4\n",
		matched: "id 0, tokens 3, input 1, time 0, unserved 0; ahead 0s±0s by 3 calls with equal token counts",
	},
	{
		name: "starts that a log does not tell, and ends",
		server: `call s1 - 0 10 100 5
			call s2 - 20 30 200 6
			call s3 - 40 50 300 7
			call s4 - 60 70 400 8`,
		harness: `call m1 main 8 10 100 5 filled=start
			call m2 main 27 30 200 6 filled=start
			call m3 main 40 44 300 7 filled=end
			call m4 main 60 68 400 8 filled=end`,
		want:    "main: s1 s2 s3 s4\n",
		matched: "id 0, tokens 4, input 0, time 0, unserved 0; ahead 0s±0s by 4 calls with equal token counts",
	},
	{
		name: "ids of tool calls that servers count from 0 prove nothing about prompts of other lengths",
		server: `call s1 - 0 1 100 5 asks=call_0
			call s2 - 3 4 200 6
			call s3 - 6 7 300 7`,
		harness: `call m1 main 0 1 100 5
			call m2 main 3 4 200 6
			call m3 main 6 7 300 7 asks=call_0`,
		want:    "main: s1 s2 s3\n",
		matched: "id 0, tokens 3, input 0, time 0, unserved 0; ahead 0s±0s by 3 calls with equal token counts",
	},
	{
		name: "subagents with equal counts go with the conversation that the rest of their calls is in",
		server: `call s0 - 0 1 100 5
			call a1 - 2 3 200 6 chain=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20
			call b1 - 2 3 200 6 chain=51,52,53,54,55,56,57,58,59,60,61,62,63,64,65,66,67,68,69,70
			call b2 - 4 5 220 8 chain=51,52,53,54,55,56,57,58,59,60,61,62,63,64,65,66,67,68,69,70,71,72
			call a2 - 4 5 210 7 chain=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21
			call s1 - 6 7 110 5`,
		harness: `call m0 main 0 1 100 5
			call x1 x 2 3 200 6 parent=main
			call y1 y 2 3.01 200 6 parent=main
			call x2 x 4 5 220 8
			call y2 y 4 5 210 7
			call m1 main 6 7 110 5`,
		want:    "main: s0 s1\nx < main: b1 b2\ny < main: a1 a2\n",
		matched: "id 0, tokens 6, input 0, time 0, unserved 0; ahead 0s±0s by 6 calls with equal token counts",
	},
	{
		name: "sessions of the same name decide, too",
		server: `call s0 main 0 1 100 5
			call a1 x 2 3 200 6
			call b1 y 2 3 200 6
			call s1 main 6 7 110 5`,
		harness: `call m0 main 0 1 100 5
			call y1 y 2 3 200 6 parent=main
			call x1 x 2 3.01 200 6 parent=main
			call m1 main 6 7 110 5`,
		want:    "main: s0 s1\nx < main: a1\ny < main: b1\n",
		matched: "id 0, tokens 4, input 0, time 0, unserved 0; ahead 0s±0s by 4 calls with equal token counts",
	},
	{
		name: "a call that only the harness tells is left out",
		server: `call s1 - 0 1 100 5
			call s2 - 3 4 200 6
			call s3 - 6 7 300 7`,
		harness: `call m1 main 1 2 100 5
			call other main 2 3 77 7
			call m2 main 4 5 200 6
			call m3 main 7 8 300 7`,
		want:    "main: s1 s2 s3\n",
		matched: "id 0, tokens 3, input 0, time 0, unserved 1; ahead 1s±0s by 3 calls with equal token counts",
	},
	{
		name: "or kept",
		server: `call s1 - 0 1 100 5
			call s2 - 3 4 200 6
			call s3 - 6 7 300 7`,
		harness: `call m1 main 1 2 100 5
			call other main 2 3 77 7
			call m2 main 4 5 200 6
			call m3 main 7 8 300 7`,
		options: merge.Options{KeepUnserved: true},
		want:    "main: s1 other s2 s3\n",
		matched: "id 0, tokens 3, input 0, time 0, unserved 1; ahead 1s±0s by 3 calls with equal token counts",
	},
	{
		name: "counts that differ are the server's",
		server: `call s1 - 0 1 100 5 alias=m1 cached=90
			call s2 - 3 4 200 16 alias=m2`,
		harness: `call m1 main 0 1 100 5 cached=80
			call m2 main 3 4 210 4`,
		want:    "main: s1 s2\n",
		matched: "id 2, tokens 0, input 0, time 0, unserved 0; ahead 0s±0s by 2 calls with equal ids",
		differs: []merge.Difference{{Field: "input_tokens", Calls: 1, Most: 10}, {Field: "output_tokens", Calls: 1, Most: 12}, {Field: "cached_tokens", Calls: 1, Most: 10}},
	},
	{
		name:    "prompts of unknown length, matched by time where it leaves no choice",
		server:  "call s1 - 0 1 100 5\ncall s2 - 9 10 200 6\ncall a - 19 20 300 7\ncall b - 19 20 310 7",
		harness: "call m1 main 2 3 90 5 filled=input_tokens\ncall m2 main 11 12 99 6 filled=input_tokens\ncall m3 main 21 22 300 8 filled=input_tokens",
		options: merge.Options{Ahead: new(2 * time.Second)},
		want:    "main: s1 s2\na: a\nb: b\n",
		matched: "id 0, tokens 0, input 0, time 2, unserved 1; ahead 2s±0s by 0 hand",
	},
}

func TestMerge(t *testing.T) {
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			c, report, err := merge.Merge(merge.Source{Name: "server", Capture: recording(t, test.server)},
				[]merge.Source{{Name: "harness", Capture: recording(t, test.harness)}}, test.options)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, outline(c)); diff != "" {
				t.Errorf("sessions: %s", diff)
			}
			if diff := cmp.Diff(test.matched, matched(&report.Harnesses[0])); diff != "" {
				t.Errorf("matched: %s", diff)
			}
			if len(report.Harnesses[0].Differs)+len(test.differs) > 0 {
				if diff := cmp.Diff(test.differs, report.Harnesses[0].Differs); diff != "" {
					t.Errorf("differs: %s", diff)
				}
			}
		})
	}
}

// What is no recording of the same run, or cannot be told to be one, is refused.
func TestRefusals(t *testing.T) {
	const server = "call s1 - 0 1 100 5\ncall s2 - 3 4 200 6\ncall s3 - 6 7 300 7\ncall s4 - 9 10 400 8"
	for _, test := range []struct {
		name, server, harness string
		options               merge.Options
		want                  string
	}{
		{"another run", server, "call m1 main 0 1 101 5\ncall m2 main 2 4 200 7\ncall m3 main 5 9 330 7", merge.Options{},
			`only 0 of its 3 calls .* is it another run\? --clock-skew`},
		{"another run by hand", server, "call m1 main 0 1 101 5\ncall m2 main 2 4 203 7", merge.Options{Ahead: new(time.Duration(0))},
			`none of its 2 calls is one of the server's`},
		{"a run of equal counts at other times", server, "call m1 main 0 1 100 5\ncall m2 main 13 14 200 6\ncall m3 main 26 27 300 7\ncall m4 main 39 40 400 8", merge.Options{},
			`only 1 of its 4 calls`},
		{"too few calls", server, "call m1 main 0 1 100 5\ncall m2 main 3 4 200 6", merge.Options{}, `only 2 of its 2 calls .*wanted: 3`},
		{"another run of which some calls are alike", server + unlike("s"), strings.ReplaceAll(server, "call s", "call m") + unlike("m"), merge.Options{}, `only 4 of its 24 calls .*one in 4`},
		{"the same run on another day", server, "call m1 main 86400 86401 100 5\ncall m2 main 86403 86404 200 6\ncall m3 main 86406 86407 300 7", merge.Options{},
			`only 0 of its 3 calls`},
		{"two runs alike", server + "\ncall t1 - 100 101 100 5\ncall t2 - 103 104 200 6\ncall t3 - 106 107 300 7", "call m1 main 0 1 100 5\ncall m2 main 3 4 200 6\ncall m3 main 6 7 300 7", merge.Options{},
			`two clock differences fit: -1m40s .*3 of its 3 calls.* and 0s`},
		{"ids that others have, too", "call 1 - 0 1 100 5\ncall 2 - 3 4 200 6", "call 1 main 0 1 1000 5\ncall 2 main 3 4 2000 6", merge.Options{},
			`2 calls have ids in common, but the prompts of 2 are of quite other lengths`},
		{"a clock that runs wild", "call 1 - 0 1 100 5\ncall 2 - 3 4 200 6\ncall 3 - 6 7 300 7", "call 1 main 0 1 100 5\ncall 2 main 30 34 200 6\ncall 3 main 60 67 300 7", merge.Options{},
			`cannot be told by calls with equal ids: over 3 .* 30s, but half of them are more than 30s away`},
		{"a clock by hand that ids contradict", server, "call s1 main 5 6 100 5\ncall s2 main 8 9 200 6", merge.Options{Ahead: new(time.Minute)},
			`by 2 calls with equal ids its clock is ahead by 5s, not by 1m0s: leave out --clock-skew`},
		{"no server", "tool t s 0 1", server, merge.Options{}, `server has no calls: name the server's`},
	} {
		_, _, err := merge.Merge(merge.Source{Name: "server", Capture: recording(t, test.server)},
			[]merge.Source{{Name: "harness", Capture: recording(t, test.harness)}}, test.options)
		if err == nil || !regexp.MustCompile(test.want).MatchString(err.Error()) {
			t.Errorf("%s: error %v, want %q", test.name, err, test.want)
		}
	}
}

// unlike is twenty calls unlike those of another name.
func unlike(name string) string {
	text := ""
	for i := range 20 {
		text += fmt.Sprintf("\ncall %s-%d %s %d %d %d%d 1", name, i, name, 20*i, 20*i+1, 1000+i, len(name)*int(name[0]))
	}
	return text
}

// Clocks that count from nowhere, and formats without a common clock.
func TestOtherClocks(t *testing.T) {
	const server = "call s1 - 0 1 100 5\ncall s2 - 3 4 200 6\ncall s3 - 6 7 300 7 alias=m3"
	const harness = "call m1 main 0 1 100 5\ncall m2 main 3 4 200 6\ntool t main 4 5"
	relative := recording(t, harness+"\ncall m4 main 6 7 300 7")
	relative.Epoch = 0
	c, report, err := merge.Merge(merge.Source{Capture: recording(t, server)}, []merge.Source{{Capture: relative}}, merge.Options{})
	if err != nil || outline(c) != "main: s1 s2 s3 t@4-5\n" || report.Harnesses[0].ByTokens != 3 {
		t.Errorf("%v, %+v", err, report)
	}
	apart := recording(t, harness+"\ncall m3 main 6 7 300 7")
	apart.SharedClock = false
	c, report, err = merge.Merge(merge.Source{Capture: recording(t, server)}, []merge.Source{{Capture: apart}}, merge.Options{})
	if err != nil || outline(c) != "s1: s1\ns2: s2\nmain: s3\n" || report.Harnesses[0].Clock != nil || report.Harnesses[0].ToolsLost != 1 || len(report.Doubts()) != 1 {
		t.Errorf("%v, %+v", err, report)
	}
	apart = recording(t, harness)
	apart.SharedClock = false
	if _, _, err := merge.Merge(merge.Source{Capture: recording(t, server)}, []merge.Source{{Capture: apart}}, merge.Options{}); err == nil {
		t.Error("a harness of which nothing can be matched is taken")
	}
	many := recording(t, server)
	many.Sessions[1].Scope = 1
	if _, _, err := merge.Merge(merge.Source{Capture: many}, []merge.Source{{Capture: recording(t, harness)}}, merge.Options{}); err == nil {
		t.Error("a server with two spaces of hashes is taken")
	}
}

// Tool events, with a transcript and without, in the server's trace and beside it.
func TestTools(t *testing.T) {
	const server = "call s1 main 0 1 100 5 asks=t1\ncall s2 main 3 4 200 6 asks=t2\ncall s3 main 6 7 300 7"
	for _, test := range []struct {
		name, server string
		harnesses    []string
		want, clock  string // of the last harness that is told of
		tools        [3]int // taken, known, lost
	}{
		{"events on the server's clock", server, []string{"tool t1 main 1.2 2.9\ntool t2 main 4.1 5.5"},
			"main: s1 s2 s3 t1@1.2-2.9 t2@4.1-5.5\n", "0s±0s by 2 the calls that asked for the tools", [3]int{2, 0, 0}},
		{"events of a clock that is ahead", server, []string{"tool t1 main 11.2 12.9\ntool t2 main 14.2 15.5"},
			"main: s1 s2 s3 t1@1-2.7 t2@4-5.3\n", "10.2s±0s by 2 the calls that asked for the tools", [3]int{2, 0, 0}},
		{"events of sessions of other names", server, []string{"tool t1 run 1.2 2.9\ntool t9 run 4.1 5.5"},
			"main: s1 s2 s3 t1@1.2-2.9\n", "0s±0s by 1 the calls that asked for the tools", [3]int{1, 0, 1}},
		{"events that tell who a session's parent is", server + "\ncall k1 kid 3.1 3.9 50 6", []string{"tool t7 kid 3.2 3.3 main"},
			"main: s1 s2 s3\nkid < main: k1 t7@3.2-3.3\n", "", [3]int{1, 0, 0}},
		{"events of which nothing tells the clock", server, []string{"tool t7 main 1.2 2.9"},
			"main: s1 s2 s3 t7@1.2-2.9\n", "", [3]int{1, 0, 0}},
		{"rows of the server's own trace", server + "\ntool t1 main 1.2 2.9", nil,
			"main: s1 s2 s3 t1@1.2-2.9\n", "0s±0s by 1 the calls that asked for the tools", [3]int{1, 0, 0}},
		{"events are better than what a transcript tells, and take their clock from it", server,
			[]string{"call m1 a 5 6 100 5 asks=t1\ncall m2 a 8 9 200 6 asks=t2\ncall m3 a 11 12 300 7\ntool t1 a 6 7.9\ntool t2 a 9 10.5", "tool t1 main 106.2 107.8"},
			"a: s1 s2 s3 t1@1.3-2.9 t2@4-5.5\n", "1m44.9s±0s by 1 tools that another recording times", [3]int{1, 0, 0}},
	} {
		t.Run(test.name, func(t *testing.T) {
			var harnesses []merge.Source
			for i, text := range test.harnesses {
				harnesses = append(harnesses, merge.Source{Name: fmt.Sprint(i), Capture: recording(t, text)})
			}
			c, report, err := merge.Merge(merge.Source{Name: "server", Capture: recording(t, test.server)}, harnesses, merge.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, outline(c)); diff != "" {
				t.Error(diff)
			}
			h := report.Harnesses[len(report.Harnesses)-1]
			clock := ""
			if h.Clock != nil {
				clock = fmt.Sprintf("%v±%v by %d %s", h.Clock.Ahead, h.Clock.Spread, h.Clock.Pairs, h.Clock.By)
			}
			if tools := [3]int{h.Tools - h.ToolsKnown - h.ToolsLost, h.ToolsKnown, h.ToolsLost}; clock != test.clock || tools != test.tools {
				t.Errorf("clock %q, tools %v, want %q, %v", clock, tools, test.clock, test.tools)
			}
			if len(test.harnesses) == 2 && report.Harnesses[0].ToolsKnown != 1 {
				t.Errorf("%d tools of the transcript are known, want 1", report.Harnesses[0].ToolsKnown)
			}
		})
	}
}

// The order of harnesses is of no matter, and of two that tell of a call, the one decides that tells of more.
func TestOrderOfHarnesses(t *testing.T) {
	const server = "call s1 - 0 1 100 5\ncall s2 - 3 4 200 6\ncall s3 - 6 7 300 7\ncall s4 - 9 10 400 8"
	spans := "call m1 trace 0 1 100 5\ncall m2 trace 3 4 200 6\ncall m3 trace 6 7 300 7 trigger=other\ntool t trace 7 8"
	transcript := "call n1 a 1 2 100 5\ncall n2 a 4 5 200 6\ncall n3 b 7 8 300 7 parent=a trigger=user_message\ncall n4 b 10 11 400 8"
	var outlines []string
	for _, order := range [][]int{{0, 1}, {1, 0}} {
		sources := []merge.Source{{Name: "spans", Capture: recording(t, spans)}, {Name: "transcript", Capture: recording(t, transcript)}}
		c, report, err := merge.Merge(merge.Source{Capture: recording(t, server)}, []merge.Source{sources[order[0]], sources[order[1]]}, merge.Options{})
		if err != nil {
			t.Fatal(err)
		}
		outlines = append(outlines, outline(c)+c.Sessions[1].Turns[0].Trigger+"\n"+matched(&report.Harnesses[0])+"\n"+matched(&report.Harnesses[1]))
	}
	if !strings.HasPrefix(outlines[0], "a: s1 s2 t@7-8\nb < a: s3 s4\nuser_message") {
		t.Errorf("merged %s", outlines[0])
	}
	if !slices.Equal(outlines[:1], outlines[1:]) {
		t.Error(cmp.Diff(outlines[0], outlines[1]))
	}
}

// Fields that a rule had filled and that the harness tells are filled no more; the marks of what the harness's rules filled come.
func TestFilledFields(t *testing.T) {
	server := recording(t, "call s1 inferred-1 0 1 100 5 alias=m1 filled=session filled=output_tokens\ncall s2 inferred-1 3 4 200 6 alias=m2 filled=session filled=input_tokens")
	server.Sessions[0].Turns[1].Row = &trace.Record{Request: &trace.RequestEnd{Agentsim: &trace.Extension{Status: "completed", Inferred: []string{"session", "input_tokens", "other"}}}}
	harness := recording(t, "call m1 main 0 1 100 9 cached=30 trigger=user_message\ncall m2 main 3 4 222 6 cached=60 filled=parent")
	c, report, err := merge.Merge(merge.Source{Capture: server}, []merge.Source{{Capture: harness}}, merge.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, b := c.Sessions[0].Turns[0], c.Sessions[0].Turns[1]
	if a.Inferred != 0 || b.Inferred != trace.FieldParent || a.Output != 9 || b.Input != 222 || a.Cached != 30 || a.Trigger != "user_message" {
		t.Errorf("calls %+v, %+v", a, b)
	}
	if row := b.Row.Request; !slices.Equal(row.Agentsim.Inferred, []string{"other"}) || row.XRequestID != "m2" {
		t.Errorf("row %+v, marks %q", row, row.Agentsim.Inferred)
	}
	if diff := cmp.Diff([]merge.FieldCount{{Field: "output_tokens", Calls: 1}, {Field: "session", Calls: 2}, {Field: "input_tokens", Calls: 1}}, report.Known); diff != "" {
		t.Error(diff)
	}
	if len(report.Harnesses[0].Differs) > 0 {
		t.Errorf("differs %v", report.Harnesses[0].Differs)
	}
}

// A server without hashes takes those of the first harness that has some.
func TestHashesOfHarness(t *testing.T) {
	server := recording(t, "call s1 - 0 1 20 5 alias=m1\ncall s2 - 3 4 30 6 alias=m2\ncall s3 - 6 7 30 6 alias=m3")
	harness := recording(t, "call m1 main 0 1 20 9 chain=1,2 filled=hashes_from_text\ncall m2 main 3 4 30 6 chain=1,2,3 filled=hashes_from_text\ncall m3 main 6 7 20 6 chain=1,2")
	c, _, err := merge.Merge(merge.Source{Capture: server}, []merge.Source{{Capture: harness}}, merge.Options{})
	if err != nil {
		t.Fatal(err)
	}
	turns := c.Sessions[0].Turns
	if c.BlockSize != 10 || !slices.Equal(turns[1].Chain(), []uint64{1, 2, 3}) || turns[1].Inferred != trace.FieldTextHashes || len(turns[2].Chain()) != 0 {
		t.Errorf("chains %v, %v, marks %v", turns[1].Chain(), turns[2].Chain(), turns[1].Inferred.Names())
	}
}
