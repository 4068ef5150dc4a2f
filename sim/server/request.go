package server

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/hash"
	"github.com/agentsim/agentsim/trace/wire"
)

// job is a request that was read and found good.
type job struct {
	wire.Answer
	body   *wire.Request
	prompt []uint32
	output output
	stream *stream
	behaviour
}

// badRequest is vLLM's error for a request that cannot be served.
func badRequest(format string, args ...any) *wire.Error {
	return &wire.Error{Status: 400, Message: fmt.Sprintf(format, args...), Type: "BadRequestError", Code: "400"}
}

// read reads a request and makes a job of it.
func (s *Server) read(r *http.Request, dialect wire.Dialect, arrived time.Duration, number int64, b behaviour) (*job, *wire.Error) {
	text, err := io.ReadAll(r.Body)
	if tooLarge := (*http.MaxBytesError)(nil); errors.As(err, &tooLarge) {
		return nil, &wire.Error{Status: 413, Message: fmt.Sprintf("the request has more than %d bytes", tooLarge.Limit), Type: "RequestEntityTooLarge", Code: "413"}
	} else if err != nil {
		return nil, badRequest("reading the request: %v", err)
	}
	if b.refuse != "" && bytes.Contains(text, []byte(strconv.Quote(b.refuse))) {
		e := badRequest("Unsupported parameter: %s", b.refuse)
		e.Param = b.refuse
		return nil, e
	}
	q, err := wire.ParseRequest(text)
	if err != nil {
		return nil, badRequest("%v", err)
	}
	if e := s.check(q); e != nil {
		return nil, e
	}
	j := &job{body: q, behaviour: b}
	j.Answer = wire.Answer{Dialect: dialect, ID: fmt.Sprintf("cmpl-%016x", hash.Combine(s.plan.Seed, uint64(number))), Model: cmp.Or(q.Model, s.options.Names[0]),
		Created: s.created + int64(arrived.Seconds()), Stream: q.Stream && !b.plain}
	switch dialect {
	case wire.Chat:
		j.ID = "chat" + j.ID
	case wire.Messages:
		j.ID = "msg_" + strings.TrimPrefix(j.ID, "cmpl-")
	}
	j.output.bare = dialect != wire.Completions
	var e *wire.Error
	if j.prompt, e = promptOf(q, dialect); e != nil {
		return nil, e
	}
	if b.truncate >= 0 && b.truncate < len(j.prompt) {
		j.prompt = j.prompt[:max(1, b.truncate)]
	}
	j.output.forced = q.ForceTokens
	j.output.seed = hash.Combine(s.plan.Seed, uint64(number))
	if q.Seed != nil { // then equal prompts have equal answers
		sums := hash.Blocks(j.prompt, len(j.prompt))
		j.output.seed = hash.Combine(sums[0], uint64(*q.Seed))
	}
	j.stream = &stream{arrived: arrived, wake: make(chan struct{}, 1)}
	if e := s.size(j); e != nil {
		return nil, e
	}
	s.identify(j, r.Header, number)
	j.hash(s.plan.Engine.BlockSize)
	return j, nil
}

// check refuses what the server does not do, rather than doing something else.
func (s *Server) check(q *wire.Request) *wire.Error {
	if q.Model != "" && !slices.Contains(s.options.Names, q.Model) {
		return &wire.Error{Status: 404, Message: fmt.Sprintf("The model `%s` does not exist.", q.Model), Type: "NotFoundError", Param: "model", Code: "404"}
	}
	switch {
	case q.N != nil && *q.N != 1, q.BestOf != nil && *q.BestOf != 1:
		return badRequest("n and best_of other than 1 are not simulated")
	case q.Echo:
		return badRequest("echo is not simulated")
	}
	return nil
}

// promptOf returns the tokens of the prompt.
func promptOf(q *wire.Request, dialect wire.Dialect) ([]uint32, *wire.Error) {
	switch {
	case dialect != wire.Completions && len(q.Messages) == 0:
		return nil, badRequest("messages: want at least one")
	case dialect == wire.Messages:
		return appendMessages(nil, q)
	case dialect == wire.Chat:
		return appendChat(nil, q), nil
	}
	p := q.Prompt
	if p != nil && len(p.Batch) == 1 {
		p = &p.Batch[0]
	}
	switch {
	case p == nil:
		return nil, badRequest("Either prompt or prompt_embeds must be provided")
	case p.Batch != nil:
		return nil, badRequest("%d prompts in one request: send each in a request of its own", len(p.Batch))
	case p.Tokens != nil:
		if len(p.Tokens) == 0 {
			return nil, badRequest("The decoder prompt cannot be empty")
		}
		return p.Tokens, nil
	case p.Text == "":
		return nil, badRequest("The decoder prompt cannot be empty")
	}
	return appendTokens(nil, p.Text), nil
}

// defaultMaxTokens is OpenAI's default of max_tokens for completions; a chat may fill the context.
const defaultMaxTokens = 16

