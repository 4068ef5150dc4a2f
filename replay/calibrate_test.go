package replay_test

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/agentsim/agentsim/replay"
	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/replay/prompts"
	"github.com/agentsim/agentsim/trace/wire"
)

func TestCalibration(t *testing.T) {
	for name, count := range map[string]func(words []string) int{
		"words are tokens": func(w []string) int { return len(w) + 7 },
		"some are two": func(w []string) int {
			n := 7
			for _, word := range w {
				if n++; word[0] == 'b' || word == "zone" {
					n++
				}
			}
			return n
		},
		"letters are tokens": func(w []string) int { return 5*len(w) + 7 },
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake(t)
			f.Hook = func(_ int, w http.ResponseWriter, _ *http.Request, body *wire.Request) bool {
				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"x\",\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":1}}\n\n",
					count(strings.Fields(body.Prompt.Text)))
				return true
			}
			c, err := client.New(client.Options{URLs: []string{f.URL}})
			if err != nil {
				t.Fatal(err)
			}
			cal, err := replay.Calibrate(t.Context(), c, 0, "m")
			if err != nil {
				t.Fatal(err)
			}
			got := int(float64(len(cal.Words))*cal.Scale.PerWord) + cal.Scale.Overhead
			if cal.Scale.Overhead != 7 || got != count(cal.Words) || cal.Exact == (name == "letters are tokens") {
				t.Errorf("%d words, %+v, exact %v after %d questions", len(cal.Words), cal.Scale, cal.Exact, cal.Questions)
			}
			if cal.Exact && count(cal.Words) != len(cal.Words)+7 {
				t.Error("a word is no single token")
			}
		})
	}
}

// What a chat template adds is told from chats of two and four messages; one that takes no system prompt leaves prompts to
// be single messages.
func TestCalibrationOfChats(t *testing.T) {
	for name, test := range map[string]struct {
		system bool
		want   prompts.Scale
	}{
		"any role":         {true, prompts.Scale{Overhead: 11, PerMessage: 5, PerWord: 1}},
		"no system prompt": {false, prompts.Scale{Overhead: 16, PerWord: 1}},
	} {
		f := newFake(t)
		f.Hook = func(_ int, w http.ResponseWriter, _ *http.Request, body *wire.Request) bool {
			tokens := 11
			for _, m := range body.Messages {
				if m.Role == "system" && !test.system {
					http.Error(w, `{"error":{"message":"System role not supported"}}`, http.StatusBadRequest)
					return true
				}
				tokens += 5 + len(strings.Fields(string(m.Content)))
			}
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":\"length\"}],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":1}}\n\n", tokens)
			return true
		}
		c, err := client.New(client.Options{URLs: []string{f.URL}, Endpoint: client.Chat})
		if err != nil {
			t.Fatal(err)
		}
		if cal, err := replay.Calibrate(t.Context(), c, 0, "m"); err != nil || cal.Scale != test.want {
			t.Errorf("%s: %+v (%v), want %+v", name, cal, err, test.want)
		}
	}
}

func TestWarmUpRefusesServersThatRewriteTokens(t *testing.T) {
	f := newFake(t)
	w := compile(t, chain("a", 1, 1)...)
	c, err := client.New(client.Options{URLs: []string{f.URL}})
	if err != nil {
		t.Fatal(err)
	}
	ids, _ := prompts.TokenIDs(prompts.DefaultLowID, prompts.DefaultHighID)
	m := prompts.NewMaker(w, ids, 1, prompts.Scale{})
	if a, err := replay.WarmUp(t.Context(), c, m, "m", 2); err != nil || a.Prompt != 64 || a.Cached != 0 {
		t.Errorf("%v: %+v", err, a)
	}
	for _, s := range f.seen { // aiperf#1056: sessions got the traffic of a warm-up
		if s.session != "" {
			t.Errorf("a warm-up is of session %q", s.session)
		}
	}
	f.Hook = func(_ int, w http.ResponseWriter, _ *http.Request, _ *wire.Request) bool {
		fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"x\",\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":65,\"completion_tokens\":1}}\n\n")
		return true
	}
	if _, err := replay.WarmUp(t.Context(), c, m, "m", 1); err == nil || !strings.Contains(err.Error(), "65 tokens in a prompt of 64") {
		t.Errorf("error %v", err)
	}
}

// The metrics of several servers of one deployment are read before, during and after.
func TestMetricsOfServers(t *testing.T) {
	page := func(queries, hits, running int) string {
		return fmt.Sprintf("# HELP x\nvllm:prefix_cache_queries_total{engine=\"0\",model_name=\"a b\"} %d\nvllm:prefix_cache_queries_total{engine=\"1\"} 10\n"+
			"vllm:prefix_cache_hits_total %d 1700000000\nvllm:num_requests_running %d\nvllm:kv_cache_usage_perc{engine=\"0\"} 0.5\n"+
			"vllm:kv_cache_usage_perc{engine=\"1\"} 0.7\nother NaN\n{broken\nvllm:num_preemptions_total oops\n", queries, hits, running)
	}
	pages := []string{page(100, 10, 1), page(200, 60, 3), page(50, 30, 2)} // a restart before the last
	var n atomic.Int32
	f := http.NewServeMux()
	f.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, pages[min(n.Add(1)-1, 2)])
	})
	s := &http.Server{Handler: f}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go s.Serve(l)
	defer s.Close()
	c, err := client.New(client.Options{URLs: []string{"http://" + l.Addr().String(), "http://127.0.0.1:1"}})
	if err != nil {
		t.Fatal(err)
	}
	watch := replay.NewWatch(t.Context(), c, "/metrics", 300*time.Millisecond)
	for n.Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(100 * time.Millisecond) // until the page is read
	list := watch.Stop()
	if len(list) != 1 {
		t.Fatalf("%d servers with metrics, want 1", len(list))
	}
	got := list[0]
	// Queries grew from 110 to 210, then from 0 to 60; hits by 50, then 30.
	if !got.Restarted || got.HitRate.Value != 80.0/160 || got.Running.Max.Value != 3 || got.Running.Mean.Value != 2 || got.KVUtilization.Max.Value != 0.6 || got.Preemptions.Known {
		t.Errorf("%+v", got)
	}

	// The same, reading by reading; the first was before what counts as the beginning.
	first := true
	begun := time.Now().Add(-time.Hour)
	for e := range watch.Events(begun) {
		if g := e.Gauge; g.Worker != 0 || g.Preemptions != nil || first && (*g.Queried != 110 || *g.Running != 1) || e.At < 59*time.Minute {
			t.Errorf("at %v: %+v", e.At, g)
		}
		first = false
	}
	for e := range watch.Events(begun.Add(2 * time.Hour)) {
		if e.At != 0 {
			t.Errorf("a reading of before the replay is at %v", e.At)
		}
	}
	if h := watch.Header(7); first || h.EpochMs != 7 || len(h.Workers) != 2 || h.Workers[1].URL != "http://127.0.0.1:1" {
		t.Errorf("header %+v, and are there events: %v", h, !first)
	}
}
