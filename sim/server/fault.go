package server

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// HeaderFault names the header by which a client asks for faults in the answer to its request, in the form of ParseFault,
// several separated by semicolons.
const HeaderFault = "X-Agentsim-Fault"

// Fault is one way to answer as servers and networks should not, but do: a client of models must live with each.
type Fault struct {
	text  string
	every int64 // of so many requests one has it
	set   func(*behaviour)
}

func (f Fault) String() string { return f.text }

// behaviour is how a request is answered: the zero value as it should be.
type behaviour struct {
	delay      time.Duration // before the first byte
	status     int           // answered in place of 200
	retryAfter string
	refuse     string // field of the body that is refused
	reset      bool   // the connection is reset without an answer
	noAnswer   bool   // 200 without a body
	plain      bool   // JSON although a stream was asked for
	restart    time.Duration
	restarts   bool

	output     int // tokens that are generated, whatever was asked for; -1: as asked
	truncate   int // tokens that the prompt is cut to; -1: none
	cut, stall int // tokens after which the connection breaks, or nothing more comes; -1: never
	fail       int // tokens after which an error is told inside the answer; -1: never
	failEvent  string

	group               int // tokens in one event
	reasoning           string
	thinking            int // tokens of the answer that are reasoning
	toolCalls           bool
	noRole, noUsage     bool
	usageEach           bool
	wrongUsage          int64
	warm                bool
	noDone, moreAfter   bool
	finishApart         bool
	close, zip          bool
	mark, noSpace       bool
	split, unterminated bool
	manyLines, nullText bool
	merge               int // events in one write
	lineEnd             string
	comment             string
	pad                 int
	ping                time.Duration
}

func newBehaviour() behaviour {
	return behaviour{output: -1, truncate: -1, cut: -1, stall: -1, fail: -1, group: 1, lineEnd: "\n"}
}

// kind is a kind of fault. Its value is a number, a duration or a word, and optional where there is a default.
type kind struct {
	value, help string // form and default of the value, as "N=5"; "" takes none
	set         func(*behaviour, value)
}

// value is the value of a fault in the three forms.
type value struct {
	n int
	d time.Duration
	s string
}

// kinds are the faults by name. The numbers are of the troubles that clients had with them: projects and their issues.
var kinds = map[string]kind{
	"slow":           {"D=1s", "the first byte comes after D", func(b *behaviour, v value) { b.delay = v.d }},
	"status":         {"N=503", "answer with that status: 429, 500, 503, 529 ...", func(b *behaviour, v value) { b.status = v.n }},
	"retry-after":    {"S=1", "Retry-After header with a status", func(b *behaviour, v value) { b.retryAfter = v.s }},
	"refuse":         {"S=min_tokens", "status 400 if the body has that field, as of a server that does not know it (dynamo#11662)", func(b *behaviour, v value) { b.refuse = v.s }},
	"reset":          {"", "the connection is reset without an answer", func(b *behaviour, _ value) { b.reset = true }},
	"no-answer":      {"", "status 200 and no body (dynamo#3902)", func(b *behaviour, _ value) { b.noAnswer = true }},
	"plain":          {"", "JSON in place of the stream that was asked for", func(b *behaviour, _ value) { b.plain = true }},
	"restart":        {"D=1s", "the server restarts: all requests fail, caches and counters are empty, status 503 for D", func(b *behaviour, v value) { b.restart, b.restarts = v.d, true }},
	"output":         {"N=1", "generate N tokens, whatever was asked for (aiperf#339)", func(b *behaviour, v value) { b.output = v.n }},
	"truncate":       {"N=100", "only the first N tokens of the prompt count", func(b *behaviour, v value) { b.truncate = v.n }},
	"cut":            {"N=2", "the connection breaks inside the event after N tokens", func(b *behaviour, v value) { b.cut = max(1, v.n) }},
	"stall":          {"N=2", "nothing more comes after N tokens (dynamo#13088)", func(b *behaviour, v value) { b.stall = max(1, v.n) }},
	"error":          {"N=2", "after N tokens an error inside the answer", func(b *behaviour, v value) { b.fail = max(1, v.n) }},
	"error-event":    {"N=2", "the same as an event named error", func(b *behaviour, v value) { b.fail, b.failEvent = max(1, v.n), "error" }},
	"group":          {"N=2", "N tokens in one event", func(b *behaviour, v value) { b.group = max(1, v.n) }},
	"reasoning":      {"S=reasoning_content", "the first half of a chat's answer is reasoning, under that name (guidellm#737)", func(b *behaviour, v value) { b.reasoning, b.thinking = v.s, 1 }},
	"tool-calls":     {"", "a chat's answer is a tool call", func(b *behaviour, _ value) { b.toolCalls = true }},
	"no-role":        {"", "a chat begins without an event for the role", func(b *behaviour, _ value) { b.noRole = true }},
	"no-usage":       {"", "usage is never told", func(b *behaviour, _ value) { b.noUsage = true }},
	"usage-each":     {"", "usage with each event", func(b *behaviour, _ value) { b.usageEach = true }},
	"wrong-usage":    {"N=1", "usage tells N tokens more than there were, of prompt and answer", func(b *behaviour, v value) { b.wrongUsage = int64(v.n) }},
	"warm":           {"", "usage tells that the whole prompt was cached", func(b *behaviour, _ value) { b.warm = true }},
	"finish-apart":   {"", "the finish reason comes in an event of its own, without text", func(b *behaviour, _ value) { b.finishApart = true }},
	"no-done":        {"", "the stream ends without [DONE]", func(b *behaviour, _ value) { b.noDone = true }},
	"more-after":     {"", "an event after [DONE]", func(b *behaviour, _ value) { b.moreAfter = true }},
	"close":          {"", "the connection is closed after the answer", func(b *behaviour, _ value) { b.close = true }},
	"gzip":           {"", "the stream is compressed, though nobody asked", func(b *behaviour, _ value) { b.zip = true }},
	"crlf":           {"", "lines end in CR LF", func(b *behaviour, _ value) { b.lineEnd = "\r\n" }},
	"cr":             {"", "lines end in CR", func(b *behaviour, _ value) { b.lineEnd = "\r" }},
	"bom":            {"", "a byte order mark before the stream", func(b *behaviour, _ value) { b.mark = true }},
	"no-space":       {"", "no space behind \"data:\"", func(b *behaviour, _ value) { b.noSpace = true }},
	"split":          {"", "every event comes in two writes", func(b *behaviour, _ value) { b.split = true }},
	"merge":          {"N=3", "the events of N tokens come in one write (aiperf#368)", func(b *behaviour, v value) { b.merge = v.n }},
	"multi-line":     {"", "the data of an event has two lines", func(b *behaviour, _ value) { b.manyLines = true }},
	"null-content":   {"", "the event for the role of a chat has content null", func(b *behaviour, _ value) { b.nullText = true }},
	"no-final-blank": {"", "the empty line behind the last event is missing", func(b *behaviour, _ value) { b.unterminated = true }},
	"comment":        {"", "a comment before every event", func(b *behaviour, _ value) { b.comment = ": keep-alive" }},
	"ping":           {"D=1s", "a comment every D while nothing comes", func(b *behaviour, v value) { b.ping = v.d }},
	"long-line":      {"N=100000", "events of N bytes more than they need", func(b *behaviour, v value) { b.pad = v.n }},
}

