package synth

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"
)

// param is one parameter of a profile, tied to the field that holds it: a plain number or a distribution.
type param struct {
	key       string
	number    *float64
	dist      *dist
	low, high float64 // what a number, and both ends of a range, must lie between
	whole     bool    // a number must be whole
	unit      string
	about     string
	source    string // where the default comes from; "" when it is a mere choice
	none      string // what holds without a distribution; "" when there must be one
}

// override sets the parameters named in settings.
func override(params []param, settings []string) error {
	keys := make([]string, len(params))
	for i, p := range params {
		keys[i] = p.key
	}
next:
	for _, s := range settings {
		key, value, ok := strings.Cut(s, "=")
		if !ok {
			return fmt.Errorf("parameter %q: want key=value", s)
		}
		for _, p := range params {
			if p.key == key {
				if err := p.set(value); err != nil {
					return fmt.Errorf("parameter %s=%s: %w", key, value, err)
				}
				continue next
			}
		}
		return fmt.Errorf("unknown parameter %q; parameters are %s", key, strings.Join(keys, ", "))
	}
	return nil
}

// set changes the parameter to value, "NUMBER" or "LOW:HIGH".
func (p *param) set(value string) error {
	low, high, isRange := strings.Cut(value, ":")
	if isRange && p.dist == nil {
		return fmt.Errorf("want one number, not a range")
	}
	a, err := p.parse(low)
	if err != nil {
		return err
	}
	switch {
	case p.dist == nil:
		*p.number = a
	case !isRange:
		*p.dist = p.dist.scaled(a)
	default:
		b, err := p.parse(high)
		if err != nil {
			return err
		}
		if a > b {
			return fmt.Errorf("the low end is above the high end")
		}
		*p.dist = between(a, b)
	}
	return nil
}

// parse reads a number of the parameter's range.
func (p *param) parse(s string) (float64, error) {
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", s)
	}
	if !(x >= p.low && x <= p.high) {
		return 0, fmt.Errorf("must lie within %s", p.limits())
	}
	if p.whole && x != math.Trunc(x) {
		return 0, fmt.Errorf("must be a whole number")
	}
	return x, nil
}

func (p *param) limits() string {
	return fmt.Sprintf("%s to %s", plainNumber(p.low), plainNumber(p.high))
}

// percent formats a share.
func percent(share float64) string { return fmt.Sprintf("%.3g%%", 100*share) }

// plainNumber formats x without an exponent.
func plainNumber(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// describe writes the parameter's entry of a profile's page.
func (p *param) describe(w io.Writer) {
	var value string
	switch {
	case p.dist == nil:
		value = plainNumber(*p.number)
	case p.dist.none() && p.none != "":
		value = p.none
	default:
		value = p.dist.String()
	}
	fmt.Fprintf(w, "\n  %s (%s, %s)\n", p.key, p.unit, p.limits())
	wrap(w, p.about)
	wrap(w, "default: "+value)
	if p.source != "" {
		wrap(w, "source: "+p.source)
	}
}

// wrap writes text in lines of at most 100 columns, indented by six.
func wrap(w io.Writer, text string) {
	const indent, width = "     ", 100
	column := 0
	for _, word := range strings.Fields(text) {
		if column > 0 && column+1+utf8.RuneCountInString(word) > width {
			io.WriteString(w, "\n")
			column = 0
		}
		if column == 0 {
			io.WriteString(w, indent)
			column = len(indent)
		}
		io.WriteString(w, " "+word)
		column += 1 + utf8.RuneCountInString(word)
	}
	io.WriteString(w, "\n")
}
