//go:build unix

package recorder

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/wire"
)

// streamOf answers each chat with a stream of so many tokens, a flush each, and pauses of the given length between them.
func streamOf(tokens int, pause time.Duration) http.HandlerFunc {
	a := wire.Answer{Dialect: wire.Chat, ID: "chatcmpl-0123456789abcdef", Model: "m", Created: 1790000000, Stream: true}
	event := wire.AppendEvent(nil, "", a.Append(nil, &wire.Chunk{Text: " token"}))
	end := wire.AppendEvent(nil, "", a.Append(nil, &wire.Chunk{Finish: "stop"}))
	end = wire.AppendEvent(end, "", a.Append(nil, &wire.Chunk{Usage: &wire.Usage{Prompt: new(int64(1000)), Completion: new(int64(tokens))}}))
	end = append(end, wire.Done...)
	return func(w http.ResponseWriter, q *http.Request) {
		_, _ = io.Copy(io.Discard, q.Body)
		w.Header().Set("Content-Type", sse)
		control := http.NewResponseController(w)
		for range tokens {
			if pause > 0 {
				time.Sleep(pause)
			}
			_, _ = w.Write(event)
			_ = control.Flush()
		}
		_, _ = w.Write(end)
	}
}

// bare is a reverse proxy that records nothing.
func bare(t testing.TB, upstream string) string {
	u, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(u) },
		FlushInterval: -1,
		Transport:     &http.Transport{MaxIdleConnsPerHost: 4096, DisableCompression: true},
	})
	t.Cleanup(h.Close)
	return h.URL
}

// chatBody is a chat of about a thousand tokens, as a turn of an agent.
func chatBody() string {
	return `{"model":"m","stream":true,"messages":[{"role":"system","content":"` + strings.Repeat("You are a coding agent. ", 80) +
		`"},{"role":"user","content":"` + strings.Repeat("Look at the tests of this package. ", 60) + `"}]}`
}

// ask sends a request, reads the answer to its end and returns the time to its first byte.
func ask(t testing.TB, c *http.Client, url, body string) time.Duration {
	begun := time.Now()
	a, err := c.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return 0
	}
	defer a.Body.Close()
	var first [1]byte
	_, _ = io.ReadFull(a.Body, first[:])
	took := time.Since(begun)
	if n, err := io.Copy(io.Discard, a.Body); err != nil || n == 0 {
		t.Errorf("%d bytes, %v", n, err)
	}
	return took
}

// together sends n requests from so many clients at a time.
func together(t testing.TB, c *http.Client, url, body string, clients, n int) time.Duration {
	begun := time.Now()
	var left atomic.Int64
	left.Store(int64(n))
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for left.Add(-1) >= 0 {
				ask(t, c, url, body)
			}
		})
	}
	all.Wait()
	return time.Since(begun)
}

func manyConnections() *http.Client {
	return &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4096, DisableCompression: true,
		DialContext: (&net.Dialer{Timeout: 30 * time.Second}).DialContext}}
}

