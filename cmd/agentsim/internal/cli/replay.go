package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/replay"
	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/events"
	"github.com/agentsim/agentsim/trace/report"
)

// replayCommand is the flags of `agentsim replay`.
type replayCommand struct {
	source
	timing struct {
		plan.Options
		sessions string
	}
	client  client.Options
	prompts promptFlags

	model        string
	live         bool
	force        bool // outputs
	hints        bool
	cancel       bool
	precise      bool
	inFlight     int
	duration     time.Duration
	grace        time.Duration
	onError      string
	maxErrorRate float64
	warmup       int
	metrics      string
	interval     time.Duration
	keyFile      string
	slo          report.SLO
	window       report.Window
	steady       bool
	outputs      string

	outDir string
	events bool
	dryRun bool
	json   bool
	over   bool // write over results
	strict bool
}

func newReplay(g *Global) *cobra.Command {
	r := &replayCommand{}
	cmd := &cobra.Command{
		Use:   "replay TRACE... --url URL",
		Short: "Drive live servers with a trace, on its own schedule, and measure them",
		Long: `Drive OpenAI-compatible servers (vLLM, SGLang, Dynamo, TensorRT-LLM, "agentsim serve") with recorded agent work: the same
sessions and subagents, the same waiting for each other, the same sharing of prompts, the same lengths.

  agentsim replay day1.jsonl.gz --url http://127.0.0.1:8000 -o out
  agentsim replay traces/ --url http://h1:8000 --url http://h2:8000 --timing closed --speed 2 --max-gap 60s
  agentsim replay day1.jsonl.gz --dry-run

Timing: "recorded" sends a call at its recorded time, or when what it waits for has ended; "closed" sends it its recorded
gap after that; "strict" waits for nothing; "asap" leaves out all gaps; "concurrency" (--concurrency N) keeps N programs live.

Prompts are made so that servers find the recorded sharing: as token ids, which are exact, or as text of words that are
calibrated to be one token each. A chat is cut into messages where prompts of its session ended and answers began.

The API key comes from AGENTSIM_API_KEY or --api-key-file and is written nowhere.

Exit codes: 0 done; 1 the replay failed; 2 wrong usage or input, or no server; 3 done, but the result should not be trusted,
and why; 130 interrupted: nothing more is sent, requests under way have --grace, and the report covers what was done. A second
interrupt ends at once.`,
		RunE: func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), g, args) },
	}
	r.addFlags(cmd)
	return cmd
}

