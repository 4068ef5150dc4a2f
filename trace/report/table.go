package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/clipperhouse/displaywidth"
	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// TableOptions says where a table is shown.
type TableOptions struct {
	// Width is the number of characters a line may have; 0 is 100. Below about 50 lines may be longer than that.
	Width int
	// Color marks differences green (better) and red (worse) with ANSI sequences.
	Color bool
}

const (
	defaultWidth = 100
	leastWidth   = 40
)

// WriteTable writes one row per run, with the changes in percent against the run that Baseline names; a run that left
// out other work than that has none. What does not fit the width is left out, least important first, and a note below
// says so.
func WriteTable(w io.Writer, runs []*Run, opts TableOptions) error {
	if len(runs) == 0 {
		return nil
	}
	if opts.Width <= 0 {
		opts.Width = defaultWidth
	}
	l := newLayout(runs)
	l.fit(opts.Width)

	var b strings.Builder
	if err := render(&b, l.shown(), len(l.names), opts.Color); err != nil {
		return fmt.Errorf("draw table: %w", err)
	}
	for _, note := range l.notes() {
		wrap(&b, note, max(opts.Width, leastWidth))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

const (
	green = "\x1b[32m"
	red   = "\x1b[31m"
	reset = "\x1b[0m"
)

// render draws the columns, of which the first are names, with a rule below the head and no other lines.
func render(b *strings.Builder, columns []*column, names int, color bool) error {
	align := make([]tw.Align, len(columns))
	head := make([]string, len(columns))
	for i, c := range columns {
		align[i] = tw.AlignRight
		head[i] = c.head + "\n" + c.unit
	}
	for i := range names {
		align[i] = tw.AlignLeft
	}

	var drawn strings.Builder
	table := tablewriter.NewTable(&drawn,
		tablewriter.WithRenderer(renderer.NewBlueprint(tw.Rendition{
			Borders: tw.BorderNone,
			Symbols: tw.NewSymbols(tw.StyleLight),
			Settings: tw.Settings{
				Lines:      tw.Lines{ShowTop: tw.Off, ShowBottom: tw.Off, ShowHeaderLine: tw.On, ShowFooterLine: tw.Off},
				Separators: tw.SeparatorsNone,
			},
		})),
		tablewriter.WithHeaderAutoFormat(tw.Off),
		tablewriter.WithHeaderAutoWrap(tw.WrapNone),
		tablewriter.WithRowAutoWrap(tw.WrapNone),
		tablewriter.WithTrimSpace(tw.Off),
		tablewriter.WithPadding(tw.Padding{Right: strings.Repeat(" ", columnGap), Overwrite: true}),
		tablewriter.WithAlignment(align),
		tablewriter.WithEastAsian(tw.Off), // the width of a line must not depend on the locale
	)
	table.Header(head)
	for i := range columns[0].cells {
		row := make([]string, len(columns))
		for j, c := range columns {
			row[j] = c.cell(i, color)
		}
		if err := table.Append(row); err != nil {
			return err
		}
	}
	if err := table.Render(); err != nil {
		return err
	}
	// Every column has the gap on its right; the last needs none.
	for line := range strings.Lines(drawn.String()) {
		line = strings.TrimRight(line, " \n")
		b.WriteString(strings.TrimSuffix(line, strings.Repeat("─", columnGap)) + "\n")
	}
	return nil
}

// cell returns row i's text, the change aligned below those of the other rows.
func (c *column) cell(i int, color bool) string {
	_, width := c.parts()
	cell := c.cells[i]
	if width == 0 {
		return cell.value
	}
	change := fmt.Sprintf("%-*s", width, cell.change)
	if color {
		switch up := strings.HasPrefix(cell.change, "+") || strings.HasPrefix(cell.change, "x"); {
		case cell.change == "" || cell.change == "=":
		case up != c.metric.LowerIsBetter:
			change = green + change + reset
		default:
			change = red + change + reset
		}
	}
	return cell.value + " " + change
}

// notes are the lines below the table: what went wrong, what changes refer to, and what is not shown.
func (l *layout) notes() []string {
	var notes []string
	if l.numbered {
		notes = l.rows.legend(l.limit)
	}
	if s := solutionOf(l.runs); s != nil {
		notes = append(notes, "limits: "+s.limits())
	}
	for _, r := range l.runs {
		if r.Solution != nil {
			notes = append(notes, r.label()+": "+r.Solution.text())
		}
	}
	notes = append(notes, shortcomings(l.runs, (*Run).shortcoming)...)
	equals, changes := false, false
	var dropped []string
	for _, c := range l.columns {
		if c.dropped {
			dropped = append(dropped, c.name)
			continue
		}
		for _, cell := range c.cells {
			changes = changes || c.compare && cell.change != ""
			equals = equals || c.compare && cell.change == "="
		}
	}
	if changes {
		notes = append(notes, baselineNote(l.runs, equals))
	}
	if len(dropped) > 0 {
		notes = append(notes, "not shown at this width: "+strings.Join(dropped, ", "))
	}
	return notes
}

// baselineNote says what changes are against, and what "=" means where there is one.
func baselineNote(runs []*Run, equals bool) string {
	note := "changes are against the first row"
	switch base := Baseline(runs); {
	case base > 0 && runs[base].complete():
		note += " that completed all its requests, " + runs[base].label()
	case base > 0:
		note += " that ran, " + runs[base].label()
	default:
		note += ", " + runs[base].label()
	}
	if equals {
		note = "= is a change of less than 1%; " + note
	}
	return note
}

// wrap writes text in lines of at most width characters, broken at spaces and indented after the first. What has no
// space for that long is broken anywhere.
func wrap(b *strings.Builder, text string, width int) {
	const indent = 2
	line := 0
	for _, word := range strings.Fields(text) {
		n := displaywidth.String(word)
		switch {
		case line == 0:
		case line+1+n > width:
			b.WriteString("\n  ")
			line = indent
		default:
			b.WriteByte(' ')
			line++
		}
		for _, r := range word {
			n := displaywidth.Rune(r)
			if line+n > width {
				b.WriteString("\n  ")
				line = indent
			}
			b.WriteRune(r)
			line += n
		}
	}
	b.WriteByte('\n')
}
