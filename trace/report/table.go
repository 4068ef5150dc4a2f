package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/clipperhouse/displaywidth"
	"github.com/olekukonko/tablewriter"
	"github.com/olekukonko/tablewriter/renderer"
	"github.com/olekukonko/tablewriter/tw"
)

// TableOptions says where a table is shown.
type TableOptions struct {
	// Width is the number of characters a line may have; 0 is 100. Below about 40 lines are longer than that.
	Width int
	// Color marks differences green (better) and red (worse) with ANSI sequences.
	Color bool
}

const (
	defaultWidth = 100
	leastWidth   = 40
	nameLimit    = 24 // longest name shown as it is
	nameLeast    = 12 // names are shortened down to this before a column is dropped
	columnGap    = 2
)

// column is one column of the table: a name, and what is told of each run.
type column struct {
	head, unit string // the two lines above the values
	name       string // what notes call it
	values     []Figure
	text       func(Figure) string
	// compare adds the change against the first row; lowerIsBetter colours it.
	compare, lowerIsBetter bool
	cells                  []cell
}

// cell is the text of a value and of its change against the first row.
type cell struct{ value, change string }

// width is the width of the column as it stands, both parts of its cells aligned.
func (c *column) width() int {
	value, change := c.parts()
	if change > 0 {
		value += 1 + change
	}
	return max(value, displaywidth.String(c.head), displaywidth.String(c.unit))
}

func (c *column) parts() (value, change int) {
	for _, cell := range c.cells {
		value = max(value, displaywidth.String(cell.value))
		if c.compare {
			change = max(change, displaywidth.String(cell.change))
		}
	}
	return value, change
}

