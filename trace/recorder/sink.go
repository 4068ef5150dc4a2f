package recorder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// Bounds of a Sink's queue, and how often it flushes. Rows and interval are Dynamo's.
const (
	DefaultQueueRows     = 1024
	DefaultQueueBytes    = 64 << 20
	DefaultFlushInterval = time.Second
)

// SinkOptions say where a Sink writes and what it may hold. Zeros are defaults; those of sizes are trace.Writer's.
type SinkOptions struct {
	// Prefix begins the names of the segments. Segments of an earlier run stay, and new ones follow them.
	Prefix string
	// Records are the event types to write; nil is all.
	Records []string
	// QueueRows and QueueBytes bound what waits for the disk.
	QueueRows, QueueBytes int
	// FlushInterval is the longest that a row waits for others before it goes to the disk.
	FlushInterval time.Duration
	// FlushBytes, RollBytes and RollLines are as in trace.WriterOptions.
	FlushBytes, RollBytes, RollLines int
	// Logf is told when rows begin to wait or to be lost and when that ends; nil is nobody.
	Logf func(format string, args ...any)
}

// Sink writes records to a trace without making anybody wait. When the disk is slow or full, rows wait in its queue;
// rows that find no room there are lost, counted, and told of in the trace once it can be written again. A kill loses the
// rows since the last flush and nothing else.
type Sink struct {
	options SinkOptions
	queue   chan *trace.Record
	bytes   atomic.Int64 // size of what is in queue

	mu     sync.RWMutex // write-locked by Close alone, so that nothing enters the queue after it
	closed bool

	losing sync.Mutex
	lost   trace.LostRows // what the trace does not tell of yet
	total  int            // all that was lost

	closing, done chan struct{}
	err           error // why the last rows are not on the disk; set before done is closed

	// What follows belongs to the goroutine that writes.
	writer   *trace.Writer
	held     *trace.Record // the row that found the disk full
	refused  error         // why a row was lost that no disk can hold
	troubled bool          // rows wait or are lost, and that was logged
	before   int           // rows lost before the trouble
	seen     int           // rows lost when that was last looked at
}

// NewSink returns a Sink that has begun to write. Close ends it.
func NewSink(options SinkOptions) (*Sink, error) {
	s, err := newSink(options)
	if err != nil {
		return nil, err
	}
	go s.run()
	return s, nil
}

func newSink(options SinkOptions) (*Sink, error) {
	if options.Prefix == "" {
		return nil, errors.New("recording: no prefix says where the trace goes")
	}
	options.QueueRows = cmp.Or(options.QueueRows, DefaultQueueRows)
	options.QueueBytes = cmp.Or(options.QueueBytes, DefaultQueueBytes)
	options.FlushInterval = cmp.Or(options.FlushInterval, DefaultFlushInterval)
	if options.Logf == nil {
		options.Logf = func(string, ...any) {}
	}
	w, err := trace.NewWriter(options.Prefix, trace.WriterOptions{Existing: trace.AppendExisting, Live: true,
		FlushBytes: options.FlushBytes, RollBytes: options.RollBytes, RollLines: options.RollLines})
	if err != nil {
		return nil, err
	}
	return &Sink{options: options, writer: w, queue: make(chan *trace.Record, options.QueueRows),
		closing: make(chan struct{}), done: make(chan struct{})}, nil
}

