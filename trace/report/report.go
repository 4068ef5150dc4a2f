// Package report turns what became of requests into figures: a Run per deployment, its JSON form, a table that
// compares runs and a verdict in words. The rows may come from a recording, a simulation or a live replay; what
// a source does not tell is absent from its report, never 0.
//
//	[]Request, []Program ── Build ──► Run ──► Write (report.json), WriteTable, Judge
package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// Schema names the JSON form of a Report.
const Schema = "agentsim.report.v1"

// Report is a report.json file.
type Report struct {
	// Schema is set by Write.
	Schema string `json:"schema"`
	// Version is that of the tool that made the report.
	Version string   `json:"version,omitempty"`
	Trace   *Trace   `json:"trace,omitempty"`
	Runs    []*Run   `json:"runs"`
	Verdict *Verdict `json:"verdict,omitempty"`
}

// Trace is what the work was read from, and how much of it was lost on the way.
type Trace struct {
	Format string   `json:"format,omitempty"`
	Files  []string `json:"files,omitempty"`
	Calls  int64    `json:"calls"`
	// RowsLost could not be read; Duplicates repeated a request id and were left out.
	RowsLost   int64 `json:"rows_lost"`
	Duplicates int64 `json:"duplicates"`
}

// The states of a Run.
const (
	RunDone        = "done"
	RunFailed      = "failed"      // Run.Error says why; the figures are absent
	RunInterrupted = "interrupted" // the figures cover what was finished
)

// Run is the report of one deployment on one workload. Its embedded Measures cover the measured window, which is the
// whole run unless WindowS says otherwise.
type Run struct {
	Name   string `json:"name"`
	Status string `json:"status"`
	Error  string `json:"error,omitempty"`
	// Axes are the values in which the rows of a grid differ, in the order of the grid.
	Axes []Axis `json:"axes,omitempty"`
	// GPUs is how many GPUs the deployment has in all; 0 when not known.
	GPUs int `json:"gpus,omitempty"`
	// Config is the deployment's configuration as the caller prints it.
	Config   json.RawMessage `json:"config,omitempty"`
	Workload Workload        `json:"workload,omitzero"`
	// WindowS is the measured window [from, to) in seconds since the start of the run; absent for the whole run.
	WindowS []Figure `json:"window_s,omitempty"`
	Measures
	// Cost is what step times rest on; nil where they are not simulated, or given by hand.
	Cost      *Cost      `json:"cost,omitempty"`
	KV        KV         `json:"kv,omitzero"`
	Scheduler *Scheduler `json:"scheduler,omitempty"`
	// Solution is absent where no number was searched for.
	Solution *Solution `json:"solution,omitempty"`
	// Price is absent where nobody says what a GPU costs.
	Price *Price `json:"price,omitempty"`
	// Replay is absent where no live server answered.
	Replay *Replay `json:"replay,omitempty"`
	// Speculation is absent without speculative decoding.
	Speculation *Speculation `json:"speculation,omitempty"`
	// Disaggregation is absent where all workers prefill and decode.
	Disaggregation *Disaggregation `json:"disaggregation,omitempty"`
	// Preemptions of the measured requests.
	Preemptions Figure   `json:"preemptions,omitzero"`
	Workers     []Worker `json:"workers,omitempty"`
	// Whole is the figures of the whole run, without ITL, when WindowS is a part of it.
	Whole   *Measures `json:"whole,omitempty"`
	Aliases Aliases   `json:"aliases,omitzero"`
	// Series is the state over time, for WriteHTML; it is no part of the JSON form.
	Series *Series `json:"-"`
	// Warnings say what went wrong or was ignored; Approximations what the figures rest on.
	Warnings       []string `json:"warnings"`
	Approximations []string `json:"approximations"`
}

// Axis is a configuration key and the value that a run has for it.
type Axis struct {
	Key   string `json:"key"` // "engine.kv_blocks"
	Value string `json:"value"`
}

