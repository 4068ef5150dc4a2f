package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/agentsim/agentsim/router/thunderagent"
)

// explainSchema names the JSON form of explanations.
const explainSchema = "agentsim.explain.v1"

// writeExplanations prints one page for each row, or all as JSON.
func writeExplanations(w io.Writer, all []*explanation, asJSON bool, width int) error {
	if asJSON {
		text, err := json.MarshalIndent(struct {
			Schema string         `json:"schema"`
			What   string         `json:"what"`
			Runs   []*explanation `json:"runs"`
		}{explainSchema, all[0].what, all}, "", "  ")
		if err != nil {
			return fmt.Errorf("encoding the explanation: %w", err)
		}
		_, err = w.Write(append(text, '\n'))
		return err
	}
	page := &explanationPage{width: min(width, 100)}
	for i, x := range all {
		if i > 0 {
			page.line("")
		}
		page.explanation(x)
	}
	_, err := io.WriteString(w, page.text.String())
	return err
}

// explanationPage lays explanations out in lines of at most width characters.
type explanationPage struct {
	text  strings.Builder
	width int
}

func (p *explanationPage) line(format string, args ...any) {
	fmt.Fprintf(&p.text, format+"\n", args...)
}

func (p *explanationPage) explanation(x *explanation) {
	p.line("%s", x.Name)
	if x.Note != "" {
		p.line("  %s", x.Note)
		return
	}
	for _, c := range x.Calls {
		p.line("")
		p.wrapped("", fmt.Sprintf("%s, turn %d (%s, program %d): %s prompt tokens, %s generated", c.Session, c.Turn, c.Request,
			c.Program, grouped(int64(c.Input)), grouped(int64(c.Output))))
		if len(c.Events) == 0 {
			p.line("  never sent")
		}
		for _, e := range c.Events {
			p.event(e, e.text)
		}
	}
	for _, t := range x.Ticks {
		p.tick(t, len(x.Ticks) > 1)
	}
}

// event prints an event behind its time, and the workers that a router could choose below.
func (p *explanationPage) event(e explainedEvent, text string) {
	p.wrapped(fmt.Sprintf("%12s  ", seconds(time.Duration(e.AtNs))), text)
	if len(e.Options) < 2 {
		return
	}
	var all []string
	for _, o := range e.Options {
		one := fmt.Sprintf("worker %d:", o.Worker)
		if o.Cost != nil {
			one += fmt.Sprintf(" cost %s,", grouped(int64(math.Round(*o.Cost))))
		}
		all = append(all, one+fmt.Sprintf(" %d blocks, %d requests", o.OverlapBlocks, o.Requests))
	}
	p.wrapped(strings.Repeat(" ", 14), strings.Join(all, "; "))
}

// wrapped prints a text behind a margin that further lines leave blank.
func (p *explanationPage) wrapped(margin, text string) {
	indent := strings.Repeat(" ", len(margin))
	for i, line := range strings.Split(wrap(text, p.width-len(margin)), "\n") {
		if i > 0 {
			margin = indent + "  "
		}
		p.line("%s%s", margin, line)
	}
}

// maxStayed bounds the paused programs on a page; the JSON form has all.
const maxStayed = 40

// tick prints the table of a program scheduler.
func (p *explanationPage) tick(t *explainedTick, several bool) {
	title := "tick at " + seconds(time.Duration(t.AtNs))
	if several {
		title += fmt.Sprintf(", frontend %d", t.Frontend)
	}
	p.line("\n%s; tokens", title)
	p.line("%8s %12s %12s %12s %12s %12s %12s %5s %5s", "worker", "used before", "used after", "capacity", "pause above", "pause to", "resume to", "run", "act")
	for _, w := range t.Workers {
		p.line("%8d %12s %12s %12s %12s %12s %12s %5d %5d", w.Worker, grouped(w.UsedBefore), grouped(w.UsedAfter), grouped(w.Capacity),
			grouped(w.PauseAbove), grouped(w.PauseTo), grouped(w.ResumeTo), w.Reasoning, w.Acting)
	}
	p.line("\ndecisions, in order")
	if len(t.Decisions) == 0 {
		p.line("  none")
	}
	for _, d := range t.Decisions {
		text := d.text
		if d.What == string(thunderagent.Marked) { // the table has the figures
			text, _, _ = strings.Cut(text, ";")
		}
		p.wrapped("  ", d.Session+": "+text)
	}
	p.line("\npaused after it, the smallest first")
	if len(t.Stayed) == 0 {
		p.line("  none")
	}
	for i, s := range t.Stayed {
		if i == maxStayed {
			p.line("  and %d more (--json)", len(t.Stayed)-i)
			break
		}
		held := "while its tool runs"
		if s.Held {
			held = "with a request held"
		}
		p.wrapped("  ", fmt.Sprintf("%s needs %s, %s, paused for %s in all: %s", s.Session, grouped(s.Need), held,
			seconds(time.Duration(s.PausedNs)), s.Why))
	}
}
