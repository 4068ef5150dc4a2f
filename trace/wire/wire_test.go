package wire

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestChunk(t *testing.T) {
	tests := []struct {
		name, text string
		want       Chunk
		generates  bool
	}{
		{"a role alone is no token (vllm#3759)", `{"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}`, Chunk{Role: "assistant"}, false},
		{"content", `{"id":"x","model":"m","choices":[{"index":1,"delta":{"content":"hé\n"},"finish_reason":null}],"usage":null}`,
			Chunk{ID: "x", Model: "m", Choice: 1, Text: "hé\n"}, true},
		{"content null", `{"choices":[{"delta":{"content":null}}]}`, Chunk{}, false},
		{"reasoning_content", `{"choices":[{"delta":{"reasoning_content":"hm"}}]}`, Chunk{Reasoning: "hm"}, true},
		{"reasoning (guidellm#737)", `{"choices":[{"delta":{"content":null,"reasoning":"hm"}}]}`, Chunk{Reasoning: "hm"}, true},
		{"both names of reasoning", `{"choices":[{"delta":{"reasoning":"hm","reasoning_content":"hm"}}]}`, Chunk{Reasoning: "hm"}, true},
		{"a tool call", `{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","type":"function","function":{"name":"ls","arguments":"{"}}]}}]}`,
			Chunk{ToolCalls: []ToolCall{{0, "c1", "ls", "{"}}}, true},
		{"finish reason with empty text", `{"choices":[{"text":"","finish_reason":"length"}]}`, Chunk{Finish: "length"}, false},
		{"usage without choices (sglang#23949)", `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":4},"completion_tokens_details":{"reasoning_tokens":1}}}`,
			Chunk{Usage: &Usage{new(int64(9)), new(int64(4)), new(int64(3)), new(int64(1))}, UsageOnly: true}, false},
		{"usage details null", `{"choices":[],"usage":{"prompt_tokens":9,"prompt_tokens_details":null}}`, Chunk{Usage: &Usage{Prompt: new(int64(9))}, UsageOnly: true}, false},
		{"usage beside a choice", `{"choices":[{"delta":{}}],"usage":{"prompt_tokens":9}}`, Chunk{Usage: &Usage{Prompt: new(int64(9))}}, false},
		{"token ids", `{"choices":[{"text":"a","token_ids":[5,6],"prompt_token_ids":[1,2]}]}`, Chunk{Text: "a", TokenIDs: []uint32{5, 6}, PromptTokenIDs: []uint32{1, 2}}, true},
		{"error in an answer", `{"error":{"message":"gone","type":"server_error","code":500}}`, Chunk{Err: &Error{Message: "gone", Type: "server_error", Code: "500"}}, false},
		{"error of old vLLM", `{"object":"error","message":"gone","type":"X","code":400}`, Chunk{Err: &Error{Message: "gone", Type: "X", Code: "400"}}, false},
		{"error null", `{"error":null,"choices":[{"text":"a"}]}`, Chunk{Text: "a"}, true},
		{"a whole answer", `{"object":"chat.completion","choices":[{"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`,
			Chunk{Role: "assistant", Text: "hi", Finish: "stop"}, true},
		{"content in parts", `{"choices":[{"message":{"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}}]}`, Chunk{Text: "ab"}, true},

		{"message_start", `{"type":"message_start","message":{"id":"m1","role":"assistant","model":"c","usage":{"input_tokens":3,"cache_read_input_tokens":5,"cache_creation_input_tokens":2,"output_tokens":1}}}`,
			Chunk{ID: "m1", Model: "c", Role: "assistant", Usage: &Usage{Prompt: new(int64(10)), Cached: new(int64(5)), Completion: new(int64(1))}}, false},
		{"text_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"hi"}}`, Chunk{Text: "hi"}, true},
		{"thinking_delta", `{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}}`, Chunk{Reasoning: "hm"}, true},
		{"tool use starts", `{"type":"content_block_start","index":1,"content_block":{"type":"tool_use","id":"t1","name":"ls","input":{}}}`,
			Chunk{ToolCalls: []ToolCall{{Index: 1, ID: "t1", Name: "ls"}}}, true},
		{"input_json_delta", `{"type":"content_block_delta","index":1,"delta":{"type":"input_json_delta","partial_json":"{\"a"}}`, Chunk{ToolCalls: []ToolCall{{Index: 1, Arguments: `{"a`}}}, true},
		{"message_delta", `{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":7}}`, Chunk{Finish: "end_turn", Usage: &Usage{Completion: new(int64(7))}}, false},
		{"message_stop", `{"type":"message_stop"}`, Chunk{End: true}, false},
		{"Anthropic error", `{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}`, Chunk{Err: &Error{Message: "Overloaded", Type: "overloaded_error"}}, false},
		{"a whole message", `{"type":"message","role":"assistant","id":"m","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"t","name":"ls","input":{"p":1}}],"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":4}}`,
			Chunk{ID: "m", Role: "assistant", Text: "a", ToolCalls: []ToolCall{{1, "t", "ls", `{"p":1}`}}, Finish: "tool_use", Usage: &Usage{Prompt: new(int64(3)), Completion: new(int64(4))}}, true},

		{"response.created", `{"type":"response.created","response":{"id":"r","model":"m","status":"in_progress","usage":null,"error":null,"output":[]}}`, Chunk{ID: "r", Model: "m"}, false},
		{"output_text.delta", `{"type":"response.output_text.delta","output_index":0,"delta":"hi"}`, Chunk{Text: "hi"}, true},
		{"reasoning_text.delta", `{"type":"response.reasoning_text.delta","delta":"hm"}`, Chunk{Reasoning: "hm"}, true},
		{"a message begins", `{"type":"response.output_item.added","output_index":0,"item":{"type":"message","id":"x","content":[]}}`, Chunk{}, false},
		{"a call begins", `{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"c","name":"ls","arguments":""}}`,
			Chunk{ToolCalls: []ToolCall{{Index: 1, ID: "c", Name: "ls"}}}, true},
		{"a shell call has no name", `{"type":"response.output_item.added","item":{"type":"local_shell_call","call_id":"c"}}`,
			Chunk{ToolCalls: []ToolCall{{ID: "c", Name: "local_shell"}}}, true},
		{"arguments.delta", `{"type":"response.function_call_arguments.delta","output_index":1,"delta":"{\"a"}`, Chunk{ToolCalls: []ToolCall{{Index: 1, Arguments: `{"a`}}}, true},
		{"what is done was told", `{"type":"response.output_item.done","item":{"type":"message","content":[{"type":"output_text","text":"hi"}]}}`, Chunk{}, false},
		{"response.completed", `{"type":"response.completed","response":{"id":"r","status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"hi"}]}],"usage":{"input_tokens":10,"input_tokens_details":{"cached_tokens":5},"output_tokens":7,"output_tokens_details":{"reasoning_tokens":2}}}}`,
			Chunk{ID: "r", Finish: "completed", End: true, Usage: &Usage{new(int64(10)), new(int64(5)), new(int64(7)), new(int64(2))}}, false},
		{"response.incomplete", `{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}`, Chunk{Finish: "max_output_tokens", End: true}, false},
		{"response.failed", `{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"gone"}}}`,
			Chunk{Finish: "failed", End: true, Err: &Error{Message: "gone", Code: "server_error"}}, false},
		{"error of responses", `{"type":"error","code":"rate_limit","message":"slow down"}`, Chunk{Err: &Error{Message: "slow down", Code: "rate_limit", Type: "error"}}, false},
		{"a whole response", `{"object":"response","id":"r","model":"m","status":"completed","error":null,"output":[{"type":"reasoning","summary":[{"text":"h"}],"content":[{"text":"m"}]},{"type":"message","content":[{"type":"output_text","text":"hi"}]},{"type":"function_call","call_id":"c","name":"ls","arguments":"{}"}],"usage":{"input_tokens":3,"output_tokens":4}}`,
			Chunk{ID: "r", Model: "m", Role: "assistant", Text: "hi", Reasoning: "hm", ToolCalls: []ToolCall{{2, "c", "ls", "{}"}}, Finish: "completed", Usage: &Usage{Prompt: new(int64(3)), Completion: new(int64(4))}}, true},
	}
	c := Chunk{TokenIDs: []uint32{1}, ToolCalls: []ToolCall{{}}, Text: "old", End: true} // reused: nothing of it may stay
	for _, test := range tests {
		if err := c.Parse([]byte(test.text)); err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		if d := cmp.Diff(test.want, c, emptyIsNil); d != "" || c.Generates() != test.generates {
			t.Errorf("%s: generates %v, want %v; (-want +got):\n%s", test.name, c.Generates(), test.generates, d)
		}
	}
	for _, text := range []string{"", "x", "[1", `{"choices":[{"text":`, strings.Repeat("[", 1e5)} {
		if err := c.Parse([]byte(text)); err == nil {
			t.Errorf("%.20q: no error", text)
		}
	}
}

var emptyIsNil = cmp.Options{
	cmp.Transformer("tokens", func(s []uint32) string { return string(AppendTokens(nil, s)) }),
	cmp.FilterValues(func(a, b []ToolCall) bool { return len(a)+len(b) == 0 }, cmp.Ignore()),
}

// What a server writes a client reads.
func TestAnswerRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", " word", "\"quoted\"\n", "<é\u2028\x01>"})
		count := rapid.SampledFrom([]*int64{nil, new(int64), new(int64(1 << 40))})
		a := Answer{Dialect: rapid.SampledFrom([]Dialect{Completions, Chat}).Draw(t, "dialect"), ID: text.Draw(t, "id"),
			Model: text.Draw(t, "model"), Created: 1, Stream: rapid.Bool().Draw(t, "stream")}
		want := Chunk{ID: a.ID, Model: a.Model, Text: text.Draw(t, "text"), Finish: rapid.SampledFrom([]string{"", "stop"}).Draw(t, "finish"),
			TokenIDs: rapid.SliceOfN(rapid.Uint32(), 0, 3).Draw(t, "tokens")}
		if want.Finish != "" {
			want.Stop = text.Draw(t, "stop")
		}
		if a.Dialect == Chat {
			want.Role = rapid.SampledFrom([]string{"", "assistant"}).Draw(t, "role")
			want.Reasoning = text.Draw(t, "reasoning")
			if rapid.Bool().Draw(t, "tool") {
				want.ToolCalls = []ToolCall{{1, text.Draw(t, "call"), text.Draw(t, "tool name"), text.Draw(t, "arguments")}}
			}
		}
		if rapid.Bool().Draw(t, "usage") {
			want.Usage = &Usage{count.Draw(t, "prompt"), count.Draw(t, "cached"), count.Draw(t, "completion"), count.Draw(t, "reasoned")}
			want.UsageOnly = !want.Generates() && want.Finish == "" && want.Role == "" && len(want.TokenIDs) == 0
		}
		var got Chunk
		if err := got.Parse(a.Append(nil, &want)); err != nil {
			t.Fatalf("%s: %v", a.Append(nil, &want), err)
		}
		if d := cmp.Diff(want, got, emptyIsNil); d != "" {
			t.Fatalf("%s (-want +got):\n%s", a.Append(nil, &want), d)
		}
	})
}