// WriteTable writes one row per run; the first is the baseline that the others' changes in percent refer to. What
// does not fit the width is left out, least important first, and a note below says so.
func WriteTable(w io.Writer, runs []*Run, opts TableOptions) error {
	if len(runs) == 0 {
		return nil
	}
	if opts.Width <= 0 {
		opts.Width = defaultWidth
	}
	columns := columnsFor(runs)
	lead, columns, dropped := fit(runs, columns, opts.Width)

	var b strings.Builder
	if err := render(&b, append(lead, columns...), opts.Color); err != nil {
		return fmt.Errorf("draw table: %w", err)
	}
	for _, note := range notes(runs, dropped) {
		wrap(&b, note, max(opts.Width, leastWidth))
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// columnsFor returns the columns that at least one run has a figure for, in order of display.
func columnsFor(runs []*Run) []*column {
	pick := func(of func(*Run) Figure) []Figure {
		values := make([]Figure, len(runs))
		for i, r := range runs {
			values[i] = of(r)
		}
		return values
	}
	rate := &column{head: "programs", unit: "/h", name: "programs/h", values: pick(programsPerHour.of)}
	switch Primary(runs, false).Name {
	case requestsPerS.Name:
		rate = &column{head: "requests", unit: "/s", name: "requests/s", values: pick(requestsPerS.of)}
	case turnsPerMin.Name:
		rate = &column{head: "turns", unit: "/min", name: "turns/min", values: pick(turnsPerMin.of)}
	}
	rate.compare, rate.text = true, plain
	inSeconds := func(ms Figure) Figure { ms.Value /= 1000; return ms }
	all := []*column{
		rate,
		{
			head: "output", unit: "tok/s", name: "output tok/s", text: plain, compare: true,
			values: pick(func(r *Run) Figure { return r.Throughput.OutputTokensPerS }),
		},
		times("TTFT p50", pick(func(r *Run) Figure { return inSeconds(r.LatencyMs.TTFT.P50) })),
		times("TTFT p99", pick(func(r *Run) Figure { return inSeconds(r.LatencyMs.TTFT.P99) })),
		times("TPOT p50", pick(func(r *Run) Figure { return inSeconds(r.LatencyMs.TPOT.P50) })),
		times("program p50", pick(func(r *Run) Figure { return r.Programs.MakespanS.P50 })),
		{
			head: "hit", unit: "rate", name: "hit rate", text: share,
			values: pick(func(r *Run) Figure { return r.KV.HitRate }),
		},
		{
			head: "re-", unit: "prefill", name: "re-prefill share", text: share,
			values: pick(func(r *Run) Figure { return r.KV.ReprefillTimeShare }),
		},
		{
			head: "pre-", unit: "empted", name: "preemptions", text: plain,
			values: pick(func(r *Run) Figure { return r.Preemptions }),
		},
	}
	var columns []*column
	for _, c := range all {
		known := false
		c.cells = make([]cell, len(runs))
		for i, v := range c.values {
			known = known || v.Known
			c.cells[i] = cell{value: c.text(v)}
			if base := c.values[0]; i > 0 && v.Known && base.Known {
				c.cells[i].change = change(v.Value, base.Value)
			}
		}
		if known {
			columns = append(columns, c)
		}
	}
	return columns
}

// times returns a column of times in seconds, shown in the unit that suits the largest. Its head is split over two
// lines at the last space.
func times(name string, values []Figure) *column {
	largest := 0.0
	for _, v := range values {
		largest = max(largest, v.Value)
	}
	unit := unitFor(largest)
	head, rest, _ := strings.Cut(name, " ")
	return &column{
		head: head, unit: rest + " " + unit.name, name: name, values: values, compare: true, lowerIsBetter: true,
		text: func(f Figure) string { f.Value /= unit.seconds; return plain(f) },
	}
}

func plain(f Figure) string {
	if !f.Known {
		return "-"
	}
	return number(f.Value)
}

func share(f Figure) string {
	if !f.Known {
		return "-"
	}
	return percent(f.Value)
}

// narrowing is the order in which a table that is too wide gets narrower: changes of secondary figures go first, then
// whole columns.
var narrowing = []struct {
	column string
	drop   bool // else only the changes
}{
	{"output tok/s", false},
	{"TPOT p50", false},
	{"TTFT p50", false},
	{"preemptions", true},
	{"output tok/s", true},
	{"TPOT p50", true},
	{"TTFT p50", true},
	{"program p50", false},
	{"re-prefill share", true},
	{"hit rate", true},
	{"program p50", true},
	{"TTFT p99", true},
}

// fit shortens names and narrows columns until the table fits. lead is the columns that always stay: the names, and
// how many requests completed.
func fit(runs []*Run, columns []*column, width int) (lead, kept []*column, dropped []string) {
	name := &column{unit: "run", cells: make([]cell, len(runs))}
	done := &column{unit: "done"}
	for _, r := range runs {
		text := fmt.Sprintf("%d/%d", r.Requests.Completed, r.Requests.Total)
		if r.Status == RunFailed {
			text = r.Status
		}
		done.cells = append(done.cells, cell{value: text})
	}
	lead = []*column{name, done}
	fits := func() bool {
		total := name.width() + columnGap + done.width()
		for _, c := range columns {
			total += columnGap + c.width()
		}
		return total <= width
	}
	for step := 0; ; step++ {
		for limit := nameLimit; limit >= nameLeast; limit-- {
			for i, r := range runs {
				name.cells[i].value = shorten(r.label(), limit)
			}
			if fits() {
				return lead, columns, dropped
			}
		}
		if step == len(narrowing) {
			return lead, columns, dropped
		}
		i := slices.IndexFunc(columns, func(c *column) bool { return c.name == narrowing[step].column })
		switch {
		case i < 0: // no run has it
		case narrowing[step].drop:
			dropped = append(dropped, columns[i].name)
			columns = slices.Delete(columns, i, i+1)
		default:
			columns[i].compare = false
		}
	}
}

const (
	green = "\x1b[32m"
	red   = "\x1b[31m"
	reset = "\x1b[0m"
)

// render draws the columns with a rule below the head and no other lines.
func render(b *strings.Builder, columns []*column, color bool) error {
	align := make([]tw.Align, len(columns))
	head := make([]string, len(columns))
	for i, c := range columns {
		align[i] = tw.AlignRight
		head[i] = c.head + "\n" + c.unit
	}
	align[0] = tw.AlignLeft

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
		case up != c.lowerIsBetter:
			change = green + change + reset
		default:
			change = red + change + reset
		}
	}
	return cell.value + " " + change
}

// notes are the lines below the table: what did not complete, and what is not shown.
func notes(runs []*Run, dropped []string) []string {
	var notes []string
	for _, r := range runs {
		switch {
		case r.Status == RunFailed:
			notes = append(notes, r.label()+" failed: "+r.Error)
		case r.incomplete() > 0:
			notes = append(notes, r.label()+": "+r.lost().describe())
		}
	}
	if len(runs) > 1 {
		notes = append(notes, "changes are against the first run, "+runs[0].label())
	}
	if len(dropped) > 0 {
		notes = append(notes, "not shown at this width: "+strings.Join(dropped, ", "))
	}
	return notes
}

// wrap writes text in lines of at most width characters, broken at spaces and indented after the first.
func wrap(b *strings.Builder, text string, width int) {
	line := 0
	for _, word := range strings.Fields(text) {
		n := displaywidth.String(word)
		switch {
		case line == 0:
		case line+1+n > width:
			b.WriteString("\n  ")
			line = 2
		default:
			b.WriteByte(' ')
			line++
		}
		b.WriteString(word)
		line += n
	}
	b.WriteByte('\n')
}
