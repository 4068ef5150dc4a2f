// Package client sends the requests of a replay to OpenAI-compatible servers and notes when what came back.
package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentsim/agentsim/trace/report"
	"github.com/agentsim/agentsim/trace/wire"
)

// None marks a time that does not exist.
const None = report.None

// The endpoints that prompts go to.
const (
	Completions = "completions"
	Chat        = "chat"
)

// How requests share connections.
const (
	Pooled     = "pooled"      // any that is idle
	Fresh      = "fresh"       // none: each request opens its own
	PerSession = "per-session" // those of its session only, as of clients that live as long as one
)

// Options adjust a Client.
type Options struct {
	// URLs are the servers, with or without a path such as /v1.
	URLs []string
	// Endpoint is Completions or Chat; "" is Completions.
	Endpoint string
	// Key, where not empty, is sent as a bearer token. It never stands in an Answer.
	Key string
	// SessionHeader replaces the headers of Dynamo by one with the session's id; "none" sends none at all.
	SessionHeader string
	// IdleTimeout is how long a stream may be silent, its first byte apart: that may take as long as it likes unless
	// FirstTimeout, where positive, bounds it. 0 is 5 minutes.
	IdleTimeout, FirstTimeout time.Duration
	// Connections is Pooled, Fresh or PerSession; "" is Pooled.
	Connections string
	// HTTP2 speaks HTTP/2, over TLS or, for http URLs, without asking first (h2c). One slow reader of a connection then stalls
	// all streams on it.
	HTTP2 bool
	// OpenEnded sends neither min_tokens nor ignore_eos, for hosted servers.
	OpenEnded bool
	// TokenIDs asks for the ids of generated tokens, Text keeps their text.
	TokenIDs, Text bool
	// Retries is how often a request is sent again that was refused for the time being (status 429 or 503), after what the
	// server's Retry-After says. All of it counts as one request.
	Retries int
}

const (
	connectTimeout = 10 * time.Second
	askTimeout     = 30 * time.Second
	defaultIdle    = 5 * time.Minute
	// keepAlive is below the 5 s after which uvicorn closes a connection that is not used: a request sent at that moment
	// would find the connection reset.
	keepAlive = 4 * time.Second
)

// Client sends requests. It is safe for concurrent use.
type Client struct {
	options   Options
	bases     []string
	transport *http.Transport
	start     time.Time
	// sessions are the transports of sessions, where these share no connections.
	mu       sync.Mutex
	sessions map[string]*http.Transport
	// dropped are the fields that a server refused, as bits.
	dropped atomic.Uint32
}

// New returns a client. Errors name the URL or option that is wrong.
func New(o Options) (*Client, error) {
	o.Endpoint, o.Connections = cmp.Or(o.Endpoint, Completions), cmp.Or(o.Connections, Pooled)
	c := &Client{options: o, start: time.Now(), sessions: map[string]*http.Transport{}}
	if c.options.IdleTimeout == 0 {
		c.options.IdleTimeout = defaultIdle
	}
	if o.Endpoint != Completions && o.Endpoint != Chat {
		return nil, fmt.Errorf("endpoint %q: want %s or %s", o.Endpoint, Completions, Chat)
	}
	if o.Connections != Pooled && o.Connections != Fresh && o.Connections != PerSession {
		return nil, fmt.Errorf("connections %q: want %s, %s or %s", o.Connections, Pooled, Fresh, PerSession)
	}
	if strings.ContainsFunc(o.SessionHeader, notInHeaders) {
		return nil, fmt.Errorf("session header %q is no name of a header", o.SessionHeader)
	}
	if len(o.URLs) == 0 {
		return nil, errors.New("no server: name its URL, such as http://127.0.0.1:8000")
	}
	for _, text := range o.URLs {
		base, err := parseURL(text)
		if err != nil {
			return nil, err
		}
		c.bases = append(c.bases, base)
	}
	c.transport = newTransport(&o)
	return c, nil
}

func newTransport(o *Options) *http.Transport {
	dialer := &net.Dialer{Timeout: connectTimeout, KeepAlive: 30 * time.Second}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!o.HTTP2)
	protocols.SetHTTP2(o.HTTP2)
	protocols.SetUnencryptedHTTP2(o.HTTP2)
	return &http.Transport{
		DialContext:         dialer.DialContext,
		MaxIdleConns:        0,
		MaxIdleConnsPerHost: 1 << 16,
		IdleConnTimeout:     keepAlive,
		DisableCompression:  true,
		DisableKeepAlives:   o.Connections == Fresh,
		WriteBufferSize:     64 << 10,
		ReadBufferSize:      16 << 10,
		Protocols:           protocols,
	}
}

