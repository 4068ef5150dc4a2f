package anonymize

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/agentsim/agentsim/trace"
)

// expected fills a template: <id NAME>, <hash N> and <text TEXT> stand for what the key makes of them.
func expected(p *pseudonyms, template string) string {
	return regexp.MustCompile(`<(id|hash|text) ([^>]*)>`).ReplaceAllStringFunc(template, func(m string) string {
		what, of, _ := strings.Cut(m[1:len(m)-1], " ")
		switch what {
		case "id":
			return p.id(of)
		case "hash":
			n, _ := strconv.ParseUint(of, 10, 64)
			return strconv.FormatUint(keyed(p, n), 10)
		}
		return string(p.appendFiller(nil, []byte(of)))
	})
}

func TestRows(t *testing.T) {
	tests := []struct {
		name, format string
		opts         Options
		in, want     string // want "" is a row that is not kept
	}{
		{"an enveloped request", "dynamo", Options{},
			`{"timestamp":412,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1790000002500,"event_source":"dynamo","agent_context":{"session_id":"job7:root","parent_session_id":"job7","agent_headers":{"authorization":"Bearer x"},"kv_hints":{"evict_session":true}},"request":{"request_id":"r-1","x_request_id":"call-1","model":"demo-8b","input_tokens":130,"kv_hit_rate":0.25,"worker":{"prefill_worker_id":9007199254740993,"prefill_dp_rank":0},"replay":{"trace_block_size":64,"input_length":130,"input_sequence_hashes":[8113873337580740840,1]},"finish_reason_metadata":{"finish_reason":"tool_calls","backend_finish_reason":"error: out of memory at /home/ana","stop_reason":"</s>","tool_calls":[{"choice_index":0,"id":"tc-1","name":"grep","arguments":"{}"}]},"secret":1}}}`,
			`{"timestamp":412,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1790000002500,"event_source":"dynamo","agent_context":{"session_id":"<id job7:root>","parent_session_id":"<id job7>","kv_hints":{"evict_session":true}},"request":{"request_id":"<id r-1>","x_request_id":"<id call-1>","model":"demo-8b","input_tokens":130,"kv_hit_rate":0.25,"worker":{"prefill_worker_id":<hash 9007199254740993>,"prefill_dp_rank":0},"replay":{"trace_block_size":64,"input_length":130,"input_sequence_hashes":[<hash 8113873337580740840>,<hash 1>]},"finish_reason_metadata":{"finish_reason":"tool_calls","backend_finish_reason":"error","tool_calls":[{"choice_index":0,"id":"<id tc-1>","name":"grep"}]}}}}`},
		{"of a payload only the hints", "dynamo", Options{},
			`{"schema":"dynamo.request.trace.v1","event_type":"request_payload","payload":{"request_id":"r-1","endpoint":"openai.chat_completion","model":"demo-8b","request":{"model":"demo-8b","messages":[{"role":"user","content":"hi"}],"nvext":{"agent_hints":{"priority":3},"cache_salt":"ana"}},"response":{"id":"x"},"http_request_headers":{"cookie":"c"},"payload_complete":true}}`,
			`{"schema":"dynamo.request.trace.v1","event_type":"request_payload","payload":{"request_id":"<id r-1>","endpoint":"openai.chat_completion","model":"demo-8b","request":{"nvext":{"agent_hints":{"priority":3}}},"payload_complete":true}}`},
		{"a tool without its hash and its error", "dynamo", Options{DropToolNames: true},
			`{"schema":"dynamo.request.trace.v1","event_type":"tool_end","session_id":"s","tool":{"tool_call_id":"tc-1","tool_class":"grep","duration_ms":4.5,"status":"ok","tool_name_hash":"abc","error_type":"dns"}}`,
			`{"schema":"dynamo.request.trace.v1","event_type":"tool_end","session_id":"<id s>","tool":{"tool_call_id":"<id tc-1>","tool_class":"<id grep>","duration_ms":4.5,"status":"ok"}}`},
		{"lost rows", "dynamo", Options{}, `{"event_type":"request_payload","payload":{"request_id":"agentsim.rows_lost","endpoint":"agentsim.rows_lost","payload_drop_reason":"aggregation_failed: x"},"agentsim":{"lost_rows":3,"first_unix_ms":1790000000000}}`,
			`{"event_type":"request_payload","payload":{"request_id":"<id agentsim.rows_lost>","endpoint":"agentsim.rows_lost"},"agentsim":{"lost_rows":3,"first_unix_ms":1790000000000}}`},
		{"an event type nobody knows", "dynamo", Options{}, `{"schema":"dynamo.request.trace.v1","event_type":"prompt_dump","text":"hi"}`, ""},
		{"an event that is none", "dynamo", Options{}, `{"timestamp":4,"event":"hello"}`, ""},
		{"another schema", "dynamo", Options{}, `{"schema":"dynamo.request.trace.v2","event_type":"request_end"}`, ""},
		{"hashes that are no unsigned integers", "dynamo", Options{}, `{"event_type":"request_end","request":{"request_id":"a","replay":{"input_sequence_hashes":[1,-2]}}}`,
			`{"event_type":"request_end","request":{"request_id":"<id a>","replay":{}}}`},
		{"null stays, a number that is no number does not", "dynamo", Options{}, `{"event_type":"request_end","request":{"ttft_ms":null,"total_time_ms":"12","input_tokens":123456789012345678901234567890123}}`,
			`{"event_type":"request_end","request":{"ttft_ms":null}}`},

		{"names that are no names", "claude-code", Options{},
			`{"type":"assistant","message":{"model":"/home/ana/model","content":[{"type":"tool_use","id":"t","name":"mail ana@example.com","input":{"a":1}}]}}`,
			`{"type":"assistant","message":{"model":"<id /home/ana/model>","content":[{"type":"tool_use","id":"<id t>","name":"<id mail ana@example.com>","input":{"text":"<text {"a":1}>"}}]}}`},
		{"a message with its usage", "claude-code", Options{DropModel: true},
			`{"parentUuid":null,"type":"assistant","uuid":"u1","sessionId":"s1","cwd":"/home/ana","timestamp":"2026-02-04T04:13:36.103+02:00","message":{"id":"m1","model":"claude-x","role":"assistant","content":[{"type":"thinking","thinking":"why?","signature":"c2ln"},{"type":"hologram","text":"new"},"bare"],"stop_reason":null,"usage":{"input_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":3},"inference_geo":"eu"}}}`,
			`{"parentUuid":null,"type":"assistant","uuid":"<id u1>","sessionId":"<id s1>","timestamp":"2026-02-04T02:13:36.103Z","message":{"id":"<id m1>","model":"<id claude-x>","role":"assistant","content":[{"type":"thinking","thinking":"<text why?>"},"<text bare>"],"stop_reason":null,"usage":{"input_tokens":5,"cache_creation":{"ephemeral_5m_input_tokens":3}}}}`},
		{"a result of a subagent", "claude-code", Options{},
			`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"done"}]}]},"toolUseResult":{"agentId":"a1","prompt":"look","totalTokens":7}}`,
			`{"type":"user","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"<id t>","content":[{"type":"text","text":"<text done>"}]}]},"toolUseResult":{"agentId":"<id a1>","totalTokens":7}}`},
		{"a row type nobody knows", "claude-code", Options{}, `{"type":"diary","uuid":"u","text":"dear"}`, ""},

		{"a call of a function", "codex", Options{},
			`{"timestamp":"2026-03-21T10:05:59Z","type":"response_item","payload":{"type":"function_call","name":"exec","arguments":"{\"cmd\":\"ls\"}","call_id":"c1"}}`,
			`{"timestamp":"2026-03-21T10:05:59Z","type":"response_item","payload":{"type":"function_call","name":"exec","arguments":"{\"text\":\"<text {"cmd":"ls"}>\"}","call_id":"<id c1>"}}`},
		{"the thread and where it came from", "codex", Options{},
			`{"type":"session_meta","payload":{"id":"x","cwd":"/home/ana","git":{"branch":"b"},"source":{"subagent":{"thread_spawn":{"parent_thread_id":"y","depth":1,"agent_nickname":"Bob"}}},"base_instructions":{"text":"You are"}}}`,
			`{"type":"session_meta","payload":{"id":"<id x>","source":{"subagent":{"thread_spawn":{"parent_thread_id":"<id y>","depth":1}}},"base_instructions":{"text":"<text You are>"}}}`},
		{"an old row without envelope", "codex", Options{}, `{"type":"message","role":"user","content":[{"type":"input_text","text":"hi"}]}`,
			`{"type":"message","role":"user","content":[{"type":"input_text","text":"<text hi>"}]}`},
		{"a payload of an unknown kind", "codex", Options{}, `{"type":"event_msg","payload":{"type":"screenshot","message":"x"}}`, ""},

		{"a Mooncake row", "mooncake", Options{}, `{"timestamp":27.5,"input_length":700,"output_length":4,"hash_ids":[0,18446744073709551615],"session_id":17,"output_token_ids":[1,2],"text_input":"hi"}`,
			`{"timestamp":27.5,"input_length":700,"output_length":4,"hash_ids":[<hash 0>,<hash 18446744073709551615>],"session_id":"<id 17>"}`},
		{"a WEKA conversation", "weka", Options{}, `{"id":"trace_1","block_size":64,"hash_id_scope":"local","requests":[{"t":0.5,"type":"subagent","agent_id":"a","subagent_type":"Explore","requests":[{"t":0,"type":"n","in":64,"out":2,"hash_ids":[1]}]}]}`,
			`{"id":"<id trace_1>","block_size":64,"hash_id_scope":"local","requests":[{"t":0.5,"type":"subagent","agent_id":"<id a>","subagent_type":"<id Explore>","requests":[{"t":0,"type":"n","in":64,"out":2,"hash_ids":[<hash 1>]}]}]}`},
	}
	formats := newFormats()
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.opts.Key = testKey(t)
			r := newRewriter(test.opts)
			got := ""
			if r.row([]byte(test.in), formats[test.format].row) == kept {
				got = strings.TrimSuffix(string(r.out), "\n")
			}
			if want := expected(newPseudonyms(test.opts.Key), test.want); got != want {
				t.Errorf("got  %s\nwant %s", got, want)
			}
			if name := detect([]byte(test.in)); name != test.format && test.want != "" {
				t.Errorf("looks like %q", name)
			}
		})
	}
}

