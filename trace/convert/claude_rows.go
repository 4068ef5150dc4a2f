package convert

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/agentsim/agentsim/trace"
)

// claudeRow is one row of a Claude Code transcript: a node of the conversation's tree. A response of the model is one or
// more rows, one a content block.
type claudeRow struct {
	kind                      string // "user", "assistant", or another type
	uuid, parentID            string
	session, agent            string
	at                        time.Duration // since the Unix epoch; NoTime if not told
	sidechain, forked, failed bool
	summary                   bool // the message that a compacted conversation goes on from
	message, request          string
	model, version            string
	usage                     claudeUsage
	stopped                   bool // a stop reason is told: the usage is final
	text                      []byte
	written                   int // bytes that the model wrote, thinking included
	tools                     []claudeTool
	results                   []claudeResult
	spawned                   string // the agent that the tool of this result ran
	file                      string
	line                      int

	parent   *claudeRow
	response *claudeResponse
	behind   *claudeResponse // of rows of other kinds: the response that they come behind
	chain    string          // the id of its session
	walk     int             // which look for loops saw it
	passage  *passage        // what a prompt has said up to it
}

// claudeUsage is Anthropic's usage; counts below 0 are not told.
type claudeUsage struct{ input, created, read, output int64 }

// claudeTool is a tool_use block. Of tools that run agents it has their type and a digest of their prompt.
type claudeTool struct {
	id, name, agentType string
	prompt              uint64
}

// claudeResult is a tool_result block.
type claudeResult struct {
	id     string
	failed bool
}

// maxSkipReasons bounds the row types that are counted one by one.
const maxSkipReasons = 64

// parseClaude reads the rows of a chunk.
func parseClaude(c trace.Chunk) (*claudePart, error) {
	p := &claudePart{read: c.Read, names: names{}}
	for number, text := range c.Lines {
		p.read.Lines++
		if isOther(text) {
			p.read.Skip("not an object")
			continue
		}
		r := claudeReader{scanner: scanner{data: text}, claudePart: p}
		row, err := r.row()
		if err != nil {
			p.read.Lose(c.File, number, text, err)
			continue
		}
		row.file, row.line = c.File, number
		if row.agentMeta(p) {
			continue
		}
		if row.uuid == "" && row.kind != "user" && row.kind != "assistant" {
			skipKind(&p.read, row.kind)
			continue
		}
		if row.session == "" {
			row.session = strings.TrimSuffix(strings.TrimSuffix(filepath.Base(c.File), ".gz"), ".jsonl")
		}
		p.rows = append(p.rows, row)
	}
	return p, nil
}

// isOther tells whether a row is JSON, but no object.
func isOther(text []byte) bool {
	if text[0] == '{' {
		return false
	}
	s := scanner{data: text}
	s.skip()
	return s.end() == nil
}

// skipKind skips a row of a type that tells of no call.
func skipKind(read *trace.ReadReport, kind string) {
	why := fmt.Sprintf("of type %.40q", kind)
	if kind == "" {
		why = "without a type"
	}
	if read.Skipped[why] == 0 && len(read.Skipped) >= maxSkipReasons {
		why = "of other types"
	}
	read.Skip(why)
}

// claudePart is the rows of a chunk.
type claudePart struct {
	rows  []*claudeRow
	types map[string]string // agent types that files beside transcripts tell, by agent
	read  trace.ReadReport
	names names
}

// agentMeta takes what a file beside a subagent's transcript says of it.
func (r *claudeRow) agentMeta(p *claudePart) bool {
	name, ok := strings.CutPrefix(filepath.Base(r.file), "agent-")
	if !ok || r.kind != claudeMetaKind {
		return false
	}
	if p.types == nil {
		p.types = map[string]string{}
	}
	p.types[strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, ".gz"), ".json"), ".meta")] = r.model
	p.read.Skip("what agents are")
	return true
}

// claudeMetaKind marks the object of an agent's meta file, whose agent type stands in model.
const claudeMetaKind = "\x00meta"

// claudeReader reads one row.
type claudeReader struct {
	scanner
	*claudePart
}