func (r *replayCommand) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.SortFlags = false
	f.StringArrayVar(&r.client.URLs, "url", nil, "server, such as http://127.0.0.1:8000; repeat for several: each session stays on one")
	f.StringVar(&r.model, "model", "", "model to ask for (default: the one that is served, else the recorded ones)")
	f.StringVar(&r.client.Endpoint, "endpoint", client.Completions, "completions or chat (chat needs --prompts text)")
	r.prompts.add(cmd)
	f.BoolVar(&r.live, "live-outputs", false, "splice what the server generates, ids or text, into the later prompts that contain it")
	f.BoolVar(&r.force, "force-outputs", false, "make the server generate the very tokens that later prompts contain (vLLM --enable-trace-replay)")
	f.BoolVar(&r.hints, "agent-hints", false, "send the hints of the trace as Dynamo's nvext.agent_hints")
	f.BoolVar(&r.cancel, "cancellations", true, "cancel the calls that the recorded client cancelled, after as many tokens")
	f.BoolVar(&r.client.OpenEnded, "open-ended", false, "send neither min_tokens nor ignore_eos: answers may be shorter")

	t := &r.timing
	f.StringVar(&t.Timing, "timing", "", strings.Join(plan.Timings(), ", ")+" (default recorded)")
	f.Float64Var(&t.Speed, "speed", 1, "divide arrivals and gaps by this")
	f.DurationVar(&t.MaxGap, "max-gap", 0, "longest gap between turns, and longest silence of the whole, after --speed")
	f.DurationVar(&t.From, "from", 0, "leave out calls recorded before this time of the trace")
	f.DurationVar(&t.To, "to", 0, "leave out calls recorded from this time of the trace on")
	f.StringVar(&t.sessions, "sessions", "", "how many programs (root sessions), or which share of them: 100, 0.1, 10%")
	f.IntVar(&t.Loop, "loop", 1, "replay the whole so many times")
	f.IntVar(&t.Concurrency, "concurrency", 0, "programs that live at a time; sets --timing")
	f.DurationVar(&t.Ramp, "ramp", 0, "time over which the first programs begin at concurrency, instead of all at once")
	f.IntVar(&r.inFlight, "max-in-flight", 0, "hold requests back while so many are under way (default: no limit)")
	f.DurationVar(&r.duration, "duration", 0, "send nothing more after this time")
	f.DurationVar(&r.grace, "grace", 30*time.Second, "time for requests under way when sending stops early")

	f.StringVar(&r.onError, "on-error", replay.Continue, "after a failed request: continue, end-session or abort")
	f.Float64Var(&r.maxErrorRate, "max-error-rate", 0.05, "stop when a greater share of requests failed; 0: never")
	f.IntVar(&r.client.Retries, "retries", 0, "send requests that get status 429 or 503 so often again, when Retry-After says")
	f.DurationVar(&r.client.IdleTimeout, "idle-timeout", 5*time.Minute, "give a stream up that is silent for so long")
	f.DurationVar(&r.client.FirstTimeout, "first-timeout", 0, "give a request up whose answer does not begin (default: no limit)")
	f.StringVar(&r.client.Connections, "conn", client.Pooled, "how requests share connections: pooled, fresh (one each) or per-session")
	f.BoolVar(&r.client.HTTP2, "http2", false, "speak HTTP/2, without TLS too (h2c)")
	f.BoolVar(&r.precise, "precise", false, "spin for the last millisecond before a request is due: less lag, one busy processor")
	f.StringVar(&r.client.SessionHeader, "session-header", "", "`NAME` of the header with the session's id, or none (default: Dynamo's three)")
	f.StringVar(&r.keyFile, "api-key-file", "", "`FILE` with the API key (default: the variable AGENTSIM_API_KEY)")
	f.IntVar(&r.warmup, "warmup", 2, "requests to each server before anything is measured")
	f.StringVar(&r.metrics, "metrics", "/metrics", "path of the servers' metrics; empty for none")
	f.DurationVar(&r.interval, "metrics-interval", time.Second, "time between two readings of them")
	f.DurationVar(&r.window.From, "measure-from", 0, "leave out of the figures what is sent before this time of the replay")
	f.DurationVar(&r.window.To, "measure-to", 0, "leave out of the figures what is sent from this time on (default: its end)")
	f.BoolVar(&r.steady, "measure-steady", false, "measure from the end of the first program to the beginning of the last: neither ramp nor drain")
	f.DurationVar(&r.slo.TTFT, "slo-ttft", 0, "count as goodput what has its first token within this")
	f.DurationVar(&r.slo.ITL, "slo-itl", 0, "count as goodput what has a mean gap between tokens within this")
	f.DurationVar(&r.slo.Program, "slo-program", 0, "count as goodput programs that end within this")
	r.addTraceFlags(cmd)
	f.StringVar(&r.outputs, "outputs", "inferred", "generated tokens that later prompts share: inferred, none or all")

	f.BoolVar(&r.dryRun, "dry-run", false, "say what would be sent, and send nothing of it")
	f.StringVarP(&r.outDir, "output", "o", "", "write report.json, requests.jsonl (as they end) and the run as a trace into `DIR`")
	f.BoolVar(&r.events, "events", false, "with -o: also write what the servers' metrics told over time (replay.events.jsonl.gz)")
	f.BoolVar(&r.json, "json", false, "print report.json instead of the table")
	f.BoolVar(&r.over, "force", false, "overwrite results in the output folder")
	f.BoolVar(&r.strict, "strict", false, "exit 1 instead of 3 when the result should not be trusted")
}

// run is the command.
func (r *replayCommand) run(ctx context.Context, g *Global, args []string) error {
	if len(args) == 0 {
		return usagef("no trace given; name files, a folder or a segment prefix")
	}
	if err := r.check(); err != nil {
		return err
	}
	out := output{dir: r.outDir, force: r.over}
	if err := out.prepare(); err != nil {
		return err
	}
	capture, err := r.open(ctx, g, args)
	if err != nil {
		return err
	}
	p, err := r.plan(g, capture)
	if err != nil {
		return err
	}
	if r.dryRun && len(r.client.URLs) == 0 {
		return printPlan(g, p, 0)
	}
	if r.client.Key, err = r.key(g); err != nil {
		return err
	}
	r.client.TokenIDs, r.client.Text = r.live && r.prompts.ids(), r.live && !r.prompts.ids()
	c, err := client.New(r.client)
	if err != nil {
		return usagef("%w", err)
	}
	defer c.Close()
	maxLen, err := r.chooseModel(ctx, g, c, p)
	if err != nil {
		return err
	}
	if r.dryRun {
		return printPlan(g, p, maxLen)
	}
	warnLong(g, p, maxLen)
	return r.drive(ctx, g, out, capture, args, p, c)
}

