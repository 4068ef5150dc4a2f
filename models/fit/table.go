package fit

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
)

// Bounds of a kernel table.
const (
	maxTableBytes = 1 << 28
	maxTableRows  = 1 << 21
)

// record is one line of a kernel table, by column.
type record struct {
	path    string
	line    int
	columns map[string]int
	fields  []string
	err     error // the first field that was not a number
}

func (r *record) text(column string) string { return r.fields[r.columns[column]] }

// number is a column's value: a number from 0 to 10^12, else err is set.
func (r *record) number(column string) float64 {
	v, err := strconv.ParseFloat(r.text(column), 64)
	if r.err == nil && (err != nil || !(v >= 0 && v <= 1e12)) {
		r.err = fmt.Errorf("reading a kernel table: %s:%d: %s is %q, want a number from 0 to 1e12", r.path, r.line, column, r.text(column))
	}
	return v
}

// us is the latency, which the tables have in ms, in µs.
func (r *record) us() float64 {
	us := r.number("latency") * 1e3
	if r.err == nil && us == 0 {
		r.err = fmt.Errorf("reading a kernel table: %s:%d: latency is 0", r.path, r.line)
	}
	return us
}

// readTable calls each for every line of a CSV file with at least the named columns, in order.
func readTable(path string, columns []string, each func(*record)) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading a kernel table: %w", err)
	}
	defer f.Close()
	lines := csv.NewReader(io.LimitReader(f, maxTableBytes))
	lines.ReuseRecord = true
	header, err := lines.Read()
	if err != nil {
		return fmt.Errorf("reading a kernel table: the header of %s: %w", path, err)
	}
	r := &record{path: path, columns: map[string]int{}}
	for i, name := range header {
		r.columns[name] = i
	}
	for _, name := range columns {
		if _, ok := r.columns[name]; !ok {
			return fmt.Errorf("reading a kernel table: %s has no column %q", path, name)
		}
	}
	for n := 0; ; n++ {
		r.fields, err = lines.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading a kernel table: %s: %w", path, err)
		}
		if n == maxTableRows {
			return fmt.Errorf("reading a kernel table: %s has more than %d rows", path, maxTableRows)
		}
		r.line, _ = lines.FieldPos(0)
		if each(r); r.err != nil {
			return r.err
		}
	}
}

// quantile is the q-quantile of sorted values, by the nearest rank; NaN of none.
func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
