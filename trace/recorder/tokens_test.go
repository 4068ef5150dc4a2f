package recorder

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/hash"
	"github.com/agentsim/agentsim/trace/hash/tokenizer"
	"github.com/agentsim/agentsim/trace/wire"
)

// lettersTokenizer has a token for each letter, 0 for a and so on, and none for anything else.
func lettersTokenizer(t *testing.T) *tokenizer.Tokenizer {
	var vocabulary []string
	for c := range 26 {
		vocabulary = append(vocabulary, fmt.Sprintf(`"%c":%d`, 'a'+c, c))
	}
	name := filepath.Join(t.TempDir(), "tokenizer.json")
	if err := os.WriteFile(name, []byte(`{"model":{"type":"BPE","vocab":{`+strings.Join(vocabulary, ",")+`},"merges":[]}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	k, err := tokenizer.Load(name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// With a tokenizer the blocks are those of its tokens; where the server counted more or fewer, they end as it says.
func TestBlocksOfTokenizer(t *testing.T) {
	k := lettersTokenizer(t)
	for _, test := range []struct{ input, output int }{{8, 4}, {6, 4}, {11, 4}, {8, 6}} {
		p := newProxied(t, answerWith("application/json", fmt.Sprintf(`{"choices":[{"text":"wxyz","finish_reason":"stop"}],"usage":{"prompt_tokens":%d,"completion_tokens":%d}}`,
			test.input, test.output), 1<<20), func(o *Options) { o.Tokenizer = k })
		post(t, p.url+"/v1/completions", `{"prompt":"abcdefgh"}`)
		q := p.wait(t, 1)[0].Request
		ids := k.Encode("abcdefghwxyz")
		full := hash.Blocks(ids, 4)
		if got, same := q.Replay.Hashes, min(test.input, 8)/4; len(got) != (test.input+3)/4 || !slices.Equal(got[:same], full[:same]) {
			t.Errorf("%+v: prompt %v, want %d of %v", test, got, same, full)
		}
		if got, same := q.Agentsim.CompletionHashes, min(test.input+test.output, 12)/4; len(got) != (test.input+test.output+3)/4 || !slices.Equal(got[:same], full[:same]) {
			t.Errorf("%+v: with the answer %v, want %d of %v", test, got, same, full)
		}
	}
}

// An upstream that tells tokens is asked, with the credentials of the client and after its answer; the hashes are Dynamo's.
func TestBlocksOfUpstream(t *testing.T) {
	var asked []string
	p := newProxied(t, func(w http.ResponseWriter, q *http.Request) {
		body, _ := io.ReadAll(q.Body)
		if q.URL.Path == chatPath {
			_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":3}}`)
			return
		}
		asked = append(asked, q.URL.Path+" "+q.Header.Get("Authorization")+" "+string(body))
		ids := `[10,11,12]`
		if strings.Contains(string(body), `"prompt"`) {
			ids = `[20,21,22]`
		}
		_, _ = io.WriteString(w, `{"count":3,"tokens":`+ids+`}`)
	}, func(o *Options) { o.AskTokens, o.BlockSize = true, 2 })
	post(t, p.url+chatPath, `{"model":"m","temperature":1,"messages":[{"role":"user","content":"hi"}],"tools":[]}`, "Authorization", "Bearer k")
	q := p.wait(t, 1)[0].Request
	if want := (trace.Hashes{7369860969341005925, 14289713951177587099}); !slices.Equal(q.Replay.Hashes, want) {
		t.Errorf("prompt %v, want %v", q.Replay.Hashes, want)
	}
	if want := (trace.Hashes{7369860969341005925, 8245508808426466151, 11506626587452923693}); !slices.Equal(q.Agentsim.CompletionHashes, want) {
		t.Errorf("with the answer %v, want %v", q.Agentsim.CompletionHashes, want)
	}
	if want := []string{`/tokenize Bearer k {"model":"m","messages":[{"role":"user","content":"hi"}],"tools":[]}`,
		`/tokenize Bearer k {"model":"m","prompt":"x","add_special_tokens":false}`}; !slices.Equal(asked, want) {
		t.Errorf("asked\n%q, want\n%q", asked, want)
	}
}

// An upstream without /tokenize is asked once, and the blocks are those of an estimate.
func TestUpstreamWithoutTokens(t *testing.T) {
	var asked atomic.Int32
	p := newProxied(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path != chatPath {
			asked.Add(1)
			http.NotFound(w, q)
			return
		}
		_, _ = io.WriteString(w, `{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`)
	}, func(o *Options) { o.AskTokens = true })
	const body = `{"messages":[{"role":"user","content":"hi"}]}`
	for n := range 3 {
		post(t, p.url+chatPath, body, wire.HeaderSession, "s")
		for !func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.rows) > n }() {
		}
	}
	rows := p.wait(t, 3)
	c, err := wire.ParseConversation([]byte(body))
	if err != nil {
		t.Fatal(err)
	}
	text, length := c.Prompt(&wire.Item{})
	if want := hash.NewEstimator(4).Prompt().Blocks(text[:length], 9); !slices.Equal(rows[0].Request.Replay.Hashes, want) {
		t.Errorf("%v, want the estimate's %v", rows[0].Request.Replay.Hashes, want)
	}
	if asked.Load() != 1 {
		t.Errorf("asked %d times, want once", asked.Load())
	}
}

// A request that names a response of OpenAI in the place of what came before shares the blocks of that response and its answer,
// and no others: its own text alone is not its prompt.
func TestBlocksBehindPreviousResponse(t *testing.T) {
	key, err := hash.NewKey([]byte(strings.Repeat("k", 32)))
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Options){
		"estimate": nil, "keyed": func(o *Options) { o.Key = key }, "tokenizer": func(o *Options) { o.Tokenizer = lettersTokenizer(t) },
	} {
		served := 0
		p := newProxied(t, func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"object":"response","id":"r%d","status":"completed","output":[{"type":"message","content":[{"text":"abcdef"}]}],"usage":{"input_tokens":%d,"output_tokens":6}}`,
				served, 10+12*served)
			served++
		}, change)
		for n, previous := range []string{"", "r0", "r1", "r0"} {
			post(t, p.url+"/v1/responses", fmt.Sprintf(`{"previous_response_id":%q,"input":"go on and on"}`, previous), wire.HeaderSession, "s")
			for !func() bool { p.mu.Lock(); defer p.mu.Unlock(); return len(p.rows) > n }() {
			}
		}
		var last trace.Hashes
		for n, r := range p.wait(t, 4) {
			got, filled := r.Request.Replay.Hashes, 4+3*(n-1) // blocks of the 16 and 28 tokens of the responses before
			if n == 0 || n == 3 {                             // goes on from a response that is not the latest
				filled = 0
			}
			if len(got) != (10+12*n+3)/4 || filled > 0 && !slices.Equal(got[:filled], last[:filled]) || n > 0 && slices.Contains(last, got[filled]) {
				t.Errorf("%s: prompt %d has blocks %v, want %d of %v", name, n, got, filled, last)
			}
			if last = r.Request.Agentsim.CompletionHashes; len(last) != (16+12*n+3)/4 {
				t.Errorf("%s: %d blocks with answer %d", name, len(last), n)
			}
			if told := slices.Contains(r.Request.Agentsim.Inferred, "input_sequence_hashes"); told != (n > 0) {
				t.Errorf("%s: prompt %d is told to be known: %v", name, n, !told)
			}
		}
	}
}
