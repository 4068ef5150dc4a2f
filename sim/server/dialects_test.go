package server

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// Anthropic's messages, streamed and whole: the system prompt is part of the prompt, and an answer that is sent back is
// found in the cache.
func TestMessages(t *testing.T) {
	_, url := start(t, deployment(), Options{TimeScale: 20})
	message := func(role, text string) string {
		return fmt.Sprintf(`{"role":%q,"content":[{"type":"text","text":%q}]}`, role, text)
	}
	first := message("user", strings.Repeat("some words to say ", 20))
	ask1 := func(messages, more string) *reply {
		return ask(t, url, "/v1/messages", fmt.Sprintf(`{"system":"be brief","messages":[%s],"max_tokens":64,"ignore_eos":true%s}`, messages, more))
	}
	r := ask1(first, `,"stream":true`)
	if r.status != 200 || !r.ended || r.done || r.events != 64 || r.finish != "max_tokens" || r.counts()[1] != 0 || r.counts()[2] != 64 {
		t.Fatalf("answer %+v, usage %v", r, r.counts())
	}
	if with, without := r.counts()[0], ask(t, url, "/v1/messages", fmt.Sprintf(`{"messages":[%s],"max_tokens":1}`, first)).counts()[0]; with <= without {
		t.Errorf("%d tokens with a system prompt, %d without", with, without)
	}
	total := r.counts()[0] + r.counts()[2]
	whole := ask1(first+","+message("assistant", r.text)+","+message("user", "go on"), "")
	if hit := whole.counts()[1]; hit < total-17 || hit > total || !strings.HasPrefix(whole.body, `{"id":"msg_`) {
		t.Errorf("%d tokens of the second turn are cached, want nearly the %d of the first and its answer: %s", hit, total, whole.body)
	}
	for fault, is := range map[string]func(r *reply) bool{
		"": func(r *reply) bool { return r.events == 64 && r.ended },
		"reasoning": func(r *reply) bool {
			return len(strings.Fields(r.reasoning)) == 32 && len(strings.Fields(r.text)) == 32
		},
		"tool-calls":     func(r *reply) bool { return r.finish == "tool_use" && r.text == "" && r.events == 65 }, // and its name
		"error:2":        func(r *reply) bool { return r.failure != nil && r.failure.Message == "injected fault" && r.events == 2 },
		"cut:2":          func(r *reply) bool { return r.err != nil && !r.ended },
		"output:0":       func(r *reply) bool { return r.events == 0 && r.ended && r.counts()[2] == 0 },
		"no-usage":       func(r *reply) bool { return r.counts() == [3]int64{-1, -1, -1} && r.ended },
		"status:429":     func(r *reply) bool { return r.failure != nil && r.failure.Type == "rate_limit_error" },
		"crlf;comment":   func(r *reply) bool { return r.events == 64 && r.ended },
		"group:2;cr;bom": func(r *reply) bool { return r.events == 32 && r.ended },
	} {
		r := ask(t, url, "/v1/messages", fmt.Sprintf(`{"messages":[%s],"max_tokens":64,"ignore_eos":true,"stream":true}`, first), HeaderFault, fault)
		if !is(r) {
			t.Errorf("fault %q: %+v, usage %v, failure %v", fault, r, r.counts(), r.failure)
		}
	}
	count := ask(t, url, "/v1/messages/count_tokens", fmt.Sprintf(`{"system":"be brief","messages":[%s]}`, first))
	if want := fmt.Sprintf(`{"input_tokens":%d}`, r.counts()[0]); count.body != want {
		t.Errorf("count_tokens: %s, want %s", count.body, want)
	}
	for body, want := range map[string]string{`{"messages":[` + first + `]}`: "max_tokens", `{"messages":[],"max_tokens":1}`: "messages", `{"system":7,"messages":[` + first + `],"max_tokens":1}`: "system"} {
		if r := ask(t, url, "/v1/messages", body); r.status != 400 || r.failure == nil || r.failure.Type != "invalid_request_error" || !strings.Contains(r.failure.Message, want) {
			t.Errorf("%s: status %d, %v", body, r.status, r.failure)
		}
	}
}

// The arguments of a tool call are a JSON object, which the SDKs of OpenAI and Anthropic parse, streamed and whole.
func TestArgumentsOfToolCallsParse(t *testing.T) {
	_, url := start(t, deployment(), Options{TimeScale: 1000})
	for _, path := range []string{"/v1/chat/completions", "/v1/messages"} {
		for _, fault := range []string{"tool-calls", "tool-calls;group:4", "tool-calls;reasoning", "tool-calls;finish-apart"} {
			for _, more := range []string{"", "," + streamed, `,"min_tokens":1,"max_tokens":1`, `,"stop":["o","e"],` + streamed} {
				r := ask(t, url, path, `{"messages":[{"role":"user","content":"a"}],"seed":4,"max_tokens":8,"ignore_eos":true`+more+`}`, HeaderFault, fault)
				var arguments map[string]string
				if len(r.calls) != 1 || json.Unmarshal([]byte(r.calls[0].Arguments), &arguments) != nil || len(arguments) != 1 || r.text != "" {
					t.Errorf("%s with fault %s%s: calls %+v, text %q", path, fault, more, r.calls, r.text)
				}
			}
		}
	}
}

