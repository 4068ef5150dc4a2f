package replay_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/replay"
	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/replay/prompts"
	"github.com/agentsim/agentsim/sim/server"
	"github.com/agentsim/agentsim/trace"
)

// chatOverhead is what the simulated server adds to a chat of one message: start, role, content and end of the message, and
// start, role and content of the answer.
const chatOverhead = 7

// Whatever a server does wrong, as `agentsim serve --fault` does it, the row of each request and the report say what
// happened; and what is only unusual is read like anything else.
func TestEveryFaultOfAServerIsTold(t *testing.T) {
	const good = client.Kind("")
	tests := []struct {
		fault string
		kind  client.Kind
		says  string // among doubts and warnings; "" for none at all
	}{
		{"", good, ""},
		{"slow:30ms", good, ""},
		{"status:429;retry-after:3", client.FailStatus, "3 of 3 requests failed (3 status 429)"},
		{"status:529", client.FailStatus, "(3 status 529)"},
		{"refuse:min_tokens", good, "the server refuses min_tokens: it was left out"},
		{"reset", client.FailConnect, "(3 connection)"},
		{"restart:0s", client.FailConnect, "(3 connection)"},
		{"no-answer", client.FailCut, "(3 cut off)"},
		{"plain", good, "3 answers came in one piece though a stream was asked for"},
		{"output:0", client.FailEmpty, "(3 empty)"},
		{"output:2", good, "servers generated 66.7% more or fewer tokens than recorded"},
		{"truncate:80", good, "servers counted 50.0% more or fewer prompt tokens than recorded"},
		{"cut:2", client.FailCut, "(3 cut off)"},
		{"stall:2", client.FailIdle, "(3 idle timeout)"},
		{"error:2", client.FailInBand, "injected fault"},
		{"error-event:2", client.FailInBand, "injected fault"},
		{"group:2", good, "events hold 2.00 tokens each"},
		{"no-usage", good, "3 answers do not tell their output tokens"},
		{"wrong-usage:3", good, "servers generated 50.0% more or fewer tokens than recorded"},
		{"warm", good, "the first request of a program found 160 tokens in the cache that no other can have put there"},
		{"merge:3", good, ""}, {"split", good, ""}, {"usage-each", good, ""}, {"finish-apart", good, ""}, {"no-done", good, ""}, {"more-after", good, ""},
		{"close", good, ""}, {"gzip", good, ""}, {"crlf", good, ""}, {"cr", good, ""}, {"bom", good, ""}, {"no-space", good, ""},
		{"multi-line", good, ""}, {"no-final-blank", good, ""}, {"comment", good, ""}, {"ping:1ms", good, ""}, {"long-line:100000", good, ""},
		{"reasoning", good, ""}, {"reasoning:reasoning", good, ""}, {"tool-calls", good, ""}, {"no-role", good, ""}, {"null-content", good, ""},
	}
	p, err := deployment(1).Resolve()
	if err != nil {
		t.Fatal(err)
	}
	var turns []turn
	for i := range 3 {
		turns = append(turns, turn{"a", "", i, i + 1, 160, 6, nil})
	}
	w := compile(t, turns...)
	left := map[string]bool{}
	for line := range strings.Lines(server.FaultHelp()) {
		name, _, _ := strings.Cut(strings.Fields(line)[0], ":")
		left[name] = true
	}
	for _, test := range tests {
		for _, part := range strings.Split(test.fault, ";") {
			name, _, _ := strings.Cut(part, ":")
			delete(left, name)
		}
		for _, endpoint := range []string{client.Completions, client.Chat} {
			t.Run(test.fault+" of "+endpoint, func(t *testing.T) {
				faults, err := server.ParseFaults(test.fault)
				if err != nil {
					t.Fatal(err)
				}
				s, err := server.New(p, server.Options{TimeScale: 20, Faults: faults})
				if err != nil {
					t.Fatal(err)
				}
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				go s.Run(ctx)
				h := httptest.NewServer(s)
				defer h.Close()
				defer h.CloseClientConnections()
				result, outcomes := run(t, w, &fake{Server: h}, func(s *setup) {
					s.plan.Timing, s.options.Model = plan.ASAP, p.Hardware.Model.Name
					s.client.Endpoint, s.client.IdleTimeout = endpoint, 300*time.Millisecond
					if endpoint == client.Chat {
						s.text, s.scale = true, prompts.Scale{Overhead: chatOverhead}
					}
				})
				for _, o := range outcomes {
					tells(t, o, test.fault, test.kind)
				}
				r := result.Report(replay.About{})
				said := strings.Join(append(serverDoubts(result), r.Warnings...), "; ")
				if len(outcomes) != 3 || !strings.Contains(said, test.says) || test.says == "" && said != "" {
					t.Errorf("%d outcomes, and the report says %q; want 3 and %q", len(outcomes), said, test.says)
				}
			})
		}
	}
	if len(left) > 0 {
		t.Errorf("faults without a row here: %v", left)
	}
}

// tells checks the row of a request under a fault.
func tells(t *testing.T, o *replay.Outcome, fault string, kind client.Kind) {
	t.Helper()
	a := o.Answer
	got := client.Kind("")
	if a.Err != nil {
		got = a.Err.Kind
	}
	if got != kind {
		t.Errorf("%s ended with %v, want %q", o.ID, a.Err, kind)
	}
	if kind != "" {
		return
	}
	name, _, _ := strings.Cut(fault, ":")
	want := fmt.Sprint(6, 6, true) // events, tokens, whether the first has a time
	switch name {
	case "plain":
		want = fmt.Sprint(1, 6, false)
	case "output":
		want = fmt.Sprint(2, 2, true)
	case "group":
		want = fmt.Sprint(3, 6, true)
	case "no-usage":
		want = fmt.Sprint(6, trace.Unknown, true)
	case "wrong-usage":
		want = fmt.Sprint(6, 9, true)
	}
	if got := fmt.Sprint(a.Events, a.Completion, a.FirstToken != client.None); got != want {
		t.Errorf("%s has events, tokens and a first token as %s, want %s", o.ID, got, want)
	}
	switch {
	case name == "slow" && a.FirstToken-a.Sent < 30*time.Millisecond:
		t.Errorf("%s has its first token after %v", o.ID, a.FirstToken-a.Sent)
	case name == "reasoning" && a.Reasoning == trace.Unknown:
		t.Errorf("%s tells no reasoning", o.ID)
	case name == "close" && a.Reused:
		t.Errorf("%s reuses a connection that was closed", o.ID)
	}
}
