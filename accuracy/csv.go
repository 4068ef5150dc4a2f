package accuracy

import (
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
)

// maxRows bounds a file of measurements.
const maxRows = 1 << 20

// row is a line of a CSV file whose first line names the columns.
type row struct {
	file   string
	line   int
	column map[string]int
	cells  []string
}

// readRows calls each for every line of a CSV file, which must have the columns. Errors name file and line.
func readRows(path string, columns []string, each func(*row) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading measurements: %w", err)
	}
	defer f.Close()
	r := csv.NewReader(f)
	r.ReuseRecord = true
	head, err := r.Read()
	if err != nil {
		return fmt.Errorf("reading the header of %s: %w", path, err)
	}
	at := row{file: path, column: make(map[string]int, len(head))}
	for i, name := range head {
		at.column[name] = i
	}
	for _, name := range columns {
		if _, ok := at.column[name]; !ok {
			return fmt.Errorf("%s: no column %q", path, name)
		}
	}
	for n := 0; ; n++ {
		at.cells, err = r.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if n == maxRows {
			return fmt.Errorf("%s: more than %d rows", path, maxRows)
		}
		at.line, _ = r.FieldPos(0)
		if err := each(&at); err != nil {
			return fmt.Errorf("%s:%d: %w", path, at.line, err)
		}
	}
}

func (r *row) text(column string) string { return r.cells[r.column[column]] }

// number reads a cell that must hold a number from 0 to most.
func (r *row) number(column string, most float64) (float64, error) {
	v, err := strconv.ParseFloat(r.text(column), 64)
	if err != nil || !(v >= 0 && v <= most) {
		return 0, fmt.Errorf("%s is %q, want a number from 0 to %g", column, r.text(column), most)
	}
	return v, nil
}

// count reads a cell that must hold a whole number from least to most.
func (r *row) count(column string, least, most int) (int, error) {
	v, err := strconv.Atoi(r.text(column))
	if err != nil || v < least || v > most {
		return 0, fmt.Errorf("%s is %q, want a whole number from %d to %d", column, r.text(column), least, most)
	}
	return v, nil
}

// field is a cell to read into an int or a float64, which must lie in a range. Where it may be 0, an empty cell is 0.
type field struct {
	column      string
	into        any
	least, most int
}

// fill reads cells, up to the first that does not hold what it should.
func (r *row) fill(fields []field) (err error) {
	for _, f := range fields {
		switch into := f.into.(type) {
		case *float64:
			*into, err = r.number(f.column, float64(f.most))
		case *int:
			if f.least > 0 || r.text(f.column) != "" {
				*into, err = r.count(f.column, f.least, f.most)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}
