package synth

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// Schema names the YAML form of a profile.
const Schema = "agentsim.synth.v1"

// MaxFile bounds a profile's file, in bytes.
const MaxFile = 1 << 20

// maxKnots bounds the points of a distribution.
const maxKnots = 256

// file is a profile as its file has it.
type file struct {
	Schema     string              `yaml:"schema"`
	Name       string              `yaml:"name"`
	About      string              `yaml:"about"`
	Tools      []fileTool          `yaml:"tools"`
	Parameters map[string]fileDist `yaml:"parameters"`
}

// fileTool is what runs between turns, with its share of such turns.
type fileTool struct {
	Name  string   `yaml:"name"`
	Share float64  `yaml:"share"`
	Time  fileDist `yaml:"time"`
}

// fileDist is a number, or a group of keys.
type fileDist struct {
	number *float64
	keys   fileKeys
}

// fileKeys are the keys of a distribution: quantiles; or median and sigma, perhaps tail, and min and max; or these alone.
type fileKeys struct {
	Quantiles  [][]float64 `yaml:"quantiles"`
	Median     *float64    `yaml:"median"`
	Sigma      float64     `yaml:"sigma"`
	Tail       float64     `yaml:"tail"`
	TailMedian float64     `yaml:"tail_median"`
	TailSigma  float64     `yaml:"tail_sigma"`
	Min        float64     `yaml:"min"`
	Max        float64     `yaml:"max"`
}

// UnmarshalYAML reads a number or a group of keys.
func (d *fileDist) UnmarshalYAML(unmarshal func(any) error) error {
	var number float64
	if unmarshal(&number) == nil {
		d.number = &number
		return nil
	}
	return unmarshal(&d.keys)
}

// Read reads a profile from the text of a file, as YAML writes it. An error names the file, and the parameter that is wrong.
func Read(name string, text []byte) (*Profile, error) {
	if len(text) > MaxFile {
		return nil, fmt.Errorf("profile %s: larger than %d bytes", name, MaxFile)
	}
	var f file
	if err := yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		var at yaml.Error
		if errors.As(err, &at) && at.GetToken() != nil {
			return nil, fmt.Errorf("profile %s:%d: %s", name, at.GetToken().Position.Line, at.GetMessage())
		}
		return nil, fmt.Errorf("profile %s: %w", name, err)
	}
	if f.Schema != Schema {
		return nil, fmt.Errorf("profile %s: schema is %.40q, want %q, which 'agentsim synth --fit' writes", name, f.Schema, Schema)
	}
	p, err := f.profile()
	if err != nil {
		return nil, fmt.Errorf("profile %s: %w", name, err)
	}
	return p, nil
}

// profile checks what the file says.
func (f *file) profile() (*Profile, error) {
	if f.Name == "" || len(f.Name) > maxName || strings.ContainsFunc(f.Name, unprintable) {
		return nil, fmt.Errorf("name %.80q: want 1 to %d bytes that can be printed", f.Name, maxName)
	}
	if len(f.Tools) > maxTools {
		return nil, fmt.Errorf("tools: more than %d", maxTools)
	}
	p := NewProfile(f.Name, f.About, 0)
	a := p.profile.(*agent)
	keys := map[string]fileDist{}
	for _, t := range f.Tools {
		if len(t.Name) > maxName || strings.ContainsFunc(t.Name, unprintable) {
			return nil, fmt.Errorf("tools: name %.80q: want at most %d bytes that can be printed", t.Name, maxName)
		}
		if !(t.Share > 0 && t.Share <= 1) {
			return nil, fmt.Errorf("tool %q: share %v: want above 0 and at most 1", t.Name, t.Share)
		}
		if slices.ContainsFunc(a.tools, func(u tool) bool { return u.name == t.Name }) {
			return nil, fmt.Errorf("tool %q: given twice", t.Name)
		}
		a.tools = append(a.tools, tool{name: t.Name, share: t.Share})
		keys[toolKeys+t.Name] = t.Time
	}
	for key, d := range f.Parameters {
		keys[key] = d
	}
	for _, q := range a.params() {
		key := q.key
		if key == "tool" {
			key = toolKeys + defaultTool
		}
		d, ok := keys[key]
		if !ok {
			continue
		}
		delete(keys, key)
		if err := q.read(d); err != nil {
			return nil, fmt.Errorf("parameter %s: %w", key, err)
		}
	}
	if len(keys) > 0 {
		unknown := make([]string, 0, len(keys))
		for key := range keys {
			unknown = append(unknown, key)
		}
		return nil, fmt.Errorf("unknown parameter %.80q", slices.Min(unknown))
	}
	return p, nil
}

func unprintable(r rune) bool { return !strconv.IsPrint(r) }

// read sets the parameter to what a file has for it.
func (p *param) read(f fileDist) error {
	if p.number != nil {
		if f.number == nil {
			return errors.New("want a number")
		}
		if !(*f.number >= p.low && *f.number <= p.high) || p.whole && *f.number != math.Trunc(*f.number) {
			return fmt.Errorf("%v: must lie within %s%s", *f.number, p.limits(), map[bool]string{true: ", a whole number"}[p.whole])
		}
		*p.number = *f.number
		return nil
	}
	d, err := f.dist()
	if err != nil {
		return err
	}
	if !(d.min >= p.low && d.max <= p.high) && !(d.none() && p.none != "") {
		return fmt.Errorf("reaches from %v to %v: must lie within %s", d.min, d.max, p.limits())
	}
	*p.dist = d
	return nil
}

