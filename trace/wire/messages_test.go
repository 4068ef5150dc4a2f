package wire

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The events of a message, written out.
func TestMessageEvents(t *testing.T) {
	m := MessageEvents{ID: "m1", Model: "c"}
	var got strings.Builder
	send := func(name string, data []byte) { got.WriteString(name + " " + string(data) + "\n") }
	m.Send(&Chunk{Usage: &Usage{Prompt: new(int64(10)), Cached: new(int64(4))}}, send)
	m.Send(&Chunk{Reasoning: "hm"}, send)
	m.Send(&Chunk{Text: "a"}, send)
	m.Send(&Chunk{Text: "\"b\""}, send)
	m.Send(&Chunk{ToolCalls: []ToolCall{{ID: "t1", Name: "ls", Arguments: "{}"}}}, send)
	m.Send(&Chunk{Finish: "tool_calls", Usage: &Usage{Prompt: new(int64(10)), Cached: new(int64(4)), Completion: new(int64(7))}}, send)
	const want = `message_start {"type":"message_start","message":{"id":"m1","type":"message","role":"assistant","model":"c","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":6,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":0}}}
content_block_start {"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":""}}
content_block_delta {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}
content_block_stop {"type":"content_block_stop","index":0}
content_block_start {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}
content_block_delta {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"a"}}
content_block_delta {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"\"b\""}}
content_block_stop {"type":"content_block_stop","index":1}
content_block_start {"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"t1","name":"ls","input":{}}}
content_block_delta {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{}"}}
content_block_stop {"type":"content_block_stop","index":2}
message_delta {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"input_tokens":6,"cache_creation_input_tokens":0,"cache_read_input_tokens":4,"output_tokens":7}}
message_stop {"type":"message_stop"}
`
	if d := cmp.Diff(want, got.String()); d != "" {
		t.Error(d)
	}
}

// What is written as a message, in events or whole, is read as what was said.
func TestMessagesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", " word", "\"quoted\"\n", "<é\u2028\x01>"})
		m := MessageEvents{ID: text.Draw(t, "id"), Model: text.Draw(t, "model")}
		stop := rapid.SampledFrom([]string{"", "END"}).Draw(t, "stop")
		usage := &Usage{Prompt: new(rapid.Int64Range(5, 9).Draw(t, "prompt")), Cached: new(rapid.Int64Range(0, 5).Draw(t, "cached")), Completion: new(int64(3))}
		finish := map[string]string{"": "end_turn", "END": "stop_sequence"}[stop]
		want := Chunk{ID: m.ID, Model: m.Model, Role: "assistant", Finish: finish, Stop: stop, Usage: usage}
		var said []Chunk
		for range rapid.IntRange(0, 4).Draw(t, "chunks") {
			c := Chunk{Text: text.Draw(t, "text"), Reasoning: text.Draw(t, "reasoning")}
			want.Text, want.Reasoning = want.Text+c.Text, want.Reasoning+c.Reasoning
			said = append(said, c)
		}
		said = append(said, Chunk{Finish: "stop", Stop: stop, Usage: usage})
		got := Chunk{Usage: new(Usage)}
		end := false
		take := func(_ string, data []byte) {
			var c Chunk
			if err := c.Parse(data); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			if c.ID != "" || c.Role != "" {
				got.ID, got.Model, got.Role = c.ID, c.Model, c.Role
			}
			if c.Finish != "" {
				got.Finish, got.Stop = c.Finish, c.Stop
			}
			got.Text, got.Reasoning, end = got.Text+c.Text, got.Reasoning+c.Reasoning, c.End
			got.Usage.Update(c.Usage)
		}
		for i := range said {
			m.Send(&said[i], take)
		}
		if d := cmp.Diff(want, got, emptyIsNil); d != "" || !end {
			t.Fatalf("ended %v, (-want +got):\n%s", end, d)
		}
		a := Answer{Dialect: Messages, ID: m.ID, Model: m.Model}
		whole := want
		whole.Finish, whole.ToolCalls = "stop", []ToolCall{{0, "t", "ls", `{"a":1}`}}
		if err := got.Parse(a.Append(nil, &whole)); err != nil {
			t.Fatal(err)
		}
		whole.Finish = finish
		whole.ToolCalls[0].Index = got.ToolCalls[0].Index // that of its block
		if d := cmp.Diff(whole, got, emptyIsNil); d != "" {
			t.Fatalf("%s (-want +got):\n%s", a.Append(nil, &whole), d)
		}
	})
}

func TestMessagesErrors(t *testing.T) {
	for status, kind := range map[int]string{400: "invalid_request_error", 404: "not_found_error", 429: "rate_limit_error", 529: "overloaded_error", 500: "api_error", 0: "api_error"} {
		text := (&Error{Status: status, Message: "x"}).AppendMessages(nil)
		if got := ParseError(status, text); got.Message != "x" || got.Type != kind {
			t.Errorf("status %d: %s is read as %+v, want type %s", status, text, got, kind)
		}
		var c Chunk
		if err := c.Parse(text); err != nil || c.Err == nil || c.Err.Type != kind {
			t.Errorf("%s inside an answer is %+v (%v)", text, c.Err, err)
		}
	}
}
