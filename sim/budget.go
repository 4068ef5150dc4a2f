package sim

import "github.com/agentsim/agentsim/router/thunderagent"

// tableCapacity is what each rank publishes to the program scheduler: nothing with its gates off, and then it lets all go.
func (p *Plan) tableCapacity() []thunderagent.Capacity {
	c := make([]thunderagent.Capacity, p.Ranks)
	for i := range c {
		if p.Router.ThunderAgent.Gates == "none" {
			continue
		}
		c[i].Tokens = int64(p.Blocks+p.nullBlocks()) * int64(p.Engine.BlockSize)
		if p.memory != nil {
			c[i].HostTokens = int64(p.memory.Host.Blocks) * int64(p.Engine.BlockSize)
		}
	}
	return c
}

// setCapacity tells the table of a desk what a rank holds, less the tokens that are pinned for others.
func (s *service) setCapacity(d *desk, rank int, pinned int64) {
	d.pinned[rank] = pinned
	c := s.plan.tableCapacity()[rank]
	if c.Tokens > 0 {
		c.Tokens = max(1, c.Tokens-pinned) // 0 is not published
	}
	_ = d.table.SetWorker(rank, c) // no more than was valid when the run began
}

// withhold tells the table of a desk that it can not give away KV that is pinned for sessions that it does not charge to the
// worker: paused ones, those that are elsewhere, and those that it does not know. So pausing a session frees nothing of what
// is pinned for it until its pin ends.
func (s *service) withhold(d *desk) {
	for rank, e := range s.engines {
		pinned := int64(0)
		e.Pins(s.now, func(session uint64, blocks int) {
			if p, known := d.table.Program(s.now, session); !known || p.Paused || p.Worker != int32(rank) {
				pinned += int64(blocks) * int64(s.plan.Engine.BlockSize)
			}
		})
		if pinned != d.pinned[rank] && !s.down[rank] {
			s.setCapacity(d, rank, pinned)
		}
	}
}
