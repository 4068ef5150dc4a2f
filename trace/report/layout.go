package report

import "slices"

const (
	nameLimit = 32 // longest name shown as it is
	nameWhole = 22 // names are shortened down to this before a column is dropped: no policy's is longer
	nameLeast = 12 // and down to this before those that matter most are
	columnGap = 2
)

// layout fits the columns of a table into a width.
type layout struct {
	runs []*Run
	// rows names the rows; names is how they are shown: cut to limit characters, and numbered when some look alike.
	rows     rowNames
	names    []*column
	limit    int
	numbered bool
	// lead always stays; columns are dropped as need be.
	lead, columns []*column
}

func newLayout(runs []*Run) *layout {
	l := &layout{runs: runs, rows: namesByAxes(runs), lead: []*column{doneColumn(runs)}, columns: columnsFor(runs)}
	if l.rows.heads == nil {
		l.rows = namesByRun(runs)
	}
	for _, c := range []*column{solutionColumn(runs), gpusColumn(runs)} {
		if c != nil {
			l.lead = append(l.lead, c)
		}
	}
	l.shorten(nameLimit)
	return l
}

// shown returns all columns that are not dropped.
func (l *layout) shown() []*column {
	return slices.DeleteFunc(slices.Concat(l.names, l.lead, l.columns), func(c *column) bool { return c.dropped })
}

// The order in which a table that is too wide gets narrower: changes of secondary figures go first, then parts of the
// names, then whole columns.
var (
	hiddenFirst = []string{"preemptions", idleKV.Name, "output tok/s", "TPOT p50", "TTFT p50", programPrice.Name, doneHalf.Name, done99.Name, done90.Name}
	droppedNext = []string{"preemptions", "accepted drafts", "output tok/s", "moved GB", "TPOT p50", idleKV.Name, "in SLO", programPrice.Name, done99.Name, doneHalf.Name, "TTFT p50", done90.Name}
	hiddenLast  = []string{meanMakespan.Name, meanE2E.Name, doneLast.Name}
	droppedLast = []string{"wasted prefill", "KV fetched", "hit rate", doneLast.Name, pausedMean.Name, "TTFT p99", meanMakespan.Name, meanE2E.Name}
)

// fit narrows the table until no line is longer than width, or nothing is left to narrow.
func (l *layout) fit(width int) {
	fits := func() bool {
		total := -columnGap
		for _, c := range l.shown() {
			total += c.width() + columnGap
		}
		return total <= width
	}
	var narrowed []func(bool)
	narrow := func(names []string, set func(c *column, narrow bool)) {
		for _, name := range names {
			if i := slices.IndexFunc(l.columns, func(c *column) bool { return c.name == name }); i >= 0 && !fits() {
				one := func(narrow bool) { set(l.columns[i], narrow) }
				one(true)
				narrowed = append(narrowed, one)
			}
		}
	}
	hide := func(c *column, hide bool) { c.compare = !hide }
	drop := func(c *column, drop bool) { c.dropped = drop }
	shorten := func(least int) {
		for limit := l.limit - 1; limit >= least && !fits(); limit-- {
			l.shorten(limit)
		}
	}
	narrow(hiddenFirst, hide)
	shorten(nameWhole)
	narrow(droppedNext, drop)
	shorten(nameLeast)
	narrow(hiddenLast, hide)
	narrow(droppedLast, drop)
	if len(l.names) > 1 && !fits() { // too many axes
		l.rows = namesByRun(l.runs)
		l.shorten(nameLimit)
		shorten(nameLeast)
	}
	// What went last may have made room for something that went before.
	for _, one := range slices.Backward(narrowed) {
		if one(false); !fits() {
			one(true)
		}
	}
}

func (l *layout) shorten(limit int) {
	l.limit = limit
	l.names, l.numbered = l.rows.columns(limit)
}
