package thunderagent

import (
	"math"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// TestPresets pins the numbers in which the versions differ.
func TestPresets(t *testing.T) {
	type figures struct {
		pauseAt, pauseTo, resumeTo                   float64
		timeout, retention, interval                 float64
		buffer                                       int64
		final, gate, mark, forceAt, order, placement string
		decay                                        Decay
	}
	want := map[string]figures{
		"dynamo-native": {0.95, 0.80, 0.85, 1800, 1800, 5, 100, "forward", "any-paused", "all", "tick", "resume-first", "soft", Decay{Forced: true}},
		"dynamo-python": {0.95, 0.80, 0.85, 1800, 600, 5, 100, "swallow", "any-paused", "all", "deadline", "resume-first", "pin", Decay{Forced: true, Admission: true}},
		"upstream":      {1, 1, 1, 1800, 0, 5, 100, "release", "any-paused", "all", "deadline", "resume-first", "pin", Decay{}},
		"paper":         {1, 1, 1, 0, 0, 5, 0, "release", "always", "smallest-until-target", "deadline", "pause-first", "pin", Decay{Pause: true}},
	}
	if got := Presets(); len(got) != len(want) || got[0] != "dynamo-native" {
		t.Errorf("presets %v", got)
	}
	for _, name := range Presets() {
		s, err := Preset(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		got := figures{
			s.PauseThreshold, s.PauseTarget, math.Round(s.resumeCeiling()*1e9) / 1e9,
			s.ResumeTimeout, s.SessionRetention, s.SchedulerInterval, s.BufferPerProgram,
			s.Final, s.Gate, s.Mark, s.ForceAt, s.TickOrder, s.Placement, s.Decay,
		}
		if got != want[name] {
			t.Errorf("%s: %+v, want %+v", name, got, want[name])
		}
	}
	if s, err := Preset(""); err != nil || s != native() {
		t.Errorf("the preset without a name is %+v, %v", s, err)
	}
	if _, err := Preset("dynamo"); err == nil || !strings.Contains(err.Error(), "dynamo-native, dynamo-python") {
		t.Errorf("unknown preset: %v", err)
	}
}

// A Dynamo policy file's parameters are read by the names that they have there.
func TestDynamoParameters(t *testing.T) {
	s := native()
	err := yaml.UnmarshalWithOptions([]byte(`
pause_threshold: 0.9
pause_target: 0.7
resume_hysteresis: 0.2
resume_timeout_seconds: 60
session_retention_seconds: 90.5
scheduler_interval_seconds: 2
acting_token_weight: 0.5
acting_decay_tau_seconds: 3
buffer_per_program: 50
max_tracked_requests: 500
shared_prefix_budget: true
block_size: 16
`), &s, yaml.Strict())
	if err != nil {
		t.Fatal(err)
	}
	want := with(func(s *Settings) {
		s.PauseThreshold, s.PauseTarget, s.ResumeHysteresis = 0.9, 0.7, 0.2
		s.ResumeTimeout, s.SessionRetention, s.SchedulerInterval = 60, 90.5, 2
		s.ActingTokenWeight, s.ActingDecayTau, s.BufferPerProgram = 0.5, 3, 50
		s.MaxTrackedRequests, s.SharedPrefixBudget, s.BlockSize = 500, true, 16
	})
	if s != want {
		t.Errorf("read %+v, want %+v", s, want)
	}
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
}

func TestValidate(t *testing.T) {
	for _, test := range []struct {
		change func(*Settings)
		want   string
	}{
		{func(s *Settings) { s.PauseThreshold = 1.5 }, "thunderagent.pause_threshold: 1.5 is not within 0..1"},
		{func(s *Settings) { s.PauseThreshold = math.NaN() }, "thunderagent.pause_threshold: NaN is not within 0..1"},
		{func(s *Settings) { s.PauseTarget = 0.96 }, "thunderagent.pause_target: 0.96 is not within 0..0.95, the pause_threshold"},
		{func(s *Settings) { s.ResumeHysteresis = 0.96 }, "thunderagent.resume_hysteresis: 0.96 is not within 0..0.95, the pause_threshold"},
		{func(s *Settings) { s.SoftDemoteThreshold = 0.96 }, "thunderagent.soft_demote_threshold: 0.96 is not within 0..0.95, the pause_threshold"},
		{func(s *Settings) { s.AdmitCeiling = -1 }, "thunderagent.admit_ceiling: -1 is not within 0..1"},
		{func(s *Settings) { s.SchedulerInterval = 0 }, "thunderagent.scheduler_interval_seconds: 0 is not within 0.001..1e+09"},
		{func(s *Settings) { s.ResumeTimeout = math.Inf(1) }, "thunderagent.resume_timeout_seconds: +Inf is not within 0..1e+09"},
		{func(s *Settings) { s.ActingTokenWeight = 0 }, "thunderagent.acting_token_weight: 0 is not within 1e-06..100"},
		{func(s *Settings) { s.MaxTrackedRequests = 0 }, "thunderagent.max_tracked_requests: 0 is not within 1..1.6777216e+07"},
		{func(s *Settings) { s.Gate = "" }, `thunderagent.gate: unknown value "", want one of any-paused, waiting-only, none, always`},
		{func(s *Settings) { s.Mark = "some" }, `thunderagent.mark: unknown value "some", want one of all, smallest-until-target, none`},
		{func(s *Settings) { s.Rounding = roundBlocks }, "thunderagent.block_size: 0 tokens, but rounding: blocks and shared_prefix_budget need it within 1..1048576"},
		{func(s *Settings) { s.SharedPrefixBudget = true }, "thunderagent.block_size: 0 tokens, but rounding: blocks and shared_prefix_budget need it within 1..1048576"},
	} {
		err := with(test.change).Validate()
		if err == nil || err.Error() != test.want {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
	if _, err := New(Settings{}, nil, Live{}); err == nil {
		t.Error("the zero settings are accepted")
	}
	for _, c := range []Capacity{{Tokens: -1}, {HostTokens: -1}, {Tokens: 1 << 41}} {
		if _, err := New(native(), []Capacity{c}, Live{}); err == nil {
			t.Errorf("capacity %+v is accepted", c)
		}
	}
	r := native1(t)
	for _, w := range []int{-1, maxWorkers} {
		if err := r.SetWorker(w, Capacity{}); err == nil {
			t.Errorf("worker %d is accepted", w)
		}
		r.RemoveWorker(0, w)
	}
}

func TestArriveRefuses(t *testing.T) {
	r := native1(t)
	q := r.arrive(1, 100)
	for _, test := range []struct {
		q    *Request
		want string
	}{
		{q, "request of session 1: it is in the table already"},
		{&Request{Session: 2, Input: -1}, "request of session 2: a prompt of -1 tokens and 0 blocks"},
		{&Request{Session: 2, Pin: 1}, "request of session 2: pinned to worker 1 of 1"},
		{&Request{Session: 2, Pin: -2}, "request of session 2: pinned to worker -2 of 1"},
	} {
		if _, err := r.Arrive(0, test.q); err == nil || err.Error() != test.want {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
	r.is(1, "reasoning on 0")
	r.is(2, "none")
}
