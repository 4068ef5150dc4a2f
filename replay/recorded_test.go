package replay_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/replay"
	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/wire"
)

// A call that the recorded client cancelled is cancelled again: after as many tokens, or after as long where there were
// none. Its row says so, and it is no failure.
func TestRecordedCancellations(t *testing.T) {
	for name, test := range map[string]struct {
		output int32
		ttft   time.Duration
		cancel bool
		events int32
		served int // answers that the server could finish
	}{
		"after three tokens":     {3, 0, true, 3, 0},
		"before the first token": {0, 10 * time.Second, true, 0, 0},
		"not asked for":          {3, 0, false, 3, 1},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.TTFT, f.Gap = test.ttft, 10*time.Millisecond
			w := compile(t, turn{"a", "", 0, 40, 16, test.output, nil})
			w.Calls[0].Turn.Status = trace.Cancelled
			result, outcomes := run(t, w, f, func(s *setup) { s.options.Cancel = test.cancel })
			f.CloseClientConnections()
			f.Close() // waits for the handlers
			a := outcomes[0].Answer
			if a.Err != nil || a.Cancelled != test.cancel || a.Events != test.events || len(f.answers) != test.served {
				t.Errorf("failure %v, cancelled %v after %d tokens; the server finished %d answers", a.Err, a.Cancelled, a.Events, len(f.answers))
			}
			if took := a.End - a.Sent; test.ttft > 0 && (took < 40*time.Millisecond || took > 5*time.Second) {
				t.Errorf("cancelled after %v, recorded were 40 ms", took)
			}
			row, r := result.Rows[0], result.Report(replay.About{})
			c, err := client.New(client.Options{URLs: []string{f.URL}})
			if err != nil {
				t.Fatal(err)
			}
			line := replay.NewLine(outcomes[0], w, c)
			if row.Status != report.Completed || row.Output != test.events || line.Cancelled != test.cancel || len(serverDoubts(result)) > 0 {
				t.Errorf("row %+v, line %+v, doubts %q", row, line, r.Replay.Doubts)
			}
			if said := strings.Contains(strings.Join(r.Warnings, "; "), "requests cancelled by the client, as in the recording: 1;"); said != test.cancel {
				t.Errorf("warnings are %q", r.Warnings)
			}
		})
	}
}

// Hints for Dynamo's router are sent where the trace has them and they are asked for; a server that knows none gets none.
func TestAgentHints(t *testing.T) {
	w := compile(t, turn{"a", "", 0, 1, 16, 1, nil}, turn{"a", "", 5, 6, 16, 1, nil}, turn{"a", "", 10, 11, 16, 1, nil})
	w.Calls[1].Turn.Hints = trace.Hints{Priority: -3, StrictPriority: 2, OSL: 70, SpeculativePrefill: true, PolicyClass: "not a hint of Dynamo"}
	w.Calls[2].Turn.Hints = trace.Hints{Priority: 1}
	for name, test := range map[string]struct {
		ask, refuse bool
		want        []string
	}{
		"asked for": {true, false, []string{"none", "-3 2 70 true", "1 0 0 false"}},
		"not":       {false, false, []string{"none", "none", "none"}},
		"refused":   {true, true, []string{"none", "-3 2 70 true", "none", "none"}}, // the second is sent again
	} {
		f := newFake(t)
		f.Hook = func(_ int, rw http.ResponseWriter, _ *http.Request, body *wire.Request) bool {
			if refused := test.refuse && body.Nvext != nil; !refused {
				return false
			}
			http.Error(rw, `{"error":{"message":"unknown field nvext"}}`, http.StatusBadRequest)
			return true
		}
		result, _ := run(t, w, f, func(s *setup) { s.options.Hints, s.plan.Timing = test.ask, plan.ASAP })
		var got []string
		for _, s := range f.seen {
			got = append(got, hintsOf(s.body))
		}
		if !slices.Equal(got, test.want) || result.Failed > 0 {
			t.Errorf("%s: hints %q, want %q; %d failed", name, got, test.want, result.Failed)
		}
	}
}

func hintsOf(body *wire.Request) string {
	if body.Nvext == nil || body.Nvext.AgentHints == nil {
		return "none"
	}
	h := body.Nvext.AgentHints
	return fmt.Sprint(h.Priority, h.StrictPriority, h.OSL, h.SpeculativePrefill)
}
