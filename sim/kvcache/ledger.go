package kvcache

import (
	"fmt"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// Options are the rules that differ between engine versions.
type Options struct {
	// BlockSize is in tokens.
	BlockSize int
	// Blocks is the number of usable blocks (vLLM's num_gpu_blocks less its null block; SGLang's pages).
	Blocks int
	// PrefixCaching keeps freed blocks for reuse. Without it nothing is ever hit.
	PrefixCaching bool
	// FreeTailFirst, of a Pool, puts freed blocks without a hash at the head of the free queue (vLLM after 0.23) instead of
	// its tail.
	FreeTailFirst bool
	// Events makes the pool note which blocks enter and leave the cache.
	Events bool
	// Evictions makes a Pool note which blocks lose their last copy to other tokens.
	Evictions bool
	// Accounting makes the pool keep Accounts.
	Accounting bool
}

// newLedger returns the ledger of an empty cache. It fails when a size is out of range.
func newLedger(o Options) (Ledger, error) {
	if err := o.validate(); err != nil {
		return Ledger{}, err
	}
	return Ledger{Options: o, fresh: o.Blocks, Accounts: newAccounts(o)}, nil
}

func (o *Options) validate() error {
	if o.BlockSize < 1 || o.BlockSize > 1<<20 {
		return fmt.Errorf("KV block size %d: want 1 to %d tokens", o.BlockSize, 1<<20)
	}
	if o.Blocks < 1 || o.Blocks > 1<<30 {
		return fmt.Errorf("KV capacity of %d blocks: want 1 to %d", o.Blocks, 1<<30)
	}
	return nil
}

// Event tells that the blocks of a span entered the cache, or left it with their last copy.
type Event struct {
	trace.Span
	Removed bool
}

// Ledger counts the blocks of one worker rank, whatever the rules by which they are cached.
type Ledger struct {
	Options
	// Step is the number of the engine step being scheduled. Requests that decode grow by one token a step, so
	// it says how far they have come.
	Step int64
	// Evicted counts cached blocks taken for other tokens.
	Evicted int64
	// Accounts is who holds how much; nil unless Options ask for it. Now is the time for them: whoever works on the pool sets
	// it first.
	Accounts *Accounts
	Now      time.Duration

	fresh  int // blocks that hold nothing
	kept   int // blocks that nobody refers to and that may hold reusable tokens
	events []Event
	lost   []trace.Span
}

// Free is the number of blocks that can be taken: those that hold nothing and those that nobody refers to.
func (l *Ledger) Free() int { return l.fresh + l.kept }

// Fresh is the number of blocks that can be taken without evicting anything.
func (l *Ledger) Fresh() int { return l.fresh }

// Used is the number of blocks that somebody refers to.
func (l *Ledger) Used() int { return l.Blocks - l.Free() }

// Cached is the number of free blocks that were not fresh: most of them still hold reusable tokens.
func (l *Ledger) Cached() int { return l.kept }

// Held is the number of blocks that the table refers to, extra ones included.
func (l *Ledger) Held(t *Table) int {
	if t.decoding {
		return int(l.blocksFor(int32(t.base+l.Step)) + t.extra)
	}
	return int(t.blocks + t.extra)
}

// DrainEvents returns the events since the last call. The slice is reused by the next step.
func (l *Ledger) DrainEvents() []Event {
	e := l.events
	l.events = l.events[:0]
	return e
}

// DrainLost returns the blocks that were lost to other tokens since the last call, if Evictions are noted. The slice is
// reused by the next step.
func (l *Ledger) DrainLost() []trace.Span {
	lost := l.lost
	l.lost = l.lost[:0]
	return lost
}

// blocksFor is the number of blocks that hold the given tokens.
func (l *Ledger) blocksFor(tokens int32) int32 {
	size := int32(l.BlockSize)
	return (tokens + size - 1) / size
}

// note records that blocks [from, to) of a node entered or left the cache.
func (l *Ledger) note(key trace.Key, from, to int32, removed bool) {
	if l.Events && from < to {
		l.events = append(l.events, Event{trace.Span{Key: key, From: from, To: to}, removed})
	}
}