func (r *claudeReader) row() (*claudeRow, error) {
	row := &claudeRow{at: trace.NoTime, usage: claudeUsage{-1, -1, -1, -1}}
	role := ""
	for key, ok := r.object(); ok; key, ok = r.next() {
		switch string(key) {
		case "type":
			row.kind = r.names.of(r.looseText())
		case "uuid":
			row.uuid = r.loose()
		case "parentUuid":
			row.parentID = r.loose()
		case "sessionId":
			row.session = r.names.of(r.looseText())
		case "agentId":
			row.agent = r.names.of(r.looseText())
		case "timestamp":
			row.at = r.date()
		case "isSidechain":
			row.sidechain = r.boolean()
		case "isCompactSummary":
			row.summary = r.boolean()
		case "isApiErrorMessage":
			row.failed = r.boolean()
		case "forkedFrom":
			row.forked = !r.null()
			if row.forked {
				r.skip()
			}
		case "requestId":
			row.request = r.loose()
		case "version":
			row.version = r.names.of(r.looseText())
		case "message":
			role = r.message(row)
		case "toolUseResult":
			r.toolUseResult(row)
		case "agentType":
			row.kind, row.model = claudeMetaKind, r.loose()
		default:
			r.skip()
		}
	}
	if row.kind == "" && (role == "user" || role == "assistant") {
		row.kind = role
	}
	if row.model == "<synthetic>" {
		row.failed = true
	}
	return row, r.end()
}

// loose reads a string; a value of another kind is "".
func (s *scanner) loose() string { return validString(s.looseText()) }

func (s *scanner) looseText() []byte {
	if s.peek() == '"' {
		return s.text()
	}
	s.skip()
	return nil
}

// boolean reads a boolean; a value of another kind is false.
func (s *scanner) boolean() bool {
	is := s.peek() == 't'
	s.skip()
	return is
}

// count reads a count of the tokens of a call; what is none is -1.
func (s *scanner) count() int64 {
	if n := s.total(); n <= maxTokens {
		return n
	}
	return -1
}

// total reads a count of tokens of any size; what is none is -1.
func (s *scanner) total() int64 {
	if c := s.peek(); c-'0' > 9 {
		s.skip()
		return -1
	}
	f := s.float()
	if !(f >= 0 && f <= 1<<53) {
		return -1
	}
	return int64(math.Round(f))
}

// date reads an ISO time as the time since the Unix epoch; what is none is trace.NoTime. Times without a zone are UTC.
func (s *scanner) date() time.Duration {
	if s.peek() != '"' {
		s.skip()
		return trace.NoTime
	}
	at, err := parseDate(string(s.text()))
	if err != nil {
		return trace.NoTime
	}
	return at
}

// parseDate reads an ISO time; without a zone it is UTC.
func parseDate(text string) (time.Duration, error) {
	for _, layout := range [...]string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", time.DateTime} {
		if date, err := time.Parse(layout, text); err == nil {
			if date.Year() < 1970 || date.Year() >= 2100 {
				return 0, fmt.Errorf("time %s: the year is not in 1970 to 2099", text)
			}
			return time.Duration(date.UnixNano()), nil
		}
	}
	return 0, errors.New("not an ISO time")
}

// message reads a message object and returns its role.
func (r *claudeReader) message(row *claudeRow) (role string) {
	for key, ok := r.looseObject(); ok; key, ok = r.next() {
		switch string(key) {
		case "id":
			row.message = r.loose()
		case "role":
			role = r.names.of(r.looseText())
		case "model":
			row.model = r.names.of(r.looseText())
		case "stop_reason":
			row.stopped = !r.null()
			if row.stopped {
				r.skip()
			}
		case "usage":
			r.usage(&row.usage)
		case "content":
			r.content(row)
		default:
			r.skip()
		}
	}
	return role
}

