// Package convert reads every trace format that agentsim knows into a trace.Capture: Dynamo's request traces, the
// Mooncake family, WEKA conversations and plain lists of arrivals.
package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/agentsim/agentsim/trace"
)

// The formats that Open knows, as Options.Format names them.
const (
	FormatDynamo        = "dynamo"
	FormatMooncake      = "mooncake"
	FormatMooncakeDelta = "mooncake-delta"
	FormatAgentic       = "agentic-mooncake"
	FormatWeka          = "weka"
	FormatArrivals      = "arrivals"
)

// Format is a trace format that Open knows.
type Format struct{ Name, Description string }

// Formats are the known formats, in the order of their names.
var Formats = []Format{
	{FormatAgentic, "Dynamo's agentic Mooncake, v1 and v2: rows with wait_for or dependencies (JSONL)"},
	{FormatArrivals, "arrival times and token counts: Azure and Vidur CSV, time,input,output in seconds (CSV or JSONL)"},
	{FormatDynamo, "Dynamo request traces, dynamo.request.trace.v1 and dynamo.agent.trace.v1 (JSONL)"},
	{FormatMooncake, "timestamp, input_length, output_length, hash_ids (JSONL)"},
	{FormatMooncakeDelta, "Mooncake where later rows of a session hold the new part of the prompt only; never detected"},
	{FormatWeka, "WEKA kv-cache-tester conversations: one JSON object a file or a line"},
}

// Options adjust Open. The zero value detects the format.
type Options struct {
	// Format is the name of the format; "" detects it by content.
	Format string
	// BlockSize overrides the tokens per hash of Mooncake formats; 0 is the file's own, or 512.
	BlockSize int
	// Details keeps what only those who show a trace need, as trace.ReadDetailed does, and drops hashes where it can.
	Details bool
	// Stdin is read for the argument "-".
	Stdin io.Reader
	// Progress, if set, is told the stored bytes read so far and in total.
	Progress func(doneBytes, totalBytes int64)
}

// How much of a file is looked at to detect its format, in bytes and in rows.
const (
	headSize   = 64 << 10
	detectRows = 64
)

// Open finds the files that args stand for (see trace.Find), detects their format by content and reads them all into
// one capture. Files of one call have one format. A *trace.InputError is a fault of the input.
func Open(ctx context.Context, args []string, opts Options) (*trace.Capture, error) {
	if opts.Format != "" && !slices.ContainsFunc(Formats, func(f Format) bool { return f.Name == opts.Format }) {
		return nil, fmt.Errorf("unknown trace format %q; known are %s", opts.Format, formatNames())
	}
	if opts.BlockSize < 0 || opts.BlockSize > 1<<20 {
		return nil, fmt.Errorf("block size %d: want 1 to %d tokens", opts.BlockSize, 1<<20)
	}
	segments, err := trace.Find(args, opts.Stdin)
	if err != nil {
		return nil, err
	}
	format, heads, err := detectAll(ctx, segments, opts.Format)
	if err != nil {
		return nil, err
	}
	in := input{ctx, segments, heads, opts}
	switch format {
	case FormatDynamo:
		if opts.Details {
			return trace.ReadDetailed(ctx, segments, opts.Progress)
		}
		return trace.Read(ctx, segments, opts.Progress)
	case FormatWeka:
		return in.weka()
	case FormatArrivals:
		return in.arrivals()
	}
	return in.mooncake(format)
}

// input is what a reader of one format gets.
type input struct {
	ctx      context.Context
	segments []trace.Segment
	heads    [][]byte
	opts     Options
}