// Workload is what was asked of the deployment.
type Workload struct {
	Programs int64 `json:"programs"`
	Sessions int64 `json:"sessions"`
	Turns    int64 `json:"turns"`
	// InputTokens and OutputTokens are summed over turns; cached prompt tokens count.
	InputTokens  int64 `json:"input_tokens"`
	OutputTokens int64 `json:"output_tokens"`
	// Inferred counts the turns that had a field filled by rule, by the field's name.
	Inferred map[string]int64 `json:"inferred,omitempty"`
}

// Measures are the figures of a stretch of time. Requests and Programs belong to it by their arrival, throughput
// by completion.
type Measures struct {
	Requests Requests `json:"requests,omitzero"`
	// DurationS is the window's length, or the time from the first arrival to the end of the whole run.
	DurationS  Figure          `json:"duration_s,omitzero"`
	Throughput Throughput      `json:"throughput,omitzero"`
	LatencyMs  Latency         `json:"latency_ms,omitzero"`
	Programs   ProgramMeasures `json:"programs,omitzero"`
}

// Requests counts how requests ended: Total is the sum of the others.
type Requests struct {
	Total      int64 `json:"total"`
	Completed  int64 `json:"completed"`
	Rejected   int64 `json:"rejected"`
	Failed     int64 `json:"failed"`
	Unfinished int64 `json:"unfinished"`
	// Rejections and Failures say why requests were rejected or failed, as far as known.
	Rejections []Loss `json:"rejections,omitempty"`
	Failures   []Loss `json:"failures,omitempty"`
}

// Loss is requests that were lost for the same reason.
type Loss struct {
	Count int64 `json:"count"`
	// Why is a clause that ends with a remedy: "prompts are up to 118k tokens long, the model takes 40960
	// (--max-context truncate, or a model with a longer context)".
	Why string `json:"why"`
}

// Throughput is work completed per time: completed requests, their tokens, and completed programs.
type Throughput struct {
	RequestsPerS     Figure `json:"requests_per_s,omitzero"`
	OutputTokensPerS Figure `json:"output_tokens_per_s,omitzero"`
	// InputTokensPerS counts whole prompts, cached tokens included.
	InputTokensPerS Figure `json:"input_tokens_per_s,omitzero"`
	TurnsPerMin     Figure `json:"turns_per_min,omitzero"`
	ProgramsPerHour Figure `json:"programs_per_hour,omitzero"`
	// OutputTokensPerSPerGPU is OutputTokensPerS over the GPUs of the deployment.
	OutputTokensPerSPerGPU Figure `json:"output_tokens_per_s_per_gpu,omitzero"`
	// Goodput counts what was completed within the SLO; absent without one.
	GoodputRequestsPerS    Figure `json:"goodput_requests_per_s,omitzero"`
	GoodputProgramsPerHour Figure `json:"goodput_programs_per_hour,omitzero"`
}

// Latency holds distributions in ms over completed requests.
type Latency struct {
	// TTFT is first token − arrival: queues and pauses are inside.
	TTFT Distribution `json:"ttft,omitzero"`
	// TPOT is (last token − first token)/(output − 1) of a request with two tokens or more. AIPerf calls it
	// inter-token latency.
	TPOT Distribution `json:"tpot,omitzero"`
	// ITL pools every gap between two tokens of a request; its quantiles are within 0.1 %.
	ITL Distribution `json:"itl,omitzero"`
	// E2E is last token − arrival.
	E2E Distribution `json:"e2e,omitzero"`
	// Queue is first admission to an engine − arrival. Held and RouterQueue are the parts of it, over all attempts, in
	// which a program scheduler or a cap on programs held the request, and in which it waited in the router's queue.
	Queue       Distribution `json:"queue,omitzero"`
	Held        Distribution `json:"held,omitzero"`
	RouterQueue Distribution `json:"router_queue,omitzero"`
}

