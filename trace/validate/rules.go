package validate

// Severity is how bad a finding is.
type Severity string

// The severities. An Error is what Dynamo's own loader of request traces refuses (lib/data-gen, ai-dynamo/dynamo); a
// Warning is what it accepts and what is suspicious all the same.
const (
	Error   Severity = "error"
	Warning Severity = "warning"
)

// Rule is one thing that is looked for.
type Rule struct {
	Name     string   `json:"rule"`
	Severity Severity `json:"severity"`
	// Remedy says what to do about it.
	Remedy string `json:"remedy"`
}

// The rules, in the order in which they are reported.
var (
	schemaRule      = Rule{"schema", Error, "Dynamo reads dynamo.request.trace.v1 alone; agentsim reads the older schema too: predict and write --traces, or record anew"}
	eventTypeRule   = Rule{"event-type", Error, "remove the rows, or correct their event_type: request_end, request_payload, tool_start, tool_end, tool_error"}
	shapeRule       = Rule{"row-shape", Error, "a request_end needs a request with a request_id, a tool row a tool with a tool_call_id: remove the row, or record anew"}
	replayRule      = Rule{"no-replay", Error, "Dynamo replays requests by their block hashes: record with a tokenizer, or give the trace to tools that need none"}
	blockSizeRule   = Rule{"block-size", Error, "trace_block_size is the engine's KV block size, a positive number of tokens: correct it"}
	mixedBlocksRule = Rule{"mixed-block-sizes", Error, "hashes of two block sizes cannot be compared: load such files one by one"}
	hashCountRule   = Rule{"hash-count", Error, "input_sequence_hashes has ceil(input_length / trace_block_size) entries, the last of which may stand for a partial block: record anew"}
	startRule       = Rule{"no-start", Error, "write request_received_ms, the Unix time in milliseconds at which the request arrived"}
	outputRule      = Rule{"no-output-tokens", Error, "write output_tokens, 0 for an answer without tokens"}
	contextRule     = Rule{"mixed-context", Error, "either all requests have an agent_context or none: split the trace, or send a session id with every request"}
	toolContextRule = Rule{"tool-without-session", Error, "a tool row belongs to a session: let the harness send agent_context.session_id"}
	duplicateRule   = Rule{"duplicate-request", Error, "a request_id is unique in all files of a trace: is a file there twice? Readers of agentsim keep the first"}
	parentRule      = Rule{"two-parents", Error, "a session has one parent: correct the harness's parent session header"}
	cycleRule       = Rule{"parent-cycle", Error, "a session cannot come from its own subagent: correct the parent ids"}

	damageRule     = Rule{"damage", Warning, "what stands before the damage was kept: copy the file again, or record anew"}
	notJSONRule    = Rule{"not-json", Warning, "the row is lost, a writer was probably killed in mid-line: remove the line"}
	ignoredRule    = Rule{"ignored-line", Warning, "the line is JSON and no record, so every reader passes over it: remove it"}
	lostRule       = Rule{"rows-lost", Warning, "the recorder could not write them, its disk was full or slow: the trace has less work than there was"}
	segmentRule    = Rule{"missing-segment", Warning, "a segment between two others is not there: give all files of the prefix"}
	unknownKeyRule = Rule{"unknown-key", Warning, "no reader knows the key: is it misspelt?"}
	emptyRule      = Rule{"no-requests", Warning, "there is nothing to replay: is this the right file, and was tracing on?"}
	lengthRule     = Rule{"two-lengths", Warning, "input_tokens and replay.input_length are the same prompt: the hashes' length is taken"}
	inputRule      = Rule{"no-input-tokens", Warning, "a prompt has tokens: the request cannot be simulated"}
	noTokensRule   = Rule{"zero-output", Warning, "0 is what is written where the count was never reported, too: was the answer cut off?"}
	cachedRule     = Rule{"cached-tokens", Warning, "cached_tokens is part of the prompt and kv_hit_rate is between 0 and 1: the recorded cache figures are wrong"}
	durationRule   = Rule{"durations", Warning, "durations are not negative, ttft_ms is prefill_wait_time_ms + prefill_time_ms and not above total_time_ms: the recorded latencies are wrong"}
	endRule        = Rule{"end-time", Warning, "event_time_unix_ms is request_received_ms + total_time_ms: two clocks, or rows edited"}
	noEndRule      = Rule{"no-end", Warning, "without total_time_ms the request has no length: gaps behind it come out too long"}
	wallRule       = Rule{"wall-time", Warning, "times are Unix milliseconds: are these seconds, or the clock of something else?"}
	cumulativeRule = Rule{"hash-chain", Warning, "a hash stands for all tokens up to its block, so it has one place and one predecessor: these hash blocks alone, or mix models"}
	floatRule      = Rule{"float-hashes", Warning, "all large hashes end in zero bits: they went through a float64, and different blocks became equal"}
	toolSpanRule   = Rule{"tool-span", Warning, "write started_at_unix_ms and ended_at_unix_ms or duration_ms in the terminal row: the tool's time is guessed or dropped"}
	toolStatusRule = Rule{"tool-status", Warning, "status is running, succeeded, error or cancelled and agrees with the event type"}
	toolTwiceRule  = Rule{"tool-twice", Warning, "a tool call ends once: its time counts twice"}
	toolOpenRule   = Rule{"tool-open", Warning, "a tool_start without an end: its time is taken from the gap to the next request"}
	toolOrphanRule = Rule{"tool-orphan", Warning, "the tool's session has no request: does the harness send the id that the server sees?"}
	sourceRule     = Rule{"event-source", Warning, "event_source is dynamo on requests of agents and harness on tool rows: Dynamo's tool ingress drops others"}
	triggerRule    = Rule{"input-trigger", Warning, "input_trigger is user_message, tool_result or other: human and tool time cannot be told apart"}
	orphanRule     = Rule{"parent-missing", Warning, "the session is taken as a root: was its parent's traffic recorded?"}
	earlyChildRule = Rule{"child-before-parent", Warning, "a subagent begins after a request of its parent: parent ids or clocks are wrong"}
	afterFinalRule = Rule{"after-final", Warning, "a request after the one marked session_final: the mark evicts a session that goes on"}
	overlapRule    = Rule{"overlap", Warning, "requests of one session overlap: Dynamo's replay makes them wait for each other, agentsim keeps them parallel"}
	payloadRule    = Rule{"payload-without-request", Warning, "a payload row whose request is not there: the trace has a hole"}
	completeRule   = Rule{"payload-complete", Warning, "payload_complete without a response (dynamo#14134): the answer was cut off"}
	privateRule    = Rule{"private", Warning, "the trace has prompts, answers or headers in it: agentsim anonymize removes them before it is shared"}
	legacyRule     = Rule{"legacy-identity", Warning, "identity by trajectory_id or program_id, of before June 2026: Dynamo's loader does not see the sessions"}
)

var rules = []Rule{
	schemaRule, eventTypeRule, shapeRule, replayRule, blockSizeRule, mixedBlocksRule, hashCountRule, startRule, outputRule,
	contextRule, toolContextRule, duplicateRule, parentRule, cycleRule,
	damageRule, notJSONRule, ignoredRule, lostRule, segmentRule, unknownKeyRule, emptyRule, lengthRule, inputRule, noTokensRule,
	cachedRule, durationRule, endRule, noEndRule, wallRule, cumulativeRule, floatRule, toolSpanRule, toolStatusRule,
	toolTwiceRule, toolOpenRule, toolOrphanRule, sourceRule, triggerRule, orphanRule, earlyChildRule, afterFinalRule, overlapRule,
	payloadRule, completeRule, privateRule, legacyRule,
}
