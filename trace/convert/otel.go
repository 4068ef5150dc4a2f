package convert

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

func isOTel(l *look) bool {
	return l.keys["resourceSpans"] == "[" || l.keys["scopeSpans"] == "[" || l.has("trace_id", "spans") || l.has("traceID", "spans") ||
		l.has("traceId", "spanId", "attributes") || l.has("data") && strings.Contains(string(l.text[:min(len(l.text), 4096)]), `"traceID"`)
}

// otel reads OpenTelemetry spans with the attributes of the GenAI conventions, old names and new: OTLP/JSON, one object or
// one a line as the collector's file exporter writes it; exports of one trace a file with ISO times; Jaeger's JSON.
//
// Spans of model calls are calls; those of tools are tools. Spans of agents are sessions, and their usage, which repeats
// the sum of their calls, does not count. Without an agent span, the conversation's id names the session, else the trace's.
func (in input) otel() (*trace.Capture, error) {
	b := &spans{logbook: newLogbook(FormatOTel), byID: map[spanID]*genSpan{}}
	b.resolution = time.Microsecond
	read, err := readObjects(in, parseSpans, func(at place, list []*genSpan) error {
		for _, s := range list {
			s.at = at
			if s.id != "" {
				if b.byID[s.key()] != nil {
					b.read.Duplicates++
					continue
				}
				b.byID[s.key()] = s
			}
			b.list = append(b.list, s)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	b.read.Add(&read)
	b.tell()
	return b.capture(in)
}

// spanID identifies a span.
type spanID struct{ trace, span string }

// genSpan is one span.
type genSpan struct {
	trace, id, parent, name string
	start, end              time.Duration // since the Unix epoch; NoTime if not told
	failed                  bool
	at                      place

	operation, model, conversation, agent, response string
	tool, toolCall                                  string
	input, output, cached, created, thought         int64
	messages, answer                                []byte // JSON, or text
}

func (s *genSpan) key() spanID { return spanID{s.trace, s.id} }

// spans is all spans of a load.
type spans struct {
	*logbook
	list []*genSpan
	byID map[spanID]*genSpan
}

// parseSpans reads the spans of an object, at whatever depth they stand.
func parseSpans(text []byte) ([]*genSpan, error) {
	s := scanner{data: text}
	var list []*genSpan
	s.spans(&list, "", 0)
	return list, s.end()
}

// spans looks for spans in a value: objects with the id of a span.
func (s *scanner) spans(list *[]*genSpan, traceID string, depth int) {
	switch c := s.peek(); {
	case depth > maxTrajectoryDepth || c != '{' && c != '[':
		s.skip()
		return
	case c == '[':
		for ok := s.array(); ok; ok = s.more() {
			s.spans(list, traceID, depth+1)
		}
		return
	}
	span := &genSpan{trace: traceID, start: trace.NoTime, end: trace.NoTime, input: -1, output: -1, cached: -1, created: -1, thought: -1}
	took := trace.NoTime
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "traceId", "trace_id", "traceID":
			span.trace = s.loose()
		case "spanId", "span_id", "spanID":
			span.id = s.loose()
		case "parentSpanId", "parent_span_id":
			span.parent = s.loose()
		case "name", "operationName":
			span.name = s.loose()
		case "startTimeUnixNano":
			span.start = s.nanos(time.Nanosecond)
		case "endTimeUnixNano":
			span.end = s.nanos(time.Nanosecond)
		case "start_time":
			span.start = s.date()
		case "end_time":
			span.end = s.date()
		case "startTime":
			span.start = s.nanos(time.Microsecond)
		case "duration":
			took = s.nanos(time.Microsecond)
		case "attributes", "tags":
			s.attributes(span)
		case "references":
			span.parent = cmp.Or(span.parent, jaegerParent(s.span()))
		case "status":
			span.failed = s.spanStatus()
		case "resourceSpans", "scopeSpans", "instrumentationLibrarySpans", "spans", "data":
			s.spans(list, span.trace, depth+1)
		default:
			s.skip()
		}
	}
	if span.end == trace.NoTime && span.start != trace.NoTime && took != trace.NoTime {
		span.end = span.start + took
	}
	if span.id != "" {
		*list = append(*list, span)
	}
}

// nanos reads a count of units as a time, which OTLP/JSON writes as a string; what is none is trace.NoTime.
func (s *scanner) nanos(unit time.Duration) time.Duration {
	if s.peek() != '"' {
		if n := s.total(); n >= 0 && n <= int64(maxSeconds*1e9)/int64(unit) {
			return time.Duration(n) * unit
		}
		return trace.NoTime
	}
	n, err := strconv.ParseInt(string(s.text()), 10, 64)
	if err != nil || n < 0 || n > int64(maxSeconds*1e9)/int64(unit) {
		return trace.NoTime
	}
	return time.Duration(n) * unit
}

// jaegerParent finds the parent in a span's references.
func jaegerParent(references []byte) string {
	s := scanner{data: references}
	if s.peek() != '[' {
		return ""
	}
	for ok := s.array(); ok; ok = s.more() {
		if id := s.stringAt("spanID"); id != "" {
			return id
		}
	}
	return ""
}

// spanStatus tells whether a status is an error: code 2, or STATUS_CODE_ERROR.
func (s *scanner) spanStatus() (failed bool) {
	for key, ok := s.looseObject(); ok; key, ok = s.next() {
		if string(key) == "code" {
			code := strings.ToUpper(string(s.span()))
			failed = code == "2" || strings.HasSuffix(strings.Trim(code, `"`), "ERROR")
		} else {
			s.skip()
		}
	}
	return failed
}

// attributes reads attributes: a map, or a list of keys and values.
func (s *scanner) attributes(span *genSpan) {
	switch s.peek() {
	case '{':
		for key, ok := s.object(); ok; key, ok = s.next() {
			name := string(key)
			span.set(name, s.span())
		}
	case '[':
		for ok := s.array(); ok; ok = s.more() {
			if s.peek() != '{' {
				s.skip()
				continue
			}
			name, value := "", []byte(nil)
			for key, ok := s.object(); ok; key, ok = s.next() {
				switch string(key) {
				case "key":
					name = s.loose()
				case "value":
					value = s.span()
				default:
					s.skip()
				}
			}
			span.set(name, plainValue(value))
		}
	default:
		s.skip()
	}
}

// plainValue unwraps {"stringValue": ...} and its like.
func plainValue(value []byte) []byte {
	s := scanner{data: value}
	if s.peek() != '{' {
		return value
	}
	if key, ok := s.object(); ok && strings.HasSuffix(string(key), "Value") {
		return s.span()
	}
	return value
}

// set takes an attribute.
func (span *genSpan) set(name string, value []byte) {
	if !strings.HasPrefix(name, "gen_ai.") && name != "session.id" && !strings.HasSuffix(name, ".session.id") {
		return
	}
	s := scanner{data: value}
	count := func() int64 {
		if s.peek() != '"' {
			return s.count()
		}
		n, err := strconv.ParseInt(string(s.text()), 10, 64)
		if err != nil || n < 0 || n > maxTokens {
			return -1
		}
		return n
	}
	switch strings.TrimPrefix(name, "gen_ai.") {
	case "operation.name":
		span.operation = s.loose()
	case "request.model":
		span.model = cmp.Or(span.model, s.loose())
	case "response.model":
		span.model = cmp.Or(s.loose(), span.model)
	case "response.id":
		span.response = s.loose()
	case "conversation.id":
		span.conversation = s.loose()
	case "agent.name":
		span.agent = s.loose()
	case "tool.name":
		span.tool = s.loose()
	case "tool.call.id":
		span.toolCall = s.loose()
	case "usage.input_tokens", "usage.prompt_tokens":
		span.input = max(span.input, count())
	case "usage.output_tokens", "usage.completion_tokens":
		span.output = max(span.output, count())
	case "usage.cache_read.input_tokens", "usage.cached_tokens", "usage.input_tokens.cached":
		span.cached = max(span.cached, count())
	case "usage.cache_creation.input_tokens":
		span.created = max(span.created, count())
	case "usage.reasoning.output_tokens", "usage.output_tokens.reasoning":
		span.thought = max(span.thought, count())
	case "input.messages", "prompt":
		span.messages = unwrapJSON(value)
	case "output.messages", "output.text", "completion":
		span.answer = unwrapJSON(value)
	default:
		if strings.HasSuffix(name, "session.id") {
			span.conversation = cmp.Or(span.conversation, s.loose())
		}
	}
}

// unwrapJSON returns a value that may be JSON inside a string.
func unwrapJSON(value []byte) []byte {
	if len(value) > 0 && value[0] == '"' {
		return appendString(nil, value)
	}
	return slices.Clone(value)
}