// All times of a run move by the same span, times since the start of a trace by none.
func TestTimesMoveTogether(t *testing.T) {
	opts := Options{Key: testKey(t), ShiftTime: true}
	by := opts.Key.shift()
	for in, want := range map[string]string{
		`1790000000000`:   strconv.FormatInt(1790000000000+by.Milliseconds(), 10),
		`1790000000000.5`: strconv.FormatInt(1790000000000+by.Milliseconds(), 10) + ".5",
		`27000`:           `27000`,
		`-1`:              `-1`,
	} {
		r := newRewriter(opts)
		r.row([]byte(in), unixMs)
		if got := strings.TrimSpace(string(r.out)); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
	for in, want := range map[string]string{
		"2026-02-04T04:13:36.103Z":       "2026-02-04T04:13:37.603Z",
		"2026-02-04T04:13:36Z":           "2026-02-04T04:13:37Z",
		"2026-02-04T06:13:36.1+02:00":    "2026-02-04T04:13:37.6Z",
		"2026-02-04T04:13:36.123456789Z": "2026-02-04T04:13:37.623456789Z",
		"4 February":                     "",
		"9999-02-04T04:13:36Z":           "",
	} {
		if got, _ := moveClock(in, 1500e6); got != want {
			t.Errorf("%s became %q, want %q", in, got, want)
		}
	}
}

// Whoever adds a field to trace.Record decides here whether it may stay: keys that are neither allowed nor on this list
// fail.
func TestEveryFieldOfARecordIsDecided(t *testing.T) {
	gone := []string{"agent_headers", "stop_reason", "tool_name_hash", "error_type"}
	var keys []string
	var walk func(reflect.Type)
	walk = func(typ reflect.Type) {
		for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
			typ = typ.Elem()
		}
		if typ.Kind() != reflect.Struct {
			return
		}
		for i := range typ.NumField() {
			key, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ",")
			keys = append(keys, key)
			walk(typ.Field(i).Type)
		}
	}
	walk(reflect.TypeFor[trace.Record]())
	if len(keys) < 60 {
		t.Fatalf("only %d keys", len(keys))
	}
	source := readSource(t, "dynamo.go")
	for _, key := range keys {
		if allowed := strings.Contains(source, strconv.Quote(key)+":"); allowed == slices.Contains(gone, key) {
			t.Errorf("%q: is it safe to share? Allow it in dynamo.go or list it here", key)
		}
	}
}

