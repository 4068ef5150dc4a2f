package trace

import (
	"cmp"
	"errors"
	"fmt"
	"os"

	"github.com/klauspost/compress/gzip"
)

// temporary ends the name of a file that is not complete yet.
const temporary = ".tmp"

// LineWriter writes lines to a gzip file, one member per flush with whole lines, so that of a torn file all members
// before the tear can be read. The file has a temporary name until Close.
type LineWriter struct {
	path  string
	flush int
	file  *os.File // nil until something is flushed
	gz    *gzip.Writer
	batch []byte // whole lines that are not flushed yet
}

// NewLineWriter returns a writer of the file at path, whose gzip members hold flushBytes of text or a little more; 0 is
// DefaultFlushBytes. The file is made when lines come.
func NewLineWriter(path string, flushBytes int) *LineWriter {
	return &LineWriter{path: path, flush: cmp.Or(flushBytes, DefaultFlushBytes)}
}

// Write adds a line, without its end. Lines reach the file when enough have gathered, or on Flush or Close.
func (w *LineWriter) Write(line []byte) error {
	w.batch = append(append(w.batch, line...), '\n')
	if len(w.batch) >= w.flush {
		return w.Flush()
	}
	return nil
}

// Flush writes what has gathered as one gzip member.
func (w *LineWriter) Flush() error {
	if len(w.batch) == 0 {
		return nil
	}
	if w.file == nil {
		f, err := os.Create(w.path + temporary)
		if err != nil {
			return fmt.Errorf("writing %s: %w", w.path, err)
		}
		w.file = f
	}
	if w.gz == nil {
		w.gz = gzip.NewWriter(w.file)
	} else {
		w.gz.Reset(w.file)
	}
	_, err := w.gz.Write(w.batch)
	if err = errors.Join(err, w.gz.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", w.path, err)
	}
	w.batch = w.batch[:0]
	return nil
}

// Close flushes the file and gives it its name. Without lines there is no file.
func (w *LineWriter) Close() error {
	if err := w.Flush(); err != nil || w.file == nil {
		return err
	}
	err := w.file.Close()
	if err == nil {
		err = os.Rename(w.file.Name(), w.path)
	}
	if err != nil {
		return fmt.Errorf("writing %s: %w", w.path, err)
	}
	w.file = nil
	return nil
}

// Discard removes the file if it is not complete.
func (w *LineWriter) Discard() {
	if w.file != nil {
		w.file.Close()
		os.Remove(w.file.Name())
		w.file = nil
	}
	w.batch = nil
}
