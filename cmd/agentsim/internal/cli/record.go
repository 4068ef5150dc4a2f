package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/hash"
	"github.com/agentsim/agentsim/trace/hash/tokenizer"
	"github.com/agentsim/agentsim/trace/recorder"
	"github.com/agentsim/agentsim/trace/recorder/toolevent"
)

// record is the flags of `agentsim record`.
type record struct {
	upstream, upstreamCA string
	listen, urlFile      string
	remote               bool
	tlsCert, tlsKey      string
	output               string
	sessionHeaders       []string
	hash, keyFile        string
	tokens               string
	blockSize            int
	sessions             int
	toolEvents           string
	flush                time.Duration
	idle, keepAlive      time.Duration
	grace                time.Duration
}

func newRecord(g *Global) *cobra.Command {
	r := &record{}
	cmd := &cobra.Command{
		Use:   "record --upstream URL -o PREFIX",
		Short: "Record what real agents do, as a proxy in front of any server",
		Long: `Stand between agents and any server that speaks OpenAI's or Anthropic's HTTP interface, and write down what passes: a
trace that this program and NVIDIA Dynamo's tools read, with sessions, times, tokens and KV block hashes, and without
any text. Point the base URL of the agents at it.

  agentsim record --upstream http://127.0.0.1:8000 --listen 127.0.0.1:9000 -o traces/run

POST /v1/chat/completions, /v1/completions, /v1/responses and /v1/messages are recorded, streamed or not; all else
passes. Answers reach the client as they come and unchanged. Where a client does not ask a stream for usage, the proxy
does, and keeps that event from the client. Credentials pass, and are never written or logged.

Sessions are those of the headers that Dynamo, Claude Code, Codex, OpenCode and DeepSeek's harness send, or of
--session-header; a request without any goes on from the one whose conversation it begins with, and is marked as
inferred. Harnesses may post which tools they ran to ` + toolevent.Path + `, or send it over ZeroMQ (--tool-events).

Block hashes are keyed with a secret of this run, so that nobody can guess a prompt from them; --key-file keeps the
secret for further runs. With --hash compatible they are those of Dynamo.

The settings of Dynamo's environment, DYN_REQUEST_TRACE_*, hold where no flag says otherwise.

Exit codes: 0 stopped by SIGINT or SIGTERM; 1 failed; 2 wrong usage; 3 rows were lost.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return r.run(cmd.Context(), g) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&r.upstream, "upstream", "", "`URL` of the server that answers")
	f.StringVarP(&r.output, "output", "o", "", "write segments `PREFIX`.000000.jsonl.gz and so on; later runs add to them")
	f.StringVar(&r.listen, "listen", "127.0.0.1:9000", "`ADDRESS` to listen on; port 0 takes a free one")
	f.BoolVar(&r.remote, "allow-remote", false, "allow an address that other machines reach")
	f.StringVar(&r.urlFile, "url-file", "", "write the URL to `FILE` once requests are answered")
	f.StringVar(&r.tlsCert, "tls-cert", "", "serve HTTPS with the certificate in `FILE` (PEM)")
	f.StringVar(&r.tlsKey, "tls-key", "", "and its key in `FILE`")
	f.StringVar(&r.upstreamCA, "upstream-ca", "", "trust the certificates in `FILE` (PEM) for the upstream, not those of the system")
	f.StringArrayVar(&r.sessionHeaders, "session-header", nil, "header `NAME` that holds a session's id; repeat for more")
	f.StringVar(&r.hash, "hash", "keyed", "block hashes: keyed, or compatible with Dynamo's")
	f.StringVar(&r.keyFile, "key-file", "", secretUsage)
	f.StringVar(&r.tokens, "tokens", "auto", "tokens of prompts: a tokenizer.json (`FILE`), estimate, or auto: the upstream's POST /tokenize, else the estimate")
	f.IntVar(&r.blockSize, "block-size", recorder.DefaultBlockSize, "tokens in a block that has a hash")
	f.StringVar(&r.toolEvents, "tool-events", "", "take tool events over ZeroMQ at `ENDPOINT`, such as tcp://127.0.0.1:20390")
	f.IntVar(&r.sessions, "max-sessions", recorder.DefaultMaxSessions, "sessions to remember; those idle for longest are forgotten first")
	f.DurationVar(&r.flush, "flush", 0, "longest time that a row waits before it is written (default 1s)")
	f.DurationVar(&r.idle, "idle-timeout", recorder.DefaultIdleTimeout, "give a request up when the upstream sends nothing for so long")
	f.DurationVar(&r.keepAlive, "keep-alive", 2*time.Minute, "close connections of clients that were idle for so long")
	f.DurationVar(&r.grace, "grace", 30*time.Second, "time to finish requests when it is stopped")
	return cmd
}

// recording is what runs of `agentsim record` while it records.
type recording struct {
	sink     *recorder.Sink
	proxy    *recorder.Recorder
	tools    *toolevent.Socket // nil where nothing listens
	requests atomic.Int64
	events   atomic.Int64 // of tools
}

func (r *record) run(ctx context.Context, g *Global) error {
	settings, err := recorder.ReadSettings(g.Getenv)
	if err != nil {
		return usagef("environment: %w", err)
	}
	logger := log.New(g.Stderr, "agentsim: ", 0)
	options, err := r.options(logger)
	if err != nil {
		return err
	}
	serverTLS, err := r.serverTLS()
	if err != nil {
		return err
	}
	if settings.Sink.Prefix = cmp.Or(r.output, settings.Sink.Prefix); settings.Sink.Prefix == "" {
		return usagef("-o says where the trace goes")
	}
	if folder, err := os.Stat(filepath.Dir(settings.Sink.Prefix)); err != nil || !folder.IsDir() {
		return usagef("-o %s: there is no folder %s", settings.Sink.Prefix, filepath.Dir(settings.Sink.Prefix))
	}
	settings.Sink.FlushInterval = cmp.Or(r.flush, settings.Sink.FlushInterval)
	settings.Sink.Logf = logger.Printf
	settings.ToolEndpoint = cmp.Or(r.toolEvents, settings.ToolEndpoint)

	listener, err := bind(r.listen, r.remote)
	if err != nil {
		return err
	}
	defer listener.Close()
	var tools net.Listener
	if settings.ToolEndpoint != "" {
		if tools, err = toolevent.Listen(settings.ToolEndpoint); err != nil {
			return usagef("--tool-events: %w", err)
		}
		defer tools.Close()
	}
	now := new(recording)
	if now.sink, err = recorder.NewSink(settings.Sink); err != nil {
		return err
	}
	options.Emit = now.emit
	if now.proxy, err = recorder.New(options); err != nil {
		return usagef("--upstream: %w", err)
	}
	if tools != nil {
		now.tools = &toolevent.Socket{Topic: settings.ToolTopic, Emit: now.emit, Logf: logger.Printf}
	}
	mux := http.NewServeMux()
	mux.Handle(toolevent.Path, toolevent.Handler(now.emit))
	mux.Handle("/", now.proxy)
	server := newServer(mux, r.keepAlive, logger)
	server.TLSConfig = serverTLS
	err = r.serve(ctx, g, now, server, listener, tools)
	if err != nil {
		return err
	}
	fmt.Fprintf(g.Stderr, "stopped; recorded %d requests and %d tool events in %s.*.jsonl.gz\n", now.requests.Load(), now.events.Load(), settings.Sink.Prefix)
	if lost := now.sink.Lost(); lost > 0 {
		return &exitError{exitUntrusted, fmt.Errorf("%d rows were lost, the trace says when: the disk was too slow or full", lost)}
	}
	return nil
}

// emit counts a row and hands it to the sink.
func (now *recording) emit(r *trace.Record) {
	if r.EventType == trace.EventRequestEnd {
		now.requests.Add(1)
	} else {
		now.events.Add(1)
	}
	now.sink.Offer(r)
}

// serve records until the context ends, and then finishes what was begun: requests, their records, and the file.
func (r *record) serve(ctx context.Context, g *Global, now *recording, server *http.Server, listener, tools net.Listener) error {
	failed := make(chan error, 2)
	scheme, serve := "http", server.Serve
	if server.TLSConfig != nil {
		scheme, serve = "https", func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	go func() {
		if err := serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serving on %s: %w", listener.Addr(), err)
		}
	}()
	toolsEnd, stopTools := context.WithCancel(context.WithoutCancel(ctx))
	defer stopTools()
	toolsEnded := make(chan struct{})
	go func() {
		defer close(toolsEnded)
		if now.tools != nil {
			if err := now.tools.Serve(toolsEnd, tools); err != nil {
				failed <- err
			}
		}
	}()
	address := scheme + "://" + listener.Addr().String()
	fmt.Fprintf(g.Stderr, "recording what passes from %s to %s\n", address, r.upstream)
	if tools != nil {
		fmt.Fprintf(g.Stderr, "taking tool events at tcp://%s\n", tools.Addr())
	}
	err := error(nil)
	if r.urlFile != "" {
		err = writeFile(r.urlFile, []byte(address+"\n")) // whole or not at all: somebody waits for it
	}
	if err == nil {
		select {
		case <-ctx.Done():
		case err = <-failed:
		}
	}
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.grace)
	defer cancel()
	if server.Shutdown(finish) != nil {
		_ = server.Close() // the requests that are left end as if their clients had gone
	}
	stopTools()
	<-toolsEnded
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastRows)
	defer cancel()
	return errors.Join(err, now.proxy.Close(last), now.sink.Close(last))
}

// lastRows is how long the last rows may take to reach the disk, as in Dynamo.
const lastRows = 10 * time.Second

// options are those of the proxy, but for where its records go.
func (r *record) options(logger *log.Logger) (recorder.Options, error) {
	o := recorder.Options{SessionHeaders: r.sessionHeaders, BlockSize: r.blockSize, MaxSessions: r.sessions, IdleTimeout: r.idle, Logf: logger.Printf}
	if r.upstream == "" {
		return o, usagef("--upstream says which server answers")
	}
	var err error
	if o.Upstream, err = url.Parse(r.upstream); err != nil {
		return o, usagef("--upstream: %w", err)
	}
	if r.blockSize < 1 || r.blockSize > 1<<16 || r.sessions < 1 || r.idle <= 0 {
		return o, usagef("--block-size must be from 1 to %d, --max-sessions and --idle-timeout above 0", 1<<16)
	}
	var run [4]byte
	_, _ = rand.Read(run[:]) // never fails
	o.Run = hex.EncodeToString(run[:])
	if r.upstreamCA != "" {
		pem, err := os.ReadFile(r.upstreamCA)
		if err != nil {
			return o, usagef("--upstream-ca: %w", err)
		}
		o.TLS = &tls.Config{RootCAs: x509.NewCertPool()}
		if !o.TLS.RootCAs.AppendCertsFromPEM(pem) {
			return o, usagef("--upstream-ca %s: no certificate in it", r.upstreamCA)
		}
	}
	switch r.tokens {
	case "estimate":
	case "auto":
		o.AskTokens = true
	default:
		if o.Tokenizer, err = tokenizer.Load(r.tokens); err != nil {
			return o, usagef("--tokens: %w", err)
		}
	}
	switch {
	case r.hash == "keyed":
		o.Key, err = r.key()
	case r.hash != "compatible":
		err = usagef("--hash %s: want keyed or compatible", r.hash)
	case r.keyFile != "":
		err = usagef("--key-file has no use with --hash compatible")
	}
	return o, err
}

// key is that of the block hashes.
func (r *record) key() (*hash.Key, error) {
	secret, err := readSecret(r.keyFile)
	if err != nil {
		return nil, err
	}
	return hash.NewKey(secret[:])
}

// serverTLS is how clients are served; nil for plain HTTP.
func (r *record) serverTLS() (*tls.Config, error) {
	if r.tlsCert == "" && r.tlsKey == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(r.tlsCert, r.tlsKey)
	if err != nil {
		return nil, usagef("--tls-cert and --tls-key: %w", err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}}, nil
}
