package recorder

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/recorder/toolevent"
)

// Settings are what the environment of a Dynamo deployment says of request traces: the variables DYN_REQUEST_TRACE_*,
// with their older names. What is not set is zero, and flags of a command go before it. The switch DYN_REQUEST_TRACE
// itself is not read, since who starts a recorder wants a trace.
type Settings struct {
	Sink SinkOptions
	// ToolEndpoint is where harnesses send tool events over ZeroMQ, "" for nowhere; ToolTopic is what they call them.
	ToolEndpoint, ToolTopic string
}

// ReadSettings reads the environment through a function like os.Getenv.
func ReadSettings(getenv func(string) string) (Settings, error) {
	env := environment{getenv: getenv}
	count := func(to *int, names ...string) {
		env.read(func(value string) (err error) { *to, err = positive(value); return }, names...)
	}
	var s Settings
	s.Sink.Prefix = env.first("FILE_PATH", "OUTPUT_PATH")
	env.read(func(value string) (err error) { s.Sink.Records, err = recordTypes(value); return }, "RECORDS")
	env.read(checkSinks, "SINKS")
	env.read(checkFormat, "FILE_FORMAT")
	count(&s.Sink.QueueRows, "CAPACITY")
	count(&s.Sink.FlushBytes, "FILE_BUFFER_BYTES", "JSONL_BUFFER_BYTES")
	count(&s.Sink.RollBytes, "FILE_ROLL_BYTES", "JSONL_GZ_ROLL_BYTES")
	count(&s.Sink.RollLines, "FILE_ROLL_LINES", "JSONL_GZ_ROLL_LINES")
	var ms int
	count(&ms, "FILE_FLUSH_INTERVAL_MS", "JSONL_FLUSH_INTERVAL_MS")
	s.Sink.FlushInterval = time.Duration(ms) * time.Millisecond
	for _, name := range []string{"FILE_MAX_BYTES", "FILE_MAX_AGE_SECS"} {
		env.read(checkRetention, name)
	}
	s.ToolEndpoint = env.first("TOOL_EVENTS_ZMQ_ENDPOINT")
	s.ToolTopic = cmp.Or(env.first("TOOL_EVENTS_ZMQ_TOPIC"), toolevent.DefaultTopic)
	return s, errors.Join(env.errs...)
}

// environment reads variables DYN_REQUEST_TRACE_* and keeps what is wrong with them.
type environment struct {
	getenv func(string) string
	errs   []error
}

const envPrefix = "DYN_REQUEST_TRACE_"

// first returns the value of the first of some names that is set.
func (e *environment) first(names ...string) (value string) {
	e.read(func(v string) error { value = v; return nil }, names...)
	return value
}

// read parses the value of the first of some names that is set.
func (e *environment) read(parse func(value string) error, names ...string) {
	for _, name := range names {
		if value := strings.TrimSpace(e.getenv(envPrefix + name)); value != "" {
			if err := parse(value); err != nil {
				e.errs = append(e.errs, fmt.Errorf("%s%s=%s: %w", envPrefix, name, value, err))
			}
			return
		}
	}
}

func positive(value string) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < 1 || n > math.MaxInt32 {
		return 0, fmt.Errorf("want a number from 1 to %d", math.MaxInt32)
	}
	return n, nil
}

// recordTypes returns the event types that a list of Dynamo's names stands for.
func recordTypes(list string) ([]string, error) {
	types := []string{}
	for _, name := range words(list) {
		switch name {
		case "request_end":
			types = append(types, trace.EventRequestEnd)
		case "tool", "tools", trace.EventToolStart, trace.EventToolEnd, trace.EventToolError:
			types = append(types, trace.EventToolStart, trace.EventToolEnd, trace.EventToolError)
		case "request_payload":
			return nil, errors.New("request_payload rows hold prompts, which are never recorded")
		default:
			return nil, fmt.Errorf("no such record %q: want request_end or tool", name)
		}
	}
	return types, nil
}

func checkSinks(list string) error {
	for _, name := range words(list) {
		if !slices.Contains([]string{"file", "jsonl_gz"}, name) {
			return fmt.Errorf("no such sink %q here: only files (jsonl_gz) are written", name)
		}
	}
	return nil
}

func checkFormat(name string) error {
	if name != "jsonl_gz" {
		return errors.New("only jsonl_gz is written")
	}
	return nil
}

func checkRetention(value string) error {
	if value != "0" {
		return errors.New("no segment is ever removed here: unset it and remove old ones by other means")
	}
	return nil
}

// words splits a list at commas and blanks, into lower case.
func words(list string) []string {
	return strings.FieldsFunc(strings.ToLower(list), func(c rune) bool { return c == ',' || c == ' ' })
}
