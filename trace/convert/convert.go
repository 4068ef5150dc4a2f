// Package convert reads every trace format that agentsim knows into a trace.Capture: Dynamo's request traces, the
// Mooncake family, WEKA conversations, the logs of agents, other simulators' workloads and plain lists of arrivals. It
// writes a capture in some of them, and tells what they have no place for.
package convert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/agentsim/agentsim/trace"
)

// The formats that Open knows, as Options.Format names them.
const (
	FormatDynamo         = "dynamo"
	FormatMooncake       = "mooncake"
	FormatMooncakeDelta  = "mooncake-delta"
	FormatAgentic        = "agentic-mooncake"
	FormatWeka           = "weka"
	FormatArrivals       = "arrivals"
	FormatApplied        = "applied-compute"
	FormatBailian        = "bailian"
	FormatBLIS           = "blis"
	FormatServeGen       = "servegen"
	FormatLMCache        = "lmcache-agent"
	FormatMiniSWEAgent   = "mini-swe-agent"
	FormatOpenHands      = "openhands"
	FormatServingSim     = "llmservingsim"
	FormatSWEAgent       = "swe-agent"
	FormatTracelab       = "tracelab"
	FormatTracelabReplay = "tracelab-replay"
	FormatClaude         = "claude-code"
	FormatCodex          = "codex"
	FormatOpenCode       = "opencode"
	FormatATIF           = "atif"
	FormatOTel           = "otel"
)

// Format is a trace format that Open knows.
type Format struct {
	Name, Description string
	// detect tells whether a part of a file's beginning is of the format; nil: it is never detected.
	detect func(*look) bool
	// extends names the format that rows without the extensions look like.
	extends string
	// reads names other formats that can be read as this one when it is asked for.
	reads []string
	// tree tells that its files lie in folders of folders, among others. They are read in the order of their paths.
	tree bool
	// byPath tells that its files are read in the order of their paths, because rows are called after their files.
	byPath bool
	read   func(input) (*trace.Capture, error)
}

// Formats are the known formats, in the order of their names.
var Formats = []Format{
	{Name: FormatAgentic, Description: "Dynamo's agentic Mooncake, v1 and v2: rows with wait_for or dependencies (JSONL)",
		detect: isAgentic, extends: FormatMooncake, reads: []string{FormatMooncake}, read: input.agentic},
	{Name: FormatApplied, Description: "Applied Compute's agentic workloads: the token counts and tool times of a session (JSONL)",
		detect: isApplied, byPath: true, read: input.applied},
	{Name: FormatArrivals, Description: "arrival times and token counts: Azure, BurstGPT and Vidur CSV, time,input,output in seconds (CSV or JSONL)",
		detect: isArrivals, byPath: true, read: input.arrivals},
	{Name: FormatATIF, Description: "ATIF trajectories, v1.0 to v1.8, as Harbor and others write them: one JSON object a file or a line",
		detect: isATIF, tree: true, read: input.atif},
	{Name: FormatBailian, Description: "Qwen on Alibaba Cloud's Bailian: chat_id, parent_chat_id, timestamp in seconds, hash_ids (JSONL)",
		detect: isBailian, read: input.bailian},
	{Name: FormatBLIS, Description: "BLIS trace v2 (inference-sim): the CSV file, with or without its YAML header",
		detect: isBLIS, byPath: true, read: input.blis},
	{Name: FormatClaude, Description: "Claude Code transcripts, with their subagents (a file, a project's folder, or all of them)",
		detect: isClaude, tree: true, read: input.claude},
	{Name: FormatCodex, Description: "Codex rollouts (a file, a day's folder, or all sessions)",
		detect: isCodex, tree: true, read: input.codex},
	{Name: FormatDynamo, Description: "Dynamo request traces, dynamo.request.trace.v1 and dynamo.agent.trace.v1 (JSONL)",
		detect: isDynamo, read: input.dynamo},
	{Name: FormatServingSim, Description: "LLMServingSim workloads: calls with token ids or counts, or sessions of sub_requests (JSONL)",
		detect: isServingSim, byPath: true, read: input.servingSim},
	{Name: FormatLMCache, Description: "LMCache's agent traces: timestamp, session_id, input and output as text (JSONL)",
		detect: isLMCache, tree: true, read: input.lmcache},
	{Name: FormatMiniSWEAgent, Description: "mini-SWE-agent trajectories: a list of messages, or an object that holds one (JSON)",
		detect: isMini, tree: true, read: input.miniSWEAgent},
	{Name: FormatMooncake, Description: "timestamp, input_length, output_length, hash_ids (JSONL)",
		detect: isMooncake, reads: []string{FormatAgentic}, read: input.mooncake},
	{Name: FormatMooncakeDelta, Description: "Mooncake where later rows of a session hold the new part of the prompt only; never detected",
		reads: []string{FormatMooncake}, read: input.mooncakeDelta},
	{Name: FormatOpenCode, Description: "OpenCode: what 'opencode export SESSION' writes, and the folder storage of versions before 1.2 (JSON)",
		detect: isOpenCode, tree: true, read: input.openCode},
	{Name: FormatOpenHands, Description: "OpenHands: lists of events (JSON), or results of evaluations (JSONL)",
		detect: isOpenHands, tree: true, read: input.openHands},
	{Name: FormatOTel, Description: "OpenTelemetry spans with gen_ai attributes: OTLP/JSON, exports of one trace a file, Jaeger's JSON",
		detect: isOTel, tree: true, read: input.otel},
	{Name: FormatServeGen, Description: "ServeGen clients, CHUNK-trace.csv and CHUNK-dataset.json: distributions, from which calls are drawn",
		detect: isServeGen, read: input.serveGen},
	{Name: FormatSWEAgent, Description: "SWE-agent trajectories, .traj (JSON)",
		detect: isSWEAgent, tree: true, read: input.sweAgent},
	{Name: FormatTracelab, Description: "TraceLab: rounds of Claude Code and Codex (JSONL)",
		detect: isTracelab, read: input.tracelab},
	{Name: FormatTracelabReplay, Description: "workloads of TraceLab's session_runner: session_id, round_idx, prefix_len, input_len, tool_wait_after_ms (CSV)",
		detect: isTracelabReplay, byPath: true, read: input.tracelabReplay},
	{Name: FormatWeka, Description: "WEKA kv-cache-tester conversations: one JSON object a file or a line",
		detect: isWeka, read: input.weka},
}

