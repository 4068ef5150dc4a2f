package convert

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/agentsim/agentsim/trace"
)

// A call is one LLM call of an agent's log.
type call struct {
	// Turn has an Input of 0 and an Output of trace.Unknown where the log does not tell. Start and End are told, from the
	// Unix epoch, or from anywhere if the logbook says so.
	trace.Turn
	// prompt is the last passage of the prompt; nil where the log has counts only.
	prompt *passage
	// tokens are the ids of all tokens of the prompt, where the log has them.
	tokens []uint32
	// written is the bytes of all that the model wrote, reasoning that is dropped from later prompts included.
	written int
}

// A passage is a piece of prompts, and all that comes before it. A format writes the same thing the same way in all of
// them, so that prompts which have a passage in common share it.
type passage struct {
	before, root *passage
	text         []byte
	// hidden tells of a root that it stands for a system prompt which is not in the log.
	hidden bool
	place  int // 1 + the place in a speller's stack
}

// then returns a passage behind p, which may be nil.
func (p *passage) then(text []byte) *passage {
	next := &passage{before: p, text: text}
	if next.root = next; p != nil {
		next.root = p.root
	}
	return next
}

// behind returns a passage behind p, the same one for the same text: so prompts that tell the same are found to share it.
func (b *logbook) behind(p *passage, text []byte) *passage {
	at := passageKey{p, xxh3.Hash128(text)}
	next := b.passages[at]
	if next == nil {
		next = p.then(text)
		b.passages[at] = next
	}
	return next
}

// passageKey is where a passage stands and a digest of its text.
type passageKey struct {
	before *passage
	text   xxh3.Uint128
}

// hiddenPrompt begins a prompt with a system prompt that is not in the log. Equal names stand for equal ones.
func hiddenPrompt(name string) *passage {
	p := (*passage)(nil).then([]byte("system\n" + name + "\n"))
	p.hidden = true
	return p
}

// newCall returns a call of which nothing is known yet.
func newCall(s *trace.Session) *call {
	return &call{Turn: trace.Turn{Session: s, Start: trace.NoTime, End: trace.NoTime, TTFT: trace.NoTime, Output: trace.Unknown,
		Cached: trace.Unknown, Reasoning: trace.Unknown}}
}

// setUsage sets the counts of a call. Values below 0 are not told.
func (c *call) setUsage(input, cached, output, reasoning int64) {
	count := func(n int64) int32 { return int32(max(min(n, maxTokens), trace.Unknown)) }
	c.Input, c.Cached, c.Output, c.Reasoning = max(count(input), 0), count(cached), count(output), count(reasoning)
}

// A logbook gathers what the logs of agents tell, in any order, and makes one capture of it whose bytes depend on what was
// told alone.
type logbook struct {
	format string
	// relative tells that times do not count from the Unix epoch.
	relative bool
	// resolution is that of the times.
	resolution time.Duration
	sessions   map[string]*trace.Session
	passages   map[passageKey]*passage // made by behind
	calls      []*call
	read       trace.ReadReport
}

func newLogbook(format string) *logbook {
	return &logbook{format: format, resolution: time.Millisecond, sessions: map[string]*trace.Session{},
		passages: map[passageKey]*passage{}}
}

// session returns the session of an id, made on first sight.
func (b *logbook) session(id string) *trace.Session {
	s := b.sessions[id]
	if s == nil {
		s = &trace.Session{ID: id}
		b.sessions[id] = s
	}
	return s
}

// bytesPerToken is what a token of text takes where a log does not count: the rule of thumb for English and code.
const bytesPerToken = 4

// capture fills what the log lacks and makes the capture, of which blocks hold blockSize tokens; 0 is estimateBlockSize.
func (b *logbook) capture(in input) (*trace.Capture, error) {
	byTime := func(c, d *call) int {
		return cmp.Or(cmp.Compare(c.Start, d.Start), cmp.Compare(c.End, d.End), strings.Compare(c.Session.ID, d.Session.ID), strings.Compare(c.ID, d.ID))
	}
	slices.SortStableFunc(b.calls, byTime)
	h := newHasher(cmp.Or(in.opts.BlockSize, estimateBlockSize))
	if err := h.hash(b.calls); err != nil {
		return nil, err
	}

	part := trace.Part{BlockSize: h.blockSize, Read: b.read}
	known := map[*trace.Session]bool{}
	for _, c := range b.calls {
		if !known[c.Session] {
			known[c.Session] = true
			part.Sessions = append(part.Sessions, c.Session)
		}
		part.Turns = append(part.Turns, &c.Turn)
	}
	for _, s := range part.Sessions {
		part.Read.Tools += len(s.Tools)
		slices.SortStableFunc(s.Tools, func(a, b trace.ToolSpan) int {
			return cmp.Or(cmp.Compare(a.Start, b.Start), strings.Compare(a.ID, b.ID))
		})
	}
	join := trace.NewJoiner(&trace.Capture{Format: b.format, Resolution: b.resolution, SharedClock: !b.relative})
	if err := join.Add(&part); err != nil {
		return nil, err
	}
	c, err := join.Capture()
	if err != nil {
		return nil, &trace.InputError{File: in.segments[0].Path, Err: err}
	}
	if zero := c.Rebase().Milliseconds(); !b.relative {
		c.Epoch = zero
	}
	return c, nil
}

// fillCounts gives a call the counts that its log does not tell, by the length of its text.
func (c *call) fillCounts(prompt string) {
	if c.Input == 0 {
		c.Input = int32(min(len(prompt)/bytesPerToken+1, maxTokens))
		c.Inferred |= trace.FieldInput
	}
	if c.Output == trace.Unknown {
		c.Output = int32(min((c.written+bytesPerToken-1)/bytesPerToken, maxTokens))
		c.Inferred |= trace.FieldOutput
	}
	c.Cached = min(c.Cached, c.Input)
	if c.Reasoning > c.Output {
		c.Reasoning = trace.Unknown
	}
}
