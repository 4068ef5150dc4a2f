package wire

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// The same conversation in the words of the three dialects, and the trigger by Dynamo's rule.
func TestConversation(t *testing.T) {
	turns := []Item{
		{Role: "user", Text: "look"},
		{Role: "assistant", Text: "I do", Calls: []ToolCall{{0, "c1", "ls", `{"p":1}`}}},
		{Role: "tool", Text: "a b", Results: true},
	}
	anthropic := append([]Item{}, turns...)
	anthropic[1].Reasoning, anthropic[2].Role = "hm", "user"
	tests := []struct {
		name, body string
		want       Conversation
	}{
		{"chat", `{"model":"m","messages":[{"role":"user","content":"look"},
			{"role":"assistant","content":"I do","tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"ls","arguments":"{\"p\":1}"}}]},
			{"role":"tool","tool_call_id":"c1","content":[{"type":"text","text":"a b"}]}],"n":3,"nvext":{"agent_hints":{"priority":4,"osl":9}}}`,
			Conversation{Model: "m", Items: turns, Trigger: ToolResult, Answers: 3, Hints: &AgentHints{Priority: 4, OSL: 9}}},
		{"messages", `{"model":"m","system":[{"type":"text","text":"be kind","cache_control":{"type":"ephemeral"}}],"tools":[{"name":"ls", "cache_control" : {"type":"ephemeral"} }],
			"messages":[{"role":"user","content":[{"type":"text","text":"look","cache_control":{"type":"ephemeral"}}]},
			{"role":"assistant","content":[{"type":"thinking","thinking":"hm"},{"type":"text","text":"I do"},{"type":"tool_use","id":"c1","name":"ls","input":{"p":1}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":[{"type":"text","text":"a b"}]}]}]}`,
			Conversation{Model: "m", Preamble: `[{"name":"ls"}]be kind`, Items: anthropic, Trigger: ToolResult, Answers: 1}},
		{"responses", `{"model":"m","instructions":"be kind","previous_response_id":"r1","input":[{"type":"message","role":"user","content":[{"type":"input_text","text":"look"}]},
			{"type":"reasoning","summary":[],"encrypted_content":"x"},{"type":"message","role":"assistant","content":[{"type":"output_text","text":"I do"}]},
			{"type":"function_call","call_id":"c1","name":"ls","arguments":"{\"p\":1}"},{"type":"function_call_output","call_id":"c1","output":"a b"}]}`,
			Conversation{Model: "m", Preamble: "be kind", Previous: "r1", Items: turns, Trigger: ToolResult, Answers: 1}},
		{"responses with a text", `{"input":"look"}`, Conversation{Items: turns[:1], Trigger: UserMessage, Answers: 1}},
		{"a prompt", `{"prompt":"look"}`, Conversation{Items: []Item{{Text: "look"}}, Trigger: OtherInput, Answers: 1}},
		{"token ids", `{"prompt":[[1,2]]}`, Conversation{Tokens: []uint32{1, 2}, Trigger: OtherInput, Answers: 1}},
		{"ends with the assistant", `{"messages":[{"role":"user","content":"look"},{"role":"assistant","content":null}]}`,
			Conversation{Items: []Item{turns[0], {Role: "assistant"}}, Trigger: OtherInput, Answers: 1}},
		{"an image", `{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}]}`,
			Conversation{Items: []Item{{Role: "user", Text: `{"type":"image_url","image_url":{"url":"u"}}`}}, Trigger: UserMessage, Answers: 1}},
		{"nothing", `{}`, Conversation{Trigger: OtherInput, Answers: 1}},
	}
	for _, test := range tests {
		got, err := ParseConversation([]byte(test.body))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if d := cmp.Diff(&test.want, got, cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%s (-want +got):\n%s", test.name, d)
		}
	}
	for _, text := range []string{``, `[`, `{"input":7}`, `{"messages":7}`, `{"messages":[{"content":[7]}]}`, `{"a":` + strings.Repeat("[", 300)} {
		if _, err := ParseConversation([]byte(text)); err == nil {
			t.Errorf("%.40s: no error", text)
		}
	}
}

