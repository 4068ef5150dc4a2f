package trace

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// InputError is a fault of the input, not of the program or the machine: a file that is not there, or a row that
// makes the result meaningless.
type InputError struct {
	File string
	// Line counts from 1; 0 when the fault is not in one line.
	Line int
	Err  error
}

// Error returns "file:line: what".
func (e *InputError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %v", e.File, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Line, e.Err)
}

// Unwrap returns the fault without its place.
func (e *InputError) Unwrap() error { return e.Err }

// Segment is one input file, or standard input.
type Segment struct {
	// Path is the file's name; "-" is standard input.
	Path string
	// Size is the file's size in bytes as stored; 0 when it is not known.
	Size int64

	stdin *bufio.Reader
}

// stdinHead is how much of standard input Head can look at without consuming it.
const stdinHead = 4 << 20

// Find turns trace arguments into the files to read, in order and each once. An argument is a file, a folder, a
// glob, a segment prefix as Dynamo's jsonl_gz sink takes it (PREFIX stands for PREFIX.000000.jsonl.gz and so on), or
// "-" for stdin. Segments of one prefix are in numeric order. Lock files, unfinished files, hidden files and event
// sidecars that a folder, glob or prefix matches are left out.
func Find(args []string, stdin io.Reader) ([]Segment, error) {
	var segments []Segment
	seen := map[string]bool{}
	for _, arg := range args {
		paths, err := expand(arg)
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			if seen[filepath.Clean(path)] {
				continue
			}
			seen[filepath.Clean(path)] = true
			s := Segment{Path: path}
			if path == "-" {
				if stdin == nil {
					return nil, &InputError{File: "-", Err: errors.New("no standard input to read from")}
				}
				s.stdin = bufio.NewReaderSize(stdin, stdinHead)
			} else if info, err := os.Stat(path); err != nil {
				return nil, &InputError{File: path, Err: reason(err)}
			} else if info.Mode().IsRegular() {
				s.Size = info.Size()
			}
			segments = append(segments, s)
		}
	}
	return segments, nil
}

// reason strips the path from a file system error, which an InputError names already.
func reason(err error) error {
	if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// expand returns the files that one argument stands for.
func expand(arg string) ([]string, error) {
	if arg == "-" {
		return []string{arg}, nil
	}
	info, err := os.Stat(arg)
	switch {
	case err == nil && !info.IsDir():
		return []string{arg}, nil
	case err == nil:
		return list(arg, func(name string) bool { return hasTraceSuffix(name) },
			"no trace (.jsonl, .json, .csv, plain or .gz) in this folder; folders in it are not searched")
	case strings.Contains(arg, "://"):
		return nil, &InputError{File: arg, Err: errors.New("an address, not a file: download it first")}
	case strings.ContainsAny(arg, "*?["):
		return glob(arg)
	}
	if info, err := os.Stat(filepath.Dir(arg)); err != nil || !info.IsDir() {
		return nil, &InputError{File: arg, Err: errors.New("no such file or folder")}
	}
	stem := strings.TrimSuffix(strings.TrimSuffix(filepath.Base(arg), ".gz"), ".jsonl")
	paths, err := list(filepath.Dir(arg), func(name string) bool {
		s, _, ok := segmentName(name)
		return ok && s == stem
	}, "no such file or folder, and no segments "+stem+".<number>.jsonl.gz")
	if input := (*InputError)(nil); errors.As(err, &input) {
		input.File = arg
	}
	return paths, err
}

func glob(pattern string) ([]string, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return nil, &InputError{File: pattern, Err: err}
	}
	paths = slices.DeleteFunc(paths, func(path string) bool {
		info, err := os.Stat(path)
		return err != nil || info.IsDir() || ignored(filepath.Base(path))
	})
	if len(paths) == 0 {
		return nil, &InputError{File: pattern, Err: errors.New("no file matches")}
	}
	slices.SortFunc(paths, compareSegments)
	return paths, nil
}

// list returns the files of a folder whose names match, in order.
func list(dir string, match func(name string) bool, none string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, &InputError{File: dir, Err: reason(err)}
	}
	var paths []string
	for _, e := range entries {
		if !e.IsDir() && !ignored(e.Name()) && match(e.Name()) {
			paths = append(paths, filepath.Join(dir, e.Name()))
		}
	}
	if len(paths) == 0 {
		return nil, &InputError{File: dir, Err: errors.New(none)}
	}
	slices.SortFunc(paths, compareSegments)
	return paths, nil
}

// ignored tells whether a file beside segments is not one: Dynamo leaves PREFIX.000000.jsonl.lock there, a Writer
// its unfinished segment, a run its events.
func ignored(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, ".lock") || strings.HasSuffix(name, temporary) ||
		strings.HasSuffix(strings.TrimSuffix(name, ".gz"), ".events.jsonl")
}

func hasTraceSuffix(name string) bool {
	switch filepath.Ext(strings.TrimSuffix(name, ".gz")) {
	case ".jsonl", ".json", ".csv", ".ndjson":
		return true
	}
	return false
}

// segmentName splits "stem.000012.jsonl.gz" into its stem and its index, written without leading zeros.
func segmentName(name string) (stem, index string, ok bool) {
	rest, found := strings.CutSuffix(strings.TrimSuffix(name, ".gz"), ".jsonl")
	dot := strings.LastIndexByte(rest, '.')
	if !found || dot <= 0 || dot == len(rest)-1 {
		return "", "", false
	}
	for _, c := range rest[dot+1:] {
		if c < '0' || c > '9' {
			return "", "", false
		}
	}
	return rest[:dot], strings.TrimLeft(rest[dot+1:], "0"), true
}

// compareSegments orders segments of one prefix by number (000010 after 9, 1000000 after 999999), all else by name.
func compareSegments(a, b string) int {
	stemA, indexA, okA := segmentName(filepath.Base(a))
	stemB, indexB, okB := segmentName(filepath.Base(b))
	if filepath.Dir(a) == filepath.Dir(b) && okA && okB && stemA == stemB {
		return cmp.Or(cmp.Compare(len(indexA), len(indexB)), cmp.Compare(indexA, indexB), cmp.Compare(a, b))
	}
	return cmp.Compare(a, b)
}

// Head returns up to n bytes from the beginning of the segment, decompressed. It consumes nothing.
func (s Segment) Head(n int) ([]byte, error) {
	raw, err := s.open()
	if err != nil {
		return nil, err
	}
	defer raw.Close()
	var src io.Reader = raw
	if s.stdin != nil {
		head, err := s.stdin.Peek(stdinHead)
		if err != nil && err != io.EOF {
			return nil, fmt.Errorf("reading standard input: %w", err)
		}
		src = bytes.NewReader(head)
	}
	head, err := io.ReadAll(io.LimitReader(newText(s.Path, src, &ReadReport{}), int64(n)))
	return bytes.TrimPrefix(head, utf8BOM), err
}

func (s Segment) open() (io.ReadCloser, error) {
	if s.stdin != nil {
		return io.NopCloser(s.stdin), nil
	}
	f, err := os.Open(s.Path)
	if err != nil {
		return nil, &InputError{File: s.Path, Err: reason(err)}
	}
	return f, nil
}
