package trace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-json"
	"github.com/klauspost/compress/gzip"
)

// Sizes of Dynamo's jsonl_gz sink, in uncompressed bytes.
const (
	DefaultRollBytes  = 256 << 20
	DefaultFlushBytes = 1 << 20
)

// Existing says what a Writer does when segments of its prefix are there already.
type Existing uint8

// The choices of a Writer that finds segments of its prefix.
const (
	RefuseExisting  Existing = iota
	ReplaceExisting          // segment by segment; Close removes those that are left over
	AppendExisting           // go on after the highest index, as Dynamo does after a restart
)

// ErrRecord is what Write finds wrong with a record that has no JSON form: a number in it is not finite. Its other errors
// are the disk's.
var ErrRecord = errors.New("record")

// WriterOptions adjust a Writer. The zero value is Dynamo's defaults, and no file is overwritten.
type WriterOptions struct {
	Existing Existing
	// Live gives a segment its name with its first bytes, as Dynamo does, instead of when it is complete: readers find
	// what a killed process left, whole up to the last flush.
	Live bool
	// RollBytes is the uncompressed size after which a segment is complete; 0 is DefaultRollBytes.
	RollBytes int
	// RollLines is the number of lines after which a segment is complete; 0 is any.
	RollLines int
	// FlushBytes is the uncompressed size of a gzip member; 0 is DefaultFlushBytes.
	FlushBytes int
}

// Writer writes records as segments PREFIX.000000.jsonl.gz, PREFIX.000001.jsonl.gz and so on, in the framing of
// Dynamo's jsonl_gz sink: enveloped lines, one gzip member per flush with whole lines. A segment has a temporary name
// until it is complete, unless it is live. Equal records give equal bytes: the timestamp of a line is its event time
// since that of the first record.
//
// An error of Write or Flush leaves the Writer as it was, without the record that Write was given: either can be
// called again when the disk has room, and nothing is written twice.
type Writer struct {
	prefix  string
	options WriterOptions
	index   int
	file    *os.File // nil between segments
	stored  int64    // bytes of whole gzip members in the file
	gz      *gzip.Writer
	member  bytes.Buffer
	batch   []byte // whole lines that are not flushed yet
	pending int    // records in batch
	size    int    // uncompressed bytes of the segment, batch included
	lines   int    // lines of the segment, batch included
	first   *int64 // event time of the first record
}

// NewWriter returns a Writer for a prefix, from which a trailing .jsonl.gz or .jsonl is dropped. Files are made when
// records come.
func NewWriter(prefix string, options WriterOptions) (*Writer, error) {
	w := &Writer{prefix: segmentPrefix(prefix), options: options}
	w.options.RollBytes = cmp.Or(options.RollBytes, DefaultRollBytes)
	w.options.FlushBytes = cmp.Or(options.FlushBytes, DefaultFlushBytes)
	existing, err := w.existing()
	if err != nil {
		return nil, err
	}
	if len(existing) > 0 {
		switch options.Existing {
		case RefuseExisting:
			return nil, fmt.Errorf("writing trace %s: %s is there already: %w", w.prefix, w.name(existing[0]), fs.ErrExist)
		case AppendExisting:
			w.index = existing[len(existing)-1] + 1
		}
	}
	return w, nil
}

func segmentPrefix(name string) string {
	return strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".jsonl")
}

func (w *Writer) name(index int) string { return fmt.Sprintf("%s.%06d.jsonl.gz", w.prefix, index) }

// existing returns the indices of the segments that are there, in order.
func (w *Writer) existing() ([]int, error) {
	entries, err := os.ReadDir(filepath.Dir(w.prefix))
	if err != nil {
		return nil, fmt.Errorf("writing trace %s: %w", w.prefix, err)
	}
	var indices []int
	for _, e := range entries {
		if stem, index, ok := segmentName(e.Name()); ok && stem == filepath.Base(w.prefix) && strings.HasSuffix(e.Name(), ".gz") {
			if n, err := strconv.Atoi("0" + index); err == nil {
				indices = append(indices, n)
			}
		}
	}
	slices.Sort(indices)
	return indices, nil
}

