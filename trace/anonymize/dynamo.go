package anonymize

import "github.com/agentsim/agentsim/trace"

// dynamoRow is the rule for a line of a Dynamo request trace (dynamo.request.trace.v1 and its predecessors), enveloped
// or bare. Of a payload row only the scheduling hints stay, which the request's own row has no place for, and what a
// recorder tells of lost rows.
func dynamoRow() rule {
	context := object(fields{
		"session_id": id, "parent_session_id": id, "session_final": flag,
		"trajectory_id": id, "parent_trajectory_id": id, "trajectory_final": flag, "session_type_id": id,
		"workflow_id": id, "program_id": id, "parent_program_id": id, "workflow_type_id": id,
		"input_trigger": words("user_message", "tool_result", "other"),
		"compaction":    object(fields{"trigger": words("auto", "manual")}),
		"kv_hints":      object(fields{"evict_session": flag}),
	})
	record := fields{
		"schema":             kind("dynamo.request.trace.v1", "dynamo.agent.trace.v1"),
		"event_type":         kind("request_end", "request_payload", "tool_start", "tool_end", "tool_error"),
		"event_time_unix_ms": unixMs,
		"event_source":       words("dynamo", "harness"),
		"agent_context":      context,
		"session_id":         id, "parent_session_id": id,
		"request": dynamoRequest(),
		"tool":    toolEvent(),
		"payload": object(fields{
			"request_id": id, "model": model, "payload_complete": flag, "requested_streaming": flag,
			"endpoint":            words("openai.chat_completion", "openai.completion", "openai.response", "agentsim.rows_lost"),
			"payload_drop_reason": words("unspecified", "agentsim.rows_lost"),
			"request":             object(fields{"nvext": object(fields{"agent_hints": agentHints()})}),
		}),
		"agentsim": object(fields{"lost_rows": number, "first_unix_ms": unixMs, "last_unix_ms": unixMs}),
	}
	row := fields{"timestamp": number, "event": required(object(record))}
	for key, rule := range record {
		row[key] = rule
	}
	return object(row)
}

func dynamoRequest() rule {
	finish := words("stop", "length", "tool_calls", "content_filter", "function_call")
	backend := reason("eos", "length", "stop", "cancelled", "content_filter")
	return object(fields{
		"request_id": id, "x_request_id": id, "model": model,
		"input_tokens": number, "output_tokens": number, "cached_tokens": number,
		"request_received_ms": unixMs, "prefill_wait_time_ms": number, "prefill_time_ms": number, "ttft_ms": number,
		"total_time_ms": number, "avg_itl_ms": number, "kv_hit_rate": number,
		"kv_transfer_estimated_latency_ms": number, "queue_depth": number,
		"worker": object(fields{"prefill_worker_id": worker, "prefill_dp_rank": number, "decode_worker_id": worker, "decode_dp_rank": number}),
		"replay": object(fields{"trace_block_size": number, "input_length": number,
			"input_sequence_hashes": hashes, "completion_sequence_hashes": hashes, "output_sequence_hashes": hashes}),
		"finish_reason_metadata": object(fields{
			"finish_reason": finish, "backend_finish_reason": backend,
			"tool_calls": list(object(fields{"choice_index": number, "tool_call_index": number, "id": id, "name": tool})),
			"choices":    list(object(fields{"choice_index": number, "finish_reason": finish, "backend_finish_reason": backend})),
		}),
		"agentsim": object(fields{
			"copy": number, "turn": number, "worker": number, "hit_tokens": number, "computed_tokens": number, "brought_tokens": number,
			"arrival_ns": number, "admitted_ns": number, "first_token_ns": number, "end_ns": number,
			"planned_ns": number, "ready_ns": number, "due_ns": number, "held_ns": number, "waited_ns": number, "tool_ns": number, "human_ns": number, "preemptions": number, "reasoning_tokens": number,
			"response_id": id, "http_status": number, "token_gaps_us": list(number), "completion_sequence_hashes": hashes,
			"status":      words("completed", "rejected", "failed", "unfinished"),
			"inferred":    list(words(trace.AllFields.Names()...)),
			"agent_hints": agentHints(),
		}),
	})
}

func toolEvent() rule {
	return object(fields{
		"tool_call_id": id, "tool_class": tool, "started_at_unix_ms": unixMs, "ended_at_unix_ms": unixMs,
		"duration_ms": number, "output_tokens": number, "output_bytes": number,
		"status": words("running", "succeeded", "ok", "success", "error", "failed", "cancelled", "canceled", "timeout"),
		"claude": object(fields{"source_request_id": id, "consumer_request_id": id, "child_session_id": id,
			"execution_mode": words("blocking", "background")}),
	})
}

func agentHints() rule {
	return object(fields{"priority": number, "strict_priority": number, "osl": number, "speculative_prefill": flag,
		"latency_sensitivity": number, "policy_class": id})
}

// mooncakeRow is the rule for a row of the Mooncake family: the base format, Dynamo's extensions, and both agentic versions.
func mooncakeRow() rule {
	return object(fields{
		"schema": words("dynamo.agentic_mooncake.v1", "dynamo.agentic_mooncake.v2"), "version": number, "block_size": number,
		"hash_scope": words("local", "global"), "hash_id_scope": words("local", "global"),
		"timestamp": unixMs, "created_time": unixMs, "not_before_ms": unixMs,
		"input_length": number, "output_length": number, "input_tokens": number, "output_tokens": number,
		"hash_ids": hashes, "request_id": id, "session_id": id, "play_id": id, "model": model,
		"delay": number, "delay_ms": number, "tool_wait_ms": number, "recorded_api_time_ms": number,
		"wait_for": list(id), "branches": list(id), "prefix_reset": flag,
		"dependencies": list(object(fields{"request_id": id, "delay": number, "delay_ms": number,
			"trigger": words("completion", "dispatch"), "relation": words("sequence", "spawn", "join", "replay_barrier")})),
		"request_kind": words("foreground", "agent", "background_agent"),
		"tool_events":  list(toolEvent()),
		"priority":     number, "strict_priority": number, "policy_class": id,
	})
}

// wekaConversation is the rule for a conversation of WEKA's kv-cache-tester, one JSON object on one line.
func wekaConversation() rule {
	request := fields{
		"t": number, "type": words("n", "s", "subagent"), "model": model, "in": number, "out": number, "hash_ids": hashes,
		"input_types": list(words("text", "thinking", "tool_use", "tool_result", "image", "document")), "output_types": list(words("text", "thinking", "tool_use")),
		"stop": words("tool_use", "end_turn", "max_tokens", "stop_sequence", ""), "api_time": number, "think_time": number, "ttft": number,
		"agent_id": id, "subagent_type": id, "duration_ms": number, "total_tokens": number, "tool_use_count": number,
		"status": words("completed", "async_launched"), "models": list(model), "tool_tokens": number, "system_tokens": number,
	}
	request["requests"] = func(r *rewriter) outcome { return list(object(request))(r) }
	tokens := object(fields{"input": number, "output": number})
	return object(fields{
		"id": id, "models": list(model), "block_size": number, "hash_id_scope": words("local", "global"),
		"tool_tokens": number, "system_tokens": number, "requests": list(object(request)),
		"totals": object(fields{"parent_tokens": tokens, "subagent_tokens": tokens, "combined_tokens": tokens, "subagent_count": number}),
	})
}