// ProgramMeasures holds distributions over completed programs.
type ProgramMeasures struct {
	Total     int64 `json:"total"`
	Completed int64 `json:"completed"`
	// MakespanS is last end − first arrival in seconds; Slowdown is the makespan over that of the same program
	// alone on one idle worker.
	MakespanS Distribution `json:"makespan_s,omitzero"`
	Slowdown  Distribution `json:"slowdown,omitzero"`
	// DoneS is when programs ended, in seconds since the start of the run: of a rollout, whose programs all begin then, the
	// time to 50, 90 and 99 % of its completed programs and to the last. Absent for other loads.
	DoneS Distribution `json:"done_s,omitzero"`
	// Where the time went, in seconds, summed over the program's sessions.
	ModelS  Distribution `json:"model_s,omitzero"`
	ToolS   Distribution `json:"tool_s,omitzero"`
	HumanS  Distribution `json:"human_s,omitzero"`
	PausedS Distribution `json:"paused_s,omitzero"`
	QueuedS Distribution `json:"queued_s,omitzero"`
	// Fairness is Jain's index of 1/slowdown, (Σx)²/(nΣx²): 1 when all programs are slowed down alike, 1/n when one
	// has everything.
	Fairness Figure `json:"fairness,omitzero"`
}

// KV is about prompt reuse and the KV cache. Build fills the figures that follow from requests (hits, computed and
// recomputed tokens, working set, of the measured window); the others are the caller's.
type KV struct {
	// CapacityTokens is the KV capacity of all workers together; AccountedTokens the most that was accounted for by
	// a program scheduler.
	CapacityTokens  Figure `json:"capacity_tokens,omitzero"`
	AccountedTokens Figure `json:"accounted_tokens,omitzero"`
	// HitRate is HitTokens/PromptTokens: token-weighted, at first admission.
	HitRate Figure `json:"hit_rate,omitzero"`
	// ReadmissionHitRate is the same for admissions after a preemption.
	ReadmissionHitRate Figure `json:"readmission_hit_rate,omitzero"`
	// PromptTokens is the prompts of all admitted requests whose hits are known.
	PromptTokens Figure `json:"prompt_tokens,omitzero"`
	HitTokens    Figure `json:"hit_tokens,omitzero"`
	// WarmTokens is the part of HitTokens computed before the capture began and made resident as a warm start.
	WarmTokens     Figure `json:"warm_tokens,omitzero"`
	ComputedTokens Figure `json:"computed_tokens,omitzero"`
	// Recomputed is the part of ComputedTokens that had been computed before in this run.
	Recomputed Recomputed `json:"recomputed_tokens,omitzero"`
	// ReprefillTimeShare is the marginal step time of recomputed tokens over busy time.
	ReprefillTimeShare Figure `json:"reprefill_time_share,omitzero"`
	EvictedBlocks      Figure `json:"evicted_blocks,omitzero"`
	// PeakUtilization and MeanUtilization are shares of the blocks in use by requests, mean over time.
	PeakUtilization Figure `json:"peak_utilization,omitzero"`
	MeanUtilization Figure `json:"mean_utilization,omitzero"`
	// ResidentGiBS is KV bytes times the seconds they stayed resident, IdleGiBS the part to which neither requests nor pins
	// referred, in GiB·s; of that some blocks hold nothing any more, and count for nobody in HeldGiBS.
	IdleGiBS     Figure `json:"idle_gib_s,omitzero"`
	ResidentGiBS Figure `json:"resident_gib_s,omitzero"`
	// HeldGiBS is what sessions held, by what they were doing, and Holders the programs that held most, at most ten of them, the
	// first the most. Absent where nobody kept account.
	HeldGiBS *Holding `json:"held_gib_s,omitempty"`
	Holders  []Holder `json:"holders,omitempty"`
	// WorkingSetTokens is the mean context of a live program: of each of its sessions, prompt and output of the latest
	// request, averaged over the time that programs live. What sessions share counts once for each.
	WorkingSetTokens Figure `json:"working_set_tokens,omitzero"`
	// SpaceTime is where the capacity went; nil when not known.
	SpaceTime *SpaceTime `json:"space_time,omitempty"`
	// Pins counts the times that an engine kept a session's blocks from eviction while a tool ran (Continuum), CutPins
	// those that ended early because running requests needed the room. Absent where no engine pins.
	Pins    Figure `json:"pins,omitzero"`
	CutPins Figure `json:"cut_pins,omitzero"`
	Tiering
	// OutputBlocks counts blocks of generated tokens by how their identity in later prompts is told.
	OutputBlocks *OutputBlocks `json:"output_blocks,omitempty"`
}

