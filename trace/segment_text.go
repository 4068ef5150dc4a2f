package trace

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
)

// Bounds on hostile input.
const (
	// maxLine bounds one line, and one file that must be held whole, in bytes.
	maxLine = 256 << 20
	// maxRatio bounds decompressed over compressed bytes once ratioFree bytes came out. Deflate itself ends at 1032;
	// traces stay below 100.
	maxRatio  = 512
	ratioFree = 64 << 20
)

var (
	utf8BOM   = []byte("\xef\xbb\xbf")
	gzipMagic = []byte("\x1f\x8b\x08") // RFC 1952: ID1, ID2, and deflate, the only method there is
)

// text reads the bytes of one segment and decompresses them if they are gzip, told by content. Damage of one gzip
// member ends the line that it cuts and goes into the report; reading goes on with the next member.
type text struct {
	file string
	src  *bufio.Reader
	in   *counter
	gz   *gzip.Reader // nil for plain text
	// open tells that gz is inside a member, which began at byte start of the file.
	open    bool
	start   int64
	decoded int64
	endLine bool // the next byte to return is a newline, because a member was torn
	report  *ReadReport
}

// counter counts the bytes read through it, and keeps the error of the file system, which is no damage.
type counter struct {
	r   io.Reader
	n   int64
	err error
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}

func newText(file string, r io.Reader, report *ReadReport) *text {
	in := &counter{r: r}
	t := &text{file: file, src: bufio.NewReaderSize(in, 64<<10), in: in, report: report}
	if head, _ := t.src.Peek(len(gzipMagic)); bytes.Equal(head, gzipMagic) {
		t.gz = new(gzip.Reader)
	}
	return t
}

// offset is the number of stored bytes consumed so far.
func (t *text) offset() int64 { return t.in.n - int64(t.src.Buffered()) }

func (t *text) Read(p []byte) (int, error) {
	if t.gz == nil || len(p) == 0 {
		n, err := t.src.Read(p)
		return n, t.fault(err)
	}
	for {
		if t.endLine {
			t.endLine = false
			p[0] = '\n'
			return 1, nil
		}
		if !t.open {
			if err := t.nextMember(); err != nil {
				return 0, t.fault(err)
			}
		}
		n, err := t.gz.Read(p)
		if t.decoded += int64(n); t.decoded > ratioFree && t.decoded/maxRatio > t.offset() {
			return n, &InputError{File: t.file, Err: fmt.Errorf("decompresses to more than %d times its size", maxRatio)}
		}
		if err != nil {
			t.open = false
		}
		if t.in.err != nil {
			return n, t.fault(err)
		}
		if err != nil && err != io.EOF {
			t.endLine = true
			t.report.Warn(fmt.Sprintf("%s: gzip member at byte %d is damaged (%v): kept the lines before the damage",
				t.file, t.start, err))
		}
		if n > 0 {
			return n, nil
		}
	}
}

// fault says where an error of the file system came from.
func (t *text) fault(err error) error {
	if t.in.err != nil && err != nil {
		return fmt.Errorf("reading %s: %w", t.file, t.in.err)
	}
	return err
}

// nextMember goes to the next gzip member, over bytes that are none; io.EOF when there is no more.
func (t *text) nextMember() error {
	from := t.offset()
	for {
		head, err := t.src.Peek(len(gzipMagic) + 1)
		if len(head) == 0 {
			t.lose(from, t.offset())
			return err
		}
		at := t.offset()
		// The upper three flag bits are reserved and zero (RFC 1952).
		if len(head) > len(gzipMagic) && bytes.HasPrefix(head, gzipMagic) && head[len(gzipMagic)] < 0x20 {
			if t.gz.Reset(t.src) == nil {
				t.gz.Multistream(false)
				t.lose(from, at)
				t.start, t.open = at, true
				return nil
			}
			continue // the header was damaged or cut off; it is consumed
		}
		t.src.Discard(1) // at least one byte is buffered
		ahead, _ := t.src.Peek(t.src.Buffered())
		if skip := bytes.IndexByte(ahead, gzipMagic[0]); skip >= 0 {
			ahead = ahead[:skip]
		}
		t.src.Discard(len(ahead))
	}
}

// lose reports stored bytes that belong to no readable gzip member.
func (t *text) lose(from, to int64) {
	if to > from {
		t.report.LostBytes += to - from
		t.report.Warn(fmt.Sprintf("%s: bytes %d to %d are no gzip data: skipped", t.file, from, to))
	}
}
