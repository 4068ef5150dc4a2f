package kvcache

import (
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// cached is a Pool or a Radix as the accounts see them: a request is admitted, decodes, and ends.
type cached struct {
	*Ledger
	admit  func(t *Table, tokens int32)
	decode func(t *Table, tokens int32)
	take   func(blocks int)
	finish func(t *Table, tokens int32)
	check  func() error
}

func cachesToCompare(t *testing.T) map[string]cached {
	t.Helper()
	o := Options{BlockSize: 2, Blocks: 20, PrefixCaching: true, FreeTailFirst: true, Accounting: true}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewRadix(o)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]cached{
		"pool": {&p.Ledger, func(t *Table, tokens int32) {
			p.Admit(t, p.Lookup(t.Path, (tokens-1)/2), tokens, 0, 1)
		}, p.StartDecode, p.Take, p.Finish, p.Check},
		"radix": {&r.Ledger, func(t *Table, tokens int32) {
			r.Match(t, (tokens-1)/2)
			r.Lock(t)
			r.Grow(t, tokens, 1)
			r.Insert(t, tokens)
		}, r.StartDecode, r.Take, r.Finish, r.Check},
	}
}

// Owner 1 prefills 4 tokens in 2 blocks of 2 tokens, beside one for its state, from 0 to 10 ns. Steps begin at 10, 12 and 15
// ns, in the first and the third of which its decode takes a block. It ends at 18 with 7 tokens: 3 blocks stay, the half one
// does not. Its tool runs from then on, and at 20 it ends altogether. At 30 owner 2 finds the first block, which passes to it,
// takes one of its own and one for its state, and ends at 40.
func TestAccountsByHand(t *testing.T) {
	for name, c := range cachesToCompare(t) {
		t.Run(name, func(t *testing.T) {
			a := c.Accounts
			first, second := a.Open(), a.Open()
			want := func(at time.Duration, o Owner, blocks map[State]int64) {
				t.Helper()
				got := a.Of(at, o)
				for s := range States {
					if w := (BlockTime{}).Plus(blocks[s], 1); got[s] != w {
						t.Errorf("at %d ns owner %d has held %v block-ns in state %d, want %v", at, o, got[s].lo, s, w.lo)
					}
				}
				if err := c.check(); err != nil {
					t.Error(err)
				}
			}
			r := &Table{Path: own(1, 6), Owner: first, Class: Normal}
			c.admit(r, 4)
			c.Now = 10
			c.decode(r, 4)
			for _, at := range []time.Duration{10, 12, 15} {
				c.Begin(at)
			}
			c.take(2) // when the leap has ended
			want(18, first, map[State]int64{Running: 3 * 18})
			if err := a.Check(c.Used() - c.Uncounted(r)); err != nil {
				t.Error(err)
			}
			c.Now = 18
			c.CountGrowth(r)
			want(18, first, map[State]int64{Running: 3*18 + 8 + 3})
			if err := a.Check(c.Used()); err != nil {
				t.Error(err)
			}
			c.finish(r, 7)
			a.SetState(18, first, Tool)
			a.SetState(20, first, Ended)
			a.Restart(25)
			want(30, first, map[State]int64{Ended: 3 * 5})

			c.Now = 30
			next := &Table{Path: append(own(1, 1), trace.Span{Key: trace.MakeKey(2, 0), From: 1, To: 2}), Owner: second, Class: Normal}
			c.admit(next, 4)
			c.Now = 40
			c.finish(next, 4)
			want(50, first, map[State]int64{Ended: 3*5 + 2*20})
			want(50, second, map[State]int64{Running: 3 * 10, Other: 2 * 10})
			if c.Used() != 0 || c.Cached() != 4 {
				t.Errorf("%d blocks in use and %d cached, want 0 and 4", c.Used(), c.Cached())
			}
		})
	}
}
