package recorder

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/hash"
	"github.com/agentsim/agentsim/trace/wire"
)

// turn is a conversation of messages, "role:text" each.
func turn(messages ...string) *wire.Conversation {
	c := new(wire.Conversation)
	for _, m := range messages {
		role, text, _ := strings.Cut(m, ":")
		c.Items = append(c.Items, wire.Item{Role: role, Text: text})
	}
	return c
}

func said(text string) *answer { return &answer{text: []byte(text)} }

// Turns find the session whose conversation they go on with.
func TestInferredSessions(t *testing.T) {
	type step struct {
		messages string // separated by |
		answer   string
		failed   bool
		want     string
	}
	const ask, other = "system:s|user:task", "system:s|user:another"
	tests := []struct {
		name  string
		steps []step
	}{
		{"one session", []step{
			{ask, "A", false, "0"},
			{ask + "|assistant:A|tool:r", "B", false, "0"},
			{ask + "|assistant:A|tool:r|assistant:B|user:more", "C", false, "0"},
		}},
		{"another task is another session", []step{{ask, "A", false, "0"}, {other, "A", false, "1"}, {other + "|assistant:A|tool:r", "B", false, "1"}}},
		{"the answer tells samples of one task apart", []step{
			{ask, "A", false, "0"}, {ask, "B", false, "1"},
			{ask + "|assistant:A|tool:r", "C", false, "0"}, {ask + "|assistant:B|tool:r", "C", false, "1"},
		}},
		{"an answer that the client changed", []step{{ask, "A ", false, "0"}, {ask + "|assistant:A|tool:r", "B", false, "0"}, {ask + "|assistant:A|tool:r|assistant:rewritten|user:x", "C", false, "0"}}},
		{"a failed request is sent again", []step{{ask, "", true, "0"}, {ask, "A", false, "0"}, {ask + "|assistant:A|user:x", "B", false, "0"}}},
		{"a fork goes on from the older turn's session only where that is the latest", []step{
			{ask, "A", false, "0"}, {ask + "|assistant:A|user:x", "B", false, "0"}, {ask + "|assistant:A|user:y", "C", false, "2"},
		}},
		{"a rewritten history is a new session", []step{{ask, "A", false, "0"}, {"system:s|user:summary of it", "B", false, "1"}}},
		{"no messages", []step{{"", "A", false, "0"}, {"", "A", false, "1"}}},
	}
	for _, test := range tests {
		s := newSessions(100)
		for i, st := range test.steps {
			c := new(wire.Conversation)
			if st.messages != "" {
				c = turn(strings.Split(st.messages, "|")...)
			}
			if got := s.inferred(fmt.Sprint(i), c, said(st.answer), st.failed).id; got != st.want {
				t.Errorf("%s: request %d is of session %s, want %s", test.name, i, got, st.want)
			}
		}
	}
}

// A response of OpenAI names the one that it goes on from.
func TestInferredFromPreviousResponse(t *testing.T) {
	s := newSessions(100)
	s.inferred("0", turn("user:a"), &answer{id: "r0"}, false)
	s.inferred("1", turn("user:b"), &answer{id: "r1"}, false)
	next := turn("user:c")
	next.Previous = "r0"
	if got := s.inferred("2", next, &answer{id: "r2"}, false).id; got != "0" {
		t.Errorf("session %s, want 0", got)
	}
}

// Sessions whose turns come in any order between each other, each with its own first message, are told apart whatever they
// have in common.
func TestInferredSessionsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSessions(1000)
		var chats [][]string
		for i := range rapid.IntRange(1, 5).Draw(t, "sessions") {
			chats = append(chats, []string{"system:shared", fmt.Sprintf("user:%d", i)})
		}
		names := make([]string, len(chats))
		for n := range rapid.IntRange(1, 30).Draw(t, "turns") {
			k := rapid.IntRange(0, len(chats)-1).Draw(t, "session")
			reply := rapid.SampledFrom([]string{"yes", "no"}).Draw(t, "reply")
			got := s.inferred(fmt.Sprint(n), turn(chats[k]...), said(reply), false).id
			if names[k] == "" {
				names[k] = got
			}
			if got != names[k] {
				t.Fatalf("turn %d of session %d is of session %s, want %s", n, k, got, names[k])
			}
			chats[k] = append(chats[k], "assistant:"+reply, "user:go on")
		}
		if slices.Sort(names); len(slices.Compact(slices.DeleteFunc(names, func(n string) bool { return n == "" }))) > len(chats) {
			t.Fatal("more names than sessions")
		}
	})
}

// Of too many sessions those that were idle for longest are forgotten, with all that is known of them.
func TestSessionsAreBounded(t *testing.T) {
	s := newSessions(3)
	for i := range 100 {
		s.inferred(fmt.Sprint("i", i), turn(fmt.Sprint("user:", i)), &answer{id: fmt.Sprint(i)}, false)
		s.named(wire.Session{ID: "kept"})
		s.named(wire.Session{ID: fmt.Sprint("n", i)})
	}
	if len(s.byID) != 3 || s.order.Len() != 3 || len(s.byKey) > 9 {
		t.Errorf("%d sessions, %d in order, %d keys, want 3, 3 and at most 9", len(s.byID), s.order.Len(), len(s.byKey))
	}
	if s.byID["kept"] == nil || s.byID["n0"] != nil {
		t.Error("the wrong ones were forgotten")
	}
}

