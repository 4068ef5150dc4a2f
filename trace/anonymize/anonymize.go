// Package anonymize makes recorded work safe to share: request traces, and transcripts of Claude Code and Codex.
//
// What it keeps is a list, and the list is code: the rules of each format name every key that stays and what becomes
// of its value. Token counts, durations and words of the format stay as they are; ids become pseudonyms, block hashes
// keyed hashes, text becomes filler of the same length. Everything else, known or not, is dropped and counted.
//
// Pseudonyms depend on a secret Key and on nothing else, so that sessions, their tree and the blocks they share hold
// together across all files of a run. What stays can still tell one run from another by its timing and its lengths.
package anonymize

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/agentsim/agentsim/trace"
)

// Options say what is kept.
type Options struct {
	Key Key
	// ShiftTime moves all wall times by one span that only the key tells.
	ShiftTime bool
	// DropToolNames and DropModel replace the names of tools and models by pseudonyms.
	DropToolNames, DropModel bool
}

// Report says what was written, what was kept by name, and what was dropped.
type Report struct {
	// Read is what was met and lost in reading; its LostRows are lines that are no JSON, its SkippedRows rows of kinds
	// that are not known.
	Read trace.ReadReport
	// Files and Rows count what was written.
	Files, Rows int
	// Hashes counts the block hashes that were replaced, TextBytes the bytes of text.
	Hashes, TextBytes int64
	// Words counts the words of the format that stayed, Models and Tools the names.
	Words, Models, Tools counts
	// DroppedKeys counts the values that were dropped by the path of their key.
	DroppedKeys counts
	// DroppedFiles are files in folders that are no trace and no transcript.
	DroppedFiles []string
}

func newReport() Report {
	return Report{Words: counts{}, Models: counts{}, Tools: counts{}, DroppedKeys: counts{}}
}

func (r *Report) add(o *Report) {
	r.Read.Add(&o.Read)
	r.Rows += o.Rows
	r.Hashes += o.Hashes
	r.TextBytes += o.TextBytes
	r.Words.merge(o.Words)
	r.Models.merge(o.Models)
	r.Tools.merge(o.Tools)
	r.DroppedKeys.merge(o.DroppedKeys)
}

// maxCounts bounds the names of a counts; the rest is counted together.
const maxCounts = 1000

// counts counts by name.
type counts map[string]int

func (c counts) add(name string) { c.addN(name, 1) }

func (c counts) addN(name string, n int) {
	if _, ok := c[name]; !ok && len(c) >= maxCounts {
		name = "(others)"
	}
	c[name] += n
}

func (c counts) merge(o counts) {
	for _, name := range o.Names() {
		c.addN(name, o[name])
	}
}

// Names returns the names in order, the most frequent first.
func (c counts) Names() []string {
	names := make([]string, 0, len(c))
	for name := range c {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int {
		if c[a] != c[b] {
			return c[b] - c[a]
		}
		return strings.Compare(a, b)
	})
	return names
}

// target is an anonymized file and the rule for its rows.
type target struct {
	format *format
	name   string // below the output folder, with slashes
}

// Run writes the anonymized forms of the files into a new folder: transcripts under names and folders as their
// programs give them, traces as trace.000000.jsonl and so on, gzip where the original was. The folder has a temporary
// name until all of it is there; one that exists must be empty. Memory does not grow with the input.
func Run(ctx context.Context, files []File, dir string, opts Options, progress trace.Progress) (_ *Report, err error) {
	if err := free(dir); err != nil {
		return nil, err
	}
	report := newReport()
	files, targets, err := plan(ctx, files, opts, &report)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(filepath.Clean(dir)), 0o755); err != nil {
		return nil, fmt.Errorf("making the output folder: %w", err)
	}
	staging, err := os.MkdirTemp(filepath.Dir(filepath.Clean(dir)), "."+filepath.Base(dir)+".*")
	if err != nil {
		return nil, fmt.Errorf("making the output folder: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(staging))
		}
	}()
	if err := rewrite(ctx, files, targets, staging, opts, &report, progress); err != nil {
		return nil, err
	}
	if report.Rows == 0 {
		return nil, &trace.InputError{File: files[0].Path, Err: errors.New("no row is left that may be kept: is it a trace or a transcript?")}
	}
	if err := os.Chmod(staging, 0o755); err != nil {
		return nil, fmt.Errorf("making the output folder: %w", err)
	}
	os.Remove(dir) // an empty folder
	if err := os.Rename(staging, dir); err != nil {
		return nil, fmt.Errorf("naming the output folder: %w", err)
	}
	return &report, nil
}