func TestFinishReason(t *testing.T) {
	for words, want := range map[string]string{
		"stop end_turn stop_sequence completed": "stop",
		"length max_tokens max_output_tokens":   "length",
		"tool_calls tool_use":                   "tool_calls",
		"content_filter refusal":                "content_filter",
		"a_word_of_tomorrow":                    "a_word_of_tomorrow",
	} {
		for word := range strings.FieldsSeq(words) {
			if got := FinishReason(word, false); got != want {
				t.Errorf("%s: %q, want %q", word, got, want)
			}
		}
	}
	if got := FinishReason("completed", true); got != "tool_calls" {
		t.Errorf("a response with a call: %q", got)
	}
}

func TestUsageUpdate(t *testing.T) {
	var u Usage
	u.Update(&Usage{Prompt: new(int64(10)), Completion: new(int64(1))})
	u.Update(nil)
	u.Update(&Usage{Completion: new(int64(7))})
	if d := cmp.Diff(Usage{Prompt: new(int64(10)), Completion: new(int64(7))}, u); d != "" {
		t.Error(d)
	}
}

func TestParseError(t *testing.T) {
	tests := []struct {
		body string
		want Error
	}{
		{`{"error":{"message":"too long","type":"BadRequestError","param":"input_tokens","code":400}}`, Error{400, "too long", "BadRequestError", "400", "input_tokens"}},
		{`{"object":"error","message":"too long","type":"BadRequestError","param":null,"code":400}`, Error{Status: 400, Message: "too long", Type: "BadRequestError", Code: "400"}},
		{`{"detail":"Not Found"}`, Error{Status: 400, Message: "Not Found"}},
		{`{"error":"busy"}`, Error{Status: 400, Message: "busy"}},
		{`upstream connect error`, Error{Status: 400, Message: "upstream connect error"}},
		{``, Error{Status: 400}},
	}
	for _, test := range tests {
		if d := cmp.Diff(&test.want, ParseError(400, []byte(test.body))); d != "" {
			t.Errorf("%s: %s", test.body, d)
		}
		again := ParseError(400, test.want.Append(nil))
		if d := cmp.Diff(&test.want, again); d != "" {
			t.Errorf("%s, written and read: %s", test.body, d)
		}
	}
}

