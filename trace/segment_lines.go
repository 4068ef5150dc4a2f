package trace

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"runtime"
	"slices"
	"sync"
)

// chunkSize is the usual size of a chunk of lines, in bytes: small enough to keep all processors busy with one file.
const chunkSize = 1 << 20

// Chunk is a piece of a segment's text: some whole lines, or all of a file.
type Chunk struct {
	File string
	// Segment numbers the segments of a load from 0.
	Segment int
	// Line is the number of the first line, from 1.
	Line int
	// Data is valid until the parse function returns.
	Data []byte
	// Read is what was met and lost on the way here.
	Read ReadReport
}

// Lines calls yield with each line of the chunk that is not blank, without its line end, and with its number.
func (c *Chunk) Lines(yield func(number int, line []byte) bool) {
	number := c.Line
	for rest := c.Data; len(rest) > 0; number++ {
		var line []byte
		line, rest, _ = bytes.Cut(rest, []byte{'\n'})
		if line = bytes.TrimSpace(line); len(line) > 0 && !yield(number, line) {
			return
		}
	}
}

// Progress is told how many of the stored bytes of a load have been read; total is 0 when it is not known.
type Progress func(done, total int64)

// MapLines reads the segments in pieces of whole lines, calls parse on several of them at a time and join with the
// results one by one in the order of the input, so that the outcome does not depend on the number of processors.
// Lines over 256 MiB are an error; damaged gzip members are reported in Chunk.Read.
func MapLines[T any](ctx context.Context, segments []Segment, progress Progress,
	parse func(Chunk) (T, error), join func(T) error) error {
	pool := sync.Pool{New: func() any { return new([]byte) }}
	type piece struct {
		Chunk
		buf *[]byte
	}
	total := totalSize(segments)
	produce := func(yield func(piece) bool) error {
		var done int64
		for i, s := range segments {
			r := lineReader{chunk: Chunk{File: s.Path, Segment: i, Line: 1, Read: ReadReport{Files: 1}}}
			err := r.read(s, func() *[]byte { return pool.Get().(*[]byte) }, func(c Chunk, buf *[]byte, at int64) bool {
				if progress != nil {
					progress(done+at, total)
				}
				return yield(piece{c, buf})
			})
			if err != nil {
				return err
			}
			done += s.Size
		}
		return nil
	}
	return inOrder(ctx, produce, func(p piece) (T, error) {
		defer pool.Put(p.buf)
		return parse(p.Chunk)
	}, join)
}

// MapFiles is MapLines for formats whose values span lines: a chunk is a whole file, of at most 256 MiB. Files are
// decompressed on several processors.
func MapFiles[T any](ctx context.Context, segments []Segment, progress Progress,
	parse func(Chunk) (T, error), join func(T) error) error {
	pool := sync.Pool{New: func() any { return new(bytes.Buffer) }}
	type result struct {
		out  T
		size int64
	}
	produce := func(yield func(int) bool) error {
		for i := range segments {
			if !yield(i) {
				break
			}
		}
		return nil
	}
	var done int64
	total := totalSize(segments)
	return inOrder(ctx, produce, func(i int) (result, error) {
		buf := pool.Get().(*bytes.Buffer)
		defer pool.Put(buf)
		c := Chunk{File: segments[i].Path, Segment: i, Line: 1, Read: ReadReport{Files: 1}}
		if err := c.readAll(segments[i], buf); err != nil {
			return result{}, err
		}
		out, err := parse(c)
		return result{out, segments[i].Size}, err
	}, func(r result) error {
		if done += r.size; progress != nil {
			progress(done, total)
		}
		return join(r.out)
	})
}

func totalSize(segments []Segment) (total int64) {
	for _, s := range segments {
		if s.Size == 0 {
			return 0
		}
		total += s.Size
	}
	return total
}

func (c *Chunk) readAll(s Segment, buf *bytes.Buffer) error {
	raw, err := s.open()
	if err != nil {
		return err
	}
	defer raw.Close()
	buf.Reset()
	n, err := buf.ReadFrom(io.LimitReader(newText(s.Path, raw, &c.Read), maxLine+1))
	if err != nil {
		return err
	}
	if n > maxLine {
		return &InputError{File: s.Path, Err: fmt.Errorf("more than %d MiB of text in one JSON file", maxLine>>20)}
	}
	c.Data = bytes.TrimPrefix(buf.Bytes(), utf8BOM)
	return nil
}

