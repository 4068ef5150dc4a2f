package sim

import (
	"bytes"
	"math/rand/v2"

	"github.com/goccy/go-yaml"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/trace"
)

// resolveRouter checks the router's settings and settles those of the program scheduler.
func (p *Plan) resolveRouter() error {
	if _, err := router.New(p.Router.Settings, p.pool(), p.Seed); err != nil {
		return &ConfigError{"", err.Error()}
	}
	if _, err := p.maxPrograms(); err != nil {
		return err
	}
	ta := &p.Router.ThunderAgent
	if p.Router.Policy != "thunderagent" {
		if ta.Preset != "" || len(ta.Parameters) > 0 || ta.Gates == "none" {
			return bad("router.thunderagent", "goes with router.policy thunderagent, not %s", p.Router.Policy)
		}
		return nil
	}
	s, err := ta.settings(p.Engine.BlockSize)
	if err != nil {
		return err
	}
	p.scheduler = &s
	p.patience = int((s.ResumeTimeout+s.SessionRetention)/s.SchedulerInterval) + 10
	return nil
}

// settings are those of the preset with the parameters applied.
func (t *ThunderAgent) settings(blockSize int) (thunderagent.Settings, error) {
	s, err := thunderagent.Preset(t.Preset)
	if err != nil {
		return s, &ConfigError{"", "router." + err.Error()}
	}
	s.BlockSize = int64(blockSize)
	if len(t.Parameters) > 0 {
		text, err := yaml.Marshal(t.Parameters)
		if err == nil {
			err = yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(&s)
		}
		if err != nil {
			return s, bad("router.thunderagent.parameters", "%v", err)
		}
	}
	if err := s.Validate(); err != nil {
		return s, &ConfigError{"", "router." + err.Error()}
	}
	return s, nil
}

// unlabelledStream tells the random numbers of unlabelled programs from others of the same seed.
const unlabelledStream = 0x756e6c6162656c // "unlabel"

// labelled tells whether a call names its session: not where the trace has no sessions, nor for the share of programs
// that router.unlabelled says.
func (r *run) labelled(l *live, c *trace.Call) bool {
	if c.Turn.Inferred&trace.FieldSession != 0 {
		return false
	}
	share := r.plan.Router.Unlabelled
	if share == 0 {
		return true
	}
	rng := rand.New(rand.NewPCG(r.plan.Seed, unlabelledStream^uint64(l.inst.copy)<<32^uint64(l.inst.program)))
	return rng.Float64() >= share
}

// final tells whether a call says that its session ends with it.
func (r *run) final(call int32, c *trace.Call) bool {
	mode := r.plan.Client.SessionFinal
	if mode == "auto" || mode == "" {
		mode = "last"
		if r.marked() {
			mode = "recorded"
		}
	}
	switch mode {
	case "recorded":
		return c.Turn.Final
	case "last":
		turns := r.w.Sessions[c.Session].Turns
		return len(turns) > 0 && turns[len(turns)-1] == c.Turn
	}
	return false
}

// marks is whether the trace marks the ends of sessions, once somebody asked.
type marks uint8

const (
	unasked marks = iota
	without
	with
)

// marked tells whether the trace marks the ends of sessions.
func (r *run) marked() bool {
	if r.finals == unasked {
		r.finals = without
		for i := range r.w.Calls {
			if r.w.Calls[i].Turn.Final {
				r.finals = with
				break
			}
		}
	}
	return r.finals == with
}

// callsTool tells whether a call is followed by another of its session that brings a tool's result.
func (r *run) callsTool(call int32) bool {
	c := &r.w.Calls[call]
	for _, e := range r.w.Successors(c) {
		if next := &r.w.Calls[e.To]; next.Session == c.Session && next.Turn.Gap.Human == 0 {
			return true
		}
	}
	return false
}
