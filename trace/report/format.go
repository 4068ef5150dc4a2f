package report

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/clipperhouse/displaywidth"
)

// number prints three significant digits for people: 0.00412, 4.12, 412, 1.24k, 12.4M; from 0.01 to 0.1 two are enough.
func number(v float64) string {
	if v == 0 {
		return "0"
	}
	for _, suffix := range []string{"", "k", "M", "G"} {
		a := math.Abs(v)
		switch {
		case a < 1e3 && v == math.Trunc(v) && suffix == "":
			return strconv.FormatFloat(v, 'f', 0, 64)
		case a < 0.001:
			return strconv.FormatFloat(v, 'e', 1, 64)
		case a < 0.00995:
			return strconv.FormatFloat(v, 'f', 5, 64)
		case a < 0.9995:
			return strconv.FormatFloat(v, 'f', 3, 64)
		case a < 9.995:
			return strconv.FormatFloat(v, 'f', 2, 64) + suffix
		case a < 99.95:
			return strconv.FormatFloat(v, 'f', 1, 64) + suffix
		case a < 999.5:
			return strconv.FormatFloat(v, 'f', 0, 64) + suffix
		}
		v /= 1000
	}
	return strconv.FormatFloat(v*1e12, 'e', 2, 64)
}

// timeUnit is a unit of time and its length in seconds.
type timeUnit struct {
	name    string
	seconds float64
}

// unitFor picks the unit in which the largest of some times is easy to read.
func unitFor(seconds float64) timeUnit {
	switch {
	case seconds > 0 && seconds < 1e-5:
		return timeUnit{"µs", 1e-6}
	case seconds < 0.9995:
		return timeUnit{"ms", 1e-3}
	case seconds < 600:
		return timeUnit{"s", 1}
	case seconds < 36000:
		return timeUnit{"min", 60}
	case seconds < 1000*3600:
		return timeUnit{"h", 3600}
	}
	return timeUnit{"d", 86400}
}

// text prints a time with the unit: "412 ms", "3.10 s", "12.5 min".
func (u timeUnit) text(seconds float64) string { return number(seconds/u.seconds) + " " + u.name }

// percent prints a share: "71%", "4.1%", "<0.1%".
func percent(share float64) string {
	switch p := math.Abs(100 * share); {
	case p == 0 || p >= 9.95:
		return fmt.Sprintf("%.0f%%", 100*share)
	case p < 0.05:
		return "<0.1%"
	}
	return fmt.Sprintf("%.1f%%", 100*share)
}

// equalWithin is the relative difference below which two figures are called equal when there is no interval.
const equalWithin = 0.01

// change prints a relative difference to a baseline: "+12%", "-3%", "=" below 1 %, "x14" from tenfold on.
func change(value, base float64) string {
	if base == 0 {
		if value == 0 {
			return "="
		}
		return ""
	}
	d := value/base - 1
	switch {
	case math.Abs(d) < equalWithin:
		return "="
	case d >= 9:
		return "x" + number(value/base)
	}
	return fmt.Sprintf("%+.0f%%", 100*d)
}

// countOf prints "3 of 412 requests".
func countOf(n, total int64, noun string) string {
	if total != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d of %d %s", n, total, noun)
}

// Shorten cuts the middle out of a name that is wider than limit, but leaves a character at both ends.
func Shorten(name string, limit int) string {
	name = printable(name)
	runes := []rune(name)
	if displaywidth.String(name) <= limit || len(runes) <= 2 {
		return name
	}
	room := limit - displaywidth.Rune('…')
	width := displaywidth.Rune(runes[0])
	head := 1
	for half := (room + 1) / 2; head < len(runes)-1; head++ {
		w := displaywidth.Rune(runes[head])
		if width+w > half {
			break
		}
		width += w
	}
	tail := len(runes) - 1
	width += displaywidth.Rune(runes[tail])
	for ; tail > head; tail-- {
		w := displaywidth.Rune(runes[tail-1])
		if width+w > room {
			break
		}
		width += w
	}
	return string(runes[:head]) + "…" + string(runes[tail:])
}

// printable replaces what a terminal cannot print in one line.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case !unicode.IsPrint(r):
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// list prints "a", "a and b", "a, b and c".
func list(items []string) string {
	switch n := len(items); n {
	case 0:
		return ""
	case 1:
		return items[0]
	default:
		return strings.Join(items[:n-1], ", ") + " and " + items[n-1]
	}
}