func (s *scanner) usage(u *claudeUsage) {
	for key, ok := s.looseObject(); ok; key, ok = s.next() {
		switch string(key) {
		case "input_tokens":
			u.input = s.count()
		case "cache_creation_input_tokens":
			u.created = s.count()
		case "cache_read_input_tokens":
			u.read = s.count()
		case "output_tokens":
			u.output = s.count()
		default:
			s.skip()
		}
	}
}

// content reads what a message says: a string, or blocks.
func (r *claudeReader) content(row *claudeRow) {
	switch r.peek() {
	case '"':
		row.text = append(r.appendText(append(row.text, "text\n"...)), '\n')
		row.written = len(row.text) - len("text\n\n")
	case '[':
		for ok := r.array(); ok; ok = r.more() {
			if r.peek() != '{' {
				r.skip()
				continue
			}
			r.block(row)
		}
	default:
		r.skip()
	}
}

// span consumes a value and returns its text.
func (s *scanner) span() []byte {
	s.peek()
	start := s.pos
	if s.skip(); s.err != nil {
		return nil
	}
	return s.data[start:s.pos]
}

// block reads a block of content. What it holds may stand before its type.
func (r *claudeReader) block(row *claudeRow) {
	var kind, id, name string
	var text, thinking, input, result []byte
	failed := false
	for key, ok := r.object(); ok; key, ok = r.next() {
		switch string(key) {
		case "type":
			kind = r.names.of(r.looseText())
		case "text":
			text = r.span()
		case "thinking":
			thinking = r.span()
		case "id", "tool_use_id":
			id = r.loose()
		case "name":
			name = r.names.of(r.looseText())
		case "input":
			input = r.span()
		case "content":
			result = r.span()
		case "is_error":
			failed = r.boolean()
		default:
			r.skip()
		}
	}
	if r.err != nil {
		return
	}
	row.text = slices.Grow(row.text, len(name)+len(text)+len(thinking)+len(input)+len(result)+16)
	begin := len(row.text)
	switch kind {
	case "text":
		row.text = appendString(append(row.text, "text\n"...), text)
		row.written += len(row.text) - begin - len("text\n")
	case "thinking": // is dropped from later prompts
		row.written += len(appendString(row.text, thinking)) - begin
		return
	case "tool_use":
		row.text = append(append(append(append(row.text, "tool_use "...), name...), '\n'), input...)
		row.written += len(input)
		row.tools = append(row.tools, toolOf(id, name, input))
	case "tool_result":
		row.text = appendParts(append(row.text, "tool_result\n"...), result)
		row.results = append(row.results, claudeResult{id, failed})
	default:
		return
	}
	row.text = append(row.text, '\n')
}

// appendString appends what a JSON string stands for that span returned, and nothing for another value.
func appendString(dst, value []byte) []byte {
	if len(value) < 2 || value[0] != '"' {
		return dst
	}
	return appendUnescaped(dst, value[1:len(value)-1])
}

// appendParts appends a text that is a string, or the texts of an array of parts.
func appendParts(dst, value []byte) []byte {
	if len(value) == 0 || value[0] != '[' {
		return appendString(dst, value)
	}
	s := scanner{data: value}
	for ok := s.array(); ok; ok = s.more() {
		if s.peek() != '{' {
			s.skip()
			continue
		}
		dst = s.appendTextOf(dst)
	}
	return dst
}

// toolOf returns a tool call, with what tells the agent that it runs.
func toolOf(id, name string, input []byte) claudeTool {
	t := claudeTool{id: id, name: name}
	if name != "Task" && name != "Agent" || len(input) == 0 || input[0] != '{' {
		return t
	}
	s := scanner{data: input}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "subagent_type":
			t.agentType = s.loose()
		case "prompt":
			t.prompt = xxh3.Hash(appendString(nil, s.span()))
		default:
			s.skip()
		}
	}
	return t
}

// toolUseResult looks for the agent that a tool ran. Text that looks like it is not taken: any program may print it.
func (r *claudeReader) toolUseResult(row *claudeRow) {
	for key, ok := r.looseObject(); ok; key, ok = r.next() {
		if string(key) == "agentId" {
			row.spawned = r.loose()
		} else {
			r.skip()
		}
	}
}
