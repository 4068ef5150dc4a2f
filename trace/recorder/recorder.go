// Package recorder is a reverse proxy that stands in front of a server of language models and writes down what agents do
// there: one trace record for each request, with its session, times, tokens and KV block hashes, and no text.
//
// A Recorder serves and makes the records. A Sink writes them, so that serving never waits for a disk.
package recorder

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/hash"
	"github.com/agentsim/agentsim/trace/hash/tokenizer"
	"github.com/agentsim/agentsim/trace/wire"
)

// The defaults of Options.
const (
	DefaultMaxBody     = 64 << 20 // bytes
	DefaultMaxHeld     = 1 << 30  // bytes
	DefaultMaxSessions = 10_000
	DefaultBlockSize   = 64 // tokens
	DefaultIdleTimeout = 15 * time.Minute
)

// Options adjust a Recorder. Zero values are defaults, where there are any.
type Options struct {
	// Upstream is the server that answers. A path of its own stands before those of requests.
	Upstream *url.URL
	// TLS is how an upstream with https is trusted; nil is as the system does.
	TLS *tls.Config
	// Emit takes each record. It is called from several goroutines and must not block: Sink.Offer.
	Emit func(*trace.Record)
	// Run begins the ids of requests, so that those of two runs in one trace differ.
	Run string
	// SessionHeaders name sessions, before those of the agents that are known.
	SessionHeaders []string
	// BlockSize is the number of tokens that a hash stands for. Key makes hashes that nobody without it can make; nil makes
	// those of Dynamo, from which a short prompt can be guessed.
	BlockSize int
	Key       *hash.Key
	// Tokenizer knows the tokens of prompts. Without one the upstream is asked, where AskTokens says so and it tells them
	// (POST /tokenize of vLLM), after it has answered; else blocks are cut by hash.Estimator.
	Tokenizer *tokenizer.Tokenizer
	AskTokens bool
	// MaxBody bounds a request or an answer that is read for the record, in bytes. Larger ones pass, and their record
	// says less. MaxHeld bounds all of them together.
	MaxBody, MaxHeld int64
	// MaxSessions bounds the sessions that are remembered. Beyond it those that were idle for longest are forgotten.
	MaxSessions int
	// IdleTimeout is how long the upstream may send nothing before a request is given up.
	IdleTimeout time.Duration
	// Logf is told what went wrong with single requests; nil is nobody.
	Logf func(format string, args ...any)
}

// Recorder is the proxy, an http.Handler. Requests for completions, chats, responses and messages are recorded; all others
// pass.
type Recorder struct {
	options Options
	proxy   *httputil.ReverseProxy
	serial  atomic.Int64
	held    atomic.Int64 // bytes of requests and answers in memory
	serving sync.WaitGroup

	analyst *analyst
}

// New returns a Recorder. Close ends it.
func New(o Options) (*Recorder, error) {
	if o.Upstream == nil || o.Upstream.Host == "" || o.Upstream.Scheme != "http" && o.Upstream.Scheme != "https" {
		return nil, fmt.Errorf("upstream %v: want http://HOST:PORT or https://HOST:PORT", o.Upstream)
	}
	if o.Upstream.User != nil {
		return nil, errors.New("upstream: a name and a password in the URL are not used, credentials come from the clients")
	}
	if o.Emit == nil {
		return nil, errors.New("recorder: Options.Emit says where the records go")
	}
	o.MaxBody = cmp.Or(o.MaxBody, DefaultMaxBody)
	o.MaxHeld = cmp.Or(o.MaxHeld, DefaultMaxHeld)
	o.MaxSessions = cmp.Or(o.MaxSessions, DefaultMaxSessions)
	o.BlockSize = cmp.Or(o.BlockSize, DefaultBlockSize)
	o.IdleTimeout = cmp.Or(o.IdleTimeout, DefaultIdleTimeout)
	if o.Logf == nil {
		o.Logf = func(string, ...any) {}
	}
	r := &Recorder{options: o}
	transport := r.transport()
	var a *asker
	if o.AskTokens {
		a = newAsker(o.Upstream, transport, o.Logf)
	}
	r.analyst = newAnalyst(r, newBlocks(&o, a))
	r.proxy = &httputil.ReverseProxy{
		Rewrite:        r.rewrite,
		Transport:      &resender{transport},
		FlushInterval:  -1, // after every read
		BufferPool:     new(buffers),
		ModifyResponse: r.modify,
		ErrorHandler:   r.fail,
		ErrorLog:       log.New(logWriter(o.Logf), "", 0),
	}
	return r, nil
}

