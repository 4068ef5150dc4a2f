package report

import (
	"fmt"
	"io"
	"strings"
)

// WriteSideBySide writes a line for each metric and a column for each input, with the changes against the first, and then what
// turns tell. What has no room at the side goes below, with the first input again.
func WriteSideBySide(w io.Writer, s *SideBySide, opts TableOptions) error {
	if opts.Width <= 0 {
		opts.Width = defaultWidth
	}
	var b strings.Builder
	for _, line := range s.legend() {
		wrap(&b, line, max(opts.Width, leastWidth))
	}
	names, columns := s.columns()
	for rest := columns[1:]; ; {
		b.WriteString("\n")
		shown := []*column{names, columns[0]}
		room := opts.Width - names.width() - columns[0].width() - columnGap
		for n := 0; len(rest) > 0 && (n == 0 || rest[0].width()+columnGap <= room); n++ {
			room -= rest[0].width() + columnGap
			shown, rest = append(shown, rest[0]), rest[1:]
		}
		if err := render(&b, shown, 1, false); err != nil {
			return fmt.Errorf("draw table: %w", err)
		}
		if len(rest) == 0 {
			break
		}
	}
	for _, note := range s.notes() {
		wrap(&b, note, max(opts.Width, leastWidth))
	}
	for i := range s.Turns {
		e := &s.Turns[i]
		fmt.Fprintf(&b, "\n%s\n", e.title())
		if err := render(&b, e.columns(), 1, false); err != nil {
			return fmt.Errorf("draw table: %w", err)
		}
		for _, note := range e.notes() {
			wrap(&b, note, max(opts.Width, leastWidth))
		}
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// legend says what the labels stand for.
func (s *SideBySide) legend() []string {
	var list []string
	for _, in := range s.Inputs {
		list = append(list, printable(fmt.Sprintf("%s: %s %s", in.Label, in.Kind, in.Source)))
	}
	return list
}

// columns are the names of the rows, and a column for each input.
func (s *SideBySide) columns() (names *column, columns []*column) {
	names = &column{unit: "metric"}
	runs := make([]*Run, len(s.Inputs))
	for i, in := range s.Inputs {
		runs[i] = in.Run
		columns = append(columns, &column{head: in.Label, unit: in.Kind, compare: true})
	}
	for _, row := range s.Metrics {
		names.cells = append(names.cells, cell{value: join(row.Name, row.metric.unit(runs).name)})
		for i, c := range columns {
			text := cell{value: row.metric.text(row.Values[i], runs)}
			if row.Name == "requests done" {
				text.value = fmt.Sprintf("%d/%d", runs[i].Requests.Completed, runs[i].Requests.Total)
			} else if i > 0 {
				text.change = row.change(i)
			}
			c.cells = append(c.cells, text)
		}
	}
	return names, columns
}

// change is how input i differs from the first; in points for a share.
func (r *Row) change(i int) string {
	switch off := r.Errors[i]; {
	case !off.Known && !(r.Values[i].Known && r.Values[0].Known):
		return ""
	case r.metric.share && off.Value > -0.0005 && off.Value < 0.0005:
		return "="
	case r.metric.share:
		return fmt.Sprintf("%+.1f pt", 100*off.Value)
	}
	return change(r.Values[i].Value, r.Values[0].Value)
}

// notes are what stands below the table. What makes the comparison worthless comes first.
func (s *SideBySide) notes() []string {
	notes := append([]string{}, s.Differences...)
	notes = append(notes, fmt.Sprintf("changes are against %s; = is less than 1%% (0.05 points), pt are percentage points", s.Inputs[0].Label))
	return append(notes, s.Notes...)
}

// columns are a table of the phases.
func (e *TurnErrors) columns() []*column {
	columns := []*column{{unit: "phase"}}
	for _, head := range phaseHeads {
		columns = append(columns, &column{unit: head})
	}
	for i := range e.Phases {
		p := &e.Phases[i]
		for j, text := range append([]string{p.Name}, p.texts()...) {
			columns[j].cells = append(columns[j].cells, cell{value: text})
		}
	}
	return columns
}
