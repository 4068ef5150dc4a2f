package recorder

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestFullDisk fills a disk in the middle of a write: a limit on the size of files cuts the write short, and is lifted later. It runs in a process of its own, since the limit holds for all files of a process.
func TestFullDisk(t *testing.T) {
	if os.Getenv("RECORDER_TEST_FULL") == "" {
		child := exec.Command(os.Args[0], "-test.run=^TestFullDisk$", "-test.v")
		child.Env = append(os.Environ(), "RECORDER_TEST_FULL=1")
		if out, err := child.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	signal.Ignore(syscall.SIGXFSZ)
	prefix := filepath.Join(t.TempDir(), "run")
	var log logged
	s, err := NewSink(SinkOptions{Prefix: prefix, QueueRows: 100, FlushInterval: time.Millisecond, FlushBytes: 5000, Logf: log.printf})
	if err != nil {
		t.Fatal(err)
	}
	offered := 0
	until := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("waited a minute until %s", what)
			}
		}
	}
	written := func() bool { n, _ := recorded(t, prefix); return len(n) == offered-s.Lost() }
	offer := func(n int) {
		for range n {
			s.Offer(row(offered))
			offered++
		}
	}
	limit := func(bytes uint64) {
		t.Helper()
		var now syscall.Rlimit
		if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &now); err != nil {
			t.Fatal(err)
		}
		now.Cur = min(bytes, now.Max)
		if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &now); err != nil {
			t.Fatal(err)
		}
	}
	offer(50)
	until("rows are on the disk", written)
	info, err := os.Stat(prefix + ".000000.jsonl.gz")
	if err != nil {
		t.Fatal(err)
	}
	limit(uint64(info.Size()) + 100)
	until("rows are lost", func() bool { offer(1); return s.Lost() > 10 })
	limit(1 << 62)
	until("the rest is on the disk", written)
	offer(20)
	if err := s.Close(context.Background()); err != nil {
		t.Error(err)
	}
	got, report := recorded(t, prefix)
	if !slices.IsSorted(got) || len(slices.Compact(got)) != offered-s.Lost() || report.LostRows != s.Lost() {
		t.Errorf("%d rows (%d) and %d told of as lost, of %d offered and %d lost", len(got), got, report.LostRows, offered, s.Lost())
	}
	if report.LostBytes > 0 {
		t.Errorf("the trace is damaged: %q", report.Warnings)
	}
	if len(log.lines) != 2 || !strings.Contains(log.lines[0], "file too large") {
		t.Errorf("logged %q, want one begin and one end of trouble", log.lines)
	}
}
