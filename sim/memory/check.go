package memory

import (
	"fmt"
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// Check verifies that no tier holds more than it can and no block twice, that every load and save has what it waits for,
// that no block is on its way to a GPU twice, and that the links have carried what was moved.
func (m *Memory) Check() error {
	open := 0
	for _, r := range m.ranks {
		for i := range r.tiers {
			if err := r.tiers[i].store.Check(); err != nil {
				return fmt.Errorf("worker %d, %s tier: %w", r.number, r.tiers[i].level, err)
			}
		}
		if err := r.checkLoads(m.BlockSize); err != nil {
			return fmt.Errorf("worker %d: %w", r.number, err)
		}
		for _, l := range r.loads {
			open += l.open
		}
		saves := 0
		for i := range r.tiers {
			saves += len(r.tiers[i].saves)
			for j, s := range r.tiers[i].saves {
				if s.begun {
					open++
				} else if j == 0 {
					return fmt.Errorf("worker %d, %s tier: a save waits for none", r.number, r.tiers[i].level)
				}
			}
		}
		if r.gone && len(r.loads)+saves+len(r.departures) > 0 {
			return fmt.Errorf("worker %d is gone, with %d loads, %d saves and %d departures", r.number, len(r.loads), saves, len(r.departures))
		}
	}
	if open != len(m.moving) {
		return fmt.Errorf("%d transfers move, but loads and saves wait for %d", len(m.moving), open)
	}
	carried := int64(0)
	for _, l := range m.links {
		carried += m.net.Link(l.id).Bytes
	}
	if carried != m.carried {
		return fmt.Errorf("the links have carried %d bytes, the transfers over them were of %d", carried, m.carried)
	}
	return nil
}

// checkLoads verifies what is on its way to the GPUs of a rank.
func (r *rank) checkLoads(blockSize int32) error {
	coming := map[trace.Key][]trace.Span{}
	for _, l := range r.loads {
		if l.open < 1 {
			return fmt.Errorf("a load of request %d waits for nothing", l.request.ID)
		}
		for _, s := range l.path {
			s.From, s.To = max(s.From, l.from), min(s.To, l.tokens/blockSize)
			if s.From >= s.To {
				continue
			}
			if slices.ContainsFunc(coming[s.Key], func(o trace.Span) bool { return o.From < s.To && o.To > s.From }) {
				return fmt.Errorf("blocks of node %v are brought twice, for request %d too", s, l.request.ID)
			}
			coming[s.Key] = append(coming[s.Key], s)
		}
	}
	return nil
}
