package convert

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// otlpSpan writes a span at seconds of a minute with attributes given as key=value, of which numbers are written as OTLP
// does.
func otlpSpan(id, parent string, start, end int, attributes ...string) string {
	var list []string
	for _, a := range attributes {
		key, value, _ := strings.Cut(a, "=")
		kind := "stringValue"
		if strings.Trim(value, "0123456789") == "" {
			kind = "intValue"
		}
		list = append(list, fmt.Sprintf(`{"key":%q,"value":{%q:%q}}`, key, kind, value))
	}
	return fmt.Sprintf(`{"traceId":"t","spanId":%q,"parentSpanId":%q,"name":"x","startTimeUnixNano":"17600000%02d000000000","endTimeUnixNano":"17600000%02d000000000","attributes":[%s]}`,
		id, parent, start, end, strings.Join(list, ","))
}

func otlp(spans ...string) string {
	return `{"resourceSpans":[{"resource":{},"scopeSpans":[{"scope":{"name":"s"},"spans":[` + strings.Join(spans, ",") + `]}]}]}`
}

// An agent with a call, a tool and an agent below it with a call of older names. The agents' spans sum up usage: it does
// not count. A call's own span of the transport, below it, is no call either.
var otlpSpans = []string{
	otlpSpan("a", "", 0, 30, "gen_ai.operation.name=invoke_agent", "gen_ai.agent.name=root", "gen_ai.conversation.id=talk", "gen_ai.usage.input_tokens=999"),
	otlpSpan("b", "a", 1, 4, "gen_ai.operation.name=chat", "gen_ai.request.model=m", "gen_ai.usage.input_tokens=100", "gen_ai.usage.output_tokens=10",
		"gen_ai.usage.cache_read.input_tokens=64", `gen_ai.input.messages=[{"role":"user","parts":[{"type":"text","content":"go"}]}]`),
	otlpSpan("b2", "b", 2, 3, "gen_ai.operation.name=chat", "gen_ai.request.model=m", "gen_ai.usage.input_tokens=100"),
	otlpSpan("c", "a", 4, 9, "gen_ai.operation.name=execute_tool", "gen_ai.tool.name=task", "gen_ai.tool.call.id=c1"),
	otlpSpan("d", "c", 5, 8, "gen_ai.operation.name=invoke_agent", "gen_ai.agent.name=helper"),
	otlpSpan("e", "d", 5, 7, "gen_ai.system=openai", "gen_ai.request.model=m", "gen_ai.usage.prompt_tokens=50", "gen_ai.usage.completion_tokens=5"),
	otlpSpan("f", "a", 9, 9, "http.method=POST"),
}