// lineReader cuts a segment's text into chunks of whole lines.
type lineReader struct{ chunk Chunk }

// read yields the chunks with the buffers that hold them and the stored bytes consumed so far.
func (l *lineReader) read(s Segment, alloc func() *[]byte, yield func(c Chunk, buf *[]byte, at int64) bool) error {
	raw, err := s.open()
	if err != nil {
		return err
	}
	defer raw.Close()
	t := newText(s.Path, raw, &l.chunk.Read)
	var rest []byte // the beginning of the line that the last chunk did not hold whole
	for first := true; ; first = false {
		buf := alloc()
		data, full, err := fill(t, append((*buf)[:0], rest...))
		if err != nil {
			return err
		}
		*buf = data
		if first {
			data = bytes.TrimPrefix(data, utf8BOM)
		}
		rest = nil
		if full { // else the segment ends here
			end := bytes.LastIndexByte(data, '\n') + 1
			data, rest = data[:end], data[end:]
			if end == 0 {
				return &InputError{File: s.Path, Line: l.chunk.Line + bytes.Count(data, []byte{'\n'}),
					Err: fmt.Errorf("line is longer than %d MiB", maxLine>>20)}
			}
		}
		rest = bytes.Clone(rest)
		c := l.chunk
		c.Data = data
		if !yield(c, buf, t.offset()) || !full {
			return nil
		}
		l.chunk.Line += bytes.Count(data, []byte{'\n'})
		l.chunk.Read = ReadReport{}
	}
}

// fill appends text to data, the beginning of a line, until there is a chunk with the end of a line in it. When
// full is false, the text ended first.
func fill(t *text, data []byte) (_ []byte, full bool, err error) {
	searched := len(data)
	for target := chunkSize; ; target *= 2 {
		data = slices.Grow(data, max(target-len(data), 0))
		for len(data) < target {
			n, err := t.Read(data[len(data):cap(data)])
			data = data[:len(data)+n]
			if err == io.EOF {
				return data, false, nil
			}
			if err != nil {
				return data, false, err
			}
		}
		if bytes.IndexByte(data[searched:], '\n') >= 0 || len(data) > maxLine {
			return data, true, nil
		}
		searched = len(data)
	}
}

// inOrder calls work on what produce yields, on all processors, and join with the results in the order in which
// produce yielded. At most a few items per processor are under way. The first error in that order is returned.
func inOrder[In, Out any](ctx context.Context, produce func(yield func(In) bool) error,
	work func(In) (Out, error), join func(Out) error) error {
	type result struct {
		out Out
		err error
	}
	type job struct {
		in   In
		done chan result
	}
	workers := runtime.GOMAXPROCS(0)
	caller := ctx
	ctx, cancel := context.WithCancel(caller)
	var group sync.WaitGroup
	defer func() {
		cancel()
		if caller.Err() == nil { // else a read of a pipe may never return
			group.Wait()
		}
	}()
	jobs := make(chan job)
	queue := make(chan chan result, workers)
	group.Go(func() {
		defer close(queue)
		defer close(jobs)
		err := produce(func(in In) bool {
			j := job{in, make(chan result, 1)}
			select {
			case queue <- j.done:
			case <-ctx.Done():
				return false
			}
			select {
			case jobs <- j:
				return true
			case <-ctx.Done():
				return false
			}
		})
		if err != nil {
			failed := make(chan result, 1)
			failed <- result{err: err}
			select {
			case queue <- failed:
			case <-ctx.Done():
			}
		}
	})
	for range workers {
		group.Go(func() {
			for j := range jobs {
				out, err := work(j.in)
				j.done <- result{out, err}
			}
		})
	}
	for done := range queue {
		select {
		case r := <-done:
			if r.err != nil {
				return r.err
			}
			if err := join(r.out); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return ctx.Err()
}