func TestRequest(t *testing.T) {
	r, err := ParseRequest([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url","image_url":{"url":"u"}}]},
		{"role":"assistant","content":null,"tool_calls":[{"id":"x"}]}],"max_completion_tokens":5,"max_tokens":9,"stream":true,"stream_options":{"include_usage":true},
		"nvext":{"agent_hints":{"osl":7}},"unknown":{"deep":[1]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if limit, ok := r.Limit(); !ok || limit != 5 {
		t.Errorf("limit %d %v, want max_completion_tokens 5", limit, ok)
	}
	if got := r.Messages[0].Content; got != `a{"type":"image_url","image_url":{"url":"u"}}` {
		t.Errorf("content %q", got)
	}
	if r.Messages[1].Content != "" || !r.StreamOptions.IncludeUsage || r.Nvext.AgentHints.OSL != 7 {
		t.Errorf("request %+v", r)
	}
	for _, text := range []string{``, `[`, `{"prompt":7}`, `{"prompt":{"a":1}}`, `{"prompt":[1,-2]}`, `{"prompt":[4294967296]}`, `{"prompt":[1.5]}`,
		`{"prompt":[1,"a"]}`, `{"prompt":[[[1]]]}`, `{"messages":[{"content":7}]}`, `{"max_tokens":"x"}`, `{"a":` + strings.Repeat("[", 300)} {
		if _, err := ParseRequest([]byte(text)); err == nil {
			t.Errorf("%.40s: no error", text)
		}
	}
}

func TestPrompt(t *testing.T) {
	tests := []struct {
		text string
		want Prompt
	}{
		{`"a\nb"`, Prompt{Text: "a\nb"}},
		{`[1, 22 ,4294967295]`, Prompt{Tokens: []uint32{1, 22, 4294967295}}},
		{`[]`, Prompt{Tokens: []uint32{}}},
		{`["a","b"]`, Prompt{Batch: []Prompt{{Text: "a"}, {Text: "b"}}}},
		{`[[1,2],[]]`, Prompt{Batch: []Prompt{{Tokens: []uint32{1, 2}}, {Tokens: []uint32{}}}}},
	}
	for _, test := range tests {
		r, err := ParseRequest([]byte(`{"prompt": ` + test.text + `}`))
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
			continue
		}
		if d := cmp.Diff(test.want, *r.Prompt); d != "" {
			t.Errorf("%s: %s", test.text, d)
		}
		body, err := r.Append(nil)
		if want := `{"prompt":` + strings.ReplaceAll(test.text, " ", "") + `}`; err != nil || string(body) != want {
			t.Errorf("written as %s, %v; want %s", body, err, want)
		}
	}
}

// The two parts of a body around a prompt make the same body.
func TestRequestAround(t *testing.T) {
	for _, r := range []Request{{}, {Model: "m", Extra: []Field{{"trace", []byte(`[1]`)}}}, {Extra: []Field{{"x", []byte(`1`)}}}} {
		head, tail, err := r.Around("prompt")
		if err != nil {
			t.Fatal(err)
		}
		body := string(head) + "[5,6]" + string(tail)
		got, err := ParseRequest([]byte(body))
		if err != nil || got.Model != r.Model || got.Prompt == nil || len(got.Prompt.Tokens) != 2 {
			t.Errorf("%s: %+v, %v", body, got, err)
		}
		for _, f := range r.Extra {
			if !strings.Contains(body, `"`+f.Key+`":`+string(f.Value)) {
				t.Errorf("%s lacks %s", body, f.Key)
			}
		}
	}
}

func TestSessionOf(t *testing.T) {
	tests := []struct {
		name    string
		headers string
		want    Session
	}{
		{"none", "", Session{}},
		{"canonical", "x-dynamo-session-id: a; x-dynamo-parent-session-id: p; x-dynamo-session-final: TRUE", Session{"a", "p", true}},
		{"final alone is nothing", "x-dynamo-session-final: true", Session{}},
		{"own parent", "x-dynamo-session-id: a; x-dynamo-parent-session-id: a", Session{ID: "a"}},
		{"canonical hides the parents of agents", "x-dynamo-session-id: a; x-session-id: b; x-parent-session-id: c", Session{ID: "a"}},
		{"Claude Code's root", "x-claude-code-session-id: s; x-claude-code-parent-agent-id: stray", Session{ID: "s"}},
		{"Claude Code's child", "x-claude-code-session-id: s; x-claude-code-agent-id: c", Session{ID: "c", Parent: "s"}},
		{"Claude Code's grandchild", "x-claude-code-session-id: s; x-claude-code-agent-id: c; x-claude-code-parent-agent-id: b", Session{ID: "c", Parent: "b"}},
		{"Claude Code's agent without its session", "x-claude-code-agent-id: c", Session{}},
		{"Codex", "thread-id: t; x-codex-parent-thread-id: u; session-id: run", Session{ID: "t", Parent: "u"}},
		{"older Codex", "session-id: run", Session{ID: "run"}},
		{"final with a session of an agent", "session-id: run; x-dynamo-session-final: 1", Session{ID: "run", Final: true}},
		{"OpenCode", "x-session-id: s; x-parent-session-id: p", Session{ID: "s", Parent: "p"}},
		{"not ASCII", "x-dynamo-session-id: é", Session{}},
		{"too long", "x-dynamo-session-id: " + strings.Repeat("a", 257), Session{}},
	}
	for _, test := range tests {
		h := http.Header{}
		for line := range strings.SplitSeq(test.headers, ";") {
			if name, value, ok := strings.Cut(line, ":"); ok {
				h.Add(strings.TrimSpace(name), value)
			}
		}
		got := SessionOf(h)
		if got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
		again := http.Header{}
		got.Set(again)
		if SessionOf(again) != got {
			t.Errorf("%s: set as %v", test.name, again)
		}
	}
}

func TestSessionOfOtherHeaders(t *testing.T) {
	h := http.Header{"X-Run": {"run"}, "Session-Id": {"codex"}}
	if got, want := SessionOf(h, "X-Task", "X-Run"), (Session{ID: "run"}); got != want {
		t.Errorf("%+v, want %+v: a header that was asked for comes before those of agents", got, want)
	}
	h.Set(HeaderSession, "dynamo")
	if got, want := SessionOf(h, "X-Run"), (Session{ID: "dynamo"}); got != want {
		t.Errorf("%+v, want %+v: Dynamo's header comes first", got, want)
	}
}

func TestCompactionOf(t *testing.T) {
	tests := []struct{ name, value, want string }{
		{"X-Deepseek-Harness-Compact", "1", `{}`},
		{"X-Deepseek-Harness-Compact", "true", ``},
		{"X-Codex-Turn-Metadata", `{"request_kind":"compaction"}`, `{}`},
		{"X-Codex-Turn-Metadata", `{"request_kind":"compaction","compaction":{"trigger":"auto","secret":"x"}}`, `{"trigger":"auto"}`},
		{"X-Codex-Turn-Metadata", `{"request_kind":"turn"}`, ``},
		{"X-Codex-Turn-Metadata", `{"request_kind":`, ``},
		{"X-Codex-Turn-Metadata", strings.Repeat("[", 1000), ``},
		{"X-Other", "1", ``},
	}
	for _, test := range tests {
		h := http.Header{}
		h.Set(test.name, test.value)
		if got := string(CompactionOf(h)); got != test.want {
			t.Errorf("%s: %s: %q, want %q", test.name, test.value, got, test.want)
		}
	}
}

func TestHintsOf(t *testing.T) {
	h := http.Header{}
	if got := HintsOf(h, nil); got != nil {
		t.Errorf("no hints: %+v", got)
	}
	h.Set("X-Dynamo-Request-Priority", "-3")
	h.Set("X-Dynamo-Request-Strict-Priority", "no number")
	want := &AgentHints{Priority: -3, StrictPriority: 2}
	if d := cmp.Diff(want, HintsOf(h, &AgentHints{Priority: 9, StrictPriority: 2})); d != "" {
		t.Error(d)
	}
}

// FuzzSession: no header crashes the mapping, and the ids that come out are printable and short.
func FuzzSession(f *testing.F) {
	f.Add("x-claude-code-session-id", "a", "x-claude-code-agent-id", "b")
	f.Add("thread-id", "a", "x-codex-turn-metadata", `{"request_kind":"compaction","compaction":{}}`)
	f.Fuzz(func(t *testing.T, name1, value1, name2, value2 string) {
		h := http.Header{}
		h.Set(name1, value1)
		h.Set(name2, value2)
		s := SessionOf(h, name1)
		for _, id := range []string{s.ID, s.Parent} {
			if len(id) > maxSessionID || strings.ContainsFunc(id, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("id %q", id)
			}
		}
		if s.ID == "" && s != (Session{}) || s.ID != "" && s.ID == s.Parent {
			t.Fatalf("session %+v", s)
		}
		if c := CompactionOf(h); c != nil && !json.Valid(c) {
			t.Fatalf("compaction %q", c)
		}
		HintsOf(h, nil)
	})
}

// FuzzChunk: no input may crash the parser, and what it read and wrote it reads again.
func FuzzChunk(f *testing.F) {
	f.Add([]byte(`{"choices":[{"delta":{"role":"assistant","content":"a","tool_calls":[{"index":0,"function":{"arguments":"{}"}}]},"token_ids":[1]}],"usage":{"prompt_tokens":1}}`))
	f.Add([]byte(`{"type":"message_start","message":{"usage":{"input_tokens":3}}}`))
	f.Add([]byte(`{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"content":" \u00e9"},"logprobs":null,"finish_reason":null}],"usage":null}`))
	f.Add([]byte(`{"choices":[{"index":0,"text":"a","finish_reason":null}]}`))
	f.Add([]byte(`{"error":{"message":[1]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var c, again Chunk
		ParseError(500, data)
		if c.Parse(data) != nil || c.Choice < 0 {
			return
		}
		a := Answer{Dialect: Chat, Stream: true, ID: c.ID, Model: c.Model}
		c.Err, c.End, c.UsageOnly = nil, false, false
		text := a.Append(nil, &c)
		if err := again.Parse(text); err != nil {
			t.Fatalf("%q is written as %s: %v", data, text, err)
		}
	})
}

func FuzzRequest(f *testing.F) {
	f.Add([]byte(`{"model":"m","prompt":[1,2],"max_tokens":5,"stop":["a"],"messages":[{"role":"u","content":[{"type":"text","text":"x"}]}]}`))
	f.Add([]byte(`{"prompt":["a",""],"nvext":{"agent_hints":{"osl":1}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := ParseRequest(data)
		if err != nil {
			return
		}
		body, err := r.Append(nil)
		if err != nil {
			return // raw values that the decoder lets pass but the encoder does not
		}
		if _, err := ParseRequest(body); err != nil {
			t.Fatalf("%q is written as %s: %v", data, body, err)
		}
	})
}

// BenchmarkTokenPrompt reads a body with a prompt of 100,000 token ids.
func BenchmarkTokenPrompt(b *testing.B) {
	tokens := make([]uint32, 100_000)
	for i := range tokens {
		tokens[i] = uint32(1000 + i%29000)
	}
	body, err := (&Request{Model: "m", Prompt: &Prompt{Tokens: tokens}}).Append(nil)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if r, err := ParseRequest(body); err != nil || len(r.Prompt.Tokens) != len(tokens) {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppend writes the event of one token.
func BenchmarkAppend(b *testing.B) {
	a := Answer{Dialect: Chat, ID: "chatcmpl-0123456789abcdef", Model: "qwen3-14b", Created: 1790000000, Stream: true}
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendEvent(buf[:0], "", a.Append(nil, &Chunk{Text: " token"}))
	}
}
