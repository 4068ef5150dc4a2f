package recorder

import (
	"sync"

	"github.com/zeebo/xxh3"

	"github.com/agentsim/agentsim/trace/hash"
	"github.com/agentsim/agentsim/trace/hash/tokenizer"
	"github.com/agentsim/agentsim/trace/wire"
)

// maxModels bounds the models that have an estimator of their own; the names come from clients.
const maxModels = 256

// blocks identifies the KV blocks of prompts and answers.
type blocks struct {
	size      int
	key       *hash.Key            // nil: as Dynamo does
	tokenizer *tokenizer.Tokenizer // nil without one
	asker     *asker               // nil where the upstream is not to be asked

	mu         sync.Mutex
	estimators map[string]*hash.Estimator
}

func newBlocks(o *Options, a *asker) *blocks {
	return &blocks{size: o.BlockSize, key: o.Key, tokenizer: o.Tokenizer, asker: a, estimators: map[string]*hash.Estimator{}}
}

// identified are the hashes of a prompt, and of the prompt with its answer: nil where that is not known.
type identified struct {
	input    int // tokens of the prompt
	prompt   []uint64
	answered []uint64
	// private tells that the prompt, or what is new of it, is not known: then its blocks are those of no other.
	private bool
}

// of identifies the blocks of an exchange. Input and output are what the server counted, 0 where it did not. The best that is
// known of the prompt's tokens counts: ids that went over the wire, those of a tokenizer, those that the upstream tells, else
// an estimate.
func (b *blocks) of(e *exchange, c *wire.Conversation, s *place, input, output int) identified {
	if c.Answers > 1 {
		output = 0 // of several answers, each with blocks of its own
	}
	var found identified
	if prompt, answer := b.tokens(e, c, s); len(prompt) > 0 {
		found = b.exact(e, prompt, answer, input, output)
	} else if s != nil && c.Previous != "" && input > 0 {
		found = b.goOn(e, c, s, input, output)
	} else if s == nil || c.Previous != "" || c.Preamble == "" && len(c.Items) == 0 {
		found = b.unknown(e, input)
	} else {
		found = b.estimate(e, c, s, input, output)
	}
	if s != nil && e.dialect == wire.Responses {
		<-s.after
		s.end(e.answer.id, found, input, output)
	}
	if b.key != nil {
		b.key.Apply(found.prompt)
		b.key.Apply(found.answered)
	}
	return found
}

// tokens are those of prompt and answer; nil where they are not known.
func (b *blocks) tokens(e *exchange, c *wire.Conversation, s *place) (prompt, answer []uint32) {
	switch {
	case c.Tokens != nil:
		prompt, answer = c.Tokens, e.answer.output
	case len(e.answer.prompt) > 0:
		prompt, answer = e.answer.prompt, e.answer.output
	case s == nil || c.Previous != "":
	case b.tokenizer != nil:
		text, length := c.Prompt(e.answer.item())
		prompt = b.tokenizer.Encode(text[:length])
		answer = b.tokenizer.Encode(text[length:])
	case b.asker != nil:
		prompt, answer = b.asker.ask(e, e.answer.item())
	}
	return prompt, answer
}

// exact hashes token ids. Where the server counted otherwise, as its chat template has tokens that are not known here, its
// count decides: what is too much is cut off at the end, and what lacks there is of this request alone.
func (b *blocks) exact(e *exchange, prompt, answer []uint32, input, output int) identified {
	if input == 0 {
		input = len(prompt)
	}
	found := identified{input: input, prompt: hash.Blocks(fit(e, prompt, input), b.size)}
	if output > 0 && len(answer) > 0 && !e.answer.cut {
		all := append(prompt[:len(prompt):len(prompt)], answer...)
		found.answered = hash.Blocks(fit(e, all, input+output), b.size)
	}
	return found
}

// fit makes a list of tokens n long.
func fit(e *exchange, tokens []uint32, n int) []uint32 {
	if len(tokens) >= n {
		return tokens[:n]
	}
	tokens = append(make([]uint32, 0, n), tokens...)
	own := uint32(xxh3.HashString(e.id))
	for len(tokens) < n {
		tokens = append(tokens, own)
	}
	return tokens
}

// estimate hashes the text of a conversation, cut as hash.Estimator does.
func (b *blocks) estimate(e *exchange, c *wire.Conversation, s *place, input, output int) identified {
	text, length := c.Prompt(e.answer.item())
	<-s.after
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.prompt(b.estimator(c.Model))
	found := identified{input: input, prompt: p.Blocks(text[:length], input)}
	if len(found.prompt) == 0 {
		return b.unknown(e, input)
	}
	if input == 0 {
		found.input = len(found.prompt) * b.size // a little too many
	}
	if input > 0 && output > 0 && !e.answer.cut {
		found.answered = p.Blocks(text, input+output)
	}
	return found
}

// goOn identifies the blocks of a prompt whose beginning the server keeps: those that the response before it filled, where that
// is the session's latest, and behind them blocks of its own.
func (b *blocks) goOn(e *exchange, c *wire.Conversation, s *place, input, output int) identified {
	<-s.after
	s.mu.Lock()
	defer s.mu.Unlock()
	var before []uint64
	if r := &s.response; r.key == responseKey(c.Previous) && r.tokens <= input {
		before = r.blocks[:min(r.tokens/b.size, len(r.blocks))]
	}
	found := identified{input: input, prompt: b.lengthen(before, e.id, input), private: true}
	if output > 0 && len(found.prompt) > 0 {
		found.answered = b.lengthen(found.prompt[:input/b.size], e.id+" answered", input+output)
	}
	return found
}

// lengthen returns the blocks of n tokens that begin with the given ones, and go on with those that only an id has.
func (b *blocks) lengthen(blocks []uint64, id string, n int) []uint64 {
	own := b.estimator("").Prompt().Blocks(id, n)
	copy(own, blocks)
	return own
}

// bytesPerToken is that of an unknown text.
const bytesPerToken = 4

// unknown makes up blocks that are shared with nothing, as many as the request needs.
func (b *blocks) unknown(e *exchange, input int) identified {
	if input == 0 {
		input = int(min(max(e.size/bytesPerToken, 1), maxTokens))
	}
	return identified{input: input, prompt: b.lengthen(nil, e.id, input), private: true}
}

func (b *blocks) estimator(model string) *hash.Estimator {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e := b.estimators[model]; e != nil {
		return e
	}
	if len(b.estimators) == maxModels {
		model = ""
		if e := b.estimators[model]; e != nil {
			return e
		}
	}
	e := hash.NewEstimator(b.size)
	b.estimators[model] = e
	return e
}
