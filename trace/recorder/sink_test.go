package recorder

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// row is the record of request number n, which ends n milliseconds into the run.
func row(n int) *trace.Record {
	ms := 1790000000000 + int64(n)
	return &trace.Record{Schema: trace.Schema, EventType: trace.EventRequestEnd, EventTimeMs: &ms,
		Request: &trace.RequestEnd{RequestID: strconv.Itoa(n), InputTokens: ptr(int64(5)), OutputTokens: ptr(int64(1)), ReceivedMs: &ms}}
}

func ptr[T any](v T) *T { return &v }

// recorded is what stands in a trace: the numbers of its rows, in order, and what the reader met.
func recorded(t *testing.T, prefix string) (numbers []int, report trace.ReadReport) {
	t.Helper()
	segments, err := trace.Find([]string{prefix}, nil)
	if err != nil {
		return nil, trace.ReadReport{}
	}
	report, err = trace.ReadRecords(context.Background(), segments, func(_ string, _ int, r *trace.Record) error {
		if r.Request == nil {
			return nil // it tells of lost rows
		}
		n, err := strconv.Atoi(r.Request.RequestID)
		numbers = append(numbers, n)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return numbers, report
}

// checkRows checks that a trace holds the rows from 0 on up to n, and tells of lost ones.
func checkRows(t *testing.T, prefix string, n, lost int) {
	t.Helper()
	got, report := recorded(t, prefix)
	want := make([]int, n)
	for i := range want {
		want[i] = i
	}
	if !slices.Equal(got, want) || report.LostRows != lost {
		t.Errorf("the trace holds rows %d and tells of %d lost ones; want %d rows from 0 on and %d lost", got, report.LostRows, n, lost)
	}
}

// logged keeps what a Sink logs.
type logged struct{ lines []string }

func (l *logged) printf(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

func TestSinkFlushesEachInterval(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "run")
	synctest.Test(t, func(t *testing.T) {
		s, err := NewSink(SinkOptions{Prefix: prefix, RollLines: 3})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 10 {
			s.Offer(row(n))
			time.Sleep(DefaultFlushInterval)
			synctest.Wait()
			checkRows(t, prefix, n+1, 0) // as a kill would leave it
		}
		s.Offer(row(10))
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		checkRows(t, prefix, 11, 0)
		s.Offer(row(11))
		if err := s.Close(context.Background()); err != nil || s.Lost() != 1 {
			t.Errorf("closed twice: %v; %d rows lost, want the one offered after Close", err, s.Lost())
		}
	})
	if _, err := os.Stat(prefix + ".000003.jsonl.gz"); err != nil {
		t.Error(err)
	}
}

// While nothing takes rows from the queue, as behind a disk that hangs, Offer returns and counts what finds no room.
func TestOfferNeverWaits(t *testing.T) {
	for _, c := range []struct {
		name  string
		queue SinkOptions
		kept  int
	}{
		{"rows", SinkOptions{QueueRows: 7}, 7},
		{"bytes", SinkOptions{QueueBytes: 3 * int(size(row(0)))}, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.queue.Prefix = filepath.Join(t.TempDir(), "run")
			s, err := newSink(c.queue)
			if err != nil {
				t.Fatal(err)
			}
			for n := range 10 {
				s.Offer(row(n))
			}
			if want := 10 - c.kept; s.Lost() != want {
				t.Errorf("%d rows lost, want %d", s.Lost(), want)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
			defer cancel()
			if err := s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("closed a sink that hangs: %v", err)
			}
			s.run()
			checkRows(t, c.queue.Prefix, c.kept, 10-c.kept)
		})
	}
}

// A disk that fails and mends: rows wait while the queue has room, the rest is lost and told of, and each burst of
// trouble is logged when it begins and when it ends.
func TestSinkOutlivesFailures(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "disk")
	prefix := filepath.Join(folder, "run")
	mend := func() {
		if err := os.Mkdir(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	mend()
	var log logged
	synctest.Test(t, func(t *testing.T) {
		s, err := NewSink(SinkOptions{Prefix: prefix, QueueRows: 4, FlushBytes: 1, Logf: log.printf})
		if err != nil {
			t.Fatal(err)
		}
		offer := func(from, to int) {
			for n := from; n < to; n++ {
				s.Offer(row(n))
				synctest.Wait()
			}
		}
		tick := func() {
			time.Sleep(DefaultFlushInterval)
			synctest.Wait()
		}
		if err := os.Remove(folder); err != nil {
			t.Fatal(err)
		}
		offer(0, 2) // one is in the writer's hands, one waits
		tick()
		tick()
		mend()
		tick()
		checkRows(t, prefix, 2, 0)
		tick()

		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		offer(2, 3) // into the file that was removed
		s.writer.Close()
		offer(3, 12) // one in the writer's hands, four wait, four are lost
		tick()
		mend()
		tick()
		tick()
		if err := s.Close(context.Background()); err != nil {
			t.Error(err)
		}
		numbers, report := recorded(t, prefix)
		if want := []int{3, 4, 5, 6, 7}; !slices.Equal(numbers, want) || report.LostRows != 4 || s.Lost() != 4 {
			t.Errorf("rows %d, %d told of as lost, %d counted; want %d, 4, 4", numbers, report.LostRows, s.Lost(), want)
		}
		if len(report.Warnings) != 1 || !strings.HasSuffix(report.Warnings[0],
			"the recorder lost 4 rows between 2026-09-21 14:13:20.008 and 2026-09-21 14:13:20.011: its disk was full or slow") {
			t.Errorf("warnings %q", report.Warnings)
		}
	})
	want := []string{"no such file or directory; serving goes on", "writing again; 0 rows were lost", "no such file or directory; serving goes on", "writing again; 4 rows were lost"}
	if !slices.EqualFunc(log.lines, want, strings.Contains) {
		t.Errorf("logged %q, want %q", log.lines, want)
	}
}

// At the end nothing waits for the disk to mend: what it refuses is counted.
func TestCloseOnAFailingDisk(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "disk")
	if err := os.Mkdir(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	for _, flushBytes := range []int{1, 1 << 20} {
		s, err := newSink(SinkOptions{Prefix: filepath.Join(folder, "run"), FlushBytes: flushBytes})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 10 {
			s.Offer(row(n))
		}
		os.Remove(folder)
		go s.run()
		if err := s.Close(context.Background()); !errors.Is(err, os.ErrNotExist) || s.Lost() != 10 {
			t.Errorf("flushing every %d bytes: closed with %v and %d rows lost, want 10", flushBytes, err, s.Lost())
		}
		if err := os.Mkdir(folder, 0o777); err != nil {
			t.Fatal(err)
		}
	}
}

func TestSinkWritesWhatIsAskedFor(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "run")
	s, err := NewSink(SinkOptions{Prefix: prefix, Records: []string{trace.EventRequestEnd}})
	if err != nil {
		t.Fatal(err)
	}
	s.Offer(row(0))
	s.Offer(&trace.Record{EventType: trace.EventToolEnd})
	unwritable := row(1)
	unwritable.Request.TTFTMs = ptr(math.NaN())
	s.Offer(unwritable)
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	checkRows(t, prefix, 1, 1)
}

func TestNewSinkErrors(t *testing.T) {
	for prefix, want := range map[string]string{"": "no prefix", filepath.Join(t.TempDir(), "no", "run"): "no such file"} {
		if _, err := NewSink(SinkOptions{Prefix: prefix}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", prefix, err, want)
		}
	}
}

// BenchmarkSink offers rows as fast as they are written: what one row costs in all, and what Offer makes its caller wait.
func BenchmarkSink(b *testing.B) {
	s, err := NewSink(SinkOptions{Prefix: filepath.Join(b.TempDir(), "run")})
	if err != nil {
		b.Fatal(err)
	}
	r := row(0)
	r.Request.Replay = &trace.Replay{BlockSize: 16, InputLength: ptr(int64(16000)), Hashes: make(trace.Hashes, 1000)}
	for i := range r.Request.Replay.Hashes {
		r.Request.Replay.Hashes[i] = uint64(i) * 0x9e3779b97f4a7c15
	}
	var waited time.Duration
	b.ReportAllocs()
	for b.Loop() {
		for len(s.queue) > cap(s.queue)/2 {
			time.Sleep(50 * time.Microsecond)
		}
		start := time.Now()
		s.Offer(r)
		waited += time.Since(start)
	}
	if err := s.Close(context.Background()); err != nil || s.Lost() > 0 {
		b.Fatal(err, s.Lost())
	}
	b.ReportMetric(float64(waited.Nanoseconds())/float64(b.N), "ns-waited/op")
}
