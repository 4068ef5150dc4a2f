package convert

import (
	"cmp"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// atifOut is a trajectory of ATIF v1.7, with those of its subagents.
type atifOut struct {
	SchemaVersion string        `json:"schema_version"`
	SessionID     string        `json:"session_id"`
	TrajectoryID  string        `json:"trajectory_id"`
	Agent         atifAgentOut  `json:"agent"`
	Steps         []atifStepOut `json:"steps"`
	FinalMetrics  atifFinalOut  `json:"final_metrics"`
	Subagents     []*atifOut    `json:"subagent_trajectories,omitempty"`
}

type atifAgentOut struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

type atifStepOut struct {
	StepID      int                 `json:"step_id"`
	Timestamp   string              `json:"timestamp"`
	Source      string              `json:"source"`
	Model       string              `json:"model_name,omitempty"`
	Message     string              `json:"message"`
	ToolCalls   []atifCallOut       `json:"tool_calls,omitempty"`
	Observation *atifObservationOut `json:"observation,omitempty"`
	Metrics     *atifMetricsOut     `json:"metrics,omitempty"`
}

type atifCallOut struct {
	ID        string   `json:"tool_call_id"`
	Name      string   `json:"function_name"`
	Arguments struct{} `json:"arguments"`
}

type atifObservationOut struct {
	Results []struct{} `json:"results"`
}

type atifMetricsOut struct {
	PromptTokens     int32         `json:"prompt_tokens"`
	CompletionTokens int32         `json:"completion_tokens"`
	CachedTokens     *int64        `json:"cached_tokens,omitempty"`
	Extra            *atifExtraOut `json:"extra,omitempty"`
}

type atifExtraOut struct {
	ReasoningTokens *int64 `json:"reasoning_tokens"`
}

type atifFinalOut struct {
	PromptTokens     int64 `json:"total_prompt_tokens"`
	CompletionTokens int64 `json:"total_completion_tokens"`
	CachedTokens     int64 `json:"total_cached_tokens"`
	Steps            int   `json:"total_steps"`
}

// atif writes a trajectory for each program. A step has one time: the end of its call.
func (w *writer) atif() error {
	children := map[string][]*trace.Session{}
	programs := programsOf(w.capture)
	for _, s := range w.capture.Sessions {
		if root := programs[s].root; root != s {
			children[s.Parent] = append(children[s.Parent], s)
		} else if s.Class != "" {
			w.lose(factClass, 1)
		}
	}
	for _, s := range w.capture.Sessions {
		if programs[s].root != s {
			continue
		}
		if err := w.row(w.trajectory(s, children)); err != nil {
			return err
		}
	}
	return nil
}

// trajectory makes the trajectory of a session and of those below it.
func (w *writer) trajectory(s *trace.Session, children map[string][]*trace.Session) *atifOut {
	out := &atifOut{SchemaVersion: "ATIF-v1.7", SessionID: s.ID, TrajectoryID: s.ID, Agent: atifAgentOut{Name: s.Class, Version: "unknown"}}
	if s.Class == "" {
		out.Agent.Name = "agent"
	}
	turns := slices.Clone(s.Turns)
	slices.SortStableFunc(turns, func(a, b *trace.Turn) int { return cmp.Compare(w.begins[a].end, w.begins[b].end) })
	step := func(at time.Duration, source string) *atifStepOut {
		out.Steps = append(out.Steps, atifStepOut{StepID: len(out.Steps) + 1, Source: source,
			Timestamp: time.UnixMilli(w.wallMs(at)).UTC().Format("2006-01-02T15:04:05.000Z")})
		return &out.Steps[len(out.Steps)-1]
	}
	for i, t := range turns {
		switch {
		case t.Trigger == "user_message":
			step(w.begins[t].start, "user")
		case t.Trigger == "tool_result" && i > 0:
			out.Steps[len(out.Steps)-1].Observation = &atifObservationOut{Results: []struct{}{}}
		case t.Trigger != "":
			w.lose(factTrigger, 1)
		}
		s := step(w.begins[t].end, "agent")
		s.Model = t.Model
		s.Metrics = &atifMetricsOut{PromptTokens: t.Input, CompletionTokens: t.Output, CachedTokens: countOf(t.Cached)}
		if t.Reasoning != trace.Unknown {
			s.Metrics.Extra = &atifExtraOut{countOf(t.Reasoning)}
		}
		for _, call := range t.ToolCalls {
			s.ToolCalls = append(s.ToolCalls, atifCallOut{ID: call.ID, Name: call.Name})
		}
		out.FinalMetrics.PromptTokens += int64(t.Input)
		out.FinalMetrics.CompletionTokens += int64(t.Output)
		out.FinalMetrics.CachedTokens += int64(max(t.Cached, 0))
		w.lose("starts of calls", 1)
		if t.Shared > 0 || len(t.Hashes) > 0 {
			w.lose("block hashes of prompts", 1)
		}
	}
	out.FinalMetrics.Steps = len(out.Steps)
	for _, child := range children[s.ID] {
		out.Subagents = append(out.Subagents, w.trajectory(child, children))
	}
	return out
}
