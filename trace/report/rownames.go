package report

import (
	"fmt"
	"slices"
	"strings"
)

// rowNames is what tells the rows of a table apart: the names of the runs, or the axes in which they differ.
type rowNames struct {
	heads [][2]string // the two lines above each column
	rows  [][]string  // the text of each column, by row
}

// namesByRun names the rows after the runs.
func namesByRun(runs []*Run) rowNames {
	n := rowNames{heads: [][2]string{{"", "run"}}}
	for _, r := range runs {
		n.rows = append(n.rows, []string{r.label()})
	}
	return n
}

// namesByAxes names the rows after the axes whose values differ between them. A run that is on no axis, such as a
// recording, has its name in the first column. The result is empty when axes do not tell all rows apart.
func namesByAxes(runs []*Run) rowNames {
	var n rowNames
	keys := differingAxes(runs)
	if len(keys) == 0 {
		return n
	}
	seen := map[string]bool{}
	for _, r := range runs {
		row := slices.Repeat([]string{"-"}, len(keys))
		for i, key := range keys {
			if value, ok := r.axis(key); ok {
				row[i] = printable(value)
			}
		}
		if len(r.Axes) == 0 {
			row[0] = r.label()
		}
		seen[strings.Join(row, "\x00")] = true
		n.rows = append(n.rows, row)
	}
	if len(seen) < len(runs) {
		return rowNames{}
	}
	for _, key := range keys {
		parent, last := splitKey(key)
		n.heads = append(n.heads, [2]string{printable(parent), printable(last)})
	}
	return n
}

// splitKey splits a configuration key at its last dot.
func splitKey(key string) (parent, last string) {
	if dot := strings.LastIndexByte(key, '.'); dot >= 0 {
		return key[:dot], key[dot+1:]
	}
	return "", key
}

// maxAxes bounds the columns that name a row.
const maxAxes = 16

// differingAxes returns the keys that do not have the same value in all runs which have them, in order of appearance,
// not more than maxAxes.
func differingAxes(runs []*Run) []string {
	var keys []string
	first, differs := map[string]string{}, map[string]bool{}
	for _, r := range runs {
		for _, a := range r.Axes {
			value, seen := first[a.Key]
			if !seen {
				first[a.Key] = a.Value
				keys = append(keys, a.Key)
			}
			differs[a.Key] = differs[a.Key] || seen && value != a.Value
		}
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return !differs[key] })
	return keys[:min(len(keys), maxAxes)]
}

// axis returns the run's value on an axis.
func (r *Run) axis(key string) (string, bool) {
	for _, a := range r.Axes {
		if a.Key == key {
			return a.Value, true
		}
	}
	return "", false
}

// columns shows the names with each text cut to limit characters. Rows that look alike then are numbered.
func (n rowNames) columns(limit int) (columns []*column, numbered bool) {
	for _, head := range n.heads {
		columns = append(columns, &column{head: Shorten(head[0], limit), unit: Shorten(head[1], limit)})
	}
	seen := map[string]bool{}
	for _, row := range n.rows {
		var shown strings.Builder
		for i, text := range row {
			text = Shorten(text, limit)
			columns[i].cells = append(columns[i].cells, cell{value: text})
			shown.WriteString(text + "\x00")
		}
		seen[shown.String()] = true
	}
	if numbered = len(seen) < len(n.rows); numbered {
		for i := range n.rows {
			c := &columns[0].cells[i]
			c.value = fmt.Sprintf("%d %s", i+1, c.value)
		}
	}
	return columns, numbered
}

// legend gives the numbers and full names of the rows whose names are cut to limit characters.
func (n rowNames) legend(limit int) []string {
	var lines []string
	for i, row := range n.rows {
		if slices.ContainsFunc(row, func(text string) bool { return Shorten(text, limit) != text }) {
			lines = append(lines, fmt.Sprintf("%d: %s", i+1, strings.Join(row, " ")))
		}
	}
	return lines
}
