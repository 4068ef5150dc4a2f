package anonymize

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// rule consumes one JSON value and appends what stands for it. What no rule allows is dropped: a new key of a new
// version of a format stays out until somebody has thought about it.
type rule func(r *rewriter) outcome

// outcome is what a rule did with a value.
type outcome uint8

const (
	dropped  outcome = iota // nothing was appended
	kept                    // a value was appended
	rejected                // and neither is to be kept what the value says the kind of: the object around it
)

// fields are the keys of an object that are allowed.
type fields map[string]rule

// rewriter applies rules to one line after the other.
type rewriter struct {
	cursor
	out    []byte
	path   []string
	names  *pseudonyms
	chain  []uint64 // of the row
	opts   Options
	shift  time.Duration
	report Report
}

func newRewriter(opts Options) *rewriter {
	r := &rewriter{names: newPseudonyms(opts.Key), opts: opts, report: newReport()}
	if opts.ShiftTime {
		r.shift = opts.Key.shift()
	}
	return r
}

// row appends what the rule makes of a line, and a line end. It tells whether anything was left of it.
func (r *rewriter) row(line []byte, rule rule) outcome {
	r.cursor, r.path = cursor{json: line}, r.path[:0]
	start := len(r.out)
	done := rule(r)
	if done != kept {
		r.out = r.out[:start]
		return done
	}
	r.out = append(r.out, '\n')
	return kept
}

// drop consumes a value and counts it by the name of its key.
func (r *rewriter) drop() outcome {
	r.value()
	r.report.DroppedKeys.add(strings.Join(r.path, "."))
	return dropped
}

// object keeps the fields of an object that are allowed.
func object(allowed fields) rule {
	return func(r *rewriter) outcome {
		if r.peek() != '{' {
			return r.drop()
		}
		start, done := len(r.out), kept
		r.out = append(r.out, '{')
		r.object(func(key string) {
			r.path = append(r.path, key)
			defer func() { r.path = r.path[:len(r.path)-1] }()
			rule := allowed[key]
			if rule == nil {
				r.drop()
				return
			}
			mark := len(r.out)
			if mark > start+1 {
				r.out = append(r.out, ',')
			}
			r.out = append(strconv.AppendQuote(r.out, key), ':')
			got := kept
			if r.peek() == 'n' { // null says nothing
				r.out = append(r.out, r.value()...)
			} else {
				got = rule(r)
			}
			if got != kept {
				r.out = r.out[:mark]
			}
			if got == rejected {
				done = rejected
			}
		})
		if done != kept {
			r.out = r.out[:start]
			return dropped
		}
		r.out = append(r.out, '}')
		return kept
	}
}

// list keeps the elements of an array that the rule keeps.
func list(element rule) rule {
	return func(r *rewriter) outcome {
		if r.peek() != '[' {
			return r.drop()
		}
		start := len(r.out)
		r.out = append(r.out, '[')
		r.array(func() {
			mark := len(r.out)
			if mark > start+1 {
				r.out = append(r.out, ',')
			}
			if element(r) != kept {
				r.out = r.out[:mark]
			}
		})
		r.out = append(r.out, ']')
		return kept
	}
}

// shapes picks a rule by what the value is; nil is dropped.
func shapes(str, array, obj rule) rule {
	return func(r *rewriter) outcome {
		rule := map[byte]rule{'"': str, '[': array, '{': obj}[r.peek()]
		if rule == nil {
			return r.drop()
		}
		return rule(r)
	}
}

// maxNumber is the longest number that is kept: the digits of a long one could say anything.
const maxNumber = 32

// number keeps a number as it is written.
func number(r *rewriter) outcome {
	if b := r.peek(); b != '-' && b-'0' > 9 {
		return r.drop()
	}
	mark := r.at
	n := r.value()
	if len(n) > maxNumber {
		r.at = mark
		return r.drop()
	}
	r.out = append(r.out, n...)
	return kept
}

// flag keeps true and false.
func flag(r *rewriter) outcome {
	if b := r.peek(); b != 't' && b != 'f' {
		return r.drop()
	}
	r.out = append(r.out, r.value()...)
	return kept
}

// str returns the bytes of the next value if it is a string, which is then consumed.
func (r *rewriter) str() ([]byte, bool) {
	if r.peek() != '"' {
		return nil, false
	}
	return unquote(r.value()), true
}

// appendString appends a string of which no byte needs an escape.
func (r *rewriter) appendString(s string) outcome {
	r.out = append(append(append(r.out, '"'), s...), '"')
	return kept
}

// words keeps a string that is one of a few words of the format.
func words(allowed ...string) rule {
	return func(r *rewriter) outcome {
		mark := r.at
		if s, ok := r.str(); ok && slices.Contains(allowed, string(s)) {
			r.report.Words.add(string(s))
			return r.appendString(string(s))
		}
		r.at = mark
		return r.drop()
	}
}

// kind is words for the key that tells what an object is. An object of a kind that is not known is not kept.
func kind(allowed ...string) rule { return required(words(allowed...)) }

// required makes an object that lacks what the rule drops one that is not kept.
func required(rule rule) rule {
	return func(r *rewriter) outcome {
		if rule(r) != kept {
			return rejected
		}
		return kept
	}
}

// reason keeps words, and of an error that it is one, without its message.
func reason(allowed ...string) rule {
	word := words(allowed...)
	return func(r *rewriter) outcome {
		mark := r.at
		if s, ok := r.str(); ok && bytes.HasPrefix(s, []byte("error")) {
			r.report.Words.add("error")
			return r.appendString("error")
		}
		r.at = mark
		return word(r)
	}
}

