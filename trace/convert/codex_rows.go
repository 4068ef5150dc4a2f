package convert

import (
	"time"

	"github.com/agentsim/agentsim/trace"
)

// codexKind is what a row of a Codex rollout tells.
type codexKind uint8

const (
	codexMeta      codexKind = iota + 1 // whose rollout it is
	codexContext                        // the model of the turn
	codexInput                          // a message or a tool's result: new in the next prompt
	codexOutput                         // what the model wrote
	codexUsage                          // the tokens of the session so far (token_count)
	codexTurnUsage                      // the tokens of the turn so far (token_usage_record)
	codexCompacted                      // the prompt begins anew
)

// codexRow is one row of a Codex rollout.
type codexRow struct {
	kind                 codexKind
	at                   time.Duration // since the Unix epoch; NoTime if not told
	text                 []byte        // as it stands in prompts
	written              int           // bytes that the model wrote
	tool                 string        // the id of a tool call or a result
	name                 string        // of the tool, or the model
	role                 string
	id, parent, forkedOf string // of a session
	version              string
	usage                codexTokens // total, and of the last call
	last                 codexTokens
	line                 int
}

// codexTokens is OpenAI's usage: cached tokens are part of the input, reasoning is part of the output. Counts below 0
// are not told.
type codexTokens struct{ input, cached, output, reasoning int64 }

var noTokens = codexTokens{-1, -1, -1, -1}

// sum is input and output together.
func (u *codexTokens) sum() int64 { return max(u.input, 0) + max(u.output, 0) }

// minus returns the tokens since an earlier count.
func (u codexTokens) minus(o codexTokens) codexTokens {
	less := func(a, b int64) int64 {
		if a < 0 {
			return a
		}
		return a - max(b, 0)
	}
	return codexTokens{less(u.input, o.input), less(u.cached, o.cached), less(u.output, o.output), less(u.reasoning, o.reasoning)}
}

// codexPart is the rows of a chunk.
type codexPart struct {
	file    string
	segment int
	rows    []*codexRow
	read    trace.ReadReport
}

// parseCodex reads the rows of a chunk.
func parseCodex(c trace.Chunk) (*codexPart, error) {
	p := &codexPart{file: c.File, segment: c.Segment, read: c.Read}
	for number, text := range c.Lines {
		p.read.Lines++
		if isOther(text) {
			p.read.Skip("not an object")
			continue
		}
		row, kind, err := parseCodexRow(text)
		switch {
		case err != nil:
			p.read.Lose(c.File, number, text, err)
		case row.kind == 0:
			skipKind(&p.read, kind)
		default:
			row.line = number
			p.rows = append(p.rows, row)
		}
	}
	return p, nil
}

// parseCodexRow reads a row: {timestamp, type, payload}, or what in old rollouts stands without that envelope. It returns
// the type that the row names, too.
func parseCodexRow(text []byte) (*codexRow, string, error) {
	row := &codexRow{at: trace.NoTime, usage: noTokens, last: noTokens}
	s := scanner{data: text}
	var kind string
	var payload []byte
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "timestamp":
			row.at = s.date()
		case "type":
			kind = s.loose()
		case "payload":
			payload = s.span()
		default:
			s.skip()
		}
	}
	if err := s.end(); err != nil {
		return nil, "", err
	}
	if len(payload) == 0 {
		return row, row.readPayload(kind, text), nil
	}
	return row, row.readPayload(kind, payload), nil
}

