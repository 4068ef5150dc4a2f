package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// How much of a file is looked at to detect its format, in bytes and in rows.
const (
	headSize   = 64 << 10
	detectRows = 64
)

// A look is what detection sees of a file: one of its first JSON objects, or the beginning of another text.
type look struct {
	// text is the beginning of the file from here on.
	text []byte
	// keys are those of the object. A string has its value, another value its first byte: {, [, a digit.
	keys map[string]string
	// columns are the names of a CSV header, in lower case.
	columns []string
	// listed tells that the object is an element of an array.
	listed bool
}

// has tells whether the object has all of the keys.
func (l *look) has(keys ...string) bool {
	return !slices.ContainsFunc(keys, func(k string) bool { _, ok := l.keys[k]; return !ok })
}

// hasAny tells whether the object has one of the keys.
func (l *look) hasAny(keys ...string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { _, ok := l.keys[k]; return ok })
}

// detect returns the format that the first bytes of a file look like, or nil: that of the first row that has one, or of a
// later row if that format extends it.
func detect(head []byte) *Format {
	var found *Format
	for l := range looks(head) {
		i := slices.IndexFunc(Formats, func(f Format) bool { return f.detect != nil && f.detect(l) })
		if i >= 0 && (found == nil || Formats[i].extends == found.Name) {
			found = &Formats[i]
			if !slices.ContainsFunc(Formats, func(f Format) bool { return f.extends == found.Name }) {
				break
			}
		}
	}
	return found
}

// looks yields the text if it does not begin with JSON, with the names of its columns if there are commas in the first line, and
// the first objects. Those that are cut off or broken have the
// keys before that.
func looks(head []byte) func(yield func(*look) bool) {
	return func(yield func(*look) bool) {
		rest := bytes.TrimSpace(head)
		if len(rest) > 0 && rest[0] != '{' && rest[0] != '[' {
			l := &look{text: rest}
			if line, _, _ := bytes.Cut(rest[:min(len(rest), maxHeader)], []byte{'\n'}); bytes.IndexByte(line, ',') > 0 {
				l.columns = csvNames(line)
			}
			if !yield(l) {
				return
			}
		}
		listed := len(rest) > 0 && rest[0] == '['
		if listed {
			rest = rest[1:]
		}
		for rows := 0; len(rest) > 0 && rows < detectRows; rows++ {
			l, read := lookAt(rest)
			l.listed = listed
			if len(l.keys) > 0 && !yield(l) {
				return
			}
			if read > 0 {
				rest = bytes.TrimLeft(rest[read:], ", \t\r\n")
				continue
			}
			_, rest, _ = bytes.Cut(rest, []byte{'\n'})
		}
	}
}

// lookAt reads the first JSON object and returns how long it is, 0 if it is cut off or broken.
func lookAt(text []byte) (l *look, read int) {
	l = &look{text: text, keys: map[string]string{}}
	s := scanner{data: text}
	for key, ok := s.object(); ok; key, ok = s.next() {
		name := string(key)
		first := s.peek()
		l.keys[name] = string(rune(first))
		if first == '"' {
			l.keys[name] = s.str()
		} else {
			s.skip()
		}
	}
	if s.err == nil {
		read = s.pos
	}
	return l, read
}

// Detect returns the name of the one format that all segments look like. It consumes nothing.
func Detect(ctx context.Context, segments []trace.Segment) (string, error) {
	if len(segments) == 0 {
		return "", errors.New("no trace given")
	}
	looked, err := lookInto(ctx, segments, map[string]segment{})
	if err != nil {
		return "", err
	}
	format, err := formatOf(looked, nil)
	if err != nil {
		return "", err
	}
	return format.Name, nil
}

// formatOf returns the one format of all segments.
func formatOf(segments []segment, want *Format) (format *Format, err error) {
	var at string
	for _, s := range segments {
		if s.saysNothing() {
			continue
		}
		found := s.looks
		if found != nil && want != nil && slices.Contains(want.reads, found.Name) {
			found = want
		}
		switch {
		case found == nil:
			return nil, s.refuse(want)
		case want != nil && found != want:
			return nil, &trace.InputError{File: s.Path, Err: fmt.Errorf("format %s was asked for, but the file looks like %s", want.Name, found.Name)}
		case format != nil && found != format:
			return nil, &trace.InputError{File: s.Path, Err: fmt.Errorf("looks like %s, but %s looks like %s: load one format at a time",
				found.Name, at, format.Name)}
		}
		if format == nil {
			format, at = found, s.Path
		}
	}
	if format == nil {
		return nil, &trace.InputError{File: segments[0].Path, Err: errors.New("empty, or cut off in its first row: there is nothing to read")}
	}
	return format, nil
}
