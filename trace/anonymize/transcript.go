package anonymize

// usage is token counts as Anthropic's API gives them; an iteration of a call has the same ones.
func usage() rule {
	counts := fields{
		"input_tokens": number, "cache_creation_input_tokens": number, "cache_read_input_tokens": number, "output_tokens": number,
		"cache_creation":  object(fields{"ephemeral_5m_input_tokens": number, "ephemeral_1h_input_tokens": number}),
		"server_tool_use": object(fields{"web_search_requests": number, "web_fetch_requests": number}),
		"service_tier":    words("standard", "priority", "batch"),
		"type":            words("message"),
	}
	counts["iterations"] = func(r *rewriter) outcome { return list(object(counts))(r) }
	return object(counts)
}

// claudeRow is the rule for a row of a Claude Code transcript. Rows that are no message stay with their place in the
// conversation (uuid, parentUuid), as messages hang on them.
func claudeRow() rule {
	content := messageContent(kind("text", "thinking", "redacted_thinking", "tool_use", "server_tool_use", "tool_result",
		"web_search_tool_result", "tool_reference", "image", "document"))
	return object(fields{
		"type": kind("user", "assistant", "system", "summary", "attachment", "progress", "queue-operation",
			"file-history-snapshot", "last-prompt", "mode", "permission-mode", "ai-title"),
		"subtype": words("compact_boundary", "turn_duration", "stop_hook_summary", "away_summary", "informational",
			"api_error", "local_command"),
		"uuid": id, "parentUuid": id, "logicalParentUuid": id, "sessionId": id, "agentId": id, "requestId": id, "promptId": id,
		"leafUuid": id, "messageId": id, "sourceToolAssistantUUID": id, "sourceToolUseID": id, "toolUseID": id, "parentToolUseID": id,
		"timestamp": clock, "userType": words("external", "human"), "operation": words("enqueue", "dequeue", "remove", "popAll"),
		"isSidechain": flag, "isMeta": flag, "isCompactSummary": flag, "isVisibleInTranscriptOnly": flag, "isApiErrorMessage": flag,
		"durationMs": number, "messageCount": number, "summary": text, "content": content,
		"compactMetadata": object(fields{"trigger": words("auto", "manual"), "preTokens": number}),
		"message": shapes(text, nil, object(fields{
			"id": id, "type": words("message"), "role": words("user", "assistant"), "model": model, "content": content,
			"stop_reason":   words("end_turn", "tool_use", "max_tokens", "stop_sequence", "pause_turn", "refusal"),
			"stop_sequence": words(""), "usage": usage(),
		})),
		"toolUseResult": shapes(nil, nil, object(fields{
			"agentId": id, "isAsync": flag, "interrupted": flag, "status": words("completed", "async_launched", "error"),
			"totalDurationMs": number, "totalTokens": number, "totalToolUseCount": number, "durationMs": number, "usage": usage(),
		})),
	})
}

// claudeMeta is the rule for the file beside a subagent's transcript that says which tool call made it.
func claudeMeta() rule { return object(fields{"agentType": id, "toolUseId": id, "toolUseID": id}) }

// messageContent is a string, or blocks of the given kinds.
func messageContent(kinds rule) rule {
	var content rule
	block := object(fields{
		"type": kinds, "text": text, "thinking": text, "data": text, "id": id, "tool_use_id": id, "is_error": flag,
		"name": tool, "tool_name": tool, "input": arguments,
		"content": func(r *rewriter) outcome { return content(r) },
	})
	content = shapes(text, list(shapes(text, nil, block)), nil)
	return content
}

// codexRow is the rule for a row of a Codex rollout: an item in an envelope, or bare in old files.
func codexRow() rule {
	content := messageContent(kind("input_text", "output_text", "text", "reasoning_text", "summary_text", "input_image"))
	usage := object(fields{"input_tokens": number, "cached_input_tokens": number, "output_tokens": number,
		"reasoning_output_tokens": number, "total_tokens": number})
	instructions := shapes(text, nil, object(fields{"text": text}))
	spawned := object(fields{"parent_thread_id": id, "depth": number})
	item := fields{
		"type": kind("message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
			"local_shell_call", "web_search_call", "ghost_snapshot", "compaction", "compacted", "context_compacted",
			"task_started", "task_complete", "turn_started", "turn_complete", "turn_aborted", "user_message", "agent_message",
			"agent_reasoning", "token_count", "token_usage_record", "thread_rolled_back", "error",
			"session_meta", "turn_context", "response_item", "event_msg"),
		"id": id, "call_id": id, "turn_id": id, "forked_from_id": id, "parent_thread_id": id, "timestamp": clock,
		"role":    words("user", "assistant", "developer", "system", "tool"),
		"content": content, "summary": content, "name": tool, "arguments": quotedArguments, "input": quotedArguments,
		"output": shapes(text, content, object(fields{"content": content, "success": flag})),
		"status": words("completed", "in_progress", "incomplete", "failed"), "phase": words("commentary", "final_answer"),
		"message": text, "last_agent_message": text, "instructions": instructions, "base_instructions": instructions,
		"user_instructions": text, "model": model, "model_provider": model,
		"effort":               words("none", "minimal", "low", "medium", "high", "xhigh"),
		"model_context_window": number,
		"thread_source":        words("user", "subagent"),
		"source": shapes(words("cli", "exec", "vscode", "mcp", "subagent"), nil, object(fields{
			"subagent": shapes(words("review", "compact"), nil, object(fields{"thread_spawn": spawned}))})),
		"info":             object(fields{"total_token_usage": usage, "last_token_usage": usage, "model_context_window": number}),
		"turn_token_usage": usage,
	}
	item["replacement_history"] = func(r *rewriter) outcome { return list(object(item))(r) }
	row := fields{"payload": required(object(item))}
	for key, rule := range item {
		row[key] = rule
	}
	return object(row)
}