// Write adds one record. Records reach the file when enough have gathered, or on Flush or Close.
func (w *Writer) Write(r *Record) error {
	first := w.first
	if first == nil {
		first = r.EventTimeMs
	}
	envelope := struct {
		Timestamp int64   `json:"timestamp"`
		Event     *Record `json:"event"`
	}{Event: r}
	if r.EventTimeMs != nil {
		envelope.Timestamp = max(0, *r.EventTimeMs-*first)
	}
	row, err := json.MarshalWithOption(&envelope, json.DisableHTMLEscape())
	if err != nil {
		return fmt.Errorf("writing trace %s: %s %w: %w", w.prefix, r.EventType, ErrRecord, err)
	}
	pending := w.pending
	if r.Lost == nil {
		w.pending++
	}
	if err := w.add(append(row, '\n')); err != nil {
		w.pending = pending
		return err
	}
	w.first = first
	return nil
}

// add puts a line into the segment that has room for it.
func (w *Writer) add(row []byte) error {
	full := w.size+len(row) > w.options.RollBytes || w.options.RollLines > 0 && w.lines >= w.options.RollLines
	if w.lines > 0 && full {
		if err := w.finish(); err != nil {
			return err
		}
	}
	w.take(row, 1)
	if len(w.batch) < w.options.FlushBytes {
		return nil
	}
	err := w.Flush()
	if err != nil {
		w.take(row, -1)
	}
	return err
}

// take adds a line to the batch, or takes the last one back (n is -1).
func (w *Writer) take(row []byte, n int) {
	if n > 0 {
		w.batch = append(w.batch, row...)
	} else {
		w.batch = w.batch[:len(w.batch)-len(row)]
	}
	w.lines += n
	w.size += n * len(row)
}

// Pending is the number of records that have not reached the file, those aside that tell of lost rows.
func (w *Writer) Pending() int { return w.pending }

// Flush writes what has gathered as one gzip member.
func (w *Writer) Flush() error {
	if len(w.batch) == 0 {
		return nil
	}
	if w.file == nil {
		if err := w.create(); err != nil {
			return fmt.Errorf("writing trace: %w", err)
		}
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
		return fmt.Errorf("writing trace: %w", err)
	}
	w.stored += int64(w.member.Len())
	w.batch, w.pending = w.batch[:0], 0
	return nil
}

// create makes the file of a segment. A live one takes the next index that nobody has, since another process may write
// segments of the same prefix.
func (w *Writer) create() (err error) {
	if !w.options.Live {
		w.file, err = os.Create(w.name(w.index) + temporary)
		return err
	}
	for {
		w.file, err = os.OpenFile(w.name(w.index), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return err
		}
		w.index++
	}
}

// finish flushes the segment and gives it its name.
func (w *Writer) finish() error {
	if err := w.Flush(); err != nil || w.file == nil {
		return err
	}
	err := w.file.Close()
	name := w.file.Name()
	w.file, w.stored, w.size, w.lines = nil, 0, 0, 0
	if err == nil && !w.options.Live {
		err = os.Rename(name, strings.TrimSuffix(name, temporary))
	}
	if err != nil {
		return fmt.Errorf("writing trace: %w", err)
	}
	w.index++
	return nil
}

// Close completes the last segment.
func (w *Writer) Close() error {
	if err := w.finish(); err != nil || w.options.Existing != ReplaceExisting {
		return err
	}
	existing, err := w.existing()
	for _, index := range existing {
		if index >= w.index {
			err = errors.Join(err, os.Remove(w.name(index)))
		}
	}
	return err
}

// Discard removes the segment that is not complete. Complete ones stay.
func (w *Writer) Discard() {
	if w.file != nil {
		w.file.Close()
		os.Remove(w.file.Name())
		w.file, w.batch, w.pending = nil, nil, 0
	}
}
