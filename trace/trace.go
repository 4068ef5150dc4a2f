// Package trace holds recorded LLM agent work: the record schema and its segment files, sessions and their
// dependency graph, and the compiled workload that simulations and replays run.
//
// Data flows one way:
//
//	files ── reader ──► Capture ── Link ──► edges, gaps ── Compile ──► Workload
//
// A reader (this package for Dynamo request traces, trace/convert for foreign formats, trace/synth for invented
// work) fills a Capture with what the source says and nothing more. Link adds what follows from the times: which
// turn waits for which. Compile adds what follows from the block hashes: which prompt tokens are shared.
package trace

import (
	"slices"
	"time"
)

// NoTime marks a time or duration that the source does not tell.
const NoTime time.Duration = -1 << 63

// Unknown marks a token count that the source does not tell.
const Unknown = -1

// Capture is the calls of one or more files as the source tells them, before anything is linked or inferred.
type Capture struct {
	// Format is the name of the source format, such as "dynamo", "mooncake" or "weka".
	Format string
	// BlockSize is the number of tokens that one hash stands for; 0 when the source has no hashes.
	BlockSize int
	// Resolution is the granularity of the recorded times. Two events closer than this have no known order.
	Resolution time.Duration
	// SharedClock tells whether times of different programs can be compared. WEKA files each start at 0: false.
	SharedClock bool
	// Epoch is the Unix time, in milliseconds, of time zero; 0 when the source has relative times only.
	Epoch int64
	// Sessions are in order of first appearance.
	Sessions []*Session
	// Read counts what was read and lists what was lost.
	Read ReadReport
}

// Session is one chain of turns: an agent, or one of its subagents.
type Session struct {
	ID string
	// Parent is the ID of the session that spawned this one; "" for the root of a program.
	Parent string
	// Class is the source's own kind of session ("swe-agent", "explore"); "" when not told.
	Class string
	// Scope numbers the hash space: hashes are comparable between sessions of equal scope only.
	Scope int32
	// Final tells that the source marks the end of the session.
	Final bool
	// Turns are in the order of the source until Link sorts them by start.
	Turns []*Turn
	// Tools are the session's tool calls with a known span, in order of start after Link. ReadDetailed adds those of which
	// no end is told: their End is NoTime.
	Tools []ToolSpan
}

// Turn is one LLM call. Times count from the capture's time zero.
type Turn struct {
	// ID is the source's request id, or one made from its position. Unique in a capture.
	ID string
	// Model is the requested model; "" when not told.
	Model string
	// Start is when the server received the call; NoTime when only dependencies say when.
	Start time.Duration
	// End is when the last token was sent; NoTime when not told.
	End time.Duration
	// TTFT is the recorded time from Start to the first token; NoTime when not told.
	TTFT time.Duration

	// Input is the number of prompt tokens, cached ones included.
	Input int32
	// Output is the number of generated tokens, reasoning included.
	Output int32
	// Cached is the number of prompt tokens that the recorded server took from its cache, or Unknown.
	Cached int32
	// Reasoning is the number of output tokens spent on reasoning, or Unknown.
	Reasoning int32

	// The chain of prompt block hashes is the first Shared hashes of Base's chain, then Hashes. Base is a turn
	// read earlier in the same scope, or nil (then Shared is 0). The whole chain has ceil(Input/BlockSize)
	// entries, the last of which may cover a partial block, or floor(Input/BlockSize).
	Base   *Turn
	Shared int32
	Hashes []uint64
	// OutputHashes, where the source records them, are the hashes of the blocks that hold generated tokens: entry
	// 0 is block floor(Input/BlockSize) of the chain over prompt and output, so it has
	// ceil((Input+Output)/BlockSize) - floor(Input/BlockSize) entries.
	OutputHashes []uint64

	// Trigger is what the prompt ends with: "user_message", "tool_result", "other", or "" when not told.
	Trigger string
	// Waits are the dependencies that the source states itself. When it states none, Link infers them from times.
	Waits []Wait
	// Explicit tells that Waits is the source's complete list for this turn, even when empty.
	Explicit bool
	// Compaction marks a call that writes a summary of the context.
	Compaction bool
	// Final marks the last call of its session.
	Final bool
	// Hints are scheduling hints that came with the call.
	Hints Hints
	// Inferred lists the fields that the reader or Link filled by rule.
	Inferred Fields
	// Status is how the recorded call ended: "" or "ok" for completed, else Cancelled or "error".
	Status string
	// ToolCalls are the names of the tools that the call asked for, in order.
	ToolCalls []ToolCall
	// Aliases are other ids of the call: the caller's own, that of its answer.
	Aliases []string
	// Detail is the rest of the row; nil unless ReadDetailed read it.
	Detail *Detail
	// Row is the whole row, less its hashes; nil unless ReadWhole read it.
	Row *Record
	// Line is where the call was read: a 1-based line (or entry) of File.
	File string
	Line int32

	// Filled by Link.
	Session *Session
	Deps    []Dep
	Gap     Gap
	// Cut is the number of leading prompt tokens that were computed before the capture began: the history of a
	// session that was under way. 0 when the session began inside the capture.
	Cut int32

	call int32 // index into Workload.Calls, the same in every workload compiled from the capture
}

