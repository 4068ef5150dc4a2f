package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/sim/server"
)

// serve is the flags of `agentsim serve`.
type serve struct {
	config     string
	sets       []string
	short      []shortFlag
	listen     string
	remote     bool
	urlFile    string
	names      []string
	faults     []string
	timeScale  float64
	output     int
	keepAlive  time.Duration
	grace      time.Duration
	listFaults bool
}

// lagLimit is how late a server may be, in 1 of 100 events, before its latencies are no longer those of the deployment. Of
// fewer than lagEvents events that is not asked.
const (
	lagLimit  = 5 * time.Millisecond
	lagEvents = 1000
)

// behind tells whether a server was too late too often.
func behind(lag server.Lag) bool { return lag.Events >= lagEvents && lag.P99 > lagLimit }

func newServe(g *Global) *cobra.Command {
	s := &serve{}
	for _, f := range predictFlags() {
		switch f.name {
		case "model", "gpu", "tp", "workers", "router", "seed":
			f.list = false
			s.short = append(s.short, f)
		}
	}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve a simulated deployment as an OpenAI-compatible endpoint",
		Long: `Serve a simulated deployment on the wall clock: its engines, routers and program schedulers behind the HTTP interface of
vLLM, for clients that are to be tried without GPUs. Answers are words without meaning, at the times at which the
deployment would give them.

  agentsim serve --model qwen3-14b --workers 2 --router thunderagent --listen 127.0.0.1:8100

It answers POST /v1/completions (text or token ids), /v1/chat/completions, /v1/messages (Anthropic's, with /count_tokens),
/tokenize and /detokenize, GET /v1/models, /metrics, /version and /health. Requests for several answers (n, best_of) or for
an echo of the prompt are refused. The headers X-Dynamo-Session-ID, X-Dynamo-Parent-Session-ID and X-Dynamo-Session-Final, and those
that agents send by themselves, tell the program scheduler whose request it is.

--fault, or the header ` + server.HeaderFault + `, makes it answer as a troubled server would; --faults lists how.

Exit codes: 0 stopped by SIGINT or SIGTERM; 1 failed; 2 wrong usage or config; 3 it fell behind its own clock, so that its
latencies are not those of the deployment; 130 stopped by a second signal, before --grace was over.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context(), g) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&s.config, "config", "c", "", "deployment `FILE` (YAML)")
	for i := range s.short {
		f.StringVar(&s.short[i].value, s.short[i].name, "", s.short[i].usage)
	}
	f.StringArrayVar(&s.sets, "set", nil, "override a config key, `path=value`")
	f.StringVar(&s.listen, "listen", "127.0.0.1:8100", "`ADDRESS` to listen on; port 0 takes a free one")
	f.BoolVar(&s.remote, "allow-remote", false, "allow an address that other machines reach")
	f.StringVar(&s.urlFile, "url-file", "", "write the URL to `FILE` once requests are answered")
	f.StringArrayVar(&s.names, "model-name", nil, "`NAME` under which the model is served; repeat for more (default: the model's)")
	f.Float64Var(&s.timeScale, "time-scale", 1, "run so many times as fast as the wall clock")
	f.IntVar(&s.output, "output-tokens", 200, "mean length of answers to requests that do not set ignore_eos")
	f.DurationVar(&s.keepAlive, "keep-alive", 5*time.Second, "close connections that were idle for so long")
	f.DurationVar(&s.grace, "grace", 30*time.Second, "time to finish requests when it is stopped")
	f.StringArrayVar(&s.faults, "fault", nil, "answer with a fault, `KIND[:VALUE][,every=N]`; repeat for more")
	f.BoolVar(&s.listFaults, "faults", false, "list the kinds of faults and exit")
	return cmd
}

func (s *serve) run(ctx context.Context, g *Global) error {
	if s.listFaults {
		_, err := io.WriteString(g.Stdout, server.FaultHelp())
		return err
	}
	plan, err := s.plan()
	if err != nil {
		return err
	}
	faults, err := server.ParseFaults(strings.Join(s.faults, ";"))
	if err != nil {
		return usagef("--fault: %w", err)
	}
	sv, err := server.New(plan, server.Options{Names: s.names, TimeScale: s.timeScale, OutputTokens: s.output, Faults: faults})
	if err != nil {
		return usagef("%w", err)
	}
	listener, err := bind(s.listen, s.remote)
	if err != nil {
		return err
	}
	defer listener.Close()
	return s.serve(ctx, g, sv, plan, listener)
}

// plan is the deployment, with all flags applied.
func (s *serve) plan() (*sim.Plan, error) {
	d := sim.Default()
	if s.config != "" {
		var err error
		if d, _, err = loadConfig(s.config); err != nil {
			return nil, err
		}
	}
	sets := s.sets
	for i := range s.short {
		if f := &s.short[i]; f.value != "" {
			sets = append(sets, f.path+"="+f.value)
		}
	}
	for _, assignment := range sets {
		if err := set(&d, assignment); err != nil {
			return nil, err
		}
	}
	if d.Load.Mode == "" {
		d.Load.Mode = "closed" // the clients decide
	}
	plan, err := d.Resolve()
	if err != nil && s.config != "" {
		return nil, usagef("%s: %w", s.config, err)
	} else if err != nil {
		return nil, usagef("%w", err)
	}
	return plan, nil
}

// bind listens for clients, who are trusted: other machines are kept out unless they are asked for.
func bind(address string, remote bool) (net.Listener, error) {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, usagef("--listen %s: want HOST:PORT", address)
	}
	if !isLoopback(host) && !remote {
		return nil, usagef("--listen %s: other machines may reach that address; say --allow-remote if they should", address)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", address, err)
	}
	return listener, nil
}

// isLoopback tells that no other machine reaches a host.
func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// newServer bounds what clients may send before a handler sees it.
func newServer(handler http.Handler, keepAlive time.Duration, logger *log.Logger) *http.Server {
	return &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: keepAlive, MaxHeaderBytes: 64 << 10, ErrorLog: logger}
}

// serve answers until the context ends.
func (s *serve) serve(ctx context.Context, g *Global, sv *server.Server, plan *sim.Plan, listener net.Listener) error {
	httpServer := newServer(sv, s.keepAlive, log.New(g.Stderr, "agentsim: ", 0))
	httpServer.Protocols = new(http.Protocols)
	httpServer.Protocols.SetHTTP1(true)
	httpServer.Protocols.SetUnencryptedHTTP2(true) // for clients that know beforehand
	clock, stopClock := context.WithCancel(context.WithoutCancel(ctx))
	defer stopClock()
	failed := make(chan error, 2)
	stopped := make(chan error, 1)
	go func() {
		err := sv.Run(clock)
		if err != nil {
			failed <- err
		}
		stopped <- err
	}()
	go func() {
		if err := httpServer.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			failed <- fmt.Errorf("serving on %s: %w", listener.Addr(), err)
		}
	}()
	url := "http://" + listener.Addr().String()
	fmt.Fprintf(g.Stderr, "serving %s on %s: %d x %s, router %s, at %g times the wall clock\n",
		plan.Hardware.Model.Name, url, plan.Ranks, plan.Hardware.GPU.Name, plan.Router.Policy, s.timeScale)
	if s.urlFile != "" {
		if err := writeFile(s.urlFile, []byte(url+"\n")); err != nil { // whole or not at all: somebody waits for it
			return err
		}
	}
	err := s.watch(ctx, g, sv, failed)
	finish, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.grace)
	defer cancel()
	if err := httpServer.Shutdown(finish); err != nil {
		_ = httpServer.Close()
	}
	stopClock()
	<-stopped
	if err != nil {
		return err
	}
	return tellLag(g, sv.Lag())
}

// watch waits for the end, and warns once when the server falls behind.
func (s *serve) watch(ctx context.Context, g *Global, sv *server.Server, failed <-chan error) error {
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	warned := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-ticker.C:
			if lag := sv.Lag(); behind(lag) && !warned {
				warned = true
				fmt.Fprintf(g.Stderr, "warning: the server falls behind its own clock, by %v at the 99th percentile: latencies are too long\n", lag.P99.Round(100*time.Microsecond))
			}
		}
	}
}

// tellLag says how well the server kept its own clock.
func tellLag(g *Global, lag server.Lag) error {
	fmt.Fprintf(g.Stderr, "stopped; the clock was late by %v at most and %v at the 99th percentile of %d events\n",
		lag.Max.Round(10*time.Microsecond), lag.P99.Round(10*time.Microsecond), lag.Events)
	if behind(lag) {
		return &exitError{exitUntrusted, fmt.Errorf("the server fell behind its own clock by more than %v: a lower --time-scale or fewer streams may help", lagLimit)}
	}
	return nil
}
