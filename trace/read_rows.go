package trace

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Bounds on what a row may say.
const (
	// MaxUnixMs bounds a Unix time (the year 2096), MaxDurationMs a duration (31 years), both in milliseconds: sums and
	// differences of a few of them fit a time.Duration.
	MaxUnixMs     = 4e12
	MaxDurationMs = 1e12
	// maxHintPayload is the size in bytes up to which a request_payload row is decoded for the hints in it.
	maxHintPayload = 1 << 20
)

// rows is what the rows of one chunk tell.
type rows struct {
	Part
	// starts are tool_start rows; ends are the ends of tools that only a start gives a span.
	starts, ends []toolEdge
	// hints come with payload rows, by request id.
	hints map[string]Hints
}

// rowParser reads the rows of one chunk. Times count from the Unix epoch.
type rowParser struct {
	rows
	file     string
	line     int
	sessions map[string]*Session
	chains   map[string]*Chain // by session
	names    map[string]string
	hashed   *Turn
	keep     keeping

	// Of the row that is read:
	hashLists
	turn       *Turn // of a call; it has its chain
	completion Hashes
}

// parseRows reads a chunk of a Dynamo trace. Rows that cannot be read are counted; an error is a
// row that was read and makes the capture meaningless.
func parseRows(c Chunk, keep keeping) (*rows, error) {
	p := &rowParser{file: c.File, sessions: map[string]*Session{}, chains: map[string]*Chain{}, names: map[string]string{},
		keep: keep}
	p.Read = c.Read
	for number, text := range c.Lines {
		p.line = number
		p.Read.Lines++
		if len(text) > maxHintPayload && isPayload(text) {
			p.Read.SkippedRows++
			continue
		}
		rec, err := p.record(text)
		if err != nil || rec == nil {
			if err != nil {
				p.Read.Lose(p.file, p.line, text, err)
			}
			continue
		}
		if err := p.row(rec); err != nil {
			return nil, &InputError{p.file, p.line, err}
		}
	}
	return &p.rows, nil
}

// record parses one line; nil without an error is JSON that is no record.
func (p *rowParser) record(text []byte) (*Record, error) {
	rec, err := p.decode(p.cut(text))
	if err != nil && len(p.lists) > 0 { // what is wrong with the row as it is?
		p.lists = p.lists[:0]
		rec, err = p.decode(text)
	}
	if errors.Is(err, errNotRecord) {
		p.Read.SkippedRows++
		return nil, nil
	}
	if err != nil {
		if at := Resume(text); at > 0 {
			if rec, again := p.decode(text[at:]); again == nil {
				p.Read.Lose(p.file, p.line, text[:at], err)
				return rec, nil
			}
		}
	}
	return rec, err
}

func (p *rowParser) decode(text []byte) (*Record, error) {
	rec, err := ParseRecord(text)
	if err == nil {
		err = p.readHashes(rec)
	}
	return rec, err
}

// Resume returns where a whole row may begin in a line that is not JSON, or 0: a writer that crashed in mid-line and was
// started again leaves half a row in front of a whole one.
func Resume(line []byte) int { return max(0, bytes.LastIndex(line, []byte(`{"timestamp":`))) }

// isPayload tells a request_payload row by its first bytes, without decoding the megabytes behind them.
func isPayload(text []byte) bool {
	_, rest, _ := bytes.Cut(text[:min(len(text), 512)], []byte(`"event_type"`))
	rest = bytes.TrimLeft(rest, " :\t")
	return bytes.HasPrefix(rest, []byte(`"`+EventRequestPayload+`"`))
}

func (p *rowParser) row(rec *Record) error {
	p.Read.missing(p.file, p.line, rec.Lost)
	known := knownSchema(rec)
	switch {
	case isCall(rec):
		return p.request(rec)
	case known && rec.Tool != nil &&
		(rec.EventType == EventToolStart || rec.EventType == EventToolEnd || rec.EventType == EventToolError):
		return p.tool(rec)
	case known && rec.EventType == EventRequestPayload && rec.Payload != nil:
		p.payload(rec.Payload)
	}
	p.Read.SkippedRows++
	return nil
}

func knownSchema(rec *Record) bool {
	return rec.Schema == Schema || rec.Schema == legacySchema || rec.Schema == ""
}

func isCall(rec *Record) bool {
	return knownSchema(rec) && rec.EventType == EventRequestEnd && rec.Request != nil
}