// BenchmarkThroughput sends streams of 50 tokens through the recorder and through a bare reverse proxy, in turns, on this
// machine with client and upstream. The shares are medians over the pairs of what the recorder reaches of what the bare proxy
// does: of-bare by the wall clock, of-bare-cpu by the processor time of all four, which other work on the machine does not
// change.
func BenchmarkThroughput(b *testing.B) {
	const clients, requests = 16, 200
	up := httptest.NewServer(streamOf(50, 0))
	defer up.Close()
	p := newProxied(b, streamOf(50, 0), func(o *Options) {
		u, _ := url.Parse(up.URL)
		o.Upstream, o.BlockSize, o.Emit = u, 64, func(*trace.Record) {}
	})
	plain := bare(b, up.URL)
	client, body := manyConnections(), chatBody()
	together(b, client, p.url, body, clients, 50)
	together(b, client, plain, body, clients, 50)
	var shares, cpuShares, rates []float64
	for i := range max(b.N, 5) {
		var took, busy [2]time.Duration
		for k := range 2 {
			which := (k + i) % 2 // neither always goes first
			before := processor(b)
			took[which] = together(b, client, []string{p.url, plain}[which], body, clients, requests)
			busy[which] = processor(b) - before
		}
		shares = append(shares, took[1].Seconds()/took[0].Seconds())
		cpuShares = append(cpuShares, busy[1].Seconds()/busy[0].Seconds())
		rates = append(rates, requests/took[0].Seconds())
	}
	b.ReportMetric(median(shares), "of-bare")
	b.ReportMetric(median(cpuShares), "of-bare-cpu")
	b.ReportMetric(median(rates), "requests/s")
	b.ReportMetric(0, "ns/op")
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// processor is the processor time that this process has used.
func processor(t testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkAddedLatency sends 200 requests a second for streams of 50 tokens, 10 ms apart, through the recorder and through a
// bare reverse proxy in turns. It reports the p99 of the time to the first byte of both, and the medians of the differences
// of p99 and p50 between neighbouring rounds. It wants a quiet machine.
func BenchmarkAddedLatency(b *testing.B) {
	const rate, round = 200, 2 * time.Second
	up := httptest.NewServer(streamOf(50, 10*time.Millisecond))
	defer up.Close()
	p := newProxied(b, hang, func(o *Options) {
		u, _ := url.Parse(up.URL)
		o.Upstream, o.BlockSize, o.Emit = u, 64, func(*trace.Record) {}
	})
	urls := []string{p.url, bare(b, up.URL)}
	client, body := manyConnections(), chatBody()
	measure := func(url string) (p50, p99 float64) {
		var mu sync.Mutex
		var times []float64
		var all sync.WaitGroup
		tick := time.NewTicker(time.Second / rate)
		defer tick.Stop()
		for range int(round.Seconds() * rate) {
			<-tick.C
			all.Go(func() {
				took := ask(b, client, url, body)
				mu.Lock()
				defer mu.Unlock()
				times = append(times, ms(took))
			})
		}
		all.Wait()
		slices.Sort(times)
		return times[len(times)/2], times[len(times)*99/100]
	}
	measure(urls[0])
	measure(urls[1])
	var recorded, plain, added, added50 []float64
	for i := range max(b.N, 5) {
		var p50, p99 [2]float64
		for k := range 2 {
			which := (k + i) % 2
			p50[which], p99[which] = measure(urls[which])
		}
		recorded, plain = append(recorded, p99[0]), append(plain, p99[1])
		added, added50 = append(added, p99[0]-p99[1]), append(added50, p50[0]-p50[1])
	}
	b.ReportMetric(median(recorded), "p99-ms")
	b.ReportMetric(median(plain), "bare-p99-ms")
	b.ReportMetric(median(added), "added-p99-ms")
	b.ReportMetric(median(added50), "added-p50-ms")
	b.ReportMetric(0, "ns/op")
}

// heap is the memory in use after a collection, in MiB.
func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// BenchmarkManyRequests sends requests, each of a session of its own, and reports the memory in use after the first 10,000 and
// at the end. Run it with -benchtime 100000x.
func BenchmarkManyRequests(b *testing.B) {
	up := httptest.NewServer(streamOf(5, 0))
	defer up.Close()
	p := newProxied(b, hang, func(o *Options) {
		u, _ := url.Parse(up.URL)
		o.Upstream, o.MaxSessions, o.Emit = u, 5000, func(*trace.Record) {}
	})
	client, n := manyConnections(), 0
	some := func(requests int) {
		for range requests {
			n++
			ask(b, client, p.url, fmt.Sprintf(`{"model":"m","stream":true,"messages":[{"role":"user","content":"task %d: %s"}]}`, n, strings.Repeat("look at it ", 30)))
		}
	}
	early := min(b.N, 10_000)
	some(early)
	before := heap()
	some(b.N - early)
	b.ReportMetric(before, "early-MiB")
	b.ReportMetric(heap(), "late-MiB")
}

// BenchmarkOpenStreams holds 2,000 streams open at a time and reports the memory that each takes in this process, of the
// recorder, the client and the upstream together, and what is left of it when they have ended.
func BenchmarkOpenStreams(b *testing.B) {
	const streams = 2000
	release := make(chan bool)
	p := newProxied(b, func(w http.ResponseWriter, q *http.Request) {
		begin(func(http.ResponseWriter, *http.Request) { <-release })(w, q)
	}, func(o *Options) { o.Emit = func(*trace.Record) {} })
	client := manyConnections()
	defer client.CloseIdleConnections()
	before := heap()
	var open, all sync.WaitGroup
	for range streams {
		open.Add(1)
		all.Go(func() {
			a, err := client.Post(p.url+chatPath, "application/json", strings.NewReader(chatBody()))
			if err != nil {
				b.Error(err)
				open.Done()
				return
			}
			_, _ = io.ReadFull(a.Body, make([]byte, 10))
			open.Done()
			_, _ = io.Copy(io.Discard, a.Body)
			a.Body.Close()
		})
	}
	open.Wait()
	b.ReportMetric((heap()-before)/streams*1024, "KiB/stream")
	close(release)
	all.Wait()
	client.CloseIdleConnections()
	time.Sleep(5 * time.Second) // until idle connections to the upstream are closed
	b.ReportMetric(heap()-before, "left-MiB")
	b.ReportMetric(0, "ns/op")
}
