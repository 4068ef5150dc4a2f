package trace

import (
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
	segment *LineWriter
	pending int    // records that are not flushed yet
	size    int    // uncompressed bytes of the segment, what is not flushed included
	lines   int    // lines of the segment, likewise
	first   *int64 // event time of the first record
}

// NewWriter returns a Writer for a prefix, from which a trailing .jsonl.gz or .jsonl is dropped. Files are made when
// records come.
func NewWriter(prefix string, options WriterOptions) (*Writer, error) {
	w := &Writer{prefix: segmentPrefix(prefix), options: options}
	w.options.RollBytes = cmp.Or(options.RollBytes, DefaultRollBytes)
	w.segment = NewLineWriter(w.prefix, options.FlushBytes)
	w.segment.create = w.create
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
	if err := w.add(row); err != nil {
		return err
	}
	w.first = first
	if r.Lost == nil {
		w.pending++
	}
	w.settle()
	return nil
}

// add puts a line into the segment that has room for it.
func (w *Writer) add(row []byte) error {
	size := len(row) + 1
	full := w.size+size > w.options.RollBytes || w.options.RollLines > 0 && w.lines >= w.options.RollLines
	if w.lines > 0 && full {
		if err := w.finish(); err != nil {
			return err
		}
	}
	if err := w.segment.Write(row); err != nil {
		return err
	}
	w.lines++
	w.size += size
	return nil
}

// settle notes whether all records have reached the file.
func (w *Writer) settle() {
	if len(w.segment.batch) == 0 {
		w.pending = 0
	}
}

// Pending is the number of records that have not reached the file, those aside that tell of lost rows.
func (w *Writer) Pending() int { return w.pending }

// Flush writes what has gathered as one gzip member.
func (w *Writer) Flush() error {
	err := w.segment.Flush()
	w.settle()
	return err
}

// create makes the file of a segment. A live one takes the next index that nobody has, since another process may write
// segments of the same prefix.
func (w *Writer) create() (*os.File, error) {
	if !w.options.Live {
		return os.Create(w.name(w.index) + temporary)
	}
	for {
		file, err := os.OpenFile(w.name(w.index), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if !errors.Is(err, fs.ErrExist) {
			return file, err
		}
		w.index++
	}
}

// finish completes the segment.
func (w *Writer) finish() error {
	if w.lines == 0 {
		return nil
	}
	if err := w.segment.Flush(); err != nil {
		return err
	}
	w.settle()
	w.size, w.lines = 0, 0
	if err := w.segment.Close(); err != nil {
		return err
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
	w.segment.Discard()
	w.pending, w.size, w.lines = 0, 0, 0
}