// FaultHelp describes the kinds of faults, a line each.
func FaultHelp() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(kinds)) {
		k := kinds[name]
		if k.value != "" {
			name += ":" + k.value
		}
		fmt.Fprintf(&b, "  %-30s %s\n", name, k.help)
	}
	return b.String()
}

// maxFaultNumber bounds the numbers of faults.
const maxFaultNumber = 1 << 24

// ParseFault reads KIND, KIND:VALUE, or either followed by ",every=N": one of N requests has it.
func ParseFault(text string) (Fault, error) {
	f := Fault{text: text, every: 1}
	what, option, hasOption := strings.Cut(text, ",")
	if hasOption {
		n, ok := strings.CutPrefix(option, "every=")
		every, err := strconv.Atoi(n)
		if !ok || err != nil || every < 1 {
			return f, fmt.Errorf("fault %q: want every=N behind the comma", text)
		}
		f.every = int64(every)
	}
	name, given, hasValue := strings.Cut(what, ":")
	k, ok := kinds[name]
	if !ok {
		return f, fmt.Errorf("fault %q is unknown, want one of %s", name, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	form, def, _ := strings.Cut(k.value, "=")
	if hasValue && form == "" {
		return f, fmt.Errorf("fault %s takes no value", name)
	}
	if !hasValue {
		given = def
	}
	v, err := parseValue(form, given)
	if err != nil {
		return f, fmt.Errorf("fault %s: %w", name, err)
	}
	f.set = func(b *behaviour) { k.set(b, v) }
	return f, nil
}

func parseValue(form, text string) (v value, err error) {
	v.s = text
	switch form {
	case "N":
		if v.n, err = strconv.Atoi(text); err != nil || v.n < 0 || v.n > maxFaultNumber {
			return v, fmt.Errorf("%q is not a number from 0 to %d", text, maxFaultNumber)
		}
	case "D":
		if v.d, err = time.ParseDuration(text); err != nil || v.d < 0 {
			return v, fmt.Errorf("%q is not a duration such as 500ms", text)
		}
	case "S":
		for i := range len(text) {
			if text[i] < ' ' || text[i] > '~' {
				return v, fmt.Errorf("%q is not plain text", text)
			}
		}
	}
	return v, nil
}

// ParseFaults reads several faults that are separated by semicolons.
func ParseFaults(text string) ([]Fault, error) {
	var all []Fault
	for part := range strings.SplitSeq(text, ";") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		f, err := ParseFault(part)
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// behave returns how request number n, from 1, is answered under the given faults.
func behave(n int64, faults ...[]Fault) behaviour {
	b := newBehaviour()
	for _, list := range faults {
		for i := range list {
			if n%list[i].every == 0 {
				list[i].set(&b)
			}
		}
	}
	return b
}