// A shared trace tells of every field that a rule filled, and nothing else in the list that does.
func TestMarksOfFilledFieldsStay(t *testing.T) {
	marks := func(names []string) string {
		list, _ := json.Marshal(names)
		return `{"event_type":"request_end","request":{"agentsim":{"inferred":` + string(list) + `}}}`
	}
	names := trace.AllFields.Names()
	r := newRewriter(Options{Key: testKey(t)})
	r.row([]byte(marks(append(names, "of ana's disk"))), dynamoRow())
	if got := strings.TrimSpace(string(r.out)); got != marks(names) {
		t.Errorf("got  %s\nwant %s", got, marks(names))
	}
	if trace.FieldsNamed(names) != trace.AllFields || !slices.Contains(names, "tool_end") {
		t.Errorf("%q are not all fields", names)
	}
}

// FuzzRows feeds any JSON to the rules of every format. What comes out is JSON that the same rules keep whole, and has no
// string that is not a word, a name, a time, a pseudonym or filler.
func FuzzRows(f *testing.F) {
	f.Add(`{"event_type":"request_end","request":{"request_id":"a","replay":{"input_sequence_hashes":[1,2]}}}`)
	f.Add(`{"type":"user","message":{"role":"user","content":[{"type":"text","text":"\u00e9\"\\x"},[[]],{}]}}`)
	f.Add(`{"type":"session_meta","payload":{"type":null,"id":1e3,"source":{"subagent":"review"}}}`)
	f.Add(` {"requests" : [ {"requests":[{"in":1}] } , null ] }`)
	formats := newFormats()
	f.Fuzz(func(t *testing.T, line string) {
		line = strings.TrimSpace(line)
		detect([]byte(line))
		if !json.Valid([]byte(line)) {
			return
		}
		for _, format := range formats {
			r := newRewriter(Options{Key: testKey(t)})
			if r.row([]byte(line), format.row) != kept {
				continue
			}
			out := strings.TrimSuffix(string(r.out), "\n")
			tree, err := decode([]byte(out))
			if err != nil || strings.Contains(out, "\n") {
				t.Fatalf("%s: %q is not a line of JSON: %v", format.name, out, err)
			}
			v := &verifier{proof: &Proof{}, strings: map[uint64]bool{}}
			eachString(tree, func(s string, key bool) { v.resultString(row{}, s, key, &r.report) })
			if len(v.proof.Failures) > 0 {
				t.Fatalf("%s: %s became %s: %s", format.name, line, out, v.proof.Failures[0])
			}
			again := newRewriter(Options{Key: testKey(t)})
			if again.row([]byte(out), format.row) != kept || len(again.report.DroppedKeys) > 0 {
				t.Fatalf("%s: %s became %s, of which %v is not kept", format.name, line, out, again.report.DroppedKeys)
			}
		}
	})
}

// matches tells whether a text has a match of a pattern.
func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }
