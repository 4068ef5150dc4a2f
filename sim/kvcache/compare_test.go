package kvcache

import (
	"fmt"
	"maps"
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// compare checks that both pools are in the same state. It looks at a copy of the fast one, so that blocks whose
// entry into the cache is still pending stay so.
func (w *twins) compare() error {
	if err := w.fast.Check(); err != nil {
		return err
	}
	for _, n := range [][3]any{
		{"free blocks", w.fast.Free(), w.slow.free()},
		{"fresh blocks", w.fast.Fresh(), len(w.slow.queues[0])},
		{"evicted blocks", w.fast.Evicted, w.slow.evicted},
	} {
		if n[1] != n[2] {
			return fmt.Errorf("%s: pool has %v, twin %v", n[0], n[1], n[2])
		}
	}
	for _, t := range w.running {
		if err := same("blocks held by "+t.name, w.fast.Held(&t.fast), len(t.slow.ids)+len(t.slow.extra)); err != nil {
			return err
		}
	}
	if err := follow(w.resident, w.fast.DrainEvents()); err != nil {
		return err
	}

	c := clone(w.fast)
	spans := c.Under(func(trace.Key) bool { return true })
	if err := c.Check(); err != nil {
		return err
	}
	resident := maps.Clone(w.resident)
	if err := follow(resident, c.DrainEvents()); err != nil {
		return err
	}
	if want := w.slow.resident(); !maps.Equal(resident, want) {
		return fmt.Errorf("cached by events: %v, by twin %v", resident, want)
	}
	if want := w.slow.spans(); !slices.Equal(spans, want) {
		return fmt.Errorf("resident spans: pool has %v, twin %v", spans, want)
	}
	for i, path := range w.paths {
		end := path[len(path)-1].To
		if err := same(fmt.Sprintf("hits of path %d", i), c.Lookup(path, end), w.slow.lookup(path, end)); err != nil {
			return err
		}
		here := countOf(path, func(s slot) bool { return len(w.slow.cached[s]) > 0 })
		if err := same(fmt.Sprintf("blocks of path %d that are here", i), c.Here(path), here); err != nil {
			return err
		}
	}
	claims, claimed := Claims{}, map[slot]bool{}
	for i, path := range w.paths {
		if err := same(fmt.Sprintf("claims of path %d", i), c.Claim(path, claims), w.slow.claim(path, claimed)); err != nil {
			return err
		}
	}
	if err := same("referenced cached blocks", c.Referenced(), w.slow.referenced()); err != nil {
		return err
	}
	if err := w.compareAccounts(); err != nil {
		return err
	}
	return w.compareEvictions(c)
}

// compareAccounts checks what owners have held so far. It counts the growth of a copy, so that it stays pending.
func (w *twins) compareAccounts() error {
	l := w.fast.Ledger
	l.Accounts = l.Accounts.clone()
	for _, t := range w.running {
		table := t.fast
		l.CountGrowth(&table)
	}
	if err := l.Accounts.Check(l.Used()); err != nil {
		return err
	}
	for owner, held := range w.slow.held {
		if err := same(fmt.Sprintf("held by owner %d", owner), l.Accounts.Of(l.Now, Owner(owner)), held); err != nil {
			return err
		}
	}
	return nil
}

func (a *Accounts) clone() *Accounts {
	return &Accounts{of: slices.Clone(a.of), starts: slices.Clone(a.starts)}
}

// compareEvictions takes all free blocks of c, one by one, and compares what each held.
func (w *twins) compareEvictions(c *Pool) error {
	copies := map[slot]int{}
	for s, ids := range w.slow.cached {
		copies[s] = len(ids)
	}
	for _, q := range w.slow.queues {
		for _, id := range q {
			evicted := c.Evicted
			want, got := "nothing", "nothing"
			if b := w.slow.blocks[id]; b.hashed {
				want = "a copy of a cached block"
				if copies[b.holds]--; copies[b.holds] == 0 {
					want = fmt.Sprint("the last copy of ", b.holds)
				}
			}
			c.Take(1)
			events := c.DrainEvents()
			switch {
			case len(events) == 1 && events[0].Removed && events[0].To == events[0].From+1:
				got = fmt.Sprint("the last copy of ", slot{events[0].Key, events[0].From})
			case len(events) > 0:
				got = fmt.Sprint(events)
			case c.Evicted > evicted:
				got = "a copy of a cached block"
			}
			if err := same("next block to be taken", got, want); err != nil {
				return err
			}
		}
	}
	return c.Check()
}

// follow applies events to the set of what is cached. A block must not enter twice, nor leave without being there.
func follow(resident map[slot]bool, events []Event) error {
	for _, e := range events {
		for at := e.From; at < e.To; at++ {
			s := slot{e.Key, at}
			if resident[s] != e.Removed {
				return fmt.Errorf("event %+v: %v was cached before: %v", e, s, resident[s])
			}
			if resident[s] = true; e.Removed {
				delete(resident, s)
			}
		}
	}
	return nil
}

// clone copies a pool and the tables that grow in it.
func clone(p *Pool) *Pool {
	c := &Pool{Ledger: p.Ledger, shelf: newShelf(), spares: p.spares}
	c.shelf.ledger = &c.Ledger
	c.events, c.Accounts = nil, p.Accounts.clone()
	tables, runs := map[*Table]*Table{}, map[*run]*run{}
	for key, n := range p.nodes {
		m := &node{key: key}
		c.nodes[key] = m
		for _, l := range []struct {
			from []*run
			to   *[]*run
		}{{n.runs, &m.runs}, {n.spare, &m.spare}} {
			for _, r := range l.from {
				runs[r] = &run{node: m, from: r.from, to: r.to, refs: r.refs, pins: r.pins, owner: r.owner, copy: r.copy, class: r.class}
				*l.to = append(*l.to, runs[r])
			}
		}
		for _, t := range n.writers {
			if tables[t] == nil {
				twin := *t
				twin.spares = slices.Clone(t.spares)
				tables[t] = &twin
			}
			m.writers = append(m.writers, tables[t])
		}
	}
	for i := range p.queues {
		for r := p.queues[i].head; r != nil; r = r.next {
			if r.node == nil {
				runs[r] = &run{from: r.from, to: r.to, class: r.class}
			}
			c.queues[i].push(runs[r])
		}
	}
	return c
}