// A turn's prompt begins with the one before it and its answer.
func TestConversationPrompt(t *testing.T) {
	first := &Conversation{Preamble: "be kind", Items: []Item{{Role: "user", Text: "look"}}}
	answer := Item{Role: "assistant", Text: "I do", Reasoning: "hm", Calls: []ToolCall{{0, "c1", "ls", "{}"}}}
	second := &Conversation{Preamble: "be kind", Items: append(first.Items, answer, Item{Role: "tool", Text: "a b", Results: true})}
	answered, length := first.Prompt(&answer)
	prompt := answered[:length]
	if want := "<|system|>\nbe kind<|user|>\nlook<|assistant|>\n"; prompt != want {
		t.Errorf("prompt %q, want %q", prompt, want)
	}
	if want := prompt + "hmI do<|call|>ls\n{}"; answered != want {
		t.Errorf("answered %q, want %q", answered, want)
	}
	if next, _ := second.Prompt(&Item{}); !strings.HasPrefix(next, answered) {
		t.Errorf("the next prompt %q does not begin with %q", next, answered)
	}
	if plain, _ := (&Conversation{Items: []Item{{Text: "once"}}}).Prompt(&Item{}); plain != "once" {
		t.Errorf("a plain prompt is %q", plain)
	}
}

func TestAskUsage(t *testing.T) {
	tests := []struct{ body, want string }{
		{`{"model":"m"}`, ``},
		{`{"stream":false}`, ``},
		{`{"a":{"stream":true}}`, ``},
		{`{"a":"\"stream\":true,\\"}`, ``},
		{`{"stream":true,"stream_options":{"include_usage":true}}`, ``},
		{` { "stream" : true }`, ` {"stream_options":{"include_usage":true}, "stream" : true }`},
		{`{"a":["{",{"b":"]\\\""}],"stream":true}`, `{"stream_options":{"include_usage":true},"a":["{",{"b":"]\\\""}],"stream":true}`},
		{`{"stream":true,"stream_options":null}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
		{`{"stream":true,"stream_options":{ }}`, `{"stream":true,"stream_options":{"include_usage":true}}`},
		{`{"stream":true,"stream_options":{"x":[1]},"y":2}`, `{"stream":true,"stream_options":{"include_usage":true,"x":[1]},"y":2}`},
		{`{"stream":true,"stream_options":{"include_usage": false ,"x":1}}`, `{"stream":true,"stream_options":{"include_usage": true ,"x":1}}`},
		{`{"stream":true,"stream_options":,`, ``}, {`{"stream":true,"stream_options":{}`, ``},
		{``, ``}, {`[`, ``}, {`{"stream"`, ``}, {`{"stream":`, ``}, {`{"`, ``}, {`"`, ``},
	}
	for _, test := range tests {
		if got := string(AskUsage([]byte(test.body))); got != test.want {
			t.Errorf("%s becomes\n%s, want\n%s", test.body, got, test.want)
		}
	}
}

// FuzzConversation: no body crashes the reader, and a valid one that is asked for usage stays valid and asks for it.
func FuzzConversation(f *testing.F) {
	f.Add([]byte(`{"messages":[{"role":"user","content":[{"type":"text","text":"a","cache_control":{"type":"x"}}]}],"tools":[{"cache_control":1}],"stream":true}`))
	f.Add([]byte(`{"input":[{"call_id":"a","output":[{"text":"x"}]}],"stream":true,"stream_options":{"include_usage":false}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, _ = ParseConversation(text)
		asked := AskUsage(text)
		if asked == nil || !json.Valid(text) {
			return
		}
		var b struct {
			StreamOptions struct {
				IncludeUsage bool `json:"include_usage"`
			} `json:"stream_options"`
		}
		if err := json.Unmarshal(asked, &b); !json.Valid(asked) || err == nil && !b.StreamOptions.IncludeUsage {
			t.Fatalf("%q becomes %q", text, asked)
		}
	})
}