func TestOTel(t *testing.T) {
	want := map[string]sessionCount{"talk": {"", "root", 1, 100, 64, 10, 0, 1}, "talk/d": {"talk", "helper", 1, 50, 0, 5, 0, 0}}
	lines := make([]string, len(otlpSpans))
	for i, span := range otlpSpans {
		lines[len(lines)-1-i] = otlp(span)
	}
	for name, text := range map[string]string{"one object": otlp(otlpSpans...), "one a line, in another order": strings.Join(lines, "\n") + "\n"} {
		c, err := openText(text, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, countSessions(c)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if turn := sessionNamed(t, c, "talk").Turns[0]; turn.Trigger != "user_message" || turn.End-turn.Start != 3e9 {
			t.Errorf("%s: %+v", name, turn)
		}
	}
}

// Files of one object, of one a line, and of lines that are longer than what detection sees stand beside each other. Where a
// call stands is told.
func TestOTelLayouts(t *testing.T) {
	span := func(id string) string {
		return otlpSpan(id, "", 1, 2, "gen_ai.operation.name=chat", "gen_ai.usage.input_tokens=100", "gen_ai.usage.output_tokens=10")
	}
	long := strings.Replace(otlp(span("e")), `"name":"x"`, `"name":"`+strings.Repeat("x", 2*headSize)+`"`, 1)
	dir := t.TempDir()
	logFile(t, dir, "a.json", otlp(span("a")))
	logFile(t, dir, "b.json", otlp(span("b")), otlp(span("c")))
	logFile(t, dir, "c.json", strings.ReplaceAll(otlp(span("d")), ",", ",\n"))
	logFile(t, dir, "d.json", long, "", otlp(span("f")))
	c := openFiles(t, dir)
	at := map[string]string{}
	for _, s := range c.Sessions {
		for _, turn := range s.Turns {
			at[turn.ID] = fmt.Sprintf("%s:%d", filepath.Base(turn.File), turn.Line)
		}
	}
	want := map[string]string{"t/a": "a.json:1", "t/b": "b.json:1", "t/c": "b.json:2", "t/d": "c.json:1", "t/e": "d.json:1", "t/f": "d.json:3"}
	if diff := cmp.Diff(want, at); diff != "" || c.Read.LostRows > 0 {
		t.Errorf("%d rows lost, %s", c.Read.LostRows, diff)
	}
}

func TestOTelJaeger(t *testing.T) {
	c, err := openText(`{"data":[{"traceID":"t","spans":[{"traceID":"t","spanID":"a","operationName":"chat","startTime":1760000000000000,"duration":1500000,
		"references":[{"refType":"CHILD_OF","traceID":"t","spanID":"z"}],
		"tags":[{"key":"gen_ai.operation.name","type":"string","value":"chat"},{"key":"gen_ai.usage.input_tokens","type":"int64","value":7},{"key":"gen_ai.usage.output_tokens","type":"int64","value":3}]}]}]}`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if turn := c.Sessions[0].Turns[0]; turn.Input != 7 || turn.Output != 3 || turn.End.Milliseconds() != 1500 {
		t.Errorf("%+v", turn)
	}
}

// The shared exports: a conversation of three calls, each of which repeats the one before and adds to it.
func TestOTelShared(t *testing.T) {
	c := openFiles(t, filepath.Join(sharedTraces(t), "otel-genai", "simple", "simple_chain.json"))
	turns := c.Sessions[0].Turns
	if len(turns) != 3 || turns[0].End.Milliseconds() != 2500 {
		t.Fatalf("%s", describe(c))
	}
	small, err := Open(t.Context(), []string{filepath.Join(sharedTraces(t), "otel-genai", "simple", "simple_chain.json")}, Options{BlockSize: 4})
	if err != nil {
		t.Fatal(err)
	}
	turns = small.Sessions[0].Turns
	if a, b := chain(turns[0]), chain(turns[1]); len(a) < 2 || !slices.Equal(a[:len(a)-1], b[:len(a)-1]) {
		t.Errorf("the second prompt shares nothing with the first: %d and %d", a, b)
	}
	// The collector's export is two lines; its spans are no calls.
	c = openFiles(t, filepath.Join(sharedTraces(t), "otel-genai"))
	if c.Read.Calls != 19 || c.Read.LostRows > 0 || c.Read.Lines != 6 {
		t.Errorf("all exports: %+v", c.Read)
	}
	for name, calls := range map[string]int{"advanced/fan_in_dependencies.json": 4, "advanced/parallel_requests.json": 5, "advanced/prefix_sharing_example.json": 7} {
		c := openFiles(t, filepath.Join(sharedTraces(t), "otel-genai", name))
		if c.Read.Calls != calls || c.Read.LostRows > 0 {
			t.Errorf("%s: %d calls, want %d", name, c.Read.Calls, calls)
		}
	}
}

func TestOTelTruncated(t *testing.T) { truncate(t, otlp(otlpSpans...), 2) }

func FuzzOTel(f *testing.F) {
	fuzzFormat(f, otlp(otlpSpans...), otlp(otlpSpans[1])+"\n"+otlp(otlpSpans[5]),
		`{"trace_id":"t","spans":[{"span_id":"a","start_time":"2026-02-25T10:00:00.000000","end_time":"2026-02-25T10:00:02","attributes":{"gen_ai.operation.name":"chat","gen_ai.input.messages":"[{\"role\":\"user\"}]"}}]}`)
}