// Cancelled is the Status of a call whose client went away before its answer was over: Output counts the tokens until then.
const Cancelled = "cancelled"

// Wait is a dependency that a source states by request id.
type Wait struct {
	// ID is the request id of the call that is waited for.
	ID string
	// Delay is the time from the other call's end (or dispatch) to this call's start.
	Delay time.Duration
	// OnDispatch counts Delay from the other call's dispatch, not from its end.
	OnDispatch bool
	// Kind is the relation that the source names; KindSequence when it names none.
	Kind EdgeKind
}

// ToolSpan is one tool execution.
type ToolSpan struct {
	ID, Class  string
	Start, End time.Duration
	// Status is "succeeded", "error", "cancelled", or "" when not told.
	Status string
	// Row is the row that told the end, or else the start; nil unless ReadDetailed or ReadWhole
	// read it.
	Row *ToolEvent
}

// ToolCall is a tool call that an LLM call asked for.
type ToolCall struct{ ID, Name string }

// Hints are what an agent told the server about a call (Dynamo nvext.agent_hints). Zero means not given.
type Hints struct {
	Priority       int32
	StrictPriority uint32
	// OSL is the expected number of output tokens.
	OSL                int32
	SpeculativePrefill bool
	// PolicyClass names a router policy class.
	PolicyClass string
}

// EdgeKind is why one turn waits for another.
type EdgeKind uint8

// The kinds of edges of a program's dependency graph.
const (
	KindSequence EdgeKind = iota // the previous turn of the session
	KindSpawn                    // a child's first turn waits for the parent's turn that spawned it
	KindJoin                     // a parent's turn waits for a child's last turn
)

// String returns the kind's name as the reports print it.
func (k EdgeKind) String() string { return [...]string{"sequence", "spawn", "join"}[k] }

// Dep is one edge of a program's dependency graph.
type Dep struct {
	Turn *Turn
	// Delay is the recorded time from Turn's end (or dispatch) to this turn's start; never negative.
	Delay      time.Duration
	OnDispatch bool
	Kind       EdgeKind
}

// Gap splits the time between the end of a turn's last dependency and its start.
type Gap struct {
	Tool, Human, Other time.Duration
}

// Total is the whole gap.
func (g Gap) Total() time.Duration { return g.Tool + g.Human + g.Other }

// Fields is a set of turn fields.
type Fields uint16

// The fields that a reader or Link may fill by rule.
const (
	FieldStart Fields = 1 << iota
	FieldEnd
	FieldOutput
	FieldSession
	FieldModel
	FieldGap
	FieldCut
	FieldInput
	FieldTextHashes   // hashes of the prompt, made from its text
	FieldCachedHashes // hashes of the prompt, made so that it shares what was found in the cache
	FieldParent       // of the turn's session
	FieldToolEnd      // of a tool that the turn called
)

// AllFields is the set of all fields.
const AllFields Fields = 1<<len(fieldNames) - 1

// fieldNames are the names of the fields, in the order of their bits.
var fieldNames = [...]string{"start", "end", "output_tokens", "session", "model", "gap", "history", "input_tokens",
	"hashes_from_text", "hashes_from_cached", "parent", "tool_end"}

// ReadReport counts what a reader met. Only problems are listed, the first few of each kind.
type ReadReport struct {
	Files, Lines, Calls, Tools int
	// SkippedRows counts complete rows that are not calls or tools (payload rows, unknown event types).
	SkippedRows int
	// Skipped counts those of SkippedRows for which there is a reason, by the reason.
	Skipped map[string]int
	// LostRows counts rows that could not be read, and those that the recorder says it lost; LostBytes the bytes of damaged gzip members and torn lines.
	LostRows  int
	LostBytes int64
	// Duplicates counts rows dropped because their request id was seen before.
	Duplicates int
	// Warnings say what was survived, with file and line. At most MaxWarnings are kept; Dropped counts the rest.
	Warnings []string
	Dropped  int
}

// MaxWarnings bounds ReadReport.Warnings.
const MaxWarnings = 50

// Warn adds a warning, or counts it when there are many.
func (r *ReadReport) Warn(msg string) {
	if len(r.Warnings) >= MaxWarnings {
		r.Dropped++
		return
	}
	r.Warnings = append(r.Warnings, msg)
}

// Skip counts a complete row that is neither a call nor a tool, and says why.
func (r *ReadReport) Skip(why string) { r.skip(why, 1) }

func (r *ReadReport) skip(why string, rows int) {
	if r.Skipped == nil {
		r.Skipped = map[string]int{}
	}
	r.Skipped[why] += rows
	r.SkippedRows += rows
}

// Names returns the names of the fields in the set, in a fixed order.
func (f Fields) Names() []string {
	var names []string
	for i, name := range fieldNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return names
}

// FieldsNamed returns the set of the named fields; other names are left out.
func FieldsNamed(names []string) (f Fields) {
	for _, name := range names {
		if i := slices.Index(fieldNames[:], name); i >= 0 {
			f |= 1 << i
		}
	}
	return f
}
