package recorder

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace/convert"
)

// childEnv makes the test binary write rows with a Sink, from the given number on, until it is killed.
const childEnv = "RECORDER_TEST_CHILD"

func TestMain(m *testing.M) {
	child := os.Getenv(childEnv)
	if child == "" {
		os.Exit(m.Run())
	}
	if err := writeForever(child); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// killedOptions flush and roll often, so that a kill falls into each of their moments.
func killedOptions(prefix string) SinkOptions {
	return SinkOptions{Prefix: prefix, FlushInterval: 2 * time.Millisecond, FlushBytes: 20 << 10, RollBytes: 200 << 10}
}

func writeForever(prefix string) error {
	s, err := NewSink(killedOptions(prefix))
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		for len(s.queue) > cap(s.queue)/2 { // else rows would be lost, which this is not about
			time.Sleep(100 * time.Microsecond)
		}
		s.Offer(row(n))
	}
}

// A kill at any moment costs what was not flushed. What a reader saw before is there after it, rows are there from the
// first on without a gap and none twice, and no file is refused.
func TestKill(t *testing.T) {
	kills := 50
	if testing.Short() {
		kills = 5
	}
	rng := rand.New(rand.NewPCG(1, 2))
	rows, torn, rolled := 0, 0, 0
	for kill := range kills {
		prefix := filepath.Join(t.TempDir(), "run")
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), childEnv+"="+prefix)
		child.Stderr = os.Stderr
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		for start := time.Now(); len(prefixFiles(t, prefix)) == 0; time.Sleep(time.Millisecond) {
			if time.Since(start) > time.Minute {
				t.Fatalf("kill %d: the child wrote nothing", kill)
			}
		}
		time.Sleep(time.Duration(rng.IntN(int(60 * time.Millisecond))))
		seen, _ := recorded(t, prefix)
		time.Sleep(time.Duration(rng.IntN(int(20 * time.Millisecond))))
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		if err := child.Wait(); child.ProcessState.Exited() {
			t.Fatalf("kill %d: the child ended by itself: %v", kill, err)
		}
		got, report := recorded(t, prefix)
		for i, n := range got {
			if n != i {
				t.Fatalf("kill %d: row %d of the trace is number %d", kill, i, n)
			}
		}
		if len(got) < len(seen) {
			t.Errorf("kill %d: %d rows are left of %d that were flushed", kill, len(got), len(seen))
		}
		if len(report.Warnings) > 0 {
			torn++
		}
		files := prefixFiles(t, prefix)
		rolled += len(files) - 1
		rows += len(got)
		if len(got) == 0 {
			continue
		}
		// Another run goes on behind it, and a command reads both.
		s, err := NewSink(killedOptions(prefix))
		if err != nil {
			t.Fatal(err)
		}
		s.Offer(row(len(got)))
		if err := s.Close(context.Background()); err != nil {
			t.Fatal(err)
		}
		c, err := convert.Open(context.Background(), []string{prefix}, convert.Options{})
		if err != nil || c.Read.Calls != len(got)+1 || c.Read.Duplicates > 0 {
			t.Errorf("kill %d: read %+v, %v; want %d calls", kill, c, err, len(got)+1)
		}
	}
	t.Logf("%d kills: %d rows, %d segments rolled, %d torn members", kills, rows, rolled, torn)
	if rows == 0 || rolled == 0 {
		t.Errorf("%d rows and %d segments rolled: the kills came too early to test anything", rows, rolled)
	}
}

func prefixFiles(t *testing.T, prefix string) []string {
	t.Helper()
	files, err := filepath.Glob(prefix + ".*")
	if err != nil {
		t.Fatal(err)
	}
	return files
}