// transportOf returns the transport of a request.
func (c *Client) transportOf(r *Request) *http.Transport {
	if c.options.Connections != PerSession || r.Session.ID == "" {
		return c.transport
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	t := c.sessions[r.Session.ID]
	if t == nil {
		t = newTransport(&c.options)
		c.sessions[r.Session.ID] = t
	}
	return t
}

// sessionEnds closes the connections of a session after its last request.
func (c *Client) sessionEnds(r *Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t := c.sessions[r.Session.ID]; t != nil && r.Session.Final {
		t.CloseIdleConnections()
		delete(c.sessions, r.Session.ID)
	}
}

// notInHeaders tells that no name of a header has such a character (RFC 9110, 5.6.2).
func notInHeaders(r rune) bool {
	letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
	return !letter && !strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// parseURL returns the base of a server's paths, without a trailing /v1.
func parseURL(text string) (string, error) {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		if strings.Contains(text, "@") {
			text = "(with a user)" // and perhaps a password
		}
		return "", fmt.Errorf("server %s: want a URL of the form http://HOST:PORT or https://HOST[:PORT]", text)
	case u.User != nil:
		return "", fmt.Errorf("server %s: credentials do not belong into a URL", u.Host)
	case u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("server %s: a URL with a query or a fragment is no server", u.Host)
	}
	return strings.TrimSuffix(strings.TrimSuffix(u.String(), "/"), "/v1"), nil
}

// Chat tells that prompts are messages.
func (c *Client) Chat() bool { return c.options.Endpoint == Chat }

// Servers is the number of URLs.
func (c *Client) Servers() int { return len(c.bases) }

// Base is the URL of a server, without a trailing slash.
func (c *Client) Base(server int) string { return c.bases[server] }

// Start lets the times of answers count from now on. No request may be under way.
func (c *Client) Start() { c.start = time.Now() }

// Now is the time since Start, or since the client was made.
func (c *Client) Now() time.Duration { return time.Since(c.start) }

// Close closes connections that are not in use.
func (c *Client) Close() {
	c.transport.CloseIdleConnections()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, t := range c.sessions {
		t.CloseIdleConnections()
	}
}

// Do sends a request and reads its answer to the end. It always returns an answer; ctx cuts it off.
func (c *Client) Do(ctx context.Context, r *Request) *Answer {
	defer c.sessionEnds(r)
	sent := c.Now()
	for again := 0; ; r.Retries++ {
		a := newAnswer()
		a.Sent = sent
		used := c.dropped.Load()
		c.once(ctx, r, used, a)
		a.End = c.Now()
		switch {
		case a.Err != nil && ctx.Err() == nil && c.drop(a.Err, used):
			sent = c.Now() // a field was refused: nothing was served yet
		case again < c.options.Retries && a.refusedForNow() && pause(ctx, a.retryAfter()):
			again++
		default:
			a.redact(c.options.Key)
			return a
		}
	}
}

// pause waits, and tells whether the context still holds.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// once makes one attempt.
func (c *Client) once(ctx context.Context, r *Request, dropped uint32, a *Answer) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	limit := newLimit(cancel, c.options.FirstTimeout, c.options.IdleTimeout)
	defer limit.stop()
	if r.Cancel && r.MaxTokens == 0 {
		defer time.AfterFunc(r.CancelAfter, func() { cancel(errCancelled) }).Stop()
	}
	conn := &connection{now: c.Now, connected: None, wrote: None, firstByte: None}
	defer conn.copy(a)
	req, err := c.request(conn.trace(ctx), r, dropped)
	if err != nil {
		a.fail(FailConnect, "making the request: %v", err)
		return
	}
	resp, err := c.transportOf(r).RoundTrip(req)
	if err != nil {
		a.failRead(ctx, err, FailConnect)
		return
	}
	defer resp.Body.Close()
	limit.heard()
	a.Status = resp.StatusCode
	body, err := decoded(resp)
	if err != nil {
		a.fail(FailParse, "%v", err)
		return
	}
	if resp.StatusCode != http.StatusOK {
		c.refused(a, resp, body)
		return
	}
	read := &streamReader{answer: a, now: c.Now, limit: limit, keepText: c.options.Text}
	if r.Cancel {
		read.cancelAt = r.MaxTokens
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json") {
		read.whole(ctx, body)
	} else {
		read.stream(ctx, body)
	}
}

// refused reads the body of an error.
func (c *Client) refused(a *Answer, resp *http.Response, body io.Reader) {
	text, _ := io.ReadAll(io.LimitReader(body, maxErrorBody))
	e := wire.ParseError(resp.StatusCode, text)
	kind := FailStatus
	if resp.StatusCode == http.StatusBadRequest && tooLong(e) {
		kind = FailContext
	}
	a.Err = &Failure{Kind: kind, Text: e.Error(), Param: e.Param, fields: refusesFields(resp.StatusCode)}
	a.RetryAfter = resp.Header.Get("Retry-After")
}

const maxErrorBody = 64 << 10

// tooLong tells whether a server refuses a prompt because the context is too long.
func tooLong(e *wire.Error) bool {
	text := strings.ToLower(e.Code + " " + e.Message)
	for _, sign := range []string{"context_length_exceeded", "context length", "context window", "max_model_len", "maximum model length"} {
		if strings.Contains(text, sign) {
			return true
		}
	}
	return false
}

// connection is what the transport knows of a request. It writes from goroutines of its own, even after it returned.
type connection struct {
	mu                          sync.Mutex
	now                         func() time.Duration
	connected, wrote, firstByte time.Duration
	reused                      bool
	count                       int
}

func (n *connection) trace(ctx context.Context) context.Context {
	note := func(at *time.Duration) {
		n.mu.Lock()
		defer n.mu.Unlock()
		*at = n.now()
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if n.count++; n.count == 1 {
				n.connected, n.reused = n.now(), info.Reused
			}
		},
		WroteRequest:         func(httptrace.WroteRequestInfo) { note(&n.wrote) },
		GotFirstResponseByte: func() { note(&n.firstByte) },
	})
}

// copy puts what is known into the answer.
func (n *connection) copy(a *Answer) {
	n.mu.Lock()
	defer n.mu.Unlock()
	a.Connected, a.Wrote, a.FirstByte, a.Reused, a.Connections = n.connected, n.wrote, n.firstByte, n.reused, n.count
}
