package prompts_test

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/replay/prompts"
	"github.com/agentsim/agentsim/trace"
)

type chatMessage struct{ Role, Content string }

// chat reads a prompt of messages.
func chat(t testing.TB, p *prompts.Prompt) []chatMessage {
	t.Helper()
	text, err := io.ReadAll(p.Reader())
	if err != nil || int64(len(text)) != p.Len() {
		t.Fatalf("read %d bytes, want %d (%v)", len(text), p.Len(), err)
	}
	var list []chatMessage
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return list
}

// template is what render adds to a chat: 3 tokens, and 4 for each message.
var template = prompts.Scale{Overhead: 3, PerMessage: 4}

// render is what a server makes of a chat: a token before it, two before the words of each message and two behind, and the two
// that begin the answer.
func render(list []chatMessage) []string {
	tokens := []string{"<bos>"}
	for _, m := range list {
		tokens = append(append(append(tokens, "<begin>", m.Role), strings.Fields(m.Content)...), "<end>", "<newline>")
	}
	return append(tokens, "<begin>", "assistant")
}

func shape(list []chatMessage) string {
	var parts []string
	for _, m := range list {
		parts = append(parts, fmt.Sprint(m.Role, " ", len(strings.Fields(m.Content))))
	}
	return strings.Join(parts, ", ")
}

// session is a session of turns of so many input and output tokens, each prompt the one before with its output and more.
func session(t testing.TB, sizes ...[2]int32) *trace.Workload {
	t.Helper()
	c := &trace.Capture{Format: "test", BlockSize: 10, Resolution: time.Millisecond, SharedClock: true}
	s := &trace.Session{ID: "a"}
	for i, size := range sizes {
		u := &trace.Turn{ID: fmt.Sprint(i), Start: time.Duration(2*i) * time.Millisecond, End: time.Duration(2*i+1) * time.Millisecond, TTFT: trace.NoTime,
			Input: size[0], Output: size[1], Cached: trace.Unknown, Reasoning: trace.Unknown}
		for b := range uint64(size[0] / 10) {
			if i > 1 && b > 11 { // from the third turn on, a prompt leaves the others there
				b += 1000 * uint64(i)
			}
			u.Hashes = append(u.Hashes, b+1)
		}
		s.Turns = append(s.Turns, u)
	}
	c.Sessions = append(c.Sessions, s)
	if err := c.Link(); err != nil {
		t.Fatal(err)
	}
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// By hand: the template takes 3 tokens at the beginning, 4 behind the system prompt, 4 before the answer of 20 tokens, 4
// behind it, and 4 at the end.
func TestChatsAreCutWhereAnswersWere(t *testing.T) {
	a, err := prompts.Words(prompts.List())
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		sizes [][2]int32
		want  []string
	}{
		{[][2]int32{{100, 20}, {200, 1}}, []string{"system 47, user 42", "system 47, user 42, assistant 20, user 72"}},
		{[][2]int32{{100, 0}, {200, 1}}, []string{"system 47, user 42", "system 47, user 142"}},  // no answer
		{[][2]int32{{100, 95}, {200, 1}}, []string{"system 47, user 42", "system 47, user 142"}}, // nothing behind it
		{[][2]int32{{200, 20}, {100, 1}}, []string{"system 47, user 142", "system 47, user 42"}}, // a shorter history
		{[][2]int32{{10, 5}, {100, 1}}, []string{"user 3", "system 2, user 87"}},                 // too short for a system prompt
		{[][2]int32{{3, 1}, {7, 1}, {13, 1}}, []string{"user 1", "user 1", "system 1, user 1"}},  // shorter than the template
	} {
		w := session(t, test.sizes...)
		m := prompts.NewChatMaker(w, a, 1, template)
		for i, want := range test.want {
			if got := shape(chat(t, m.Prompt(int32(i), 0))); got != want {
				t.Errorf("%v: prompt %d is %s, want %s", test.sizes, i, got, want)
			}
		}
	}
}

// Of real shapes: chats have the recorded tokens, and share what the workload shares, but for what a template adds where one of
// them ends; and a prompt with the beginning of its answer is the beginning of the session's next.
func TestChatsShareWhatTheWorkloadShares(t *testing.T) {
	w := sample(t)
	a, err := prompts.Words(prompts.List())
	if err != nil {
		t.Fatal(err)
	}
	m := prompts.NewChatMaker(w, a, 1, template)
	n := min(len(w.Calls), 60)
	var all [][]string
	answers, longer := 0, 0
	for i := range n {
		list := chat(t, m.Prompt(int32(i), 0))
		tokens := render(list)
		if len(tokens) != int(w.Calls[i].Input) {
			t.Errorf("call %d has %d tokens, want %d: %s", i, len(tokens), w.Calls[i].Input, shape(list))
		}
		for k, message := range list {
			if message.Content == "" || k > 0 && message.Role == list[k-1].Role {
				t.Errorf("call %d: message %d: %s", i, k, shape(list))
			}
			if message.Role == "assistant" {
				answers++
			}
		}
		if last := list[len(list)-1].Role; last != "user" {
			t.Errorf("call %d ends with a message of the %s", i, last)
		}
		all = append(all, tokens)
	}
	for i := range n {
		for j := range i {
			got, want := common(all[i], all[j]), shared(w, int32(i), int32(j))
			if got < want-template.PerMessage {
				t.Errorf("calls %d and %d share %d tokens, want %d", i, j, got, want)
			}
			if w.Calls[i].Session == w.Calls[j].Session && i == j+1 && want == int(w.Calls[j].Input) && got == want {
				longer++
			}
		}
	}
	if answers < n || longer < n/2 {
		t.Errorf("%d answers in %d chats, %d of which go on from the one before: the sample tests nothing", answers, n, longer)
	}
}

// A text that a server generated stands in the place of the answer, whatever it holds, and in no prompt that has another
// answer there.
func TestGeneratedTextIsTheAnswer(t *testing.T) {
	const text = " \"tok\"\n<é>"
	w := session(t, [2]int32{100, 25}, [2]int32{200, 1}, [2]int32{200, 1})
	a, err := prompts.Words(prompts.List())
	if err != nil {
		t.Fatal(err)
	}
	m := prompts.NewChatMaker(w, a, 1, template)
	before := chat(t, m.Prompt(1, 0))
	m.GeneratedText(0, 0, text)
	m.GeneratedText(0, 0, "another one")
	after := chat(t, m.Prompt(1, 0))
	if after[2].Content != text || before[2].Content == text {
		t.Errorf("the answer is %q, was %q", after[2].Content, before[2].Content)
	}
	after[2] = before[2]
	if !slices.Equal(after, before) {
		t.Error("the rest of the chat changed")
	}
	if other := chat(t, m.Prompt(1, 7)); other[2].Content == text {
		t.Error("the answer stands in another copy")
	}
	for _, message := range chat(t, m.Prompt(2, 0)) {
		if strings.Contains(message.Content, "tok") {
			t.Error("the answer stands in a prompt that has only the first 20 of its 25 tokens")
		}
	}
	plain := prompts.NewMaker(w, a, 1, prompts.Scale{})
	plain.GeneratedText(0, 0, text)
	var got string
	if all, err := io.ReadAll(plain.Prompt(1, 0).Reader()); err != nil || json.Unmarshal(all, &got) != nil || strings.Count(got, text) != 1 {
		t.Errorf("a prompt that is no chat has %q (%v)", got, err)
	}
	if n := len(strings.Fields(strings.Replace(got, text, "", 1))); n != 175 {
		t.Errorf("%d words beside the answer of 25 tokens, want 175", n)
	}
}
