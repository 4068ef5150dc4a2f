package kvcache

import (
	"fmt"
	"time"
)

// Owner is whom blocks count for: a session, within one cache. Accounts hand them out; 0 is nobody in particular.
type Owner int32

// State is how a block is held.
type State uint8

// A block that a request refers to is running, one that only pins refer to is pinned. Any other is in the state of its
// owner.
const (
	Running State = iota
	Pinned
	Tool          // its owner waits for a tool
	Human         // for a person
	Other         // for anything else, or it runs without this block
	Paused        // a program scheduler holds its owner back
	EndedSubagent // nobody will ask for it as its owner, a subagent, did
	Ended         // nor as this root session did
	States

	idle = States // whichever state the owner is in
)

// Accounts integrate over time who holds how many blocks of a cache, and how. At each moment they sum up to Used and to
// the blocks of Cached that hold tokens, but for what decoding tables have grown by since they were counted.
//
// A block that holds no cached tokens counts for the table that refers to it. A cached one counts for its owner: that of
// the table that filled it. When that owner has ended, the block passes to the owner of the next table that takes it up
// from the free queue, or of the last that lets go of it.
type Accounts struct {
	of []account // by owner
	// starts is, by residue of the step's number modulo the block size, the sum of the times at which steps began.
	starts []BlockTime
}

// account is what an owner holds. Each integral lacks blocks × the time up to which it is asked for: a change by n blocks
// at a time t is −n·t, and neither the order of changes nor when somebody looks makes a difference.
type account struct {
	state  State // of what nobody refers to
	blocks [States]int32
	lacks  Holding
}

func newAccounts(o Options) *Accounts {
	if !o.Accounting {
		return nil
	}
	return &Accounts{of: []account{{state: Other}}, starts: make([]BlockTime, o.BlockSize)}
}

// Open returns a new owner, in state Other.
func (a *Accounts) Open() Owner {
	a.of = append(a.of, account{state: Other})
	return Owner(len(a.of) - 1)
}

// SetState says what an owner is doing from now on.
func (a *Accounts) SetState(now time.Duration, o Owner, s State) {
	c := &a.of[o]
	n := int64(c.blocks[c.state])
	a.add(now, o, idle, -n)
	c.state = s
	a.add(now, o, idle, n)
}

// Of returns what an owner has held until now since the accounts began.
func (a *Accounts) Of(now time.Duration, o Owner) Holding {
	c := &a.of[o]
	h := c.lacks
	for s, n := range c.blocks {
		h[s] = h[s].Plus(int64(n), now)
	}
	return h
}

// Restart lets the accounts begin anew at now.
func (a *Accounts) Restart(now time.Duration) {
	for i := range a.of {
		c := &a.of[i]
		for s, n := range c.blocks {
			c.lacks[s] = BlockTime{}.Plus(-int64(n), now)
		}
	}
}

// add changes the number of blocks that an owner holds.
func (a *Accounts) add(now time.Duration, o Owner, s State, n int64) {
	c := &a.of[o]
	if s == idle {
		s = c.state
	}
	c.blocks[s] += int32(n)
	c.lacks[s] = c.lacks[s].Plus(-n, now)
}

// heir is whose a block is that a table takes up from the free queue, or lets go of.
func (a *Accounts) heir(owner Owner, t *Table) Owner {
	if a == nil || t.Owner == 0 || a.of[owner].state < EndedSubagent {
		return owner
	}
	return t.Owner
}

// Check verifies that the accounts add up to so many blocks in use.
func (a *Accounts) Check(used int) error {
	for i := range a.of {
		used -= int(a.of[i].blocks[Running] + a.of[i].blocks[Pinned])
	}
	if used != 0 {
		return fmt.Errorf("kv accounts: %d blocks in use count for nobody", used)
	}
	return nil
}

// holders counts blocks of the cache by their owners: pinned, and unused.
type holders map[Owner][2]int32

func (h holders) add(o Owner, s State, n int32) {
	counts := h[o]
	switch s {
	case Pinned:
		counts[0] += n
	case idle:
		counts[1] += n
	}
	h[o] = counts
}

// compare verifies that the accounts count the cache's blocks as they are.
func (a *Accounts) compare(h holders) error {
	if a == nil {
		return nil
	}
	for i := range a.of {
		c, unused := a.of[i], int32(0)
		for _, n := range c.blocks[Pinned+1:] {
			unused += n
		}
		if c.blocks[Running] < 0 || c.blocks[Pinned] != h[Owner(i)][0] || c.blocks[c.state] != h[Owner(i)][1] || unused != h[Owner(i)][1] {
			return fmt.Errorf("kv accounts: owner %d has %v blocks by state and is in state %d; the cache has %d pinned ones and %d unused",
				i, c.blocks, c.state, h[Owner(i)][0], h[Owner(i)][1])
		}
	}
	return nil
}

// count changes the number of blocks that an owner holds at Now.
func (l *Ledger) count(o Owner, s State, n int32) {
	if l.Accounts != nil && n != 0 {
		l.Accounts.add(l.Now, o, s, int64(n))
	}
}

// Begin counts a step, which begins at the given time: decoding tables grow in it.
func (l *Ledger) Begin(at time.Duration) {
	l.Step++
	if l.Accounts != nil {
		sum := &l.Accounts.starts[l.Step%int64(l.BlockSize)]
		*sum = sum.Plus(1, at)
	}
}

// started is the sum of the times at which the steps began in which a decoding table takes a block: those in which the
// tokens that it had filled its blocks.
func (l *Ledger) started(t *Table) BlockTime {
	size := int64(l.BlockSize)
	return l.Accounts.starts[((1-t.base)%size+size)%size]
}

// beginGrowth notes that a decoding table grows from now on.
func (l *Ledger) beginGrowth(t *Table) {
	if l.Accounts != nil {
		t.started = l.started(t)
	}
}

// Uncounted is the number of blocks by which a decoding table has grown since its growth was counted.
func (l *Ledger) Uncounted(t *Table) int { return l.Held(t) - int(t.blocks+t.extra) }

// CountGrowth accounts for the blocks that a decoding table has taken up to the present step.
func (l *Ledger) CountGrowth(t *Table) {
	if l.Accounts == nil || !t.decoding {
		return
	}
	n := l.Uncounted(t)
	if n == 0 {
		return
	}
	c, started := &l.Accounts.of[t.Owner], l.started(t)
	c.blocks[Running] += int32(n)
	c.lacks[Running] = c.lacks[Running].Sub(started.Sub(t.started))
	t.blocks, t.started = t.blocks+int32(n), started
}
