package convert

import (
	"cmp"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// wekaOut is a conversation of WEKA's kv-cache-tester.
type wekaOut struct {
	ID           string           `json:"id"`
	Models       []string         `json:"models"`
	BlockSize    int              `json:"block_size"`
	HashIDScope  string           `json:"hash_id_scope"`
	ToolTokens   int              `json:"tool_tokens"`
	SystemTokens int              `json:"system_tokens"`
	Requests     []wekaRequestOut `json:"requests"`
}

// wekaRequestOut is a call, or a subagent with calls of its own. Times are seconds; those of a subagent's calls count from its
// own.
type wekaRequestOut struct {
	T          float64  `json:"t"`
	Type       string   `json:"type"`
	Model      string   `json:"model,omitempty"`
	In         *int32   `json:"in,omitempty"`
	Out        *int32   `json:"out,omitempty"`
	HashIDs    []uint64 `json:"hash_ids,omitempty"`
	InputTypes []string `json:"input_types,omitempty"`
	Stop       string   `json:"stop,omitempty"`
	APITime    *float64 `json:"api_time,omitempty"`
	ThinkTime  *float64 `json:"think_time,omitempty"`
	TTFT       *float64 `json:"ttft,omitempty"`

	AgentID      string           `json:"agent_id,omitempty"`
	SubagentType string           `json:"subagent_type,omitempty"`
	DurationMs   float64          `json:"duration_ms,omitempty"`
	TotalTokens  int64            `json:"total_tokens,omitempty"`
	Status       string           `json:"status,omitempty"`
	Requests     []wekaRequestOut `json:"requests,omitempty"`

	start time.Duration
}

// weka writes a conversation for each program. What calls wait for follows from the times, so that what a trace states of
// it otherwise is lost. All conversations keep one clock and one space of hashes, though the format's readers may not
// compare the times of two.
func (w *writer) weka() error {
	programs := programsOf(w.capture)
	children := map[string][]*trace.Session{}
	for _, s := range w.capture.Sessions {
		if programs[s].root != s {
			children[s.Parent] = append(children[s.Parent], s)
		}
		for _, t := range s.Turns {
			if t.Explicit && len(t.Deps) > 0 {
				w.lose("waits that the trace states and times do not show", 1)
			}
		}
	}
	if w.capture.SharedClock {
		w.lose("the common clock of programs", 1)
	}
	for _, s := range w.capture.Sessions {
		if programs[s].root != s {
			continue
		}
		out := wekaOut{ID: s.ID, BlockSize: w.capture.BlockSize, HashIDScope: "global", Models: []string{}}
		out.Requests = w.wekaRequests(s, children, 0)
		out.Models = wekaModels(out.Requests, out.Models)
		if err := w.row(&out); err != nil {
			return err
		}
	}
	return nil
}

// wekaRequests returns the calls of a session and its subagents, in the order of their starts.
func (w *writer) wekaRequests(s *trace.Session, children map[string][]*trace.Session, zero time.Duration) []wekaRequestOut {
	var list []wekaRequestOut
	end := trace.NoTime
	for i, t := range s.Turns {
		at := w.begins[t]
		r := wekaRequestOut{start: at.start, T: (at.start - zero).Seconds(), Type: "n", Model: t.Model, In: &t.Input, Out: &t.Output, HashIDs: w.hashIDs(t, true), Stop: "end_turn"}
		if i+1 < len(s.Turns) && s.Turns[i+1].Trigger == "tool_result" {
			r.Stop = "tool_use"
		}
		switch t.Trigger {
		case "tool_result":
			r.InputTypes = []string{"tool_result"}
		case "user_message":
			r.InputTypes = []string{"text"}
		case "other":
			r.InputTypes = []string{"other"}
		}
		if t.End != trace.NoTime && t.Inferred&trace.FieldEnd == 0 {
			r.APITime = secondsOf(at.end - at.start)
		}
		if t.TTFT != trace.NoTime {
			r.Type, r.TTFT = "s", secondsOf(t.TTFT)
		}
		if end != trace.NoTime {
			r.ThinkTime = secondsOf(max(at.start-end, 0))
		}
		end = at.end
		list = append(list, r)
	}
	for _, child := range children[s.ID] {
		begin, last, tokens := w.extent(child, children)
		entry := wekaRequestOut{start: begin, T: (begin - zero).Seconds(), Type: "subagent", AgentID: strings.TrimPrefix(child.ID, s.ID+"/"), SubagentType: cmp.Or(child.Class, "agent"),
			DurationMs: float64((last - begin).Milliseconds()), TotalTokens: tokens, Status: "completed", Requests: w.wekaRequests(child, children, begin)}
		list = append(list, entry)
	}
	slices.SortStableFunc(list, func(a, b wekaRequestOut) int { return cmp.Compare(a.start, b.start) })
	return list
}

func secondsOf(d time.Duration) *float64 {
	s := d.Seconds()
	return &s
}

// extent returns when a session and those below it begin and end, and the tokens of their prompts and answers.
func (w *writer) extent(s *trace.Session, children map[string][]*trace.Session) (begin, end time.Duration, tokens int64) {
	begin = math.MaxInt64
	for _, t := range s.Turns {
		at := w.begins[t]
		begin, end = min(begin, at.start), max(end, at.end)
		tokens += int64(t.Input) + int64(t.Output)
	}
	for _, child := range children[s.ID] {
		from, to, more := w.extent(child, children)
		begin, end, tokens = min(begin, from), max(end, to), tokens+more
	}
	return begin, end, tokens
}

// wekaModels adds the models of requests, each once.
func wekaModels(requests []wekaRequestOut, models []string) []string {
	for _, r := range requests {
		if r.Model != "" && !slices.Contains(models, r.Model) {
			models = append(models, r.Model)
		}
		models = wekaModels(r.Requests, models)
	}
	return models
}
