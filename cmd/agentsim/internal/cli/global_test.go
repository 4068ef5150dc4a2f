package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
)

func TestExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{errors.New("the run failed"), 1},
		{usagef("no such flag"), 2},
		{fmt.Errorf("deployment: %w", &sim.ConfigError{Key: "workers", What: "0"}), 2},
		{fmt.Errorf("reading: %w", &trace.InputError{File: "a", Line: 1, Err: errors.New("torn")}), 2},
		{&exitError{exitUntrusted, errors.New("rejected")}, 3},
		{fmt.Errorf("simulating: %w", context.Canceled), 130},
		{usagef("reading: %w", context.Canceled), 130},
	} {
		if got := exitCode(c.err); got != c.want {
			t.Errorf("exit code of %q is %d, want %d", c.err, got, c.want)
		}
	}
}

// An interrupted command ends with its own exit code and leaves no result behind.
func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{
		{"predict", "testdata/traces/dynamo.jsonl", "-c", "testdata/traces/fixed.yaml"},
		{"predict", "--profile", "plain", "-c", "testdata/traces/fixed.yaml"},
	} {
		out := filepath.Join(t.TempDir(), "out")
		var stdout, stderr bytes.Buffer
		root := newRoot(&Global{Stdout: &stdout, Stderr: &stderr, Width: 100})
		root.SetArgs(append(args, "-o", out))
		err := root.ExecuteContext(ctx)
		if err == nil || exitCode(err) != exitInterrupted {
			t.Errorf("%v: %v, want an interruption", args, err)
		}
		if stdout.Len() > 0 {
			t.Errorf("%v printed %q", args, &stdout)
		}
		if _, err := os.Stat(out); err == nil {
			t.Errorf("%v left %s", args, out)
		}
	}
}
