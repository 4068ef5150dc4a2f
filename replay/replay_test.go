package replay_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/replay"
	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/replay/prompts"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/wire"
)

// turn is a line of a small trace: times in ms, hashes of blocks of 16 tokens.
type turn struct {
	session, parent string
	start, end      int
	input, output   int32
	hashes          []uint64
}

// compile makes a workload of turns.
func compile(t testing.TB, turns ...turn) *trace.Workload {
	t.Helper()
	c := &trace.Capture{Format: "test", BlockSize: 16, Resolution: time.Millisecond, SharedClock: true}
	sessions := map[string]*trace.Session{}
	for _, u := range turns {
		s := sessions[u.session]
		if s == nil {
			s = &trace.Session{ID: u.session, Parent: u.parent}
			sessions[u.session] = s
			c.Sessions = append(c.Sessions, s)
		}
		s.Turns = append(s.Turns, &trace.Turn{ID: fmt.Sprintf("%s-%d", u.session, len(s.Turns)+1), Model: "m",
			Start: time.Duration(u.start) * time.Millisecond, End: time.Duration(u.end) * time.Millisecond, TTFT: trace.NoTime,
			Input: u.input, Output: u.output, Cached: trace.Unknown, Reasoning: trace.Unknown, Hashes: u.hashes})
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

// family is a parent that spawns a child, joins it, and goes on, so long after the grandchild began that a busy machine
// keeps their order.
func family(t testing.TB) *trace.Workload {
	return compile(t,
		turn{"a", "", 0, 10, 32, 4, []uint64{1, 2}},
		turn{"b", "a", 15, 25, 32, 4, []uint64{1, 3}},
		turn{"a", "", 230, 240, 48, 4, []uint64{1, 2, 4}},
		turn{"c", "b", 26, 28, 16, 2, []uint64{9}})
}

// setup is a replay that tests change before it runs.
type setup struct {
	plan    plan.Options
	client  client.Options
	options replay.Options
	limit   time.Duration // on the whole replay
	text    bool          // prompts are of words
	scale   prompts.Scale
	salt    uint64
}

// run replays a workload against a fake server.
func run(t testing.TB, w *trace.Workload, f *fake, change func(*setup)) (*replay.Result, []*replay.Outcome) {
	t.Helper()
	s := setup{salt: 7, limit: 30 * time.Second, client: client.Options{URLs: []string{f.URL}}, options: replay.Options{Model: "m", Grace: time.Second, OnError: replay.Continue}}
	if change != nil {
		change(&s)
	}
	p, err := plan.New(w, s.plan)
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(s.client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	alphabet, err := prompts.TokenIDs(prompts.DefaultLowID, prompts.DefaultHighID)
	if s.text {
		alphabet, err = prompts.Words(prompts.List())
	}
	if err != nil {
		t.Fatal(err)
	}
	var outcomes []*replay.Outcome
	s.options.Plan, s.options.Client = p, c
	s.options.Prompts = prompts.NewMaker(w, alphabet, s.salt, s.scale)
	if c.Chat() {
		s.options.Prompts = prompts.NewChatMaker(w, alphabet, s.salt, s.scale)
	}
	each := s.options.Each
	s.options.Each = func(o *replay.Outcome) error {
		outcomes = append(outcomes, o)
		if each != nil {
			return each(o)
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(t.Context(), s.limit)
	defer cancel()
	result, err := replay.Run(ctx, s.options)
	if err != nil {
		t.Fatal(err)
	}
	if ctx.Err() != nil {
		t.Fatal("the replay hangs")
	}
	check(t, result)
	return result, outcomes
}

// check verifies what holds for every replay: each planned request is counted once, and the report agrees with itself.
func check(t testing.TB, r *replay.Result) {
	t.Helper()
	run := r.Report(replay.About{Name: "replay"})
	if err := run.Check(); err != nil {
		t.Error(err)
	}
	whole := &run.Measures
	if run.Whole != nil {
		whole = run.Whole
	}
	if got := whole.Requests.Total; got != int64(r.Plan.Calls) {
		t.Errorf("%d requests in the report, %d planned", got, r.Plan.Calls)
	}
	var requests []report.Request
	for i := range r.Rows {
		requests = append(requests, r.Rows[i].Request)
	}
	if err := report.CheckRequests(requests); err != nil {
		t.Error(err)
	}
}

func TestReplaysTheTreeOfSessions(t *testing.T) {
	f := newFake(t)
	result, outcomes := run(t, family(t), f, nil)
	if len(outcomes) != 4 || result.Failed != 0 {
		t.Fatalf("%d outcomes, %d failed, want 4 and 0", len(outcomes), result.Failed)
	}
	want := []string{"a  false", "b a true", "c b true", "a  true"} // in order of sending: session, parent, final
	for i, s := range f.seen {
		h := wire.SessionOf(s.header)
		if got := fmt.Sprint(h.ID, " ", h.Parent, " ", h.Final); got != want[i] {
			t.Errorf("request %d is %q, want %q", i, got, want[i])
		}
	}
	for _, o := range outcomes {
		a := o.Answer
		times := []time.Duration{0, o.Due, a.Sent, a.Connected, a.Wrote, a.FirstByte, a.FirstToken, a.LastToken, a.End}
		for i := 1; i < len(times); i++ {
			if times[i] < times[i-1] && i != 5 { // an answer may begin before the request's last byte is known to be written
				t.Errorf("%s: times are not in order: %v", o.ID, times)
			}
		}
		call := result.Plan.Workload.Calls[o.Call]
		if a.Prompt != call.Input || a.Completion != call.Output || a.Events != call.Output {
			t.Errorf("%s: %d prompt and %d output tokens in %d events, recorded are %d and %d", o.ID, a.Prompt, a.Completion, a.Events, call.Input, call.Output)
		}
	}
	// The second turn of a shares block 1 and 2 with the first, the child only block 1.
	if f.seen[1].cached != 16 || f.seen[3].cached != 32 {
		t.Errorf("the child found %d tokens cached, the second turn %d; want 16 and 32", f.seen[1].cached, f.seen[3].cached)
	}
}

func TestLiveOutputsStandInTheNextPrompt(t *testing.T) {
	w := compile(t, turn{"a", "", 0, 10, 32, 33, []uint64{1, 2}}, turn{"a", "", 20, 30, 80, 1, []uint64{1, 2, 3, 4, 5}})
	for _, live := range []bool{false, true} {
		f := newFake(t)
		f.PerEvent = 3
		_, _ = run(t, w, f, func(s *setup) { s.options.LiveOutputs, s.client.TokenIDs = live, live })
		made := 0
		for i, id := range f.seen[1].body.Prompt.Tokens {
			if id >= 100_000 {
				made++
				if want := f.answers[0][i-32]; id != want {
					t.Errorf("token %d of the second prompt is %d, the first answer had %d there", i, id, want)
				}
			}
		}
		if want := map[bool]int{true: 32, false: 0}[live]; made != want { // the last token's KV is never computed
			t.Errorf("live %v: %d tokens of the first answer are in the second prompt, want %d", live, made, want)
		}
	}
}

// As text too: in a chat the answer is a message of the assistant.
func TestLiveTextStandsInTheNextPrompt(t *testing.T) {
	w := compile(t, turn{"a", "", 0, 10, 32, 17, []uint64{1, 2}}, turn{"a", "", 20, 30, 96, 1, []uint64{1, 2, 3, 4, 5, 6}})
	answer := strings.Repeat(" tok", 17)
	for _, endpoint := range []string{client.Completions, client.Chat} {
		for _, live := range []bool{false, true} {
			f := newFake(t)
			run(t, w, f, func(s *setup) {
				s.options.LiveOutputs, s.client.Text, s.client.Endpoint, s.text = live, live, endpoint, true
				s.scale = prompts.Scale{PerMessage: 4}
			})
			whole, apart := "", false
			if body := f.seen[1].body; endpoint == client.Chat {
				for _, m := range body.Messages {
					whole += string(m.Content)
					apart = apart || m.Role == "assistant" && string(m.Content) == answer
				}
			} else {
				whole, apart = body.Prompt.Text, live
			}
			if strings.Contains(whole, answer) != live || apart != live || strings.Count(whole, " tok") > 17 {
				t.Errorf("%s, live %v: the next prompt is %q", endpoint, live, whole)
			}
		}
	}
}

// Forced outputs are what the next prompt holds in their place.
func TestForcedOutputsAreThoseOfTheNextPrompt(t *testing.T) {
	w := compile(t, turn{"a", "", 0, 10, 32, 33, []uint64{1, 2}}, turn{"a", "", 20, 30, 80, 0, []uint64{1, 2, 3, 4, 5}})
	f := newFake(t)
	run(t, w, f, func(s *setup) { s.options.ForceOutputs = true })
	forced, next := f.seen[0].body.ForceTokens, f.seen[1].body.Prompt.Tokens
	if len(forced) != 33 || !slices.Equal(forced[:32], next[32:64]) {
		t.Errorf("forced %d tokens %v, the next prompt has %v", len(forced), forced, next[32:64])
	}
	if n := f.seen[0].body.MaxTokens; n == nil || *n != 33 { // vllm#56730: outputs are cut at 16 without it
		t.Errorf("max_tokens is %v, want 33", n)
	}
	if other := f.seen[1].body.ForceTokens; other != nil {
		t.Errorf("a call without output forces %v", other)
	}
}

func TestSessionsStayOnTheirServer(t *testing.T) {
	f, g := newFake(t), newFake(t)
	run(t, family(t), f, func(s *setup) { s.client.URLs = append(s.client.URLs, g.URL+"/v1/") })
	at := map[string]int{}
	for i, server := range []*fake{f, g} {
		for _, s := range server.seen {
			if was, ok := at[s.session]; ok && was != i {
				t.Errorf("session %s is on both servers", s.session)
			}
			at[s.session] = i
		}
	}
	if len(f.seen) == 0 || len(g.seen) == 0 {
		t.Errorf("%d and %d requests: a server is left out", len(f.seen), len(g.seen))
	}
}

func TestCopiesAreSessionsOfTheirOwn(t *testing.T) {
	f := newFake(t)
	result, _ := run(t, family(t), f, func(s *setup) { s.plan = plan.Options{Timing: plan.Concurrency, Concurrency: 2, Loop: 3} })
	finals := map[string]int{}
	for _, s := range f.seen {
		h := wire.SessionOf(s.header)
		if h.Final {
			finals[h.ID]++
		}
		if copied := strings.Contains(h.ID, "#"); h.Parent != "" && strings.Contains(h.Parent, "#") != copied {
			t.Errorf("session %s has parent %s of another copy", h.ID, h.Parent)
		}
	}
	if len(result.Rows) != 12 || len(finals) != 9 {
		t.Errorf("%d requests of %d sessions that were ended, want 12 of 9", len(result.Rows), len(finals))
	}
	for id, n := range finals {
		if n != 1 {
			t.Errorf("session %s ended %d times", id, n)
		}
	}
	// Nothing is shared by two source programs here, so a copy finds nothing of its predecessor.
	for _, s := range f.seen[:3] {
		if s.session == "a#1" && s.cached > 0 {
			t.Errorf("copy a#1 found %d tokens of copy a", s.cached)
		}
	}
}

func TestHeldRequestsAreClientLag(t *testing.T) {
	f := newFake(t)
	f.TTFT = 60 * time.Millisecond
	w := compile(t, turn{"a", "", 0, 10, 16, 1, []uint64{1}}, turn{"b", "", 0, 10, 16, 1, []uint64{2}})
	result, _ := run(t, w, f, func(s *setup) { s.options.MaxInFlight = 1 })
	run := result.Report(replay.About{})
	if run.Replay.Held != 1 || run.Replay.LagMs.Max.Value < 50 {
		t.Errorf("%d held, lag %v: want one that lags 60 ms", run.Replay.Held, run.Replay.LagMs)
	}
	if run.Replay.FromDue.E2E.Max.Value < run.Replay.FromSend.E2E.Min.Value+50 {
		t.Errorf("from send %v, from due %v: only the latter has the wait", run.Replay.FromSend.E2E.Max, run.Replay.FromDue.E2E.Max)
	}
	if d := run.Replay.Doubts; len(d) == 0 || !strings.Contains(d[0], "the client, not the server") {
		t.Errorf("doubts are %q", d)
	}
}

func TestSlipIsTheServersDoing(t *testing.T) {
	f := newFake(t)
	f.TTFT = 80 * time.Millisecond // recorded were 10
	w := compile(t, turn{"a", "", 0, 10, 16, 1, []uint64{1}}, turn{"a", "", 20, 30, 32, 1, []uint64{1, 2}})
	_, outcomes := run(t, w, f, nil)
	if slip, lag := outcomes[1].Slip(), outcomes[1].Lag(); slip < 55*time.Millisecond || lag > slip {
		t.Errorf("slip %v and lag %v, want 60 ms of slip", slip, lag)
	}
}

func TestEndSessionSkipsTheRest(t *testing.T) {
	w := compile(t,
		turn{"a", "", 0, 1, 16, 1, []uint64{1}}, turn{"a", "", 10, 11, 16, 1, []uint64{1}}, turn{"a", "", 20, 21, 16, 1, []uint64{1}},
		turn{"sub", "a", 12, 13, 16, 1, []uint64{2}}, turn{"b", "", 0, 1, 16, 1, []uint64{3}}, turn{"b", "", 15, 16, 16, 1, []uint64{3}})
	f := newFake(t)
	f.Hook = func(n int, rw http.ResponseWriter, q *http.Request, _ *wire.Request) bool {
		if q.Header.Get(wire.HeaderRequestID) != "a-2" {
			return false
		}
		http.Error(rw, `{"error":{"message":"This model's maximum context length is 4096 tokens"}}`, http.StatusBadRequest)
		return true
	}
	result, outcomes := run(t, w, f, nil)
	var sent []string
	for _, o := range outcomes {
		sent = append(sent, o.ID)
	}
	if got := fmt.Sprint(sent); result.Unsent() != 2 || strings.Contains(got, "a-3") || strings.Contains(got, "sub") || !strings.Contains(got, "b-2") {
		t.Errorf("sent %s, %d unsent; want all but a-3 and sub-1", got, result.Unsent())
	}
}
