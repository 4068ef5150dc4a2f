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

// WriterOptions adjust a Writer. The zero value is Dynamo's defaults, and no file is overwritten.
type WriterOptions struct {
	Existing Existing
	// RollBytes is the uncompressed size after which a segment is complete; 0 is DefaultRollBytes.
	RollBytes int
	// FlushBytes is the uncompressed size of a gzip member; 0 is DefaultFlushBytes.
	FlushBytes int
}

// Writer writes records as segments PREFIX.000000.jsonl.gz, PREFIX.000001.jsonl.gz and so on, in the framing of
// Dynamo's jsonl_gz sink: enveloped lines, one gzip member per flush with whole lines. A segment has a temporary name
// until it is complete. Equal records give equal bytes: the timestamp of a line is its event time since that of
// the first record.
type Writer struct {
	prefix  string
	options WriterOptions
	index   int
	segment *LineWriter // nil between segments
	written int         // uncompressed bytes of the segment
	first   *int64      // event time of the first record
}

// NewWriter returns a Writer for a prefix, from which a trailing .jsonl.gz or .jsonl is dropped. Files are made when
// records come.
func NewWriter(prefix string, options WriterOptions) (*Writer, error) {
	w := &Writer{prefix: segmentPrefix(prefix), options: options}
	w.options.RollBytes = cmp.Or(options.RollBytes, DefaultRollBytes)
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
	if w.first == nil {
		w.first = r.EventTimeMs
	}
	envelope := struct {
		Timestamp int64   `json:"timestamp"`
		Event     *Record `json:"event"`
	}{Event: r}
	if w.first != nil && r.EventTimeMs != nil {
		envelope.Timestamp = max(0, *r.EventTimeMs-*w.first)
	}
	row, err := json.MarshalWithOption(&envelope, json.DisableHTMLEscape())
	if err != nil {
		return fmt.Errorf("writing trace %s: %s record: %w", w.prefix, r.EventType, err)
	}
	if w.written > 0 && w.written+len(row)+1 > w.options.RollBytes {
		if err := w.finish(); err != nil {
			return err
		}
	}
	if w.segment == nil {
		w.segment = NewLineWriter(w.name(w.index), w.options.FlushBytes)
	}
	w.written += len(row) + 1
	return w.segment.Write(row)
}

// Flush writes what has gathered as one gzip member.
func (w *Writer) Flush() error {
	if w.segment == nil {
		return nil
	}
	return w.segment.Flush()
}

// finish completes the segment.
func (w *Writer) finish() error {
	if w.segment == nil {
		return nil
	}
	if err := w.segment.Close(); err != nil {
		return err
	}
	w.segment, w.written = nil, 0
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
	if w.segment != nil {
		w.segment.Discard()
		w.segment = nil
	}
}