// Options adjust Open. The zero value detects the format.
type Options struct {
	// Format is the name of the format; "" detects it by content.
	Format string
	// BlockSize overrides the tokens per hash of Mooncake formats; 0 is the file's own, or 512.
	BlockSize int
	// Strict makes it an error if a field of a call has to be filled because the source lacks it.
	Strict bool
	// Details keeps what only those who show a trace need, as trace.ReadDetailed does, and drops hashes where it can.
	Details bool
	// Whole keeps rows whole, so that Records loses nothing of them, and sessions of which only tools are told, as
	// trace.ReadWhole does.
	Whole bool
	// Sample says what to draw of a format that holds distributions and not calls.
	Sample Sample
	// Stdin is read for the argument "-".
	Stdin io.Reader
	// Progress, if set, is told the stored bytes read so far and in total.
	Progress func(doneBytes, totalBytes int64)
}

// Open finds the files that args stand for (see trace.Find; in folders of agents' logs also what lies in folders below),
// detects their format by content and reads them all into one capture. Files of one call have one format. A
// *trace.InputError is a fault of the input.
func Open(ctx context.Context, args []string, opts Options) (*trace.Capture, error) {
	var want *Format
	if opts.Format != "" {
		if want = formatNamed(opts.Format); want == nil {
			return nil, fmt.Errorf("unknown trace format %q; known are %s", opts.Format, formatNames())
		}
	}
	if opts.BlockSize < 0 || opts.BlockSize > 1<<20 {
		return nil, fmt.Errorf("block size %d: want 1 to %d tokens", opts.BlockSize, 1<<20)
	}
	found, others, err := find(ctx, args, opts.Stdin, want)
	if err != nil {
		return nil, err
	}
	format, err := formatOf(found, want)
	if err != nil {
		return nil, err
	}
	if format.tree || format.byPath {
		slices.SortFunc(found, func(a, b segment) int { return strings.Compare(a.Path, b.Path) })
	}
	in := input{ctx: ctx, opts: opts}
	for _, s := range found {
		in.segments, in.heads = append(in.segments, s.Segment), append(in.heads, s.head)
	}
	c, err := format.read(in)
	if err == nil && opts.Strict {
		err = refuseFills(c)
	}
	if err != nil {
		return nil, err
	}
	if others > 0 {
		c.Read.Warn(fmt.Sprintf("files of other kinds in the folders: %d, left out", others))
	}
	return c, nil
}

// input is what a reader of one format gets.
type input struct {
	ctx      context.Context
	segments []trace.Segment
	heads    [][]byte // the first bytes of each
	opts     Options
}

// dynamo reads Dynamo's request traces.
func (in input) dynamo() (*trace.Capture, error) {
	if in.opts.Whole {
		return trace.ReadWhole(in.ctx, in.segments, in.opts.Progress)
	}
	if in.opts.Details {
		return trace.ReadDetailed(in.ctx, in.segments, in.opts.Progress)
	}
	return trace.Read(in.ctx, in.segments, in.opts.Progress)
}

func isDynamo(l *look) bool {
	return strings.HasPrefix(l.keys["schema"], "dynamo.") && !isAgentic(l) || l.has("event_type") || l.keys["event"] == "{"
}

// formatNamed returns the format of a name, or nil.
func formatNamed(name string) *Format {
	if i := slices.IndexFunc(Formats, func(f Format) bool { return f.Name == name }); i >= 0 {
		return &Formats[i]
	}
	return nil
}

func formatNames() string {
	var names []string
	for _, f := range Formats {
		names = append(names, f.Name)
	}
	return strings.Join(names, ", ")
}

// lose counts a row that is not JSON; what a row says wrongly is an error, which makes the load fail.
func lose(read *trace.ReadReport, file string, line int, row []byte, err error) error {
	if errors.Is(err, errNotFinite) {
		return &trace.InputError{File: file, Line: line, Err: err}
	}
	read.Lose(file, line, row, err)
	return nil
}

// maxTokens bounds one token count of a foreign format.
const maxTokens = 1 << 28

// tokens checks a count of tokens.
func tokens(name string, n int64, least int64) (int32, error) {
	if n < least || n > maxTokens {
		return 0, fmt.Errorf("%s is %d: want %d to %d tokens", name, n, least, maxTokens)
	}
	return int32(n), nil
}