// readPayload reads what a row tells and returns the type that it names. The text was scanned before, so no errors are met.
func (row *codexRow) readPayload(envelope string, payload []byte) string {
	s := scanner{data: payload}
	kind := envelope
	var content, arguments, output, summary, encrypted, info, turnUsage, message, history []byte
	var model, instructions []byte
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "type":
			kind = s.loose()
		case "role":
			row.role = s.loose()
		case "id":
			row.id = s.loose()
		case "forked_from_id":
			row.forkedOf = s.loose()
		case "parent_thread_id":
			row.parent = s.loose()
		case "source":
			if row.parent == "" {
				row.parent = spawnedBy(s.span())
			} else {
				s.skip()
			}
		case "cli_version":
			row.version = s.loose()
		case "base_instructions", "instructions":
			instructions = s.span()
		case "model":
			model = s.span()
		case "content":
			content = s.span()
		case "name":
			row.name = s.loose()
		case "call_id":
			row.tool = s.loose()
		case "arguments", "input", "action":
			arguments = s.span()
		case "output":
			output = s.span()
		case "summary":
			summary = s.span()
		case "encrypted_content":
			encrypted = s.span()
		case "info":
			info = s.span()
		case "turn_token_usage":
			turnUsage = s.span()
		case "message":
			message = s.span()
		case "replacement_history":
			history = s.span()
		default:
			s.skip()
		}
	}
	switch {
	case envelope == "session_meta", envelope == "" && kind == "" && row.id != "":
		row.kind = codexMeta
		row.text = appendInstructions(nil, instructions)
	case envelope == "turn_context":
		row.kind = codexContext
		row.name = string(appendString(nil, model))
	case envelope == "compacted":
		row.kind = codexCompacted
		row.text = append(appendString(nil, message), history...)
	case kind == "token_count":
		row.readUsage(info)
	case kind == "token_usage_record" && len(turnUsage) > 0:
		row.kind, row.usage = codexTurnUsage, readCodexTokens(turnUsage)
	case envelope == "event_msg":
		// Repeats of what response items tell, and signs of life.
	default:
		row.readItem(kind, content, arguments, output, summary, encrypted)
	}
	return kind
}

// spawnedBy finds the parent of a subagent in the source of its session: {"subagent":{"thread_spawn":{"parent_thread_id":...}}}.
func spawnedBy(source []byte) (parent string) {
	s := scanner{data: source}
	var find func(depth int)
	find = func(depth int) {
		if s.peek() != '{' || depth > 3 {
			s.skip()
			return
		}
		for key, ok := s.object(); ok; key, ok = s.next() {
			if string(key) == "parent_thread_id" {
				parent = s.loose()
			} else {
				find(depth + 1)
			}
		}
	}
	find(0)
	return parent
}

// appendInstructions appends instructions, which are a string or an object with a text.
func appendInstructions(dst, value []byte) []byte {
	if len(value) == 0 || value[0] != '{' {
		return appendString(dst, value)
	}
	s := scanner{data: value}
	return s.appendTextOf(dst)
}

// readItem reads a response item: a message, reasoning, a tool call or a tool's result.
func (row *codexRow) readItem(kind string, content, arguments, output, summary, encrypted []byte) {
	switch kind {
	case "message":
		row.text = append(appendParts(append(append(row.text, row.role...), '\n'), content), '\n')
		row.kind = codexInput
		if row.role == "assistant" {
			row.kind, row.written = codexOutput, len(row.text)-len("assistant\n\n")
		}
	case "reasoning": // not to be read, and dropped from later prompts
		row.kind = codexOutput
		row.written = len(appendParts(nil, content)) + len(appendParts(nil, summary))
		if row.written == 0 {
			row.written = len(encrypted)
		}
	case "function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call":
		row.kind = codexOutput
		if row.name == "" {
			row.name = kind
		}
		row.text = append(append(append(row.text, "call "...), row.name...), '\n')
		begin := len(row.text)
		if len(arguments) > 0 && arguments[0] != '"' {
			row.text = append(row.text, arguments...)
		}
		row.text = append(appendString(row.text, arguments), '\n')
		row.written = len(row.text) - begin
	case "function_call_output", "custom_tool_call_output", "tool_search_output":
		row.kind = codexInput
		row.role = "tool"
		row.text = append(row.text, "output\n"...)
		if len(output) > 0 && output[0] == '{' {
			row.text = append(row.text, output...)
		}
		row.text = append(appendParts(row.text, output), '\n')
	}
}

// readUsage reads the info of a token_count row; null is a sign of life.
func (row *codexRow) readUsage(info []byte) {
	if len(info) == 0 || info[0] != '{' {
		return
	}
	s := scanner{data: info}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "total_token_usage":
			row.kind, row.usage = codexUsage, readCodexTokens(s.span())
		case "last_token_usage":
			row.last = readCodexTokens(s.span())
		default:
			s.skip()
		}
	}
}

func readCodexTokens(text []byte) codexTokens {
	u := noTokens
	if len(text) == 0 || text[0] != '{' {
		return u
	}
	s := scanner{data: text}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "input_tokens":
			u.input = s.total()
		case "cached_input_tokens":
			u.cached = s.total()
		case "output_tokens":
			u.output = s.total()
		case "reasoning_output_tokens":
			u.reasoning = s.total()
		default:
			s.skip()
		}
	}
	return u
}