// id replaces a name, or a number that serves as one, by its pseudonym.
func id(r *rewriter) outcome {
	switch b := r.peek(); {
	case b == '"':
		name := unquote(r.value())
		if len(name) == 0 {
			return r.appendString("")
		}
		return r.appendString(r.names.id(string(name)))
	case b == '-' || b-'0' <= 9:
		return r.appendString(r.names.id(string(r.value())))
	}
	return r.drop()
}

// name keeps the name of a model or a tool, or replaces it. What does not look like one is always replaced.
func name(drop func(Options) bool, seen func(*Report) counts) rule {
	return func(r *rewriter) outcome {
		s, ok := r.str()
		switch {
		case !ok:
			return r.drop()
		case len(s) == 0:
			return r.appendString("")
		case drop(r.opts) || !isName(s) || isPseudonym(string(s)):
			return r.appendString(r.names.id(string(s)))
		}
		seen(&r.report).add(string(s))
		return r.appendString(string(s))
	}
}

var (
	model = name(func(o Options) bool { return o.DropModel }, func(r *Report) counts { return r.Models })
	tool  = name(func(o Options) bool { return o.DropToolNames }, func(r *Report) counts { return r.Tools })
)

// maxName is the longest name of a model or a tool, in bytes.
const maxName = 96

// isName tells whether a string looks like the name of a model or a tool: neither a path on a disk, nor an address, nor
// a sentence.
func isName(s []byte) bool {
	if len(s) > maxName || s[0] == '/' || s[0] == '.' || s[0] == '~' {
		return false
	}
	for _, b := range s {
		if b|0x20 >= 'a' && b|0x20 <= 'z' || b >= '0' && b <= '9' || strings.IndexByte("-_.:/<>", b) >= 0 {
			continue
		}
		return false
	}
	return true
}

// filler replaces a string by filler of the same length, with something before and after it.
func filler(before, after string) rule {
	return func(r *rewriter) outcome {
		s, ok := r.str()
		if !ok {
			return r.drop()
		}
		r.report.TextBytes += int64(len(s))
		r.out = append(r.names.appendFiller(append(r.out, before...), s), after...)
		return kept
	}
}

var (
	text = filler(`"`, `"`)
	// quotedArguments is arguments where they are JSON in a string.
	quotedArguments = filler(`"{\"text\":\"`, `\"}"`)
)

// arguments replaces the JSON that a tool was called with by an object that is about as long.
func arguments(r *rewriter) outcome {
	json := r.value()
	r.report.TextBytes += int64(len(json))
	r.out = append(r.names.appendFiller(append(r.out, `{"text":"`...), json), `"}`...)
	return kept
}

// hashes replaces an array of block hashes by their keyed values.
func hashes(r *rewriter) outcome {
	mark := r.at
	values, err := trace.AppendHashes(r.chain[:0], r.value())
	if r.chain = values; err != nil {
		r.at = mark
		return r.drop()
	}
	r.report.Hashes += int64(len(values))
	r.names.keyed(values)
	r.out = append(r.out, '[')
	for i, h := range values {
		if i > 0 {
			r.out = append(r.out, ',')
		}
		r.out = strconv.AppendUint(r.out, h, 10)
	}
	r.out = append(r.out, ']')
	return kept
}

// worker replaces the 64-bit id of a worker.
func worker(r *rewriter) outcome {
	mark := r.at
	n, err := strconv.ParseUint(string(r.value()), 10, 64)
	if err != nil {
		r.at = mark
		return r.drop()
	}
	r.chain = append(r.chain[:0], n)
	r.names.keyed(r.chain)
	r.out = strconv.AppendUint(r.out, r.chain[0], 10)
	return kept
}

// epochMs tells Unix times in milliseconds from times since the start of a trace.
const epochMs = 1e11

// unixMs moves a Unix time in milliseconds. Times since the start of a trace stay.
func unixMs(r *rewriter) outcome {
	start, mark := len(r.out), r.at
	if got := number(r); got != kept || r.shift == 0 {
		return got
	}
	n := r.out[start:]
	if t, err := strconv.ParseInt(string(n), 10, 64); err == nil {
		if t >= epochMs && t < 1<<60 {
			r.out = strconv.AppendInt(r.out[:start], t+r.shift.Milliseconds(), 10)
		}
		return kept
	}
	t, err := strconv.ParseFloat(string(n), 64)
	if err != nil {
		r.out, r.at = r.out[:start], mark
		return r.drop()
	}
	if t >= epochMs {
		r.out = strconv.AppendFloat(r.out[:start], t+float64(r.shift.Milliseconds()), 'f', -1, 64)
	}
	return kept
}

// clock keeps a time as RFC 3339 writes it, moved and in UTC.
func clock(r *rewriter) outcome {
	mark := r.at
	if s, ok := r.str(); ok {
		if moved, ok := moveClock(string(s), r.shift); ok {
			return r.appendString(moved)
		}
	}
	r.at = mark
	return r.drop()
}

// moveClock moves a time. It keeps the number of digits behind the seconds.
func moveClock(s string, by time.Duration) (string, bool) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil || t.Year() < 1900 || t.Year() > 2200 {
		return "", false
	}
	layout := "2006-01-02T15:04:05Z"
	if _, fraction, ok := strings.Cut(s, "."); ok {
		digits := len(fraction) - len(strings.TrimLeft(fraction, "0123456789"))
		layout = "2006-01-02T15:04:05." + strings.Repeat("0", min(digits, 9)) + "Z"
	}
	return t.Add(by).UTC().Format(layout), true
}
