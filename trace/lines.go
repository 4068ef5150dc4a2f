package trace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// temporary ends the name of a file that is not complete yet.
const temporary = ".tmp"

// LineWriter writes lines to a gzip file, one member per flush with whole lines, so that of a torn file all members
// before the tear can be read. The file has a temporary name until Close.
//
// An error of Write or Flush leaves it as it was, without the line that Write was given: either can be called again when
// the disk has room, and nothing is written twice.
type LineWriter struct {
	name   string // in errors
	create func() (*os.File, error)
	flush  int
	file   *os.File // nil until something is flushed
	stored int64    // bytes of whole gzip members in the file
	gz     *gzip.Writer
	member bytes.Buffer
	batch  []byte // whole lines that are not flushed yet
}

// NewLineWriter returns a writer of the file at path, whose gzip members hold flushBytes of text or a little more; 0 is
// DefaultFlushBytes. The file is made when lines come.
func NewLineWriter(path string, flushBytes int) *LineWriter {
	create := func() (*os.File, error) { return os.Create(path + temporary) }
	return &LineWriter{name: path, create: create, flush: cmp.Or(flushBytes, DefaultFlushBytes)}
}

// Write adds a line, without its end. Lines reach the file when enough have gathered, or on Flush or Close.
func (w *LineWriter) Write(line []byte) error {
	before := len(w.batch)
	w.batch = append(append(w.batch, line...), '\n')
	if len(w.batch) < w.flush {
		return nil
	}
	err := w.Flush()
	if err != nil {
		w.batch = w.batch[:before]
	}
	return err
}

// Flush writes what has gathered as one gzip member.
func (w *LineWriter) Flush() error {
	if len(w.batch) == 0 {
		return nil
	}
	if w.file == nil {
		file, err := w.create()
		if err != nil {
			return fmt.Errorf("writing %s: %w", w.name, err)
		}
		w.file = file
	}
	w.member.Reset()
	if w.gz == nil {
		w.gz = gzip.NewWriter(&w.member)
	} else {
		w.gz.Reset(&w.member)
	}
	_, err := w.gz.Write(w.batch)
	if err = errors.Join(err, w.gz.Close()); err == nil {
		_, err = w.file.WriteAt(w.member.Bytes(), w.stored)
	}
	if err != nil {
		// Lines of a torn member would be read, and read again once the batch is written. Where this fails too, the
		// next attempt writes over them.
		_ = w.file.Truncate(w.stored)
		return fmt.Errorf("writing %s: %w", w.name, err)
	}
	w.stored += int64(w.member.Len())
	w.batch = w.batch[:0]
	return nil
}

// Close flushes the file and gives it its name. Without lines there is no file.
func (w *LineWriter) Close() error {
	if err := w.Flush(); err != nil || w.file == nil {
		return err
	}
	err := w.file.Close()
	if errors.Is(err, os.ErrClosed) { // it could not be renamed before
		err = nil
	}
	if name, ok := strings.CutSuffix(w.file.Name(), temporary); err == nil && ok {
		err = os.Rename(w.file.Name(), name)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", w.name, err)
	}
	w.file, w.stored = nil, 0
	return nil
}

// Discard removes the file if it is not complete.
func (w *LineWriter) Discard() {
	if w.file != nil {
		w.file.Close()
		os.Remove(w.file.Name())
	}
	w.file, w.stored, w.batch = nil, 0, nil
}
