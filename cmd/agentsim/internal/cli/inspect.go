package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/inspect"
	"github.com/agentsim/agentsim/trace/report"
)

// inspectCommand is the flags of `agentsim inspect`.
type inspectCommand struct {
	source
	deployment sim.Deployment
	session    string
	hints      bool
	json       bool
	strict     bool
}

func newInspect(g *Global) *cobra.Command {
	c := &inspectCommand{deployment: sim.Default()}
	cmd := &cobra.Command{
		Use:   "inspect TRACE...",
		Short: "Sessions, turns, tokens, reuse and tool gaps of a trace on one page",
		Long: `Show what is in a trace, recorded, predicted or replayed: its sessions and turns, how contexts grow, tokens and what a
cache could reuse of them, how long tools and people take and how well that could be known before, and over time how many
programs live, how many calls run, and the KV that they need beside the room of one worker.

  agentsim inspect day1.jsonl.gz
  agentsim inspect out#thunderagent --model qwen3-14b --tp 2
  agentsim inspect day1.jsonl.gz --session job7:root
  agentsim inspect day1.jsonl.gz --suggest-hints > hints.yaml
  agentsim predict day1.jsonl.gz -c prod.yaml --also hints.yaml

TRACE is what predict takes, or a folder that predict -o DIR --traces wrote; DIR#NAME picks a run of several.

The KV working set at a time is the tokens that calls use then, or have used and use again later; what several calls share
counts once. A cache with less room loses some of that reuse.

Exit codes: 0 done; 1 failed; 2 wrong usage or input; 3 done, but rows of the trace were lost; 130 interrupted.`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), g, args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&c.session, "session", "", "show the session `ID` turn by turn, and what is below it; its beginning or its short form on the page will do")
	f.BoolVar(&c.hints, "suggest-hints", false, "print hints that follow from the trace, as keys of a deployment")
	f.StringVar(&c.deployment.Model, "model", "", "`MODEL` whose KV is meant (default: the trace's own, where it is known)")
	f.StringVar(&c.deployment.GPU, "gpu", c.deployment.GPU, "`GPU` whose room is meant")
	f.IntVar(&c.deployment.Parallelism.Tensor, "tp", 0, "its tensor parallelism (default: the smallest that fits)")
	c.addTraceFlags(cmd)
	c.addSynthFlags(cmd)
	f.Uint64Var(&c.seed, "seed", 1, "seed of --profile")
	f.BoolVar(&c.json, "json", false, "print JSON")
	f.BoolVar(&c.strict, "strict", false, "fail when rows of the trace were lost")
	return cmd
}

func (c *inspectCommand) run(ctx context.Context, g *Global, args []string) error {
	if c.hints && (c.session != "" || c.json) {
		return usagef("--suggest-hints goes without --session and --json; --json has the roles that hints are made of")
	}
	paths := slices.Clone(args)
	if len(paths) == 1 {
		var err error
		if paths[0], _, err = traceOfRun(paths[0]); err != nil {
			return err
		}
	}
	capture, err := c.open(ctx, g, paths)
	if err != nil {
		return err
	}
	if err := capture.Link(); err != nil {
		return usagef("%w", err)
	}
	if c.session != "" {
		err = c.showSession(g, capture)
	} else {
		err = c.showTrace(ctx, g, capture, args)
	}
	if err == nil && capture.Read.LostRows > 0 {
		return untrusted("page", []string{report.RowsLost(capture.Read.LostRows)}, c.strict)
	}
	return err
}

// showTrace prints the page, or what is made of it.
func (c *inspectCommand) showTrace(ctx context.Context, g *Global, capture *trace.Capture, args []string) error {
	pool, err := c.pool(capture)
	if err != nil {
		return err
	}
	s, err := inspect.Summarise(ctx, capture, pool.tokens)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return usagef("%w", err)
	case c.hints:
		given := strings.Join(args, " ")
		if c.profile != "" {
			given = "--profile " + c.profile
		}
		return writeHints(g.Stdout, given, s)
	case c.json:
		return printJSON(g.Stdout, s)
	}
	page := &inspectPage{width: min(g.Width, 100), pool: pool}
	page.summary(s)
	_, err = io.WriteString(g.Stdout, page.text.String())
	return err
}

// showSession prints a session turn by turn.
func (c *inspectCommand) showSession(g *Global, capture *trace.Capture) error {
	id, err := c.sessionID(capture)
	if err != nil {
		return err
	}
	s, err := inspect.Show(capture, id)
	if err != nil {
		return usagef("%w", err)
	}
	if s == nil || len(s.Turns) == 0 {
		return usagef("--session %s: the session has no turn", c.session)
	}
	if c.json {
		return printJSON(g.Stdout, s)
	}
	page := &inspectPage{width: min(g.Width, 100)}
	page.session(s, 0, s.Turns[0].StartS.Value)
	_, err = io.WriteString(g.Stdout, page.text.String())
	return err
}

// sessionID returns the id of the session that is meant: the one given, or the one that begins with it, or, as the page
// shortens ids, the one that begins with what stands before … and ends with what stands behind it. Several may be one and
// those below it.
func (c *inspectCommand) sessionID(capture *trace.Capture) (string, error) {
	head, tail, _ := strings.Cut(c.session, "…")
	var ids, like []string
	for _, s := range capture.Sessions {
		if s.ID == c.session {
			return s.ID, nil
		}
		if len(ids) < 10_000 {
			ids = append(ids, s.ID)
		}
		if strings.HasPrefix(s.ID, head) && strings.HasSuffix(s.ID, tail) && len(s.ID) >= len(head)+len(tail) {
			like = append(like, s.ID)
		}
	}
	if len(like) == 0 {
		return "", usagef("--session %s: no session of the trace has this id%s; `agentsim inspect` lists the largest", c.session, suggestion(c.session, ids))
	}
	slices.SortFunc(like, func(a, b string) int { return cmp.Or(cmp.Compare(len(a), len(b)), strings.Compare(a, b)) })
	if !slices.ContainsFunc(like[1:], func(id string) bool { return !strings.HasPrefix(id, like[0]+"/") }) {
		return like[0], nil
	}
	return "", usagef("--session %s: %d sessions of the trace are called so, as %s and %s", c.session, len(like), like[0], like[1])
}

// kvPool is one worker's room for KV; 0 tokens is not known.
type kvPool struct {
	tokens int64
	name   string // "one h100-sxm with qwen3-14b"
}

// pool finds out how much KV one worker has room for.
func (c *inspectCommand) pool(capture *trace.Capture) (kvPool, error) {
	d := c.deployment
	if d.Model == "" && useNamedModel(capture, &d) == "" {
		return kvPool{}, nil
	}
	plan, err := d.Resolve()
	if err != nil {
		return kvPool{}, usagef("the room for KV (--model, --gpu, --tp): %w", err)
	}
	gpus := "one"
	if n := plan.Hardware.Parallelism.GPUs(); n > 1 {
		gpus = fmt.Sprint(n)
	}
	return kvPool{plan.Capacity.Tokens, fmt.Sprintf("%s %s with %s", gpus, plan.Hardware.GPU.Name, d.Model)}, nil
}
