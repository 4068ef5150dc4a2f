package convert

import (
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// One exchange, as APIs and the agents that talk to them count it: a prompt of 9888 tokens, of which 6752 were found in the cache
// and 1000 written there, and an answer of 120 tokens, 20 of them reasoning. Anthropic's counts of the prompt leave out what the
// cache had or got, OpenAI's do not; OpenCode's count of the answer leaves out reasoning, others do not, or do not tell it.
func TestUsage(t *testing.T) {
	const openAI = `{"prompt_tokens":9888,"completion_tokens":120,"prompt_tokens_details":{"cached_tokens":6752},"completion_tokens_details":{"reasoning_tokens":20}}`
	otel := func(usage ...string) string {
		return otlp(otlpSpan("a", "", 0, 3, append([]string{"gen_ai.operation.name=chat", "gen_ai.usage.output_tokens=120"}, usage...)...))
	}
	for _, c := range []struct {
		name, text string
		reasoning  int32
	}{
		{"Claude Code", `{"type":"assistant","sessionId":"s","uuid":"a","timestamp":"2026-01-01T00:00:03Z","message":{"id":"m","role":"assistant","stop_reason":"end_turn",` +
			`"usage":{"input_tokens":2136,"cache_creation_input_tokens":1000,"cache_read_input_tokens":6752,"output_tokens":120},"content":[]}}`, trace.Unknown},
		{"Codex", codexRowAt(1, "session_meta", `{"id":"s"}`) + "\n" + codexMessage(2, "assistant", "x") + "\n" +
			codexRowAt(3, "event_msg", `{"type":"token_count","info":{"total_token_usage":{"input_tokens":9888,"cached_input_tokens":6752,"output_tokens":120,"reasoning_output_tokens":20}}}`), 20},
		{"OpenCode", `{"id":"m","sessionID":"s","role":"assistant","time":{"created":1000000000000,"completed":1000000003000},` +
			`"tokens":{"input":2136,"output":100,"reasoning":20,"cache":{"read":6752,"write":1000}}}`, 20},
		{"ATIF", `{"schema_version":"ATIF-v1.4","session_id":"s","steps":[{"source":"agent","message":"x","timestamp":"2026-01-01T00:00:03Z",` +
			`"metrics":{"prompt_tokens":9888,"completion_tokens":120,"cached_tokens":6752}}]}`, trace.Unknown},
		{"TraceLab", `{"session_id":"s","round_index":0,"round_id":"msg_a","input_tokens_total":9888,"prefix_tokens":6752,"output_tokens":120,"reasoning_output_tokens":20,` +
			`"timing_events":[{"event_type":"text","timestamp":"2026-01-01T00:00:03Z"}]}`, 20},
		{"OpenTelemetry, a total", otel("gen_ai.usage.input_tokens=9888", "gen_ai.usage.cache_read.input_tokens=6752", "gen_ai.usage.cache_creation.input_tokens=1000"), trace.Unknown},
		{"OpenTelemetry, Anthropic's", otel("gen_ai.usage.input_tokens=2136", "gen_ai.usage.cache_read.input_tokens=6752", "gen_ai.usage.cache_creation.input_tokens=1000"), trace.Unknown},
		{"mini-SWE-agent", `{"info":{},"messages":[{"role":"user","content":"u"},{"role":"assistant","content":"a","extra":{"timestamp":1760000010.5,"response":{"usage":` + openAI + `}}}]}`, 20},
		{"OpenHands", `[{"id":0,"timestamp":"2025-02-01T00:14:10","source":"user","action":"message","args":{}},{"id":1,"timestamp":"2025-02-01T00:14:12","source":"agent","action":"message",` +
			`"args":{},"tool_call_metadata":{"function_name":"f","model_response":{"id":"r","usage":` + openAI + `}}}]`, 20},
		{"Dynamo", `{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":9,"request":{"request_id":"a","input_tokens":9888,"cached_tokens":6752,` +
			`"output_tokens":120,"request_received_ms":5,"agentsim":{"reasoning_tokens":20}}}`, 20},
	} {
		got, err := openText(c.text, Options{})
		if err != nil || got.Read.Calls != 1 {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		if turn := got.Sessions[0].Turns[0]; turn.Input != 9888 || turn.Cached != 6752 || turn.Output != 120 || turn.Reasoning != c.reasoning ||
			turn.Inferred&(trace.FieldInput|trace.FieldOutput) != 0 {
			t.Errorf("%s: %d tokens, %d cached, answered with %d, %d reasoning", c.name, turn.Input, turn.Cached, turn.Output, turn.Reasoning)
		}
	}
}

// Calls of which nothing tells when they were sent take as long as their answers at the default speed, 2 s for 100 tokens, and do
// not begin before the one before has ended: not hours, when people paused between the two.
func TestUnaskedStarts(t *testing.T) {
	bare := func(at, id string) string {
		return `{"sessionId":"s","timestamp":"2026-01-01T` + at + `Z","message":{"role":"assistant","id":"` + id + `","usage":{"input_tokens":10,"output_tokens":100}}}`
	}
	count := func(at, total string) string {
		return `{"timestamp":"2026-01-01T` + at + `Z","type":"event_msg","payload":{"type":"token_count","info":{"total_token_usage":{"input_tokens":` + total + `,"output_tokens":` + total + `}}}}`
	}
	for name, text := range map[string]string{
		"Claude Code": bare("00:00:10", "a") + "\n" + bare("00:00:11", "b") + "\n" + bare("20:00:00", "c"),
		"Codex": `{"timestamp":"2026-01-01T00:00:00Z","type":"session_meta","payload":{"id":"s"}}` + "\n" +
			count("00:00:10", "100") + "\n" + count("00:00:11", "200") + "\n" + count("20:00:00", "300"),
	} {
		c, err := openText(text, Options{})
		if err != nil {
			t.Fatal(err)
		}
		turns := c.Sessions[0].Turns
		for i, want := range []time.Duration{2 * time.Second, time.Second, 2 * time.Second} {
			if got := turns[i].End - turns[i].Start; got != want || turns[i].Inferred&trace.FieldStart == 0 {
				t.Errorf("%s: call %d took %v, want %v", name, i+1, got, want)
			}
		}
	}
}
