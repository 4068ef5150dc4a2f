package cli

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/clipperhouse/displaywidth"

	"github.com/agentsim/agentsim/trace/inspect"
	"github.com/agentsim/agentsim/trace/report"
)

// inspectPage lays out what a trace holds in lines of at most width characters.
type inspectPage struct {
	text  strings.Builder
	width int
	pool  kvPool
}

func (p *inspectPage) line(format string, args ...any) { fmt.Fprintf(&p.text, format+"\n", args...) }

// paragraph prints a text, broken into lines, but not between a number and its unit.
func (p *inspectPage) paragraph(format string, args ...any) {
	const joined = "\x00" // as long as a space, and none
	text := withUnit.ReplaceAllString(fmt.Sprintf(format, args...), "$1"+joined+"$2")
	p.line("%s", strings.ReplaceAll(wrap(text, p.width), joined, " "))
}

var withUnit = regexp.MustCompile(`([0-9]) (ms|s|min|h)\b`)

// table prints rows below an empty line, the first of them the heads. The first column is flush left, and so is the last if its
// head is not one word; the others are numbers. Columns of which nothing is known are left out, and the first gets narrower
// where the table does not fit, with the first word of its head.
func (p *inspectPage) table(rows [][]string) {
	for i := len(rows[0]) - 1; i > 0; i-- {
		if !slices.ContainsFunc(rows[1:], func(row []string) bool { return row[i] != "-" }) {
			for r := range rows {
				rows[r] = slices.Delete(rows[r], i, i+1)
			}
		}
	}
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], displaywidth.String(cell))
		}
	}
	total := 2 * (len(widths) - 1)
	for _, width := range widths {
		total += width
	}
	widths[0] = min(widths[0], max(widths[0]+p.width-total, leastName))
	if displaywidth.String(rows[0][0]) > widths[0] {
		rows[0][0], _, _ = strings.Cut(rows[0][0], " ")
	}
	p.line("")
	for _, row := range rows {
		name := report.Shorten(row[0], widths[0])
		line := name + strings.Repeat(" ", widths[0]-displaywidth.String(name))
		for i, cell := range row[1:] {
			space := strings.Repeat(" ", widths[i+1]-displaywidth.String(cell))
			if i+2 == len(row) && strings.Contains(rows[0][i+1], " ") {
				line += "  " + cell
			} else {
				line += "  " + space + cell
			}
		}
		p.line("%s", strings.TrimRight(line, " "))
	}
}

// leastName is how narrow the first column of a table gets at most.
const leastName = 10

// Heads of last columns that are no numbers.
const (
	drawn  = "min to max, log scale"
	remark = " "
)

// bars are eight heights.
var bars = []rune("▁▂▃▄▅▆▇█")

// sparkline draws values that are not negative; a blank is 0.
func sparkline(values []float64) string {
	top := slices.Max(values)
	line := make([]rune, len(values))
	for i, v := range values {
		line[i] = ' '
		if v > 0 {
			line[i] = bars[min(int(v/top*float64(len(bars))), len(bars)-1)]
		}
	}
	return strings.TrimRight(string(line), " ")
}

// histogram draws a histogram.
func histogram(d *inspect.Spread) string {
	var counts []float64
	for _, b := range d.Histogram {
		counts = append(counts, float64(b.Count))
	}
	if len(counts) == 0 {
		return ""
	}
	return sparkline(counts)
}