// Offer gives the Sink a record, which must not change any more. It never waits: a record that finds no room is lost.
func (s *Sink) Offer(r *trace.Record) {
	if s.options.Records != nil && !slices.Contains(s.options.Records, r.EventType) {
		return
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed || !s.enqueue(r) {
		s.lose(r)
	}
}

func (s *Sink) enqueue(r *trace.Record) bool {
	n := size(r)
	if s.bytes.Add(n) <= int64(s.options.QueueBytes) {
		select {
		case s.queue <- r:
			return true
		default:
		}
	}
	s.bytes.Add(-n)
	return false
}

// size is about what a record takes in memory, in bytes.
func size(r *trace.Record) int64 {
	n := 1 << 10
	if q := r.Request; q != nil {
		n += len(q.RequestID) + len(q.XRequestID) + len(q.Model)
		if q.Replay != nil {
			n += 8 * (len(q.Replay.Hashes) + len(q.Replay.CompletionHashes))
		}
		if q.FinishReason != nil {
			n += len(q.FinishReason.Choices)
			for _, c := range q.FinishReason.ToolCalls {
				n += 64 + len(c.ID) + len(c.Name)
			}
		}
	}
	if a := r.AgentContext; a != nil {
		n += len(a.SessionID) + len(a.ParentSessionID) + len(a.AgentHeaders)
	}
	return int64(n)
}

// lose counts a row that will not be in the trace.
func (s *Sink) lose(r *trace.Record) {
	s.losing.Lock()
	defer s.losing.Unlock()
	s.lost.Add(trace.LostRows{Rows: 1, FirstMs: r.EventTimeMs, LastMs: r.EventTimeMs})
	s.total++
}

// Lost is the number of rows that were lost so far.
func (s *Sink) Lost() int {
	s.losing.Lock()
	defer s.losing.Unlock()
	return s.total
}

// Close writes what waits and ends the Sink, within the context. Records that are offered later are lost. An error says
// that the end of the trace is missing.
func (s *Sink) Close(ctx context.Context) error {
	s.mu.Lock()
	if !s.closed {
		s.closed = true
		close(s.closing)
	}
	s.mu.Unlock()
	select {
	case <-s.done:
		return s.err
	case <-ctx.Done():
		return fmt.Errorf("recording %s: stopped with %d rows and more not written: %w", s.options.Prefix, len(s.queue), ctx.Err())
	}
}

// run writes rows as they come. After a failure no more are taken from the queue until a flush succeeds, so that they wait
// there as long as it has room.
func (s *Sink) run() {
	defer close(s.done)
	ticker := time.NewTicker(s.options.FlushInterval)
	defer ticker.Stop()
	queue := s.queue
	for {
		select {
		case r := <-queue:
			s.bytes.Add(-size(r))
			if s.write(r) != nil {
				s.held, queue = r, nil
			}
		case <-ticker.C:
			err := s.flush()
			if queue = nil; err == nil {
				queue = s.queue
			}
			s.tell(err)
		case <-s.closing:
			s.err = s.finish()
			return
		}
	}
}

// write gives a record to the writer. An error means that it can be tried again.
func (s *Sink) write(r *trace.Record) error {
	err := s.writer.Write(r)
	if errors.Is(err, trace.ErrRecord) {
		s.lose(r)
		s.refused = err
		return nil
	}
	return err
}

// flush puts all that was taken from the queue on the disk, and a line on what was lost.
func (s *Sink) flush() error {
	if err := s.writer.Flush(); err != nil {
		return err
	}
	if s.held != nil {
		if err := s.write(s.held); err != nil {
			return err
		}
		s.held = nil
	}
	s.losing.Lock() // not while writing: Offer counts what it loses
	lost := s.lost
	s.lost = trace.LostRows{}
	s.losing.Unlock()
	if lost.Rows == 0 {
		return s.writer.Flush()
	}
	err := s.writer.Write(lost.Record())
	if err != nil {
		s.losing.Lock()
		s.lost.Add(lost)
		s.losing.Unlock()
		return err
	}
	return s.writer.Flush()
}

// tell logs where trouble begins and where it ends: once for each burst of it, however many rows it costs.
func (s *Sink) tell(err error) {
	lost := s.Lost()
	trouble := err != nil || lost > s.seen
	switch {
	case trouble && !s.troubled:
		s.before = s.seen
		if err = cmp.Or(err, s.refused); err == nil {
			err = fmt.Errorf("the disk is slow: the queue of %d rows was full", s.options.QueueRows)
		}
		s.options.Logf("recording %s: %v; serving goes on, rows that find no room in the queue are lost", s.options.Prefix, err)
	case !trouble && s.troubled:
		s.options.Logf("recording %s: writing again; %d rows were lost", s.options.Prefix, lost-s.before)
	}
	s.troubled, s.seen, s.refused = trouble, lost, nil
}

// finish writes what is left in the queue, which nothing enters any more.
func (s *Sink) finish() error {
	err := s.flush()
	for range len(s.queue) {
		r := <-s.queue
		if err == nil {
			err = s.write(r)
		}
		if err != nil {
			s.lose(r)
		}
	}
	if err == nil {
		err = s.flush()
	}
	if s.held != nil {
		s.lose(s.held)
	}
	if err = errors.Join(err, s.writer.Close()); err == nil {
		return nil
	}
	s.losing.Lock()
	s.total += s.writer.Pending()
	s.losing.Unlock()
	return fmt.Errorf("recording %s: the last rows are not on the disk: %w", s.options.Prefix, err)
}
