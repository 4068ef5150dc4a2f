package thunderagent

import (
	"fmt"
	"strings"
)

// presets are in the order in which they are listed to users; the first is the default.
var presets = []struct {
	name, what string
	settings   func() Settings
}{
	{"dynamo-native", "Dynamo's router plugin, from 1.6 on", native},
	{"dynamo-python", "Dynamo's service thunderagent_router: soft demotion, resume boost, 600 s retention", python},
	{"upstream", "the authors' proxy: thresholds at 100 %, no expiry", upstream},
	{"paper", "arXiv 2602.13692: one queue, decayed pressure, no timeout", paper},
}

// Presets returns the names of all presets, the default first.
func Presets() []string {
	names := make([]string, len(presets))
	for i, p := range presets {
		names[i] = p.name
	}
	return names
}

// DescribePreset says in one line whose version a preset is; "" for an unknown one.
func DescribePreset(name string) string {
	for _, p := range presets {
		if p.name == name {
			return p.what
		}
	}
	return ""
}

// Preset returns the settings of a named version; "" is dynamo-native.
func Preset(name string) (Settings, error) {
	if name == "" {
		return native(), nil
	}
	for _, p := range presets {
		if p.name == name {
			return p.settings(), nil
		}
	}
	return Settings{}, fmt.Errorf("thunderagent.preset: unknown preset %q, want one of %s", name, strings.Join(Presets(), ", "))
}

// native is Dynamo's plugin [N]. A request that is larger than every worker is held, and let go after 1800 s.
func native() Settings {
	return Settings{
		PauseThreshold:     0.95,
		PauseTarget:        0.80,
		ResumeHysteresis:   0.10,
		ResumeTimeout:      1800,
		SessionRetention:   1800,
		SchedulerInterval:  5,
		ActingTokenWeight:  1,
		ActingDecayTau:     1,
		BufferPerProgram:   100,
		MaxTrackedRequests: 10_000,
		AdmitCeiling:       1,
		Gate:               gateAnyPaused,
		Mark:               markAll,
		Decay:              Decay{Forced: true},
		Final:              finalForward,
		Rounding:           roundNone,
		ForceAt:            forceAtTick,
		ForceTo:            forceToRoom,
		TickOrder:          resumeFirst,
		ResumeOrder:        orderTurns,
		Placement:          placeSoft,
	}
}

// python is Dynamo's service [Y]. It has no table limit of its own; its flag help calls pause_threshold a share of
// max_num_batched_tokens, but it is one of KV capacity.
func python() Settings {
	s := native()
	s.SessionRetention = 600
	s.MaxTrackedRequests = maxTracked
	s.Decay.Admission = true
	s.Final = finalSwallow
	s.SoftDemoteThreshold = 0.80
	s.SoftDemotePriorityJump = -2
	s.ResumePriorityBoost = 1
	s.ForceAt = forceAtDeadline
	s.Placement = placePin
	s.PassUnplaceable = true
	s.HostTier = true
	return s
}

// upstream is the authors' proxy [U], with exact prompt sizes where it estimates them from characters. Its shared_tokens
// stay 0, so shared prompts count once for each program; its acting decay is an option that is off; a usage record that
// is missing leaves a program reasoning for ever there, and counts what was generated here.
func upstream() Settings {
	s := native()
	s.PauseThreshold, s.PauseTarget, s.ResumeHysteresis = 1, 1, 0
	s.SessionRetention = 0
	s.MaxTrackedRequests = maxTracked
	s.Decay = Decay{}
	s.Final = finalRelease
	s.ForceAt = forceAtDeadline
	s.ForceTo = forceToOrigin
	s.ResumeBySizeAtPause = true
	s.Placement = placePin
	return s
}

// paper is arXiv 2602.13692 [P]: lambda 1 both ways, eq. 7 with f(t) = 2^-t, t in seconds, one queue through which new
// programs enter too, and no timeout, so that a request that is larger than every worker is held for ever. The tokens
// that prompts share are the only slack, hence no buffer.
func paper() Settings {
	s := upstream()
	s.ResumeTimeout = 0
	s.BufferPerProgram = 0
	s.Gate = gateAlways
	s.Mark = markUntilTarget
	s.Decay = Decay{Pause: true}
	s.TickOrder = pauseFirst
	s.ResumeOrder = orderStatus
	s.ResumeBySizeAtPause = false
	return s
}