func formatNames() string {
	var names []string
	for _, f := range Formats {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

// Detect returns the name of the one format that all segments look like. It consumes nothing.
func Detect(ctx context.Context, segments []trace.Segment) (string, error) {
	format, _, err := detectAll(ctx, segments, "")
	return format, err
}

// detectAll returns the one format of all segments, and their first bytes.
func detectAll(ctx context.Context, segments []trace.Segment, want string) (string, [][]byte, error) {
	if len(segments) == 0 {
		return "", nil, errors.New("no trace given")
	}
	var format, at string
	heads := make([][]byte, len(segments))
	for i, s := range segments {
		if err := ctx.Err(); err != nil {
			return "", nil, err
		}
		head, err := s.Head(headSize)
		if err != nil {
			return "", nil, err
		}
		heads[i] = head
		if len(bytes.TrimSpace(head)) == 0 {
			continue // an empty file says nothing
		}
		found := detect(head)
		if found == "" && beginning(head) {
			continue
		}
		switch {
		case want == FormatMooncakeDelta && found == FormatMooncake:
			found = FormatMooncakeDelta
		case want == FormatAgentic && found == FormatMooncake, want == FormatMooncake && found == FormatAgentic:
			found = want // one reads the other's rows
		}
		switch {
		case found == "" && bytes.Contains(head, []byte(`"agentsim.report.v`)):
			return "", nil, &trace.InputError{File: s.Path, Err: errors.New("a report of agentsim predict, not a trace; name one row's trace that --traces wrote beside it, such as DIR/kv.trace")}
		case found == "":
			return "", nil, &trace.InputError{File: s.Path, Err: fmt.Errorf("unknown format, it begins %.60q; known are %s",
				head, formatNames())}
		case want != "" && found != want:
			return "", nil, &trace.InputError{File: s.Path, Err: fmt.Errorf("format %s was asked for, but the file looks like %s",
				want, found)}
		case format != "" && found != format:
			return "", nil, &trace.InputError{File: s.Path, Err: fmt.Errorf("looks like %s, but %s looks like %s: load one format at a time",
				found, at, format)}
		}
		if format == "" {
			format, at = found, s.Path
		}
	}
	if format == "" {
		return "", nil, &trace.InputError{File: segments[0].Path, Err: errors.New("empty, or cut off in its first row: there is nothing to read")}
	}
	return format, heads, nil
}

// beginning tells the beginning of a row, all that there is of a file whose writer was killed in its first row. It says nothing.
func beginning(head []byte) bool {
	row := bytes.TrimSpace(head)
	_, read := detectObject(row)
	return read == 0 && row[0] == '{' && bytes.IndexByte(row, '\n') < 0 && len(head) < headSize
}

// detect returns the format that the first bytes of a file look like, or "".
func detect(head []byte) string {
	if !bytes.HasPrefix(bytes.TrimSpace(head), []byte{'{'}) {
		if _, err := csvColumns(head); err == nil {
			return FormatArrivals
		}
	}
	found := ""
	for rest, rows := head, 0; len(rest) > 0 && rows < detectRows; rows++ {
		format, read := detectObject(rest)
		if format != "" && format != FormatMooncake {
			return format
		}
		// A Mooncake row may be an agentic one that waits for nothing: later rows tell.
		if format != "" {
			found = format
		}
		if read > 0 {
			rest = rest[read:]
			continue
		}
		_, rest, _ = bytes.Cut(rest, []byte{'\n'})
	}
	return found
}

// detectObject looks at the keys of the first JSON object and returns how long it is, 0 if it is cut off or broken.
func detectObject(text []byte) (format string, read int) {
	s := scanner{data: text}
	keys := map[string]bool{}
	schema := ""
	for key, ok := s.object(); ok; key, ok = s.next() {
		name := string(key)
		keys[name] = true
		switch {
		case name == "schema" && s.peek() == '"':
			schema = s.str()
		case name == "event" && s.peek() == '{':
			return FormatDynamo, 0
		case name == "requests" && s.peek() == '[':
			return FormatWeka, 0
		case name == "hash_ids":
			s.flat()
		default:
			s.skip()
		}
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(n string) bool { return keys[n] })
	}
	switch {
	case strings.HasPrefix(schema, "dynamo.agentic_mooncake"):
		format = FormatAgentic
	case strings.HasPrefix(schema, "dynamo.") || has("event_type"):
		format = FormatDynamo
	case has("wait_for", "dependencies", "tool_wait_ms", "request_kind") && has("request_id"):
		format = FormatAgentic
	case has("hash_ids", "input_length", "output_length"):
		format = FormatMooncake
	case keys["time"] && keys["input"] && keys["output"]:
		format = FormatArrivals
	}
	if s.err == nil {
		read = s.pos
	}
	return format, read
}

// lose counts a row that is not JSON; what a row says wrongly is an error, which makes the load fail.
func lose(read *trace.ReadReport, file string, line int, row []byte, err error) error {
	if errors.Is(err, errNotFinite) {
		return &trace.InputError{File: file, Line: line, Err: err}
	}
	read.Lose(file, line, row, err)
	return nil
}

// maxTokens bounds one token count of a foreign format.
const maxTokens = 1 << 28

// tokens checks a count of tokens.
func tokens(name string, n int64, least int64) (int32, error) {
	if n < least || n > maxTokens {
		return 0, fmt.Errorf("%s is %d: want %d to %d tokens", name, n, least, maxTokens)
	}
	return int32(n), nil
}
