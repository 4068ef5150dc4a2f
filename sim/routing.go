package sim

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/trace"
)

// resolveRouter checks the router's settings and settles those of the program scheduler.
func (p *Plan) resolveRouter() error {
	if p.Router.PolicyConfig != "" {
		return bad("router.policy_config", "%s has not been read", p.Router.PolicyConfig)
	}
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
	const parameters = "router.thunderagent.parameters"
	s.BlockSize = int64(blockSize)
	for _, key := range slices.Sorted(maps.Keys(t.Parameters)) {
		if what := setParameter(&s, key, t.Parameters[key]); what != "" {
			return s, bad(parameters+"."+key, "%s", what)
		}
	}
	if err := s.Validate(); err != nil {
		return s, &ConfigError{"", parameters + strings.TrimPrefix(err.Error(), "thunderagent")}
	}
	return s, nil
}

// setParameter sets a key of the program scheduler's settings. It returns what is wrong with it, "" for nothing.
func setParameter(s *thunderagent.Settings, key string, value any) string {
	t := reflect.TypeFor[thunderagent.Settings]()
	var known []string
	for i := range t.NumField() {
		known = append(known, t.Field(i).Tag.Get("yaml"))
	}
	at := slices.Index(known, key)
	if at < 0 {
		return "unknown, want one of " + strings.Join(known, ", ")
	}
	kind := t.Field(at).Type.Kind()
	if f, ok := value.(float64); ok && f != math.Trunc(f) && (kind == reflect.Int || kind == reflect.Int64) {
		return fmt.Sprintf("%v is not a whole number", value)
	}
	text, err := yaml.Marshal(map[string]any{key: value})
	if err == nil {
		err = yaml.NewDecoder(bytes.NewReader(text), yaml.Strict()).Decode(s)
	}
	var syntax yaml.Error
	switch wants := map[reflect.Kind]string{reflect.Float64: "a number", reflect.Int: "a whole number", reflect.Int64: "a whole number",
		reflect.Bool: "true or false", reflect.String: "a word"}[kind]; {
	case err == nil:
		return ""
	case wants != "":
		return fmt.Sprintf("%v is not %s", value, wants)
	case errors.As(err, &syntax): // its own text has several lines
		return syntax.GetMessage()
	}
	return err.Error()
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

// toolOf tells whether a call ends with that of a tool, and the name of the first, as far as the trace tells: it is also
// one if another call of its session follows that brings a tool's result.
func (r *run) toolOf(call int32) (name string, calls bool) {
	c := &r.w.Calls[call]
	if len(c.Turn.ToolCalls) > 0 {
		return c.Turn.ToolCalls[0].Name, true
	}
	for _, e := range r.w.Successors(c) {
		if next := &r.w.Calls[e.To]; next.Session == c.Session && next.Turn.Gap.Human == 0 {
			return "", true
		}
	}
	return "", false
}

// next is the first call of the same session that waits for a call, -1 when there is none.
func (r *run) next(call int32) int32 {
	c := &r.w.Calls[call]
	for _, e := range r.w.Successors(c) {
		if r.w.Calls[e.To].Session == c.Session {
			return e.To
		}
	}
	return -1
}
