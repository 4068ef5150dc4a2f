package client

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsim/agentsim/trace/wire"
)

// What a stream is read as is what its events say when each is decoded by itself, whatever text is generated: tokens, their
// ids, why it ended and how many were counted.
func TestStreamsAreReadAsTheirEvents(t *testing.T) {
	tokens := 0
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{"", " word", `"`, `\`, `"text":"x"`, `"finish_reason":null`, `"usage":{`, `{"error":1}`, "é\n"})
		a := wire.Answer{Dialect: rapid.SampledFrom([]wire.Dialect{wire.Completions, wire.Chat}).Draw(t, "dialect"), ID: "c", Model: text.Draw(t, "model"), Stream: true}
		s := streamReader{answer: &Answer{}}
		want, wantUsage := Answer{}, wire.Usage{}
		for range rapid.IntRange(1, 8).Draw(t, "events") {
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
			s.event(wire.Event{Data: data}, 0)
			var slow wire.Chunk
			if err := slow.Parse(data); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			if slow.Generates() || len(slow.TokenIDs) > 0 {
				want.Events++
				want.TokenIDs = append(want.TokenIDs, slow.TokenIDs...)
			}
			if slow.Finish != "" {
				want.Finish = slow.Finish
			}
			wantUsage.Update(slow.Usage)
		}
		got := s.answer
		if got.Err != nil || got.Events != want.Events || !slices.Equal(got.TokenIDs, want.TokenIDs) || got.Finish != want.Finish ||
			(s.usage.Completion == nil) != (wantUsage.Completion == nil) {
			t.Fatalf("read %+v with usage %+v, want %+v with %+v", got, s.usage, want, wantUsage)
		}
		tokens += int(got.Events)
	})
	if tokens == 0 {
		t.Error("no event was a token: the test tests nothing")
	}
}