// What headers say of a session, and what is kept of it.
func TestSessionsOfHeaders(t *testing.T) {
	p := newProxied(t, answerWith("application/json", `{"choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`, 1<<20),
		func(o *Options) { o.SessionHeaders = []string{"X-Task"} })
	tests := []struct{ headers, want string }{
		{"X-Dynamo-Session-ID: a; X-Dynamo-Parent-Session-ID: p; X-Dynamo-Session-Final: true; X-Request-ID: mine", `{"session_id":"a","parent_session_id":"p","session_final":true,"kv_hints":{"evict_session":true},"input_trigger":"user_message"} mine`},
		{"X-Claude-Code-Session-Id: s; X-Claude-Code-Agent-Id: c", `{"session_id":"c","parent_session_id":"s","input_trigger":"user_message"} `},
		{"X-Task: t", `{"session_id":"t","input_trigger":"user_message"} `},
		{`Thread-Id: t; X-Codex-Turn-Metadata: {"request_kind":"compaction"}`, `{"session_id":"t","compaction":{},"input_trigger":"user_message"} `},
		{"", `{"session_id":"inferred-run-000005","input_trigger":"user_message"} `},
		{"X-Dynamo-Request-Priority: 7", `{"session_id":"inferred-run-000006","input_trigger":"user_message"} `},
	}
	for i, test := range tests {
		var headers []string
		for line := range strings.SplitSeq(test.headers, "; ") {
			if name, value, ok := strings.Cut(line, ": "); ok {
				headers = append(headers, name, value)
			}
		}
		post(t, p.url+chatPath, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":"%d"}],"nvext":{"agent_hints":{"osl":5}}}`, i), headers...)
	}
	rows := p.wait(t, len(tests))
	slices.SortFunc(rows, func(a, b *trace.Record) int { return strings.Compare(a.Request.RequestID, b.Request.RequestID) })
	for i, row := range rows {
		context, err := json.Marshal(row.AgentContext)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(context) + " " + row.Request.XRequestID; got != tests[i].want {
			t.Errorf("%s: %s, want %s", tests[i].headers, got, tests[i].want)
		}
		if guessed := slices.Contains(row.Request.Agentsim.Inferred, "session"); guessed != strings.HasPrefix(row.AgentContext.SessionID, "inferred-") {
			t.Errorf("%s: inferred %v", tests[i].headers, row.Request.Agentsim.Inferred)
		}
		if h := row.Request.Agentsim.Hints; h == nil || h.OSL != 5 || (h.Priority == 7) != (i == 5) {
			t.Errorf("%s: hints %+v", tests[i].headers, h)
		}
	}
}

// A session's prompts share their blocks with what came before them, answers included, and nobody without the key can make
// the hashes.
func TestBlocksOfSession(t *testing.T) {
	key, err := hash.NewKey([]byte("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range []*hash.Key{nil, key} {
		p := newProxied(t, func(w http.ResponseWriter, q *http.Request) {
			body, _ := io.ReadAll(q.Body)
			c, _ := wire.ParseConversation(body)
			fmt.Fprintf(w, `{"choices":[{"message":{"content":"%s"},"finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":12}}`,
				strings.Repeat("answer ", 8), 20*len(c.Items))
		}, func(o *Options) { o.Key = k })
		long := strings.Repeat("a long task for the model ", 3)
		first := `{"role":"user","content":"` + long + `"}`
		second := first + `,{"role":"assistant","content":"` + strings.Repeat("answer ", 8) + `"},{"role":"user","content":"` + strings.Repeat("go on now ", 6) + `"}`
		post(t, p.url+chatPath, `{"messages":[`+first+`]}`)
		post(t, p.url+chatPath, `{"messages":[`+second+`]}`)
		rows := p.wait(t, 2)
		slices.SortFunc(rows, func(a, b *trace.Record) int { return strings.Compare(a.Request.RequestID, b.Request.RequestID) })
		a, b := rows[0].Request, rows[1].Request
		if rows[0].AgentContext.SessionID != rows[1].AgentContext.SessionID {
			t.Fatal("two sessions")
		}
		if len(a.Replay.Hashes) != 5 || len(a.Agentsim.CompletionHashes) != 8 || len(b.Replay.Hashes) != 15 {
			t.Fatalf("%d, %d and %d blocks, want 5, 8 and 15", len(a.Replay.Hashes), len(a.Agentsim.CompletionHashes), len(b.Replay.Hashes))
		}
		if !slices.Equal(b.Replay.Hashes[:8], a.Agentsim.CompletionHashes) || !slices.Equal(b.Replay.Hashes[:5], a.Replay.Hashes) {
			t.Errorf("the second prompt does not begin with the first and its answer:\n%v\n%v\n%v", a.Replay.Hashes, a.Agentsim.CompletionHashes, b.Replay.Hashes)
		}
	}
}

// Token ids that went over the wire are hashed as Dynamo does.
func TestBlocksOfTokens(t *testing.T) {
	p := newProxied(t, answerWith("application/json", `{"choices":[{"text":"x","finish_reason":"stop","token_ids":[20,21,22]}],"usage":{"prompt_tokens":3,"completion_tokens":3}}`, 1<<20),
		func(o *Options) { o.BlockSize = 2 })
	post(t, p.url+"/v1/completions", `{"prompt":[10,11,12]}`)
	q := p.wait(t, 1)[0].Request
	if want := (trace.Hashes{7369860969341005925, 14289713951177587099}); !slices.Equal(q.Replay.Hashes, want) {
		t.Errorf("prompt %v, want %v", q.Replay.Hashes, want)
	}
	if want := (trace.Hashes{7369860969341005925, 8245508808426466151, 11506626587452923693}); !slices.Equal(q.Agentsim.CompletionHashes, want) {
		t.Errorf("with the answer %v, want %v", q.Agentsim.CompletionHashes, want)
	}
}