// An answer ends with the token that completes a stop string, and its text before it; not within min_tokens.
func TestStopStrings(t *testing.T) {
	_, url := start(t, deployment(), Options{TimeScale: 1000})
	get := func(path, more string) *reply {
		return ask(t, url, path, `{"prompt":"a b c","messages":[{"role":"user","content":"a"}],"seed":4,"max_tokens":50,"ignore_eos":true,"return_token_ids":true`+more+`}`)
	}
	for _, path := range []string{"/v1/completions", "/v1/chat/completions", "/v1/messages"} {
		all := get(path, "")
		words := strings.Fields(all.text)
		across := words[6][4:] + " " + words[7][:3] // ends within a token
		for _, test := range []struct {
			more   string
			tokens int
			text   string // at its end
			stop   string
		}{
			{`,"stop":` + quoted(words[9]), 10, words[8] + " ", words[9]},
			{`,"stop":[` + quoted("none of it") + `,` + quoted(across) + `]`, 8, words[6][:4], across},
			{`,"stop_sequences":[` + quoted(words[3]) + `]`, 4, words[2] + " ", words[3]},
			{`,"min_tokens":20,"stop":` + quoted(words[9]), 50, words[49], ""},
			{`,"stop":null`, 50, words[49], ""},
		} {
			for _, stream := range []string{"", "," + streamed} {
				r := get(path, test.more+stream)
				if !strings.HasSuffix(r.text, test.text) || !strings.HasPrefix(all.text, r.text) || r.counts()[2] != int64(test.tokens) || r.stop != test.stop {
					t.Errorf("%s %s%s: %d tokens, stopped by %q: %q", path, test.more, stream, r.counts()[2], r.stop, r.text)
				}
				if cut := test.stop != ""; cut == (r.finish == all.finish) {
					t.Errorf("%s %s%s: finish %q", path, test.more, stream, r.finish)
				}
			}
		}
	}
	for _, bad := range []string{`7`, `[7]`, `""`, `[""]`, quoted(strings.Repeat("x", 2000)), `[` + strings.Repeat(`"a",`, 70) + `"a"]`} {
		if r := get("/v1/completions", `,"stop":`+bad); r.status != 400 || !strings.Contains(r.body, "stop") {
			t.Errorf("stop %.20s: status %d, %s", bad, r.status, r.body)
		}
	}
}

// The search for stop strings looks at each byte about once; its twin looks at all of the text after each token.
func TestStopAtAgainstTheSlowSearch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := output{seed: rapid.Uint64Range(0, 5).Draw(t, "seed"), bare: rapid.Bool().Draw(t, "bare")}
		n, least := rapid.IntRange(0, 30).Draw(t, "n"), rapid.IntRange(0, 30).Draw(t, "least")
		var text string
		ends := []int{0}
		for k := range 30 {
			text += o.word(k)
			ends = append(ends, len(text))
		}
		stops := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			from := rapid.IntRange(0, len(text)-9).Draw(t, "from")
			return text[from : from+rapid.IntRange(1, 9).Draw(t, "length")]
		}), 1, 3).Draw(t, "stops")
		want, end, by := n, 0, ""
	search:
		for k := least; k < n; k++ {
			for _, s := range stops {
				if at := strings.Index(text[ends[least]:ends[k+1]], s); at >= 0 {
					want, end, by = k+1, ends[least]+at, s
					break search
				}
			}
		}
		if got := o.stopAt(stops, least, n); got != want || o.textEnd != end || o.stop != by {
			t.Fatalf("%q of %q after %d of %d tokens: %d tokens, %q at %d; want %d, %q at %d", stops, text, least, n, got, o.stop, o.textEnd, want, by, end)
		}
	})
}

func quoted(s string) string { text, _ := json.Marshal(s); return string(text) }

// Every token id of text has a text that has it.
func TestDetokenize(t *testing.T) {
	var all []uint32
	for id := range uint32(vocabulary) {
		all = append(all, firstTextID+id)
	}
	text, err := textOf(all)
	if err != nil || !slices.Equal(appendTokens(nil, text), all) {
		t.Errorf("the text of all tokens has others (%v)", err)
	}
	_, url := start(t, deployment(), Options{})
	var got struct{ Prompt string }
	r := ask(t, url, "/detokenize", `{"model":"qwen3-14b","tokens":[1,5000,2]}`)
	if err := json.Unmarshal([]byte(r.body), &got); err != nil || got.Prompt != "<|start|>"+words()[5000-firstTextID]+"<|end|>" {
		t.Errorf("status %d: %s", r.status, r.body)
	}
	for _, bad := range []string{`{"tokens":[0]}`, `{"tokens":[121000]}`, `{"tokens":"x"}`, `{`} {
		if r := ask(t, url, "/detokenize", bad); r.status != 400 {
			t.Errorf("%s: status %d", bad, r.status)
		}
	}
}