func (r *replayCommand) check() error {
	switch {
	case len(r.client.URLs) == 0 && !r.dryRun:
		return usagef("--url is missing: the server to drive, such as http://127.0.0.1:8000")
	case r.force && !r.prompts.ids():
		return usagef("--force-outputs needs --prompts token-ids")
	case r.events && r.outDir == "":
		return usagef("--events needs an output folder: -o DIR")
	case r.events && r.metrics == "":
		return usagef("--events writes what the servers' metrics tell, and --metrics \"\" reads none")
	case r.live && r.force:
		return usagef("--live-outputs and --force-outputs exclude each other")
	case r.client.Endpoint == client.Chat && r.prompts.ids():
		return usagef("--endpoint chat takes text, not token ids: add --prompts text")
	case r.onError != replay.Continue && r.onError != replay.EndSession && r.onError != replay.Abort:
		return usagef("--on-error %s: want continue, end-session or abort", r.onError)
	case r.maxErrorRate < 0 || r.maxErrorRate > 1:
		return usagef("--max-error-rate %v: want a share between 0 and 1", r.maxErrorRate)
	case r.steady && r.window != (report.Window{}):
		return usagef("--measure-steady and --measure-from or --measure-to exclude each other")
	case r.window.From < 0 || r.window.To < 0 || r.window.To > 0 && r.window.To <= r.window.From:
		return usagef("--measure-from %v --measure-to %v: want a stretch of time", r.window.From, r.window.To)
	case r.dryRun && r.json:
		return usagef("--dry-run prints no report: leave out --json")
	}
	for _, f := range []struct {
		flag  string
		value any
		fits  bool
	}{
		{"--speed", r.timing.Speed, r.timing.Speed > 0},
		{"--loop", r.timing.Loop, r.timing.Loop > 0},
		{"--concurrency", r.timing.Concurrency, r.timing.Concurrency >= 0},
		{"--max-gap", r.timing.MaxGap, r.timing.MaxGap >= 0},
		{"--max-in-flight", r.inFlight, r.inFlight >= 0},
		{"--duration", r.duration, r.duration >= 0},
		{"--grace", r.grace, r.grace >= 0},
		{"--retries", r.client.Retries, r.client.Retries >= 0},
		{"--idle-timeout", r.client.IdleTimeout, r.client.IdleTimeout > 0},
		{"--first-timeout", r.client.FirstTimeout, r.client.FirstTimeout >= 0},
		{"--warmup", r.warmup, r.warmup >= 0},
		{"--metrics-interval", r.interval, r.interval > 0},
	} {
		if !f.fits {
			return usagef("%s %v is out of range", f.flag, f.value)
		}
	}
	return r.prompts.check()
}

// plan links and compiles the trace and plans its replay.
func (r *replayCommand) plan(g *Global, capture *trace.Capture) (*plan.Plan, error) {
	outputs, err := trace.ParseOutputs(r.outputs)
	if err != nil {
		return nil, usagef("--outputs: %w", err)
	}
	if err := capture.Link(); err != nil {
		return nil, usagef("%w", err)
	}
	w, err := capture.Compile(outputs)
	if err != nil {
		return nil, usagef("%w", err)
	}
	o := &r.timing.Options
	if o.Sessions, o.Share, err = parseSessions(r.timing.sessions); err != nil {
		return nil, err
	}
	if o.Timing == "" && o.Concurrency > 0 {
		o.Timing = plan.Concurrency
	}
	if o.Timing == "" && !capture.SharedClock && len(w.Programs) > 1 {
		return nil, usagef("the programs of this trace have no common clock: say how many run at a time (--concurrency N), or --timing asap")
	}
	p, err := plan.New(w, *o)
	if err != nil {
		return nil, usagef("%w", err)
	}
	return p, nil
}

// key reads the API key; "" when there is none.
func (r *replayCommand) key(g *Global) (string, error) {
	key := ""
	if g.Getenv != nil {
		key = g.Getenv("AGENTSIM_API_KEY")
	}
	if r.keyFile != "" {
		text, err := os.ReadFile(r.keyFile)
		if err != nil {
			return "", usagef("--api-key-file: %w", err)
		}
		key = string(text)
	}
	key = strings.TrimSpace(key)
	for i := range len(key) {
		if key[i] < ' ' || key[i] > '~' {
			return "", usagef("the API key holds a character that no HTTP header may have")
		}
	}
	return key, nil
}

