package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"
)

// Figure is a number of a report that may not be known. The zero Figure is unknown and is left out of JSON (fields
// carry omitzero); a known 0 is printed.
type Figure struct {
	Value float64
	Known bool
}

// Known returns a known figure. NaN and infinities, which divide-by-zero makes, are unknown.
func Known[N ~int | ~int32 | ~int64 | ~float64](v N) Figure {
	f := float64(v)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return Figure{}
	}
	return Figure{Value: f, Known: true}
}

// Seconds returns a duration in seconds; a negative one (None, trace.NoTime) is unknown.
func Seconds(d time.Duration) Figure {
	if d < 0 {
		return Figure{}
	}
	return Known(d.Seconds())
}

// ratio returns a/b, unknown when b is 0.
func ratio(a, b float64) Figure { return Known(a / b) }

// String prints the figure for people, with three significant digits: 412, 1.24k, 12.4M; "-" when it is not known.
func (f Figure) String() string {
	if !f.Known {
		return unknownText
	}
	return number(f.Value)
}

// Share prints a share of 1 for people: 71%, 4.1%, <0.1%.
func (f Figure) Share() string {
	if !f.Known {
		return unknownText
	}
	return percent(f.Value)
}

// Time prints seconds for people, with the unit that reads best: 412 ms, 3.10 s, 12.5 min.
func (f Figure) Time() string {
	switch {
	case !f.Known:
		return unknownText
	case f.Value == 0:
		return "0"
	}
	return unitFor(f.Value).text(f.Value)
}

// significantDigits is how many digits of a figure are printed: more than any figure is worth, and few enough that
// rounding hides the last bits in which processors differ (fused multiply-add).
const significantDigits = 9

// MarshalJSON prints whole numbers exactly and others with nine significant digits. An unknown figure is null;
// omitzero keeps those out of reports.
func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.Known {
		return []byte("null"), nil
	}
	v := f.Value
	if v != math.Trunc(v) {
		rounded, err := strconv.ParseFloat(strconv.FormatFloat(v, 'e', significantDigits-1, 64), 64)
		if err != nil {
			return nil, fmt.Errorf("print figure %v: %w", v, err)
		}
		v = rounded
	}
	return json.Marshal(v)
}

// UnmarshalJSON reads a number; null is unknown.
func (f *Figure) UnmarshalJSON(b []byte) error {
	if bytes.Equal(b, []byte("null")) {
		*f = Figure{}
		return nil
	}
	var v float64
	if err := json.Unmarshal(b, &v); err != nil {
		return err
	}
	*f = Known(v)
	return nil
}