// dist checks a distribution.
func (f *fileDist) dist() (dist, error) {
	k := &f.keys
	switch {
	case f.number != nil:
		k.Min, k.Max = *f.number, *f.number
	case len(k.Quantiles) > 0:
		return k.measured()
	}
	if !(k.Min >= 0 && k.Min <= k.Max && k.Max <= math.MaxFloat64) {
		return dist{}, fmt.Errorf("min %v, max %v: want them in this order, not below 0", k.Min, k.Max)
	}
	if k.Median == nil {
		return between(k.Min, k.Max), nil
	}
	d := dist{median: *k.Median, sigma: k.Sigma, tail: k.Tail, tailMedian: k.TailMedian, tailSigma: k.TailSigma, min: k.Min, max: k.Max}
	switch {
	case !(d.median > 0 && d.median <= maxContext && d.sigma >= 0 && d.sigma <= maxSigma):
		return d, fmt.Errorf("median %v, sigma %v: want a positive median up to %d and sigma from 0 to %d", d.median, d.sigma, maxContext, maxSigma)
	case !(d.tail >= 0 && d.tail <= 1):
		return d, fmt.Errorf("tail %v: want 0 to 1", d.tail)
	case d.tail > 0 && !(d.tailMedian > 0 && d.tailMedian <= maxContext && d.tailSigma >= 0 && d.tailSigma <= maxSigma):
		return d, fmt.Errorf("tail_median %v, tail_sigma %v: want a positive median and sigma from 0 to %d", d.tailMedian, d.tailSigma, maxSigma)
	}
	return d, nil
}

// maxSigma bounds the standard deviation of logarithms: at 10, values are spread over eight powers of ten.
const maxSigma = 10

// measured checks quantiles.
func (k *fileKeys) measured() (dist, error) {
	if k.Median != nil || k.Min != 0 || k.Max != 0 {
		return dist{}, errors.New("quantiles go without other keys")
	}
	if n := len(k.Quantiles); n < 2 || n > maxKnots {
		return dist{}, fmt.Errorf("quantiles: %d, want 2 to %d", n, maxKnots)
	}
	knots := make([]knot, len(k.Quantiles))
	for i, pair := range k.Quantiles {
		if len(pair) != 2 {
			return dist{}, fmt.Errorf("quantiles: want pairs of share and value, not %v", pair[:min(len(pair), 4)])
		}
		knots[i] = knot{pair[0], pair[1]}
		if !(knots[i].value >= 0 && knots[i].value <= math.MaxFloat64) || i > 0 && !(knots[i].share > knots[i-1].share && knots[i].value >= knots[i-1].value) {
			return dist{}, fmt.Errorf("quantiles: %v: want shares that rise and values that do not fall", pair)
		}
	}
	if knots[0].share != 0 || knots[len(knots)-1].share != 1 {
		return dist{}, errors.New("quantiles: want shares from 0 to 1")
	}
	return measured(knots), nil
}

// YAML writes the profile as a file that Read takes: the same workload comes of it. Parameters that are as in a new profile are
// left out.
func (p *Profile) YAML() ([]byte, error) {
	a, ok := p.profile.(*agent)
	if !ok {
		return nil, fmt.Errorf("synth: profile %s: not one of agents, which alone can be written", p.Name)
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "schema: %s\nname: %s\nabout: %s\n", Schema, strconv.Quote(p.Name), strconv.Quote(p.About))
	if len(a.tools) > 0 {
		b.WriteString("tools:\n")
		for _, t := range a.tools {
			fmt.Fprintf(&b, "- name: %s\n  share: %s\n  time: %s\n", strconv.Quote(t.name), plainNumber(round(t.share/a.shares())), t.time.yaml("    "))
		}
	}
	b.WriteString("parameters:\n")
	for _, q := range a.params() {
		switch {
		case q.key == "tool" || strings.HasPrefix(q.key, toolKeys):
		case q.number != nil:
			if *q.number != 0 {
				fmt.Fprintf(&b, "  %s: %s\n", q.key, plainNumber(*q.number))
			}
		case !q.dist.none():
			fmt.Fprintf(&b, "  %s: %s\n", q.key, q.dist.yaml("    "))
		}
	}
	return b.Bytes(), nil
}

// yaml formats a distribution; lines after the first are indented.
func (d *dist) yaml(indent string) string {
	n := plainNumber
	switch {
	case d.constant():
		return n(d.min)
	case d.uniform:
		return fmt.Sprintf("{min: %s, max: %s}", n(d.min), n(d.max))
	case len(d.knots) == 0 && d.tail == 0:
		return fmt.Sprintf("{median: %s, sigma: %s, min: %s, max: %s}", n(d.median), n(d.sigma), n(d.min), n(d.max))
	case len(d.knots) == 0:
		return fmt.Sprintf("{median: %s, sigma: %s, tail: %s, tail_median: %s, tail_sigma: %s, min: %s, max: %s}",
			n(d.median), n(d.sigma), n(d.tail), n(d.tailMedian), n(d.tailSigma), n(d.min), n(d.max))
	}
	const perLine = 8
	var b strings.Builder
	b.WriteString("{quantiles: [")
	for i, k := range d.knots {
		switch {
		case i == 0:
		case i%perLine == 0:
			b.WriteString(",\n" + indent)
		default:
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "[%s, %s]", n(k.share), n(k.value))
	}
	return b.String() + "]}"
}