// size settles how many tokens the request has and generates, in vLLM's words where it is too long.
func (s *Server) size(j *job) *wire.Error {
	most, input := int64(s.plan.MaxModelLen), int64(len(j.prompt))
	if input >= most {
		return badRequest("This model's maximum context length is %d tokens. However, your request has %d input tokens. Please reduce the length of the input messages.", most, input)
	}
	limit, given := j.body.Limit()
	switch {
	case !given && j.Dialect == wire.Messages:
		return badRequest("max_tokens: field required")
	case given && limit < 1:
		return badRequest("max_tokens must be at least 1, got %d.", limit)
	case given && limit > most-input:
		return badRequest("'max_tokens' or 'max_completion_tokens' is too large: %d. This model's maximum context length is %d tokens and your request has %d input tokens (%d > %d - %d).",
			limit, most, input, limit, most, input)
	case !given && len(j.output.forced) > 0:
		limit = min(int64(len(j.output.forced)), most-input)
	case !given && j.Dialect == wire.Completions:
		limit = min(defaultMaxTokens, most-input)
	case !given:
		limit = most - input
	}
	least := int64(0)
	if j.body.MinTokens != nil {
		least = *j.body.MinTokens
	}
	if least < 0 || least > limit {
		return badRequest("min_tokens must be less than or equal to max_tokens=%d, got %d.", limit, least)
	}
	n := limit
	if !j.body.IgnoreEOS && len(j.output.forced) == 0 {
		n = max(1, least, min(limit, j.output.length(s.options.OutputTokens)))
	}
	j.stream.limited = n == limit
	stops, e := stopsOf(j.body)
	if e != nil {
		return e
	}
	if len(stops) > 0 {
		n = int64(j.output.stopAt(stops, int(least), int(n)))
		j.stream.limited = j.stream.limited && j.output.stop == ""
	}
	if j.behaviour.output >= 0 {
		n = min(int64(j.behaviour.output), most-input)
	}
	q := &j.stream.request
	q.Input, q.Output, q.MaxOutput, q.Seed = int32(input), int32(n), int32(limit), j.output.seed
	if p := s.plan; !s.fits(q.Input, q.Output) {
		return badRequest("The request needs %d tokens of KV cache, which holds %d. Please reduce its length.", input+n, p.Blocks*p.Engine.BlockSize)
	}
	return nil
}

// length draws how long the answer is that ends by itself: exponential with the given mean.
func (o *output) length(mean int) int64 {
	u := (float64(hash.Combine(o.seed, 1)>>11) + 0.5) / (1 << 53)
	return 1 + int64(-math.Log(u)*float64(mean-1))
}

// identify notes whose request it is, and what its hints are.
func (s *Server) identify(j *job, h http.Header, number int64) {
	q := &j.stream.request
	session := wire.SessionOf(h)
	q.Session = hash.Combine(uint64(number), 0) // of its own
	if session.ID != "" {
		q.Named, q.Final = true, session.Final
		q.Session = xxh3.HashString(session.ID)
	}
	q.Parent = q.Session
	if session.Parent != "" {
		q.Parent = xxh3.HashString(session.Parent)
	}
	if p := j.body.Priority; p != nil { // vLLM's, the lowest first
		q.Hints.Priority = int32(-min(max(*p, -math.MaxInt32), math.MaxInt32))
	}
	if x := j.body.Nvext; x != nil && x.AgentHints != nil {
		a := x.AgentHints
		q.Hints = trace.Hints{Priority: a.Priority, StrictPriority: a.StrictPriority, OSL: int32(min(a.OSL, math.MaxInt32)),
			SpeculativePrefill: a.SpeculativePrefill}
	}
	if n, err := strconv.ParseInt(h.Get("X-Dynamo-Request-Priority"), 10, 32); err == nil {
		q.Hints.Priority = int32(n)
	}
	if n, err := strconv.ParseUint(h.Get("X-Dynamo-Request-Strict-Priority"), 10, 32); err == nil {
		q.Hints.StrictPriority = uint32(n)
	}
}

// hash tells the blocks of prompt and answer. The last token of the answer is never computed.
func (j *job) hash(blockSize int) {
	all := slices.Grow(slices.Clone(j.prompt), int(j.stream.request.Output))
	for k := range int(j.stream.request.Output) - 1 {
		all = append(all, j.output.id(k))
	}
	blocks := hash.Blocks(all, blockSize)[:len(all)/blockSize]
	salt := j.body.CacheSalt
	if x := j.body.Nvext; salt == "" && x != nil {
		salt = x.CacheSalt
	}
	if salt != "" {
		for i := range blocks {
			blocks[i] = hash.Combine(xxh3.HashString(salt), blocks[i])
		}
	}
	j.stream.blocks = blocks
}

// reason is why the answer ends.
func (st *stream) reason() string {
	if st.limited {
		return "length"
	}
	return "stop"
}

// faults are those that a request asks for.
func faults(h http.Header) ([]Fault, *wire.Error) {
	list, err := ParseFaults(strings.Join(h.Values(HeaderFault), ";"))
	if err != nil {
		return nil, badRequest("%s: %v", HeaderFault, err)
	}
	return list, nil
}
