package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agentsim/agentsim/trace"
)

// Bounds on the folders that are searched for logs.
const (
	maxFiles     = 1 << 18
	maxPathDepth = 32
)

// A segment is a file with its first bytes and the format that they look like, which is nil for no known one.
type segment struct {
	trace.Segment
	head  []byte
	looks *Format
}

// find returns the files that args stand for, and the number of files of other kinds that were come across in folders. Of
// a folder that holds files of a format whose files lie in folders of folders, or no trace at all, it searches the folders
// below for such files.
func find(ctx context.Context, args []string, stdin io.Reader, want *Format) (found []segment, others int, err error) {
	seen := map[string]bool{}
	for _, arg := range args {
		segments, left, err := findArg(ctx, arg, stdin, want)
		if err != nil {
			return nil, 0, err
		}
		others += left
		for _, s := range segments {
			if !seen[filepath.Clean(s.Path)] {
				seen[filepath.Clean(s.Path)] = true
				found = append(found, s)
			}
		}
	}
	if len(found) == 0 {
		return nil, 0, errors.New("no trace given")
	}
	return found, others, nil
}

func findArg(ctx context.Context, arg string, stdin io.Reader, want *Format) (found []segment, others int, err error) {
	segments, findErr := trace.Find([]string{arg}, stdin)
	looked := map[string]segment{}
	if found, err = lookInto(ctx, segments, looked); err != nil {
		return nil, 0, err
	}
	inTree := func(s segment) bool { return s.looks != nil && s.looks.tree && (want == nil || want == s.looks) }
	info, err := os.Stat(arg)
	if err != nil || !info.IsDir() || findErr == nil && !slices.ContainsFunc(found, inTree) && (want == nil || !want.tree) {
		return found, 0, findErr
	}
	paths, err := search(arg)
	if err != nil {
		return nil, 0, err
	}
	if segments, err = trace.Find(paths, nil); err != nil {
		return nil, 0, err
	}
	all, err := lookInto(ctx, segments, looked)
	if err != nil {
		return nil, 0, err
	}
	logs := slices.DeleteFunc(slices.Clone(all), func(s segment) bool { return s.looks != nil && !inTree(s) || s.looks == nil && !s.saysNothing() })
	if !slices.ContainsFunc(logs, inTree) {
		if findErr != nil {
			findErr = refuseFolder(arg, all)
		}
		return found, 0, findErr
	}
	return logs, len(all) - len(logs), nil
}

// lookInto reads the first bytes of files that were not looked into before.
func lookInto(ctx context.Context, files []trace.Segment, looked map[string]segment) ([]segment, error) {
	segments := make([]segment, len(files))
	for i, f := range files {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if known, ok := looked[f.Path]; ok {
			segments[i] = known
			continue
		}
		head, err := f.Head(headSize)
		if err != nil {
			return nil, err
		}
		segments[i] = segment{f, head, detect(head)}
		looked[f.Path] = segments[i]
	}
	return segments, nil
}

// saysNothing tells an empty file, and one that holds the beginning of a row and no more, because its writer was killed.
func (s *segment) saysNothing() bool {
	row := bytes.TrimSpace(s.head)
	if len(row) == 0 || s.looks != nil {
		return len(row) == 0
	}
	_, read := lookAt(row)
	return read == 0 && row[0] == '{' && bytes.IndexByte(row, '\n') < 0 && len(s.head) < headSize
}

// search returns the files below a folder that may be logs, hidden ones left out.
func search(root string) ([]string, error) {
	var paths []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if path == root {
			return nil
		}
		below, _ := filepath.Rel(root, path)
		switch {
		case strings.HasPrefix(entry.Name(), "."), strings.Count(filepath.ToSlash(below), "/") >= maxPathDepth:
			if entry.IsDir() {
				return fs.SkipDir
			}
		case entry.Type().IsRegular() && slices.Contains([]string{".jsonl", ".json", ".ndjson", ".traj", ".csv"}, filepath.Ext(strings.TrimSuffix(path, ".gz"))):
			if paths = append(paths, path); len(paths) > maxFiles {
				return fmt.Errorf("more than %d files: name the folders to read one by one", maxFiles)
			}
		}
		return nil
	})
	if err != nil {
		return nil, &trace.InputError{File: root, Err: err}
	}
	return paths, nil
}