func (p *rowParser) payload(pl *Payload) {
	if pl.Request != nil && pl.Request.Nvext != nil && pl.Request.Nvext.Hints != nil {
		if p.hints == nil {
			p.hints = map[string]Hints{}
		}
		if _, ok := p.hints[pl.RequestID]; !ok {
			p.hints[pl.RequestID] = pl.Request.Nvext.Hints.hints()
		}
	}
}

// identity returns the session of a row that one tells, else its own.
func identity(rec *Record, own string) Identity {
	id := Identity{Session: own}
	if rec.AgentContext != nil {
		if told := rec.AgentContext.Identity(); told.Session != "" {
			id = told
		}
	} else if rec.FlatSessionID != "" {
		id = Identity{Session: rec.FlatSessionID, Parent: rec.FlatParentSessionID}
	}
	return id
}

// session returns the session of a row; a row without context is a session of its own.
func (p *rowParser) session(rec *Record, own string) *Session {
	id := identity(rec, own)
	if id.Session == "" {
		return nil
	}
	s := p.sessions[id.Session]
	if s == nil {
		s = &Session{ID: p.name(id.Session), Parent: p.name(id.Parent), Class: p.name(id.Class)}
		p.sessions[s.ID] = s
		p.Sessions = append(p.Sessions, s)
	}
	if s.Parent == "" {
		s.Parent = p.name(id.Parent)
	}
	if s.Class == "" {
		s.Class = p.name(id.Class)
	}
	s.Final = s.Final || id.Final
	return s
}

// name returns one copy of each of the names that rows repeat.
func (p *rowParser) name(s string) string {
	if known, ok := p.names[s]; ok {
		return known
	}
	p.names[s] = s
	return s
}

func (p *rowParser) request(rec *Record) error {
	r := rec.Request
	if r.RequestID == "" {
		return errors.New("request_end without a request_id")
	}
	t := p.turn
	t.ID, t.Model, t.TTFT, t.Cached, t.Reasoning = r.RequestID, p.name(r.Model), NoTime, Unknown, Unknown
	t.File, t.Line = p.file, int32(min(p.line, math.MaxInt32))
	if err := t.setTimes(rec); err != nil {
		return fmt.Errorf("request %q: %w", t.ID, err)
	}
	if err := t.setTokens(r); err != nil {
		return fmt.Errorf("request %q: %w", t.ID, err)
	}
	t.Session = p.session(rec, t.ID)
	if a := rec.AgentContext; a != nil {
		t.Trigger = p.name(a.InputTrigger)
		t.Compaction = len(a.Compaction) > 0 && string(a.Compaction) != "null"
		t.Final = a.SessionFinal || a.TrajectoryFinal
	}
	if f := r.FinishReason; f != nil {
		t.Status = finishStatus(f.Backend)
		for _, c := range f.ToolCalls {
			t.ToolCalls = append(t.ToolCalls, ToolCall{ID: c.ID, Name: p.name(c.Name)})
		}
	}
	if r.XRequestID != "" {
		t.Aliases = append(t.Aliases, r.XRequestID)
	}
	if x := r.Agentsim; x != nil {
		t.setExtension(x)
	}
	if p.keep == keepDetails {
		t.Detail = p.detail(rec)
		t.Base, t.Shared, t.Hashes = nil, 0, nil
	} else if err := p.checkHashes(t, rec); err != nil {
		return fmt.Errorf("request %q: %w", t.ID, err)
	}
	if p.keep == keepRows {
		t.Row = rec
		r.Replay = nil
		if r.Agentsim != nil {
			r.Agentsim.CompletionHashes = nil
		}
	}
	p.Turns = append(p.Turns, t)
	return nil
}

// finishStatus turns an engine's finish reason ("cancelled", "error: text") into a Turn.Status.
func finishStatus(backend string) string {
	switch {
	case backend == "cancelled":
		return Cancelled
	case strings.HasPrefix(backend, "error"):
		return "error"
	}
	return ""
}

func (t *Turn) setExtension(x *Extension) {
	if x.ResponseID != "" {
		t.Aliases = append(t.Aliases, x.ResponseID)
	}
	if x.Hints != nil {
		t.Hints = x.Hints.hints()
	}
	if n := x.ReasoningTokens; n != nil && *n >= 0 && *n <= int64(t.Output) {
		t.Reasoning = int32(*n)
	}
	if x.Status == "" { // else these are of what the run simulated or replayed
		t.Inferred |= FieldsNamed(x.Inferred)
	}
	switch x.Status {
	case "rejected", "failed", "unfinished":
		t.Status = cmp.Or(t.Status, "error")
	}
	if slices.Contains(x.Inferred, "session") {
		t.Inferred |= FieldSession
	}
}