// chooseModel asks the servers what they serve and decides what to ask for. It returns the longest context that they take, 0 when
// they do not tell.
func (r *replayCommand) chooseModel(ctx context.Context, g *Global, c *client.Client, p *plan.Plan) (int, error) {
	maxLen := 0
	for server := range c.Servers() {
		list, err := c.Models(ctx, server)
		switch {
		case errors.Is(err, client.ErrNotFound):
			continue
		case err != nil:
			return 0, usagef("no server: %w", err)
		}
		var names []string
		for _, m := range list {
			names = append(names, m.ID)
		}
		if r.model == "" && len(list) == 1 {
			r.model = list[0].ID
		}
		if r.model == "" && len(list) > 0 {
			if missing := p.Unserved(names); missing != "" {
				return 0, usagef("%s does not serve the recorded model %q but %s; name one with --model", c.Base(server), missing, strings.Join(names, ", "))
			}
		}
		if r.model != "" && len(list) > 0 && !slices.Contains(names, r.model) {
			fmt.Fprintln(g.Stderr, wrap(fmt.Sprintf("note: %s lists no model %s but %s", c.Base(server), r.model, strings.Join(names, ", ")), g.Width))
		}
		for _, m := range list {
			if (r.model == "" || m.ID == r.model) && m.MaxLen > 0 && (maxLen == 0 || m.MaxLen < maxLen) {
				maxLen = m.MaxLen
			}
		}
	}
	return maxLen, nil
}

// drive replays the plan and prints and writes the results.
func (r *replayCommand) drive(ctx context.Context, g *Global, out output, capture *trace.Capture, files []string, p *plan.Plan, c *client.Client) error {
	maker, overhead, err := r.prompts.maker(ctx, g, p, c, r.modelOf(p))
	if err == nil {
		_, err = replay.WarmUp(ctx, c, maker, r.modelOf(p), r.warmup)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("before the replay: %w", ctx.Err())
	case err != nil:
		return fmt.Errorf("before the replay: %w", err)
	}
	rows, err := newRequestFile(out)
	if err != nil {
		return err
	}
	defer rows.close()
	var watch *replay.Watch
	if r.metrics != "" {
		watch = replay.NewWatch(ctx, c, r.metrics, r.interval)
	}
	progress := new(replay.Progress)
	stop := showReplay(g, progress, p)
	begun := time.Now()
	result, err := replay.Run(ctx, replay.Options{Plan: p, Client: c, Prompts: maker, Model: r.model, LiveOutputs: r.live, ForceOutputs: r.force, Hints: r.hints, Cancel: r.cancel,
		Precise: r.precise, MaxInFlight: r.inFlight, Duration: r.duration, Grace: r.grace, OnError: r.onError, MaxErrorRate: r.maxErrorRate,
		Progress: progress, Window: r.measured(), Steady: r.steady, Each: func(o *replay.Outcome) error { return rows.write(replay.NewLine(o, p.Workload, c)) }})
	stop()
	about := replay.About{Name: "replay", Config: r.config(p, c), Salt: r.prompts.salt, Overhead: overhead, SLO: r.slo}
	if watch != nil {
		about.Servers = watch.Stop()
	}
	run := result.Report(about)
	if err := errors.Join(err, rows.close()); err != nil {
		return err
	}
	if r.events {
		if err := writeEvents(filepath.Join(out.dir, "replay"+events.Suffix), watch, begun); err != nil {
			return err
		}
	}
	if err := r.write(out, result, begun.UnixMilli(), r.report(capture, files, p, run)); err != nil {
		return err
	}
	if r.json {
		err = report.Write(g.Stdout, r.report(capture, files, p, run))
	} else {
		err = printReplay(g, p, run)
	}
	if err != nil {
		return err
	}
	return r.verdict(result, run)
}

// measured is the window that is measured.
func (r *replayCommand) measured() report.Window {
	w := r.window
	if w.From > 0 && w.To == 0 {
		w.To = math.MaxInt64
	}
	return w
}

// modelOf is the model that warm-ups ask for.
func (r *replayCommand) modelOf(p *plan.Plan) string {
	if r.model != "" {
		return r.model
	}
	return p.Workload.Calls[0].Turn.Model
}

// verdict is the exit code.
func (r *replayCommand) verdict(result *replay.Result, run *report.Run) error {
	switch {
	case result.Interrupted:
		return &exitError{exitInterrupted, fmt.Errorf("interrupted after %d of %d requests", len(result.Rows), result.Plan.Calls)}
	case len(run.Replay.Doubts) > 0:
		return untrusted("result", run.Replay.Doubts, r.strict)
	}
	return nil
}