// SpaceTime is the space-time cost of serving (arXiv 2602.13692, section on the space-time product): KV tokens of
// capacity times seconds of the measured window. Its parts add up to TotalTokenS. Blocks that several requests hold are
// shared out between these in proportion to their tokens.
type SpaceTime struct {
	// TotalTokenS is capacity × time, in token·s.
	TotalTokenS Figure `json:"total_token_s,omitzero"`
	// Decode is what decoding requests hold, Prefill what requests hold whose prompts are being computed, Recompute the
	// part of the latter that goes to tokens computed before in this run.
	Decode    Part `json:"decode"`
	Prefill   Part `json:"prefill"`
	Recompute Part `json:"recompute"`
	// Caching is tokens kept for later requests, pinned or not; Unused is blocks that hold nothing.
	Caching Part `json:"caching"`
	Unused  Part `json:"unused"`
}

// Part is one term of a SpaceTime, in token·s and as a share of the total.
type Part struct {
	TokenS Figure `json:"token_s,omitzero"`
	Share  Figure `json:"share,omitzero"`
}

// NewSpaceTime computes the shares of a total and its terms in token·s; what they leave is unused. It returns nil for a
// total of 0.
func NewSpaceTime(total, decode, prefill, recompute, caching float64) *SpaceTime {
	if !(total > 0) {
		return nil
	}
	part := func(v float64) Part { return Part{TokenS: Known(v), Share: Known(v / total)} }
	return &SpaceTime{TotalTokenS: Known(total), Decode: part(decode), Prefill: part(prefill), Recompute: part(recompute),
		Caching: part(caching), Unused: part(max(0, total-decode-prefill-recompute-caching))}
}

// Recomputed is prompt tokens computed again, by cause: the request itself was preempted; else the block was
// once resident on this worker; else the program came from another worker.
type Recomputed struct {
	Eviction   Figure `json:"eviction,omitzero"`
	Preemption Figure `json:"preemption,omitzero"`
	Migration  Figure `json:"migration,omitzero"`
}

// OutputBlocks counts the blocks of generated tokens whose identity the trace records, that were inferred from later
// prompts, and that nobody knows.
type OutputBlocks struct {
	Known    int64 `json:"known"`
	Inferred int64 `json:"inferred"`
	Unknown  int64 `json:"unknown"`
}

// Scheduler is what the program schedulers (ThunderAgent) of all frontends did in the whole run.
type Scheduler struct {
	Pauses int64 `json:"pauses"`
	// Marks are programs to be paused at the end of their current turn.
	Marks         int64 `json:"marks"`
	Resumes       int64 `json:"resumes"` // forced ones included
	ForcedResumes int64 `json:"forced_resumes"`
	Migrations    int64 `json:"migrations"`
	// PausedPeak is the most programs paused, or with a request held, at a time; Expired are programs forgotten because
	// they were idle for too long.
	PausedPeak int64 `json:"paused_peak"`
	Expired    int64 `json:"expired"`
	// PausedS is the sum of the times that programs were paused or held, while their tools ran too. What delayed their
	// requests is programs.paused_s.
	PausedS    Figure         `json:"paused_s,omitzero"`
	Starvation Starvation     `json:"starvation,omitzero"`
	Tokens     AccountedUsage `json:"tokens,omitzero"`
}

