package recorder

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// Bodies and answers beyond the limits pass whole; their rows say less. What they take in memory is bounded and given back.
func TestLargeBodies(t *testing.T) {
	long := strings.Repeat("word ", 4000)
	ask := `{"model":"m","messages":[{"role":"user","content":"` + long + `"}]}`
	answer := `{"choices":[{"message":{"content":"` + long + `"},"finish_reason":"stop"}],"usage":{"prompt_tokens":5000,"completion_tokens":4000}}`
	for _, test := range []struct {
		name string
		set  func(*Options)
		want string
	}{
		{"within the limits", func(o *Options) {}, "completed 200 m in=5000 out=4000 stop/stop gaps=0 ttft=false user_message"},
		{"larger than one may be", func(o *Options) { o.MaxBody = 1000 }, "completed 200  in=~ out=0 gaps=0 ttft=false "},
		{"larger than all may be", func(o *Options) { o.MaxHeld = 1000 }, "completed 200  in=~ out=0 gaps=0 ttft=false "},
	} {
		for _, told := range []bool{true, false} { // the length, or chunks
			got := ""
			p := newProxied(t, func(w http.ResponseWriter, q *http.Request) {
				body, _ := io.ReadAll(q.Body)
				got = string(body)
				_, _ = io.WriteString(w, answer)
			}, test.set)
			var body io.Reader = strings.NewReader(ask)
			if !told {
				body = io.MultiReader(body)
			}
			a, err := http.Post(p.url+chatPath, "application/json", body)
			if err != nil {
				t.Fatal(err)
			}
			seen, _ := io.ReadAll(a.Body)
			a.Body.Close()
			if string(seen) != answer || got != ask {
				t.Errorf("%s: %d bytes reached the upstream and %d the client, want %d and %d", test.name, len(got), len(seen), len(ask), len(answer))
			}
			if row := summary(p.wait(t, 1)[0]); row != test.want {
				t.Errorf("%s: row %s, want %s", test.name, row, test.want)
			}
		}
	}
}

// An event of 10 MB is an event like others; one beyond the limit passes, and the row is without what came after.
func TestLargeEvents(t *testing.T) {
	for _, test := range []struct {
		size int
		want string
	}{
		{10 << 20, "completed 200 m in=9 out=2 stop/stop gaps=0 ttft=true user_message"},
		{20 << 20, "completed 200 m in=~ out=0 gaps=0 ttft=false user_message"},
	} {
		answer := events(`{"choices":[{"delta":{"content":"`+strings.Repeat("x", test.size)+`"},"finish_reason":"stop"}]}`, usage, "[DONE]")
		body := strings.Replace(askStream, "{", `{"stream_options":{"include_usage":true},`, 1)
		p := newProxied(t, answerWith(sse, answer, 1<<20), nil)
		if _, got := post(t, p.url+chatPath, body); got != answer {
			t.Errorf("%d of %d bytes reach the client", len(got), len(answer))
		}
		if got := summary(p.wait(t, 1)[0]); got != test.want {
			t.Errorf("an event of %d MB: row %s, want %s", test.size>>20, got, test.want)
		}
	}
}

// Compressed requests are read and asked for usage; compressed answers pass as they are.
func TestCompression(t *testing.T) {
	var zipped bytes.Buffer
	gz := gzip.NewWriter(&zipped)
	_, _ = gz.Write([]byte(askStream))
	gz.Close()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	answer := events(`{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}`, usage, "[DONE]")
	for encoding, body := range map[string]string{"gzip": zipped.String(), "zstd": string(z.EncodeAll([]byte(askStream), nil))} {
		p := newProxied(t, func(w http.ResponseWriter, q *http.Request) {
			body, _ := io.ReadAll(q.Body)
			if !bytes.Contains(body, []byte("include_usage")) || q.Header.Get("Content-Encoding") != "" || q.Header.Get("Accept-Encoding") != "" {
				t.Errorf("%s: the upstream gets %q, %v", encoding, body, q.Header)
			}
			w.Header().Set("Content-Type", sse)
			w.Header().Set("Content-Encoding", "gzip")
			gz := gzip.NewWriter(w)
			_, _ = io.WriteString(gz, answer)
			gz.Close()
		}, nil)
		post(t, p.url+chatPath, body, "Content-Encoding", encoding, "Accept-Encoding", "gzip")
		if got, want := summary(p.wait(t, 1)[0]), "completed 200 m in=9 out=2 stop/stop gaps=0 ttft=false user_message"; got != want {
			t.Errorf("%s: row %s, want %s", encoding, got, want)
		}
	}
}

// A few bytes that stand for very many are not decoded.
func TestDecompressionIsBounded(t *testing.T) {
	var zipped bytes.Buffer
	gz := gzip.NewWriter(&zipped)
	_, _ = gz.Write(make([]byte, 10<<20))
	gz.Close()
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for encoding, text := range map[string][]byte{"gzip": zipped.Bytes(), "zstd": z.EncodeAll(make([]byte, 10<<20), nil)} {
		if _, err := decode(text, encoding, 10<<20); err != nil {
			t.Errorf("%s within the limit: %v", encoding, err)
		}
		if plain, err := decode(text, encoding, 1<<20); err == nil {
			t.Errorf("%s: %d bytes from %d", encoding, len(plain), len(text))
		}
		if _, err := decode(text[:len(text)/2], encoding, 10<<20); err == nil {
			t.Errorf("%s: half of it is decoded", encoding)
		}
	}
	if _, err := decode(nil, "br", 1); err == nil {
		t.Error("an unknown encoding is decoded")
	}
}
