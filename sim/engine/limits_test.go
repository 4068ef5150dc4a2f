package engine

import (
	"errors"
	"strings"
	"testing"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim/kvcache"
)

// TestLimits: what New refuses, and which requests fit.
func TestLimits(t *testing.T) {
	for _, o := range []Options{{MaxSeqs: 0, MaxBatchedTokens: 1}, {MaxSeqs: 2, MaxBatchedTokens: 1}} {
		if _, err := New(o, models.FixedSteps(ms, ms), kvcache.Options{BlockSize: 4, Blocks: 3}, nil); err == nil {
			t.Errorf("New accepts %+v", o)
		}
	}
	e, err := New(Options{MaxSeqs: 1, MaxBatchedTokens: 1, StateBlocks: 1}, models.FixedSteps(ms, ms), kvcache.Options{BlockSize: 4, Blocks: 3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		input, output int32
		want          bool
	}{
		{8, 1, true},  // the last token's KV is never computed: 8 tokens, 2 blocks, and one for state
		{8, 2, false}, // 9 tokens
		{8, 0, true},
		{9, 0, false},
	} {
		if got := e.Fits(test.input, test.output); got != test.want {
			t.Errorf("%d + %d tokens fit: %v, want %v", test.input, test.output, got, test.want)
		}
	}
}

// TestStuck: a request that can never run is an error, not an idle engine.
func TestStuck(t *testing.T) {
	e, err := New(Options{MaxSeqs: 1, MaxBatchedTokens: 100, ReserveFull: true}, models.FixedSteps(ms, ms), kvcache.Options{BlockSize: 4, Blocks: 3}, nil)
	if err != nil {
		t.Fatal(err)
	}
	e.Enqueue(0, &Request{ID: 7, Path: node(1, 4), Input: 16, Output: 1})
	if _, err := e.Schedule(0); !errors.Is(err, errStuck) || !strings.Contains(err.Error(), "request 7") {
		t.Errorf("got error %v, want one that names request 7", err)
	}
}