// setTimes fills Start, End and TTFT. A request ends total_time_ms after it was received; its event time, rounded to
// a millisecond, is the fallback for either.
func (t *Turn) setTimes(rec *Record) error {
	r := rec.Request
	total, err := optionalMs("total_time_ms", r.TotalTimeMs)
	if err != nil {
		return err
	}
	event, err := optionalWallMs("event_time_unix_ms", rec.EventTimeMs)
	if err != nil {
		return err
	}
	if t.Start, err = optionalWallMs("request_received_ms", r.ReceivedMs); err != nil {
		return err
	}
	if t.Start == NoTime {
		if event == NoTime || total == NoTime {
			return errors.New("no request_received_ms, and no event and total time that give it: when did it start?")
		}
		t.Start = event - total
		t.Inferred |= FieldStart
	}
	switch {
	case total != NoTime:
		t.End = t.Start + total
	case event != NoTime:
		t.End = max(event, t.Start)
		t.Inferred |= FieldEnd
	default:
		t.End = NoTime
	}
	t.TTFT, err = optionalMs("ttft_ms", r.TTFTMs)
	return err
}

func optionalWallMs(field string, v *int64) (time.Duration, error) {
	if v == nil {
		return NoTime, nil
	}
	if *v < 0 || *v > MaxUnixMs {
		return 0, fmt.Errorf("%s is %d: not a Unix time in milliseconds", field, *v)
	}
	return time.Duration(*v) * time.Millisecond, nil
}

// optionalMs rounds a duration to nanoseconds. Clocks that ran back are taken as 0.
func optionalMs(field string, v *float64) (time.Duration, error) {
	if v == nil {
		return NoTime, nil
	}
	if !(*v <= MaxDurationMs) {
		return 0, fmt.Errorf("%s is %g: not a duration in milliseconds", field, *v)
	}
	return time.Duration(math.Round(max(*v, 0) * 1e6)), nil
}

// setTokens fills the token counts. Where there are hashes, the length that they were made from is the prompt's.
func (t *Turn) setTokens(r *RequestEnd) error {
	input := r.InputTokens
	if r.Replay != nil && r.Replay.InputLength != nil && (len(r.Replay.Hashes) > 0 || input == nil || *input == 0) {
		input = r.Replay.InputLength
	}
	if input == nil || *input == 0 {
		return errors.New("no input tokens")
	}
	if r.OutputTokens == nil {
		t.Inferred |= FieldOutput
	}
	for _, f := range []struct {
		name string
		from *int64
		to   *int32
	}{{"input_tokens", input, &t.Input}, {"output_tokens", r.OutputTokens, &t.Output}, {"cached_tokens", r.CachedTokens, &t.Cached}} {
		if f.from == nil {
			continue
		}
		if *f.from < 0 || *f.from > maxTokens {
			return fmt.Errorf("%s is %d: not a count of tokens", f.name, *f.from)
		}
		*f.to = int32(*f.from)
	}
	t.Cached = min(t.Cached, t.Input)
	return nil
}

// checkHashes checks the turn's chain and tells which hashes its output has.
func (p *rowParser) checkHashes(t *Turn, rec *Record) error {
	r := rec.Request.Replay
	if r == nil || len(r.Hashes) == 0 {
		return nil
	}
	if r.BlockSize <= 0 || r.BlockSize > maxTokens {
		return fmt.Errorf("trace_block_size is %d: want a positive number of tokens", r.BlockSize)
	}
	size := int32(r.BlockSize)
	if p.hashed == nil {
		p.hashed, p.BlockSize = t, int(size)
	}
	if int(size) != p.BlockSize {
		return mixedBlockSizes(t, int(size), p.hashed, p.BlockSize).(*InputError).Err
	}
	if err := CheckHashCount(int(t.Shared)+len(t.Hashes), t.Input, size); err != nil {
		return err
	}
	if full := int(t.Input / size); len(p.completion) == blocks(t.Input+t.Output, size) {
		t.OutputHashes = slices.Clone(p.completion[full:])
	}
	return nil
}

// CheckHashCount tells whether n hashes can stand for input tokens in blocks of size: one per block, with or without
// one for a partial block at the end. Anything else means that the hashes belong to another prompt.
func CheckHashCount(n int, input, size int32) error {
	if n != blocks(input, size) && n != int(input/size) {
		return fmt.Errorf("%d hashes for %d tokens in blocks of %d: want %d, or %d without a partial last block",
			n, input, size, blocks(input, size), input/size)
	}
	return nil
}

func blocks(tokens, size int32) int { return int((int64(tokens) + int64(size) - 1) / int64(size)) }
