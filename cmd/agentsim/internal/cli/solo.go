package cli

import (
	"fmt"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
)

// solo is the makespans of programs alone, shared by cells whose worker and gaps are the same.
type solo struct {
	key      string
	workload *trace.Workload
	plan     *sim.Plan     // of the first of the cells
	done     chan struct{} // closed when times and err are there
	times    []time.Duration
	err      error
}

// soloOf returns the solo run that a cell's slowdowns refer to, or nil when every program is a single call.
func (b *batch) soloOf(c *cell) *solo {
	w := c.workload.workload
	if len(w.Calls) == len(w.Programs) || c.bound != "" && b.solving == "" {
		return nil
	}
	d := c.plan.Deployment
	d.Name, d.Workers, d.Seed, d.Router, d.Client, d.SLO = "", 1, 0, sim.Router{}, sim.Client{}, sim.SLO{}
	load := sim.Load{Speed: d.Load.Speed, MaxGap: d.Load.MaxGap, HumanGap: d.Load.HumanGap}
	if d.Load.Mode == "recorded" {
		load.Mode = d.Load.Mode
	}
	d.Load = load
	d.Parallelism.Data = 1
	text, err := yaml.Marshal(d)
	if err != nil {
		return nil
	}
	key := string(text)
	for _, s := range b.solos {
		if s.key == key {
			return s
		}
	}
	s := &solo{key: key, workload: w, plan: c.plan, done: make(chan struct{})}
	b.solos = append(b.solos, s)
	return s
}

// alone waits for the makespans of the cell's programs alone; there are none where slowdowns mean nothing.
func (c *cell) alone() ([]time.Duration, error) {
	if c.solo == nil {
		return nil, nil
	}
	<-c.solo.done
	if c.solo.err != nil {
		return nil, fmt.Errorf("programs alone: %w", c.solo.err)
	}
	return c.solo.times, nil
}