// free refuses a folder with something in it: old files beside new ones would be taken for anonymized.
func free(dir string) error {
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return fmt.Errorf("looking into the output folder: %w", err)
	case len(entries) > 0:
		return fmt.Errorf("output folder %s has %s in it: take a new one, so that nothing else is shared with it: %w",
			dir, entries[0].Name(), os.ErrExist)
	}
	return nil
}

// plan detects the format of each file and names its output. Files that a folder has besides traces are left out.
func plan(ctx context.Context, files []File, opts Options, report *Report) ([]File, []target, error) {
	var known []File
	var targets []target
	formats := newFormats()
	r := newRewriter(opts)
	count := map[string]int{}
	taken := map[string]bool{}
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		head, err := f.Head(headSize)
		if err != nil {
			return nil, nil, err
		}
		format := formats[detect(head)]
		if format == nil {
			if !f.Found && len(bytes.TrimSpace(head)) > 0 {
				return nil, nil, &trace.InputError{File: f.Path, Err: fmt.Errorf("neither a request trace (Dynamo, Mooncake, WEKA) nor a transcript (Claude Code, Codex) in JSON lines; it begins %.40q", head)}
			}
			report.DroppedFiles = append(report.DroppedFiles, f.Path)
			continue
		}
		stem, suffix := splitSuffix(f.Name)
		name := format.file(r, stem, count[format.name])
		count[format.name]++
		for n, first := 2, name; taken[name+suffix]; n++ {
			name = first + "-" + strconv.Itoa(n)
		}
		taken[name+suffix] = true
		known, targets = append(known, f), append(targets, target{format, name + suffix})
	}
	if len(known) == 0 {
		return nil, nil, &trace.InputError{File: files[0].Path, Err: errors.New("no trace and no transcript: there is nothing to anonymize")}
	}
	return known, targets, nil
}

// headSize is how much of a file is looked at to detect its format, in bytes.
const headSize = 256 << 10

// splitSuffix splits a file's name into what may say something and the suffix that its format has.
func splitSuffix(name string) (stem, suffix string) {
	gz := ""
	if strings.HasSuffix(name, ".gz") {
		name, gz = strings.TrimSuffix(name, ".gz"), ".gz"
	}
	switch ext := filepath.Ext(name); ext {
	case ".jsonl", ".json", ".ndjson":
		return strings.TrimSuffix(name, ext), ext + gz
	}
	return name, ".jsonl" + gz
}

// rewrite reads the files, on all processors, and writes what may be kept of them.
func rewrite(ctx context.Context, files []File, targets []target, dir string, opts Options, report *Report, progress trace.Progress) error {
	segments := make([]trace.Segment, len(files))
	for i, f := range files {
		segments[i] = f.Segment
	}
	type piece struct {
		segment int
		rows    []byte
		report  Report
	}
	out := &outFile{}
	defer out.abandon()
	open := -1
	err := trace.MapLines(ctx, segments, progress, func(c trace.Chunk) (piece, error) {
		r := newRewriter(opts)
		r.report.Read = c.Read
		for number, line := range c.Lines {
			r.line(c.File, number, line, targets[c.Segment].format.row)
		}
		return piece{c.Segment, r.out, r.report}, nil
	}, func(p piece) error {
		for ; open < p.segment; open++ {
			if err := out.close(); err != nil {
				return err
			}
			if err := out.open(filepath.Join(dir, filepath.FromSlash(targets[open+1].name))); err != nil {
				return err
			}
			report.Files++
		}
		report.add(&p.report)
		return out.write(p.rows)
	})
	if err != nil {
		return err
	}
	return out.close()
}

// line rewrites one line of a file. Behind half a row that a crashed writer left, a whole one may begin.
func (r *rewriter) line(file string, number int, line []byte, rule rule) {
	r.report.Read.Lines++
	if !json.Valid(line) {
		at := trace.Resume(line)
		if at == 0 || !json.Valid(line[at:]) {
			r.report.Read.Lose(file, number, line, errors.New("not JSON"))
			return
		}
		r.report.Read.Lose(file, number, line[:at], errors.New("not JSON"))
		line = line[at:]
	}
	if line[0] != '{' || r.row(line, rule) != kept {
		r.report.Read.SkippedRows++
		return
	}
	r.report.Rows++
}
