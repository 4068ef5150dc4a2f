package client

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsim/agentsim/trace/wire"
)

// The short way to see that an event is a token and nothing else agrees with decoding it, whatever text is generated: it
// may miss tokens, but takes nothing else for one.
func TestPlainTokensAreTokens(t *testing.T) {
	seen := 0
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", " word", `"`, `\`, `"text":"x"`, `"finish_reason":null`, `"usage":{`, `{"error":1}`, "é\n"})
		a := wire.Answer{Dialect: rapid.SampledFrom([]wire.Dialect{wire.Completions, wire.Chat}).Draw(t, "dialect"), ID: "c", Model: text.Draw(t, "model"), Stream: true}
		c := wire.Chunk{Text: text.Draw(t, "text"), Finish: rapid.SampledFrom([]string{"", "", "stop"}).Draw(t, "finish")}
		if a.Dialect == wire.Chat {
			c.Reasoning = text.Draw(t, "reasoning")
			c.Role = rapid.SampledFrom([]string{"", "assistant"}).Draw(t, "role")
			if rapid.Bool().Draw(t, "tool") {
				c.ToolCalls = []wire.ToolCall{{Name: text.Draw(t, "tool name"), Arguments: text.Draw(t, "arguments")}}
			}
		}
		if rapid.Bool().Draw(t, "ids") {
			c.TokenIDs = []uint32{7}
		}
		if rapid.Bool().Draw(t, "usage") {
			c.Usage = &wire.Usage{Completion: new(int64(1))}
		}
		data := a.Append(nil, &c)
		s := streamReader{answer: &Answer{Events: 1}}
		if !s.plainToken(data) {
			return
		}
		seen++
		var slow wire.Chunk
		if err := slow.Parse(data); err != nil || !slow.Generates() || slow.Finish != "" || slow.Usage != nil || slow.Err != nil || len(slow.TokenIDs) > 0 {
			t.Fatalf("%s is taken for a plain token, and is %+v (%v)", data, slow, err)
		}
	})
	if seen == 0 {
		t.Error("nothing was a plain token: the test tests nothing")
	}
}