// transport speaks HTTP/1.1, as servers of models do: in HTTP/2 one slow reader would hold up all streams of a connection.
func (r *Recorder) transport() *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSClientConfig:        r.options.TLS,
		TLSHandshakeTimeout:    10 * time.Second,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    4096,
		IdleConnTimeout:        4 * time.Second, // uvicorn closes after 5
		MaxResponseHeaderBytes: 1 << 20,
	}
}

// rewrite turns a request to the proxy into one to the upstream, and leaves the rest as the client sent it.
func (r *Recorder) rewrite(p *httputil.ProxyRequest) {
	p.SetURL(r.options.Upstream)
	p.Out.URL.RawQuery = p.In.URL.RawQuery
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values, ok := p.In.Header[name]; ok {
			p.Out.Header[name] = values
		}
	}
	if exchangeOf(p.In.Context()) != nil {
		p.Out.Header.Del("Accept-Encoding") // what is compressed cannot be read as it passes
		p.Out.Header.Del("Expect")          // the body is here already
	}
}

// ServeHTTP passes a request on and its answer back.
func (r *Recorder) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	dialect, ok := dialectOf(q)
	if !ok {
		r.proxy.ServeHTTP(w, q)
		return
	}
	r.serving.Add(1)
	defer r.serving.Done()
	e := r.begin(q, dialect)
	defer r.end(e) // however it ends: a client that has gone is a panic of the proxy
	ctx, cancel := context.WithCancelCause(context.WithValue(q.Context(), exchangeKey{}, e))
	defer cancel(nil)
	q = q.WithContext(ctx)
	if err := r.readBody(w, q, e); err != nil {
		r.fail(w, q, err)
		return
	}
	e.idle = time.AfterFunc(r.options.IdleTimeout, func() { cancel(errIdle) })
	defer e.idle.Stop()
	r.proxy.ServeHTTP(w, q)
}

// dialectOf tells whether a request is recorded. The upstream's paths may have something before them.
func dialectOf(q *http.Request) (wire.Dialect, bool) {
	if q.Method != http.MethodPost {
		return 0, false
	}
	switch path := q.URL.Path; {
	case strings.HasSuffix(path, "/v1/chat/completions"):
		return wire.Chat, true
	case strings.HasSuffix(path, "/v1/completions"):
		return wire.Completions, true
	case strings.HasSuffix(path, "/v1/messages"):
		return wire.Messages, true
	case strings.HasSuffix(path, "/v1/responses"):
		return wire.Responses, true
	}
	return 0, false
}

// Close waits until the records of all requests are emitted, within the context. No more may come: the server is shut down.
func (r *Recorder) Close(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		r.serving.Wait()
		r.analyst.close()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("recording: stopped before all requests were recorded: %w", ctx.Err())
	}
}

// buffers are those that answers are copied through. Events are small, and there is one for each open stream.
type buffers struct{ pool sync.Pool }

const bufferSize = 16 << 10

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[bufferSize]byte); ok {
		return p[:]
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put((*[bufferSize]byte)(p)) }

// logWriter makes lines of a logger calls of a function.
type logWriter func(format string, args ...any)

func (l logWriter) Write(p []byte) (int, error) {
	l("%s", strings.TrimSpace(string(p)))
	return len(p), nil
}
