package convert

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/synth"
)

// written writes a capture, which it links, and reads it back.
func written(t *testing.T, c *trace.Capture, target string, opts Options) (*trace.Capture, []Count) {
	t.Helper()
	var out bytes.Buffer
	lost, err := Write(&out, target, c)
	if err != nil {
		t.Fatal(err)
	}
	opts.Stdin = &out
	back, err := Open(context.Background(), []string{"-"}, opts)
	if err != nil {
		t.Fatalf("reading back: %v", err)
	}
	if len(back.Read.Warnings) > 0 || back.Read.LostRows > 0 {
		t.Fatalf("reading back: %+v", back.Read)
	}
	link(t, back)
	return back, lost
}

func link(t *testing.T, c *trace.Capture) *trace.Capture {
	t.Helper()
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	return c
}

// invented makes a workload with every kind of edge that a profile has.
func invented(t *testing.T, profile string, programs int) *trace.Capture {
	t.Helper()
	c, err := synth.Generate(profile, synth.Options{Programs: programs, Seed: 3})
	if err != nil {
		t.Fatal(err)
	}
	c.Rebase() // readers begin at 0
	return link(t, c)
}

// run simulates a capture and returns the result.
func run(t *testing.T, c *trace.Capture) *sim.Result {
	t.Helper()
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		t.Fatal(err)
	}
	d := sim.Default()
	d.Model, d.Workers, d.Load.Mode = "qwen3-14b", 2, "closed"
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	r, err := sim.Run(context.Background(), w, p, sim.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// reportOf is the report of a simulation, as JSON.
func reportOf(t *testing.T, c *trace.Capture) string {
	t.Helper()
	text, err := json.MarshalIndent(run(t, c).Report(nil, nil), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// serving lists when the calls of a simulation came and were answered, and what they found in the cache, whatever they
// are called.
func serving(t *testing.T, c *trace.Capture) string {
	t.Helper()
	var list []string
	for _, q := range run(t, c).Requests {
		list = append(list, fmt.Sprintf("%v %v %v %v: %d+%d, hit %d", q.Status, q.Arrival, q.FirstToken, q.End, q.Input, q.Output, q.Hit))
	}
	slices.Sort(list)
	return strings.Join(list, "\n")
}

// shape prints calls in the order of their starts: when, how long, and what they wait for by the place in that order.
func shape(c *trace.Capture) string {
	var turns []*trace.Turn
	for _, s := range c.Sessions {
		turns = append(turns, s.Turns...)
	}
	slices.SortStableFunc(turns, func(a, b *trace.Turn) int { return int(max(min(a.Start-b.Start, 1), -1)) })
	place := map[*trace.Turn]int{}
	for i, turn := range turns {
		place[turn] = i
	}
	var b strings.Builder
	for i, turn := range turns {
		var waits []string
		for _, d := range turn.Deps {
			waits = append(waits, fmt.Sprintf("%d+%v", place[d.Turn], d.Delay))
		}
		slices.Sort(waits)
		fmt.Fprintf(&b, "%d: %v..%v %d+%d waits %v gap %v\n", i, turn.Start, turn.End, turn.Input, turn.Output, waits, turn.Gap)
	}
	return b.String()
}

// firstDifference returns the first lines in which two texts differ.
func firstDifference(got, want string) string {
	a, b := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return fmt.Sprintf("line %d is\n%s\nnot\n%s", i+1, a[i], b[i])
		}
	}
	return fmt.Sprintf("%d lines, not %d", len(a), len(b))
}

func lostNames(lost []Count) []string {
	names := []string{}
	for _, l := range lost {
		names = append(names, l.Name)
	}
	return names
}

// Agentic Mooncake with its extension keeps all that a report is made of: the reports are equal to the byte.
func TestWriteAgentic(t *testing.T) {
	for _, profile := range []string{"claude-code", "openhands", "plain"} {
		c := invented(t, profile, 4)
		back, lost := written(t, c, FormatAgentic, Options{})
		if shape(back) != shape(c) {
			t.Errorf("%s: read back: %s", profile, firstDifference(shape(back), shape(c)))
		}
		if got, want := reportOf(t, back), reportOf(t, c); got != want {
			t.Errorf("%s: the report of what was read back: %s", profile, firstDifference(got, want))
		}
		for _, name := range lostNames(lost) {
			if name != factTools && name != factToolCalls {
				t.Errorf("%s: %q are lost", profile, name)
			}
		}
		// What was read back is written as it was.
		var once, twice bytes.Buffer
		Write(&once, FormatAgentic, c)
		if _, err := Write(&twice, FormatAgentic, back); err != nil || strings.ReplaceAll(twice.String(), `"format":"agentic-mooncake"`, fmt.Sprintf(`"format":%q`, c.Format)) != once.String() {
			t.Errorf("%s: written twice it differs", profile)
		}
	}
}

// What agentic Mooncake has no field for comes back from the object agentsim; what makes no sense there does not. Of the 3 s
// after the first call's end 1 s is a tool's and 1.5 s a person's.
func TestAgenticOwnFields(t *testing.T) {
	c, err := openText(`{"schema":"dynamo.agentic_mooncake","version":2,"block_size":4}
{"request_id":"a","play_id":"p","session_id":"p/kid","input_length":4,"output_length":2,"not_before_ms":0,"recorded_api_time_ms":1000,"dependencies":[],"agentsim":{"parent_session_id":"p","session_type_id":"explore","cached_tokens":5,"status":"error","inferred":["end","what"]}}
{"request_id":"b","play_id":"p","session_id":"p/kid","input_length":9,"output_length":2,"not_before_ms":4000,"dependencies":[{"request_id":"a","delay_ms":3000}],"agentsim":{"input_trigger":"user_message","cached_tokens":4,"reasoning_tokens":1,"ttft_ms":20.5,"tool_ms":1000,"human_ms":1500,"session_final":true}}`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := link(t, c).Sessions[0]
	a, b := s.Turns[0], s.Turns[1]
	if s.ID != "p/kid" || s.Parent != "p" || s.Class != "explore" || !s.Final {
		t.Errorf("session %+v", s)
	}
	if a.Cached != trace.Unknown || a.Status != "error" || a.Inferred != trace.FieldEnd {
		t.Errorf("call %+v", a)
	}
	if b.Cached != 4 || b.Reasoning != 1 || b.TTFT != 20500*time.Microsecond || b.Trigger != "user_message" || !b.Final ||
		b.Gap != (trace.Gap{Tool: time.Second, Human: 1500 * time.Millisecond, Other: 500 * time.Millisecond}) {
		t.Errorf("call %+v", b)
	}
}

// WEKA conversations say of the gaps what the times say, and what prompts end with.
func TestWriteWeka(t *testing.T) {
	for _, profile := range []string{"claude-code", "plain"} {
		c := invented(t, profile, 4)
		back, lost := written(t, c, FormatWeka, Options{})
		for _, s := range c.Sessions {
			for _, turn := range s.Turns {
				turn.Gap = trace.Gap{Other: turn.Gap.Total()} // spans of tools are lost
			}
		}
		for _, s := range back.Sessions {
			for _, turn := range s.Turns {
				turn.Gap = trace.Gap{Other: turn.Gap.Total()}
			}
		}
		if shape(back) != shape(c) {
			t.Errorf("%s: read back: %s", profile, firstDifference(shape(back), shape(c)))
		}
		if got, want := serving(t, back), serving(t, c); got != want {
			t.Errorf("%s: served: %s", profile, firstDifference(got, want))
		}
		if !slices.Contains(lostNames(lost), factID) || profile == "claude-code" && !slices.Contains(lostNames(lost), factTools) {
			t.Errorf("%s: lost %v", profile, lost)
		}
	}
}

// Where no call waits for another session, Mooncake rows with sessions and delays serve as the original does.
func TestWriteMooncake(t *testing.T) {
	c := invented(t, "openhands", 4)
	back, lost := written(t, c, FormatMooncake, Options{BlockSize: c.BlockSize})
	if got, want := serving(t, back), serving(t, c); got != want {
		t.Errorf("served: %s", firstDifference(got, want))
	}
	if names := lostNames(lost); slices.Contains(names, factCross) || !slices.Contains(names, factEnd) {
		t.Errorf("lost %v", lost)
	}
	c = invented(t, "claude-code", 4)
	_, lost = written(t, c, FormatMooncake, Options{BlockSize: c.BlockSize})
	if !slices.Contains(lostNames(lost), factCross) {
		t.Errorf("subagents: lost %v", lost)
	}
}

// AIPerf's rows hold what is new of a prompt. Read back they have the same lengths and gaps, and the prompts of a session
// share the full blocks of the ones before. A prompt that does not go on begins another session.
func TestWriteAIPerf(t *testing.T) {
	c, err := openText(`{"session_id":"s","request_id":"a","timestamp":5,"input_length":10,"output_length":3,"hash_ids":[1,2,3]}
{"session_id":"s","request_id":"b","delay":250,"input_length":20,"output_length":2,"hash_ids":[1,2,9,10,11]}
{"session_id":"s","request_id":"c","delay":100,"input_length":8,"output_length":1,"hash_ids":[7,8]}`, Options{BlockSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	link(t, c)
	var out bytes.Buffer
	lost, err := Write(&out, TargetAIPerf, c)
	if err != nil {
		t.Fatal(err)
	}
	// b adds 20-10-3 = 7 tokens, 2 blocks, which nothing else has; c is shorter than b and its answer. Its start is that of b's
	// after 60 + 250 ms, plus 40 + 100 ms.
	checkText(t, out.String(), `
{"session_id":"s","timestamp":0,"input_length":10,"output_length":3,"hash_ids":[0,1,2]}
{"session_id":"s","delay":250,"input_length":7,"output_length":2,"hash_ids":[3,4]}
{"session_id":"s#2","timestamp":450,"input_length":8,"output_length":1,"hash_ids":[5,6]}
`)
	want := []Count{{"calls that do not go on from the one before, which begin sessions of their own", 1}, {factID, 3}, {"starts, which followed from what calls wait for", 2},
		{"the size of blocks, 4 tokens, which readers must be told", 1}}
	if !slices.Equal(lost, want) {
		t.Errorf("lost %v, want %v", lost, want)
	}
	back, err := openText(out.String(), Options{Format: FormatMooncakeDelta, BlockSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	b := back.Sessions[0].Turns[1]
	if b.Input != 20 || b.Output != 2 || !slices.Equal(chain(b)[:2], []uint64{0, 1}) || b.Waits[0].Delay != 250*time.Millisecond {
		t.Errorf("read back %+v", b)
	}
}

// A partial block has another id than a whole one of the same hash, and so have blocks of other scopes.
func TestWrittenIDs(t *testing.T) {
	c, err := openText(`{"timestamp":0,"input_length":40,"output_length":1,"hash_ids":[7,8,18446744073709551615]}
{"timestamp":0,"input_length":10,"output_length":1,"hash_ids":[7]}
{"timestamp":1,"input_length":10,"output_length":1,"hash_ids":[7]}`, Options{BlockSize: 16})
	if err != nil {
		t.Fatal(err)
	}
	back, _ := written(t, link(t, c), FormatMooncake, Options{BlockSize: 16})
	for i, want := range [][]uint64{{0, 1, 2}, {3}, {3}} {
		if got := chain(back.Sessions[i].Turns[0]); !slices.Equal(got, want) {
			t.Errorf("prompt %d: %d, want %d", i, got, want)
		}
	}
}

// The recorded traces go through every format.
func TestWriteShared(t *testing.T) {
	for _, path := range []string{"dynamo/pi_request_trace.jsonl.gz", "weka/trace_0010.json.gz", "codex",
		"claude-code/claude-code-log/real/experiments-worktrees", "tracelab/round_trace.sanitized.jsonl"} {
		c := link(t, openShared(t, path))
		back, lost := written(t, c, FormatAgentic, Options{})
		if got, want := reportOf(t, back), reportOf(t, c); got != want {
			t.Errorf("%s as %s: the report of what was read back: %s", path, FormatAgentic, firstDifference(got, want))
		}
		t.Logf("%s as %s: lost %v", path, FormatAgentic, lost)
		for _, target := range []string{FormatWeka, FormatMooncake} {
			back, lost := written(t, c, target, Options{BlockSize: blockOption(target, c)})
			if back.Read.Calls != c.Read.Calls {
				t.Errorf("%s as %s: %d calls, want %d", path, target, back.Read.Calls, c.Read.Calls)
			}
			t.Logf("%s as %s: lost %v", path, target, lost)
		}
	}
	c := link(t, openShared(t, "weka/trace_0010.json.gz"))
	if back, _ := written(t, c, FormatWeka, Options{}); shape(back) != shape(c) {
		t.Error("a WEKA conversation written and read back differs")
	} else if got, want := serving(t, back), serving(t, c); got != want {
		t.Error("a WEKA conversation written and read back is served in another way")
	}
}

func blockOption(target string, c *trace.Capture) int {
	if target == FormatMooncake {
		return c.BlockSize
	}
	return 0
}

func TestWriteUnknown(t *testing.T) {
	if _, err := Write(&bytes.Buffer{}, "vidur", &trace.Capture{}); err == nil || !strings.Contains(err.Error(), `no writer of trace format "vidur"; known are agentic-mooncake, aiperf, atif, mooncake, weka`) {
		t.Error(err)
	}
}
