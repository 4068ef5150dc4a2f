package cli

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/agentsim/agentsim/trace/inspect"
	"github.com/agentsim/agentsim/trace/report"
)

const (
	// suggestedRoles bounds the rules; a deployment takes 100.
	suggestedRoles = 40
	// fewTurns are too few to tell how much a role generates.
	fewTurns = 5
	// A subagent's role is urgent if other agents stand still for at least this share of its sessions, and in the background if
	// for at most that one.
	awaitedOften, awaitedSeldom = 0.5, 0.1
)

// hint is what a role's calls could tell: 0 is nothing.
type hint struct {
	osl      int64
	priority int
}

// suggest derives the hint of a role: the mean of its output, and a priority by who waits for it.
func suggest(r *inspect.Role) hint {
	var h hint
	if r.Turns >= fewTurns {
		h.osl = int64(math.Round(r.Output.Mean.Value))
	}
	switch share := r.Awaited; {
	case !share.Known:
	case share.Value >= awaitedOften:
		h.priority = 1
	case share.Value <= awaitedSeldom:
		h.priority = -1
	}
	return h
}

// writeHints prints hints as keys of a deployment, with what it takes to make use of them. Source is what the command line
// says of the trace.
func writeHints(w io.Writer, source string, s *inspect.Summary) error {
	roles := slices.Clone(s.Roles[:min(len(s.Roles), suggestedRoles)])
	roles = slices.DeleteFunc(roles, func(r inspect.Role) bool { return suggest(&r) == hint{} })
	// An empty class or model matches all, and later rules decide.
	slices.SortStableFunc(roles, func(a, b inspect.Role) int { return cmp.Compare(len(matchOf(s, &a)), len(matchOf(s, &b))) })
	source = report.Shorten(source, 60)
	var b strings.Builder
	fmt.Fprintf(&b, "# Hints that follow from %s: %s of %s.\n", source, counted(s.Turns, "turn"), counted(s.Sessions, "session"))
	fmt.Fprintf(&b, "# What they are worth: agentsim predict %s -c DEPLOYMENT --also THIS_FILE\n", source)
	b.WriteString("# osl is the mean output of such calls; priority is 1 where other agents wait for the subagent, -1 where none do.\n")
	if slices.ContainsFunc(roles, func(r inspect.Role) bool { return suggest(&r).priority != 0 }) {
		b.WriteString("engine: {scheduling: priority}\n")
	}
	if slices.ContainsFunc(roles, func(r inspect.Role) bool { return suggest(&r).osl != 0 }) {
		b.WriteString("router: {track_output_blocks: true}\n")
	}
	b.WriteString("hints:")
	if len(roles) == 0 {
		b.WriteString(" [] # no kind of turns is there often enough\n")
	} else {
		b.WriteByte('\n')
	}
	for _, r := range roles {
		fmt.Fprintf(&b, "  - match: {%s} # %s, %s: output p50 %s, p90 %s", strings.Join(matchOf(s, &r), ", "),
			counted(r.Sessions, "session"), counted(r.Turns, "turn"), r.Output.P50, r.Output.P90)
		if r.ToolS.Count > 0 {
			fmt.Fprintf(&b, "; tools p50 %s, p90 %s", r.ToolS.P50.Time(), r.ToolS.P90.Time())
		}
		b.WriteByte('\n')
		h := suggest(&r)
		if h.osl > 0 {
			fmt.Fprintf(&b, "    osl: %d\n", h.osl)
		}
		if h.priority != 0 {
			fmt.Fprintf(&b, "    priority: %d\n", h.priority)
		}
	}
	if len(s.Tools) > 0 {
		b.WriteString("# No hint tells how long tools take; engine.scheduling continuum learns it by their names:\n")
	}
	for _, t := range s.Tools[:min(len(s.Tools), shownTools)] {
		fmt.Fprintf(&b, "#   %s: %s, p50 %s, p90 %s, CV %s\n", report.Shorten(t.Name, nameWidth), counted(t.Seconds.Count, "run"), t.Seconds.P50.Time(),
			t.Seconds.P90.Time(), t.CV)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// matchOf is the keys of the rule that matches the calls of a role of a trace.
func matchOf(s *inspect.Summary, r *inspect.Role) []string {
	match := []string{"root: true"}
	if r.Subagent {
		match = []string{"subagent: true"}
	}
	if r.Class != "" {
		match = append(match, fmt.Sprintf("class: %q", escapeGlob(r.Class)))
	}
	if r.Model != "" && len(s.Models) > 1 {
		match = append(match, fmt.Sprintf("model: %q", escapeGlob(r.Model)))
	}
	return match
}

// escapeGlob returns the glob that matches a name alone.
func escapeGlob(name string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(name)
}
