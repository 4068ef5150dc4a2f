package wire

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// same compares a Parser with its twin, which decodes every event.
func same(t *testing.T, p *Parser, data []byte) {
	t.Helper()
	var want Chunk
	errWant, err := want.Parse(data), p.Parse(data)
	if (err == nil) != (errWant == nil) {
		t.Fatalf("%q: %v, want %v", data, err, errWant)
	}
	if d := cmp.Diff(want, p.Chunk, emptyIsNil); err == nil && d != "" {
		t.Fatalf("%q (-want +got):\n%s", data, d)
	}
}

// Streams of all dialects are read as if every event was decoded, and most events are not.
func TestParser(t *testing.T) {
	texts := []string{"a", " token", "é", "\\n", "\\\"", "content", "", "}", "]", "a", "m", " b", " c", "\\u00e9", "d"}
	for _, format := range []string{
		`{"id":"m","model":"m","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}],"usage":null}`,
		`{"choices":[{"index":0,"delta":{"reasoning_content":"%s"}}]}`,
		`{"choices":[{"index":0,"delta":{"reasoning_content":"%[1]s","reasoning":"%[1]s"}}]}`,
		`{"choices":[{"index":0,"text":"%s"}]}`,
		`{"choices":[{"index":0,"text":"%[1]s","delta":{"content":"%[1]s"}}]}`,
		`{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"%s"}}`,
		`{"type":"response.output_text.delta","delta":"%s"}`,
		`{"choices":[{"index":0,"text":"%s","token_ids":[5]}]}`,
	} {
		var p Parser
		for _, text := range texts {
			same(t, &p, fmt.Appendf(nil, format, text))
		}
		same(t, &p, []byte(`{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c"}]}}]}`))
		same(t, &p, []byte(`{"choices":[],"usage":{"prompt_tokens":1}}`))
		same(t, &p, fmt.Appendf(nil, format, "after"))
		same(t, &p, []byte(fmt.Sprintf(format, "cut"))[:20])
		same(t, &p, fmt.Appendf(nil, format, "\xff"))
		same(t, &p, fmt.Appendf(nil, format, "raw\nline"))
	}
	var p Parser
	format := `{"choices":[{"delta":{"content":"%s"}}]}`
	for _, text := range []string{"a", "b"} {
		same(t, &p, fmt.Appendf(nil, format, text))
	}
	if p.Chunk = (Chunk{}); len(p.before) == 0 || !bytes.HasPrefix(fmt.Appendf(nil, format, "c"), p.before) {
		t.Error("the form of the events was not learnt")
	}
}

// FuzzParser: whatever the events of a stream, each is read as if it was decoded alone.
func FuzzParser(f *testing.F) {
	f.Add("{\"choices\":[{\"text\":\"a\"}]}|{\"choices\":[{\"text\":\"b\"}]}|{\"choices\":[{\"text\":\"\\\"}]}")
	f.Add("{\"delta\":{\"text\":\"a\",\"thinking\":\"a\"},\"type\":\"content_block_delta\"}|{}|{\"id\":\"a\",\"choices\":[{\"delta\":{\"content\":\"a\",\"content\":\"a\"}}]}")
	f.Fuzz(func(t *testing.T, stream string) {
		var p Parser
		for data := range strings.SplitSeq(stream, "|") {
			same(t, &p, []byte(data))
			same(t, &p, []byte(strings.ReplaceAll(data, "a", "xy")))
		}
	})
}
