package anonymize

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/gzip"

	"github.com/agentsim/agentsim/trace"
)

// File is one file to anonymize.
type File struct {
	trace.Segment
	// Name is the file's path below the folder that was asked for, with slashes.
	Name string
	// Found tells that the file was found in a folder, not named.
	Found bool
}

// maxDepth bounds how deep folders are searched.
const maxDepth = 32

// Find turns arguments into files as trace.Find does, and searches folders with all folders in them, as transcripts of
// subagents lie below those of their sessions.
func Find(args []string, stdin io.Reader) ([]File, error) {
	var files []File
	seen := map[string]bool{}
	add := func(segments []trace.Segment, root string) error {
		for _, s := range segments {
			if seen[filepath.Clean(s.Path)] {
				continue
			}
			seen[filepath.Clean(s.Path)] = true
			f := File{Segment: s, Name: filepath.Base(s.Path), Found: root != ""}
			if root != "" {
				below, err := filepath.Rel(root, s.Path)
				if err != nil {
					return fmt.Errorf("naming %s: %w", s.Path, err)
				}
				f.Name = filepath.ToSlash(below)
			}
			files = append(files, f)
		}
		return nil
	}
	for _, arg := range args {
		if info, err := os.Stat(arg); err != nil || !info.IsDir() {
			segments, err := trace.Find([]string{arg}, stdin)
			if err != nil {
				return nil, err
			}
			if err := add(segments, ""); err != nil {
				return nil, err
			}
			continue
		}
		before := len(files)
		root, err := filepath.EvalSymlinks(arg) // a walk does not follow them
		if err != nil {
			return nil, &trace.InputError{File: arg, Err: err}
		}
		err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return fmt.Errorf("searching %s: %w", arg, err)
			case !d.IsDir():
				return nil
			case path != root && strings.HasPrefix(d.Name(), "."):
				return fs.SkipDir
			case strings.Count(path[len(root):], string(filepath.Separator)) > maxDepth:
				return &trace.InputError{File: path, Err: fmt.Errorf("more than %d folders deep", maxDepth)}
			}
			segments, err := trace.Find([]string{path}, nil)
			if input := (*trace.InputError)(nil); errors.As(err, &input) {
				return nil // no trace in this folder; folders in it may have some
			}
			if err != nil {
				return err
			}
			return add(segments, root)
		})
		if err != nil {
			return nil, err
		}
		if len(files) == before {
			return nil, &trace.InputError{File: arg, Err: errors.New("no .jsonl or .json, plain or .gz, in this folder and those in it")}
		}
	}
	if len(files) == 0 {
		return nil, errors.New("no files")
	}
	return files, nil
}

// outFile writes one file after the other, gzip where the name says so.
type outFile struct {
	file *os.File
	gz   *gzip.Writer // nil for plain text
}

func (o *outFile) open(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("making the output folder: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("writing the anonymized file: %w", err)
	}
	o.file, o.gz = f, nil
	if strings.HasSuffix(path, ".gz") {
		o.gz = gzip.NewWriter(f)
	}
	return nil
}

func (o *outFile) write(rows []byte) error {
	var err error
	if o.gz != nil {
		_, err = o.gz.Write(rows)
	} else {
		_, err = o.file.Write(rows)
	}
	if err != nil {
		return fmt.Errorf("writing the anonymized file: %w", err)
	}
	return nil
}

func (o *outFile) close() error {
	if o.file == nil {
		return nil
	}
	var err error
	if o.gz != nil {
		err = o.gz.Close()
	}
	err = errors.Join(err, o.file.Close())
	o.file = nil
	if err != nil {
		return fmt.Errorf("writing the anonymized file: %w", err)
	}
	return nil
}

// abandon closes a file that is not complete.
func (o *outFile) abandon() {
	if o.file != nil {
		o.file.Close()
	}
}