// Starvation tells whom a program scheduler makes wait.
type Starvation struct {
	// LongestWaitS is the longest that a request was held, in seconds. SizeWaitCorrelation is Pearson's coefficient of the
	// tokens and the waits of requests that were held and let go: schedulers that resume the smallest first make it positive.
	LongestWaitS        Figure `json:"longest_wait_s,omitzero"`
	SizeWaitCorrelation Figure `json:"size_wait_correlation,omitzero"`
}

// AccountedUsage is the KV tokens that a program scheduler accounts for, measured at its ticks before it pauses any
// program; absent before the first.
type AccountedUsage struct {
	// AccountedPeak is the most of all workers together, Capacity what they have, and MaxOver the most by which one exceeded
	// its own.
	AccountedPeak Figure `json:"accounted_peak,omitzero"`
	Capacity      Figure `json:"capacity,omitzero"`
	MaxOver       Figure `json:"max_over,omitzero"`
}

// Speculation sums up speculative decoding in the measured window, as vLLM counts it.
type Speculation struct {
	// Steps counts a step once for each request that verified draft tokens in it.
	Steps          int64 `json:"steps"`
	DraftTokens    int64 `json:"draft_tokens"`
	AcceptedTokens int64 `json:"accepted_tokens"`
	// AcceptedPerStep is AcceptedTokens/Steps. With the token that each step brings anyway, one more is vLLM's mean
	// acceptance length.
	AcceptedPerStep Figure `json:"accepted_per_step,omitzero"`
}

// Worker is the totals of one (worker, data-parallel rank) pair over the whole run. Busy time is in seconds,
// utilization a share of the KV blocks.
type Worker struct {
	ID              int32  `json:"id"`
	Requests        Figure `json:"requests,omitzero"`
	BusyS           Figure `json:"busy_s,omitzero"`
	Steps           Figure `json:"steps,omitzero"`
	PrefillTokens   Figure `json:"prefill_tokens,omitzero"`
	DecodeTokens    Figure `json:"decode_tokens,omitzero"`
	HitTokens       Figure `json:"hit_tokens,omitzero"`
	Preemptions     Figure `json:"preemptions,omitzero"`
	EvictedBlocks   Figure `json:"evicted_blocks,omitzero"`
	PeakUtilization Figure `json:"peak_utilization,omitzero"`
	MeanUtilization Figure `json:"mean_utilization,omitzero"`
	// Links are its own, where anything moved over them.
	Links []Link `json:"links,omitempty"`
}

// Write writes an indented report.json. The same report gives the same bytes.
func Write(w io.Writer, r *Report) error {
	out := *r
	out.Schema = Schema
	if out.Runs == nil {
		out.Runs = []*Run{}
	}
	return writeJSON(w, "report", out)
}

// writeJSON writes a value as indented JSON, all of it or none.
func writeJSON(w io.Writer, what string, v any) error {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return fmt.Errorf("encode %s: %w", what, err)
	}
	if _, err := w.Write(buf.Bytes()); err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return nil
}

// maxReportBytes bounds what Read takes: thousands of runs fit.
const maxReportBytes = 256 << 20

// Read reads a report.json. Unknown keys are ignored, so that reports of later versions can be compared; another
// schema is an error.
func Read(r io.Reader) (*Report, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxReportBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if len(b) > maxReportBytes {
		return nil, fmt.Errorf("read report: larger than %d MiB", maxReportBytes>>20)
	}
	var rep Report
	if err := json.Unmarshal(b, &rep); err != nil {
		return nil, fmt.Errorf("read report: %w", err)
	}
	if rep.Schema != Schema {
		return nil, fmt.Errorf("read report: schema is %q, want %q", rep.Schema, Schema)
	}
	for i, run := range rep.Runs {
		if run == nil {
			return nil, fmt.Errorf("read report: runs[%d] is null", i)
		}
	}
	return &rep, nil
}
