package link

import (
	"cmp"
	"container/heap"
	"slices"
	"time"
)

// part is links and flows that are connected with each other.
type part struct {
	links []ID
	flows []*flow
}

// gather makes the part that is connected with the links, by moving flows or by all.
func (n *Network) gather(from []ID, all bool) {
	p := &n.part
	p.links, p.flows = p.links[:0], p.flows[:0]
	for _, id := range from {
		n.reach(id)
	}
	for i := 0; i < len(p.links); i++ {
		for _, f := range n.links[p.links[i]].flows {
			if f.seen || !f.moving && !all {
				continue
			}
			f.seen = true
			p.flows = append(p.flows, f)
			for _, id := range f.over {
				n.reach(id)
			}
		}
	}
	for _, id := range p.links {
		n.links[id].seen = false
	}
	for _, f := range p.flows {
		f.seen = false
	}
}

// reach adds a link to the part that is being gathered.
func (n *Network) reach(id ID) {
	if l := &n.links[id]; !l.seen {
		l.seen = true
		n.part.links = append(n.part.links, id)
	}
}

// share gives the flows that are connected with the links that have changed their shares from now on.
func (n *Network) share() {
	if len(n.changed) == 0 {
		return
	}
	n.gather(n.changed, false)
	n.changed = n.changed[:0]
	n.fill()
	for _, f := range n.part.flows {
		if f.share == f.rate {
			continue
		}
		f.settle(n.now)
		f.rate = f.share
		f.at = later(n.now, f.left.takes(f.rate))
		heap.Fix(&n.agenda, f.index)
	}
}

// fill finds the shares of the part by progressive filling: the link that has least for each of its flows decides theirs,
// and what they take is gone from their other links. It uses up the list of links.
func (n *Network) fill() {
	open := n.part.links
	for _, id := range open {
		l := &n.links[id]
		l.left, l.open = l.rate, l.moving
	}
	for _, f := range n.part.flows {
		f.fixed = false
	}
	for {
		open = slices.DeleteFunc(open, func(id ID) bool { return n.links[id].open == 0 })
		if len(open) == 0 {
			return
		}
		least := slices.MinFunc(open, func(a, b ID) int {
			return cmp.Or(cmp.Compare(n.links[a].each(), n.links[b].each()), cmp.Compare(a, b))
		})
		share := n.links[least].each()
		for _, f := range n.links[least].flows {
			if !f.moving || f.fixed {
				continue
			}
			f.fixed, f.share = true, share
			for _, id := range f.over {
				n.links[id].left -= share
				n.links[id].open--
			}
		}
	}
}

// each is what the link has left for each of its flows that have no share yet.
func (l *link) each() uint64 { return l.left / uint64(l.open) }

// Eta is when a transfer ends if nothing else starts; now when it has ended.
func (n *Network) Eta(now time.Duration, t Transfer) time.Duration {
	n.goTo(now)
	f := n.flow(t)
	if f == nil {
		return n.now
	}
	if len(f.over) == 0 {
		return f.at
	}
	n.gather(f.over, true)
	if len(n.part.flows) == 1 && f.moving {
		return f.at
	}
	ahead, twin := n.fork(f)
	for serial := twin.serial; twin.serial == serial; ahead.step() {
		if ahead.agenda[0].at == Never {
			return Never
		}
	}
	return ahead.now
}

// fork copies the part into a network of its own and returns it with the copy of f.
func (n *Network) fork(f *flow) (*Network, *flow) {
	if n.trial == nil {
		n.trial = &Network{}
	}
	c, p, twin := n.trial, &n.part, (*flow)(nil)
	c.now, c.ended, c.agenda, c.idle = n.now, c.ended[:0], c.agenda[:0], append(c.idle[:0], c.flows...)
	slices.Sort(p.links) // ties between links are decided as they are here
	for len(c.links) < len(p.links) {
		c.links = append(c.links, link{})
	}
	for i, id := range p.links {
		l, from := &c.links[i], &n.links[id]
		*l = link{rate: from.rate, moving: from.moving, flows: l.flows[:0]}
	}
	for _, from := range p.flows {
		g := c.newFlow()
		*g = flow{serial: from.serial, slot: g.slot, over: g.over[:0], bytes: from.bytes,
			moving: from.moving, at: from.at, rate: from.rate, left: from.left, since: from.since}
		for _, id := range from.over {
			i, _ := slices.BinarySearch(p.links, id)
			g.over = append(g.over, ID(i))
			c.links[i].flows = append(c.links[i].flows, g)
		}
		heap.Push(&c.agenda, g)
		if from == f {
			twin = g
		}
	}
	return c, twin
}
