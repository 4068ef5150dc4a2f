package cli

import (
	"fmt"
	"time"

	"github.com/schollz/progressbar/v3"

	"github.com/agentsim/agentsim/replay"
	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// printPlan says what a replay would send. maxLen is the longest context that the server takes, 0 when not known.
func printPlan(g *Global, p *plan.Plan, maxLen int) error {
	s := p.Summary()
	o := &p.Options
	say := func(name, format string, args ...any) {
		fmt.Fprintf(g.Stdout, "%-16s %s\n", name, fmt.Sprintf(format, args...))
	}
	say("timing", "%s at speed %g", o.Timing, o.Speed)
	say("work", "%d requests of %d sessions in %d programs", s.Calls, s.Sessions, s.Programs)
	if o.Loop > 1 {
		say("loop", "%d times: %d requests", o.Loop, p.Calls)
	}
	say("tokens", "%d in prompts, %d to generate", s.InputTokens, s.OutputTokens)
	if s.Duration != trace.NoTime && o.Timing != plan.ASAP && o.Timing != plan.Concurrency {
		say("planned time", "%v from the first request to the last", s.Duration.Round(time.Millisecond))
		say("in flight", "up to %d at a time, if the server is as fast as the recorded one", s.Peak)
		say("longest silence", "%v, from %v on", s.Silence.Round(time.Millisecond), s.SilenceAt.Round(time.Millisecond))
	}
	say("longest context", "%d tokens", s.LongestContext)
	say("prefix cache", "an endless one holds %.1f%% of prompt tokens, %.1f%% without generated ones (blocks of %d)",
		100*float64(s.Hits)/float64(s.InputTokens), 100*float64(s.PromptHits)/float64(s.InputTokens), s.BlockSize)
	warnSilence(g, p, s)
	warnLong(g, p, maxLen)
	warnFiles(g, s.Peak)
	return nil
}

// longSilence is as much of a schedule as makes a replay look as if it hung.
const longSilence = 5 * time.Minute

func warnSilence(g *Global, p *plan.Plan, s plan.Summary) {
	if t := p.Options.Timing; (t == plan.Recorded || t == plan.Strict) && s.Silence > longSilence {
		fmt.Fprintf(g.Stderr, "note: nothing is sent for %v from %v on; --max-gap cuts such silence, --speed shortens it\n",
			s.Silence.Round(time.Second), s.SilenceAt.Round(time.Second))
	}
}

func warnLong(g *Global, p *plan.Plan, maxLen int) {
	if n := p.LongerThan(maxLen); maxLen > 0 && n > 0 {
		fmt.Fprintf(g.Stderr, "note: %d requests are longer than the %d tokens that the server takes and will be refused; they end their session\n", n, maxLen)
	}
}

// warnFiles compares the connections that are needed with what the process may open.
func warnFiles(g *Global, inFlight int) {
	if limit := replay.MaxFiles(); limit > 0 && uint64(inFlight)+64 > limit {
		fmt.Fprintf(g.Stderr, "note: %d connections at a time need more than the %d open files that are allowed (ulimit -n)\n", inFlight, limit)
	}
}

// printReplay writes the recording and the replay side by side, and how well the client kept to its plan.
func printReplay(g *Global, p *plan.Plan, run *report.Run) error {
	runs := []*report.Run{sim.Recorded(p.Workload), run}
	if run.Status == report.RunFailed || p.Options.Loop > 1 || p.Calls != len(p.Workload.Calls) {
		runs = runs[1:] // the recording is of other work
	}
	if err := report.WriteTable(g.Stdout, runs, report.TableOptions{Width: g.Width}); err != nil {
		return err
	}
	l := run.Replay
	say := func(format string, args ...any) { fmt.Fprintln(g.Stdout, wrap(fmt.Sprintf(format, args...), g.Width)) }
	say("")
	say("client lag (sent after due): p50 %s, p99 %s, max %s ms; %d of %d requests more than 1 ms", figure(l.LagMs.P50), figure(l.LagMs.P99),
		figure(l.LagMs.Max), l.Late, l.LagMs.Count)
	if l.SlipMs.Count > 0 {
		say("slip (servers later than recorded): p50 %s, p99 %s, max %s ms", figure(l.SlipMs.P50), figure(l.SlipMs.P99), figure(l.SlipMs.Max))
	}
	say("TTFT p50/p99 ms: %s from send, %s from due%s", pair(l.FromSend.TTFT), pair(l.FromDue.TTFT), fromPlan(l, false))
	say("E2E  p50/p99 ms: %s from send, %s from due%s", pair(l.FromSend.E2E), pair(l.FromDue.E2E), fromPlan(l, true))
	if hit := run.KV.HitRate; hit.Known && l.EndlessHitRate.Known {
		say("cached: %.1f%% of prompt tokens; an endless cache would have held %.1f%%, %.1f%% without generated tokens",
			100*hit.Value, 100*l.EndlessHitRate.Value, 100*l.EndlessPromptHitRate.Value)
	} else {
		say("cached: the server does not report it (vLLM: --enable-prompt-tokens-details, SGLang: --enable-cache-report)")
	}
	for _, w := range append(append([]string{}, run.Warnings...), run.Approximations...) {
		fmt.Fprintln(g.Stderr, wrap("note: "+w, g.Width))
	}
	return nil
}

func figure(f report.Figure) string {
	if !f.Known {
		return "-"
	}
	return fmt.Sprintf("%.4g", f.Value)
}

func pair(d report.Distribution) string { return figure(d.P50) + "/" + figure(d.P99) }

func fromPlan(l *report.Replay, e2e bool) string {
	switch {
	case l.FromPlan == nil:
		return ""
	case e2e:
		return ", " + pair(l.FromPlan.E2E) + " from plan"
	}
	return ", " + pair(l.FromPlan.TTFT) + " from plan"
}

// showReplay draws a bar on a terminal while requests end, and returns how to stop it.
func showReplay(g *Global, progress *replay.Progress, p *plan.Plan) func() {
	return drawBar(g, int64(p.Calls), func(bar *progressbar.ProgressBar) {
		bar.Describe(fmt.Sprintf("replaying: %d/%d programs, %d in flight, lag %.1f ms, %d failed", progress.Programs.Load(), p.Programs,
			progress.InFlight.Load(), float64(progress.Lag.Load())/1e6, progress.Failed.Load()))
		_ = bar.Set64(progress.Ended.Load())
	})
}
