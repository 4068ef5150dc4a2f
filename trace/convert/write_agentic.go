package convert

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// agenticHeader is the first line of agentic Mooncake v2.
type agenticHeader struct {
	Schema      string `json:"schema"`
	Version     int    `json:"version"`
	BlockSize   int    `json:"block_size"`
	HashIDScope string `json:"hash_id_scope"`
	Source      struct {
		Format string `json:"format"`
		Digest string `json:"digest"`
	} `json:"source"`
}

type agenticOut struct {
	RequestID    string     `json:"request_id"`
	PlayID       string     `json:"play_id"`
	Ordinal      int        `json:"source_play_ordinal"`
	SessionID    string     `json:"session_id"`
	Model        string     `json:"model"`
	InputLength  int32      `json:"input_length"`
	OutputLength int32      `json:"output_length"`
	HashIDs      []uint64   `json:"hash_ids"`
	NotBefore    *float64   `json:"not_before_ms,omitempty"`
	APITime      *float64   `json:"recorded_api_time_ms,omitempty"`
	Dependencies []waitOut  `json:"dependencies"`
	Own          *agenticEx `json:"agentsim,omitempty"`
	hintsOut
}

type waitOut struct {
	RequestID string  `json:"request_id"`
	Trigger   string  `json:"trigger"`
	DelayMs   float64 `json:"delay_ms"`
	Relation  string  `json:"relation"`
}

// agenticEx is the object agentsim of a row: what agentic Mooncake has no field for.
type agenticEx struct {
	Parent          string   `json:"parent_session_id,omitempty"`
	Class           string   `json:"session_type_id,omitempty"`
	Trigger         string   `json:"input_trigger,omitempty"`
	CachedTokens    *int32   `json:"cached_tokens,omitempty"`
	ReasoningTokens *int32   `json:"reasoning_tokens,omitempty"`
	TTFT            *float64 `json:"ttft_ms,omitempty"`
	Tool            *float64 `json:"tool_ms,omitempty"`
	Human           *float64 `json:"human_ms,omitempty"`
	Compaction      bool     `json:"compaction,omitempty"`
	Final           bool     `json:"session_final,omitempty"`
	Status          string   `json:"status,omitempty"`
	Inferred        []string `json:"inferred,omitempty"`
}

// agentic writes agentic Mooncake v2 with all edges, inferred ones too: they are what the trace is taken to mean.
func (w *writer) agentic() error {
	size := w.capture.BlockSize
	if size == 0 {
		size = defaultBlockSize // no row has a hash
	}
	header := agenticHeader{Schema: "dynamo.agentic_mooncake", Version: 2, BlockSize: size, HashIDScope: "local"}
	header.Source.Format = w.capture.Format
	digest := sha256.New()
	programs := programsOf(w.capture)
	turns := w.byStart()
	for _, t := range turns {
		digest.Write(append([]byte(t.ID), 0))
	}
	header.Source.Digest = hex.EncodeToString(digest.Sum(nil))
	if err := w.row(&header); err != nil {
		return err
	}
	for _, t := range turns {
		at := programs[t.Session]
		out := agenticOut{RequestID: t.ID, PlayID: at.root.ID, Ordinal: at.ordinal, SessionID: t.Session.ID, Model: t.Model, InputLength: t.Input,
			OutputLength: t.Output, HashIDs: w.hashIDs(t, true), NotBefore: msOf(w.begins[t].start), Dependencies: []waitOut{}, Own: ownFields(t), hintsOut: w.hints(t)}
		if t.Start == trace.NoTime {
			out.NotBefore = nil
		}
		if out.HashIDs == nil {
			out.HashIDs = []uint64{}
		}
		if t.Start != trace.NoTime && t.End != trace.NoTime {
			out.APITime = msOf(t.End - t.Start)
		}
		for _, d := range t.Deps {
			wait := waitOut{RequestID: d.Turn.ID, Trigger: "completion", DelayMs: *msOf(d.Delay), Relation: d.Kind.String()}
			if d.OnDispatch {
				wait.Trigger = "dispatch"
			}
			out.Dependencies = append(out.Dependencies, wait)
		}
		if err := w.row(&out); err != nil {
			return err
		}
	}
	return nil
}

func ownFields(t *trace.Turn) *agenticEx {
	x := agenticEx{Status: t.Status, Inferred: t.Inferred.Names(), Parent: t.Session.Parent, Class: t.Session.Class, Trigger: t.Trigger, Compaction: t.Compaction, Final: t.Final || t.Session.Final && t == t.Session.Turns[len(t.Session.Turns)-1]}
	known := func(n int32) *int32 {
		if n == trace.Unknown {
			return nil
		}
		return &n
	}
	x.CachedTokens, x.ReasoningTokens = known(t.Cached), known(t.Reasoning)
	some := func(d time.Duration) *float64 {
		if d == trace.NoTime || d == 0 {
			return nil
		}
		return msOf(d)
	}
	x.TTFT, x.Tool, x.Human = some(t.TTFT), some(t.Gap.Tool), some(t.Gap.Human)
	return &x
}

// programAt is the root of a session's program, and the number of that program.
type programAt struct {
	root    *trace.Session
	ordinal int
}

// programsOf says which program each session is of.
func programsOf(c *trace.Capture) map[*trace.Session]programAt {
	byID := make(map[string]*trace.Session, len(c.Sessions))
	for _, s := range c.Sessions {
		byID[s.ID] = s
	}
	programs := make(map[*trace.Session]programAt, len(c.Sessions))
	ordinals := map[*trace.Session]int{}
	for _, s := range c.Sessions {
		root := s
		for p := byID[root.Parent]; p != nil && p != root; p = byID[root.Parent] { // Link has refused cycles
			root = p
		}
		if _, ok := ordinals[root]; !ok {
			ordinals[root] = len(ordinals)
		}
		programs[s] = programAt{root, ordinals[root]}
	}
	return programs
}
