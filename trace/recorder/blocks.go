package recorder

import (
	"sync"

	"github.com/agentsim/agentsim/trace/hash"
	"github.com/agentsim/agentsim/trace/wire"
)

// maxModels bounds the models that have an estimator of their own; the names come from clients.
const maxModels = 256

// blocks identifies the KV blocks of prompts and answers.
type blocks struct {
	size int
	key  *hash.Key // nil: as Dynamo does

	mu         sync.Mutex
	estimators map[string]*hash.Estimator
}

func newBlocks(o *Options) *blocks {
	return &blocks{size: o.BlockSize, key: o.Key, estimators: map[string]*hash.Estimator{}}
}

// identified are the hashes of a prompt, and of the prompt with its answer: nil where that is not known.
type identified struct {
	input    int // tokens of the prompt
	prompt   []uint64
	answered []uint64
	// private tells that the prompt is not known: then its blocks are those of no other.
	private bool
}

// of identifies the blocks of an exchange. Input and output are what the server counted, 0 where it did not.
func (b *blocks) of(e *exchange, c *wire.Conversation, s *session, input, output int) identified {
	var found identified
	if ids := promptIDs(e, c); len(ids) > 0 {
		found = b.exact(e, ids, input, output)
	} else if s == nil || c.Preamble == "" && len(c.Items) == 0 {
		found = b.unknown(e, input)
	} else {
		found = b.estimate(e, c, s, input, output)
	}
	if b.key != nil {
		b.key.Apply(found.prompt)
		b.key.Apply(found.answered)
	}
	return found
}

// promptIDs are the tokens of the prompt where they went over the wire.
func promptIDs(e *exchange, c *wire.Conversation) []uint32 {
	if c.Tokens != nil {
		return c.Tokens
	}
	return e.answer.prompt
}

// exact hashes token ids.
func (b *blocks) exact(e *exchange, ids []uint32, input, output int) identified {
	found := identified{input: len(ids), prompt: hash.Blocks(ids, b.size)}
	if output > 0 && len(e.answer.output) == output {
		found.answered = hash.Blocks(append(ids[:len(ids):len(ids)], e.answer.output...), b.size)
	}
	return found
}

// estimate hashes the text of a conversation, cut as hash.Estimator does.
func (b *blocks) estimate(e *exchange, c *wire.Conversation, s *session, input, output int) identified {
	text, length := c.Prompt(e.answer.item())
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
	if input > 0 && output > 0 && !e.answer.cut && c.Answers == 1 {
		found.answered = p.Blocks(text, input+output)
	}
	return found
}

// bytesPerToken is that of an unknown text.
const bytesPerToken = 4

// unknown makes up blocks that are shared with nothing, as many as the request needs.
func (b *blocks) unknown(e *exchange, input int) identified {
	if input == 0 {
		input = int(min(max(e.size/bytesPerToken, 1), 1<<24))
	}
	return identified{input: input, prompt: b.estimator("").Prompt().Blocks(e.id, input), private: true}
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
