package replay

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/replay/prompts"
	"github.com/agentsim/agentsim/trace"
)

// Calibration is which words a server takes for single tokens, and what it adds to a prompt of its own.
type Calibration struct {
	Words []string
	Scale prompts.Scale
	// Exact tells that each word is one token. Else lengths are right on average only.
	Exact bool
	// Questions is how often the server was asked.
	Questions int
}

const (
	// enoughWords are so many that blocks of eight tokens are equal by chance once in 2^48.
	enoughWords = 64
	// maxQuestions bounds how long words are searched for.
	maxQuestions = 200
	// fewWords are not worth halving.
	fewWords = 3
)

// ErrNoCount tells that a server counts tokens nowhere.
var ErrNoCount = errors.New("the server tells token counts neither at /tokenize nor as usage")

// Calibrate finds words that a server takes for single tokens: by /tokenize, or else by the usage of requests for one
// token.
func Calibrate(ctx context.Context, c *client.Client, server int, model string) (*Calibration, error) {
	cal := calibrator{ctx: ctx, client: c, server: server, model: model}
	all := prompts.List()
	if err := cal.sift(all); err != nil {
		return nil, fmt.Errorf("calibrating words with %s: %w", c.Base(server), err)
	}
	result := &Calibration{Words: cal.good, Scale: prompts.Scale{PerWord: 1}, Exact: true}
	if len(cal.good) < enoughWords {
		tokens, err := cal.tokens(all)
		if err != nil {
			return nil, fmt.Errorf("calibrating words with %s: %w", c.Base(server), err)
		}
		result.Words, result.Exact, result.Scale.PerWord = all, false, float64(tokens)/float64(len(all))
	}
	if err := cal.template(result); err != nil {
		return nil, fmt.Errorf("calibrating words with %s: %w", c.Base(server), err)
	}
	result.Questions = cal.questions
	return result, nil
}

// template finds what the server adds to a prompt, and to each message of a chat: from chats of two and of four messages. A
// template that takes no system prompt leaves all of a chat to one message of the user.
func (c *calibrator) template(result *Calibration) error {
	words := text(result.Words)
	all := int(math.Round(result.Scale.PerWord * float64(len(result.Words))))
	if c.client.Chat() {
		two, err := c.count(words, words)
		if err == nil {
			four, err := c.count(words, words, words, words)
			if per := (four - two - 2*all) / 2; err == nil && per > 0 {
				result.Scale.PerMessage, result.Scale.Overhead = per, max(0, two-2*all-2*per)
				return nil
			}
		}
		if c.ctx.Err() != nil {
			return c.ctx.Err()
		}
	}
	one, err := c.count(words)
	result.Scale.Overhead = max(0, one-all)
	return err
}

// calibrator asks one server for token counts.
type calibrator struct {
	ctx       context.Context
	client    *client.Client
	server    int
	model     string
	noCount   bool // it has no /tokenize
	good      []string
	questions int
}

// sift keeps the words that are one token each. Sets that are not are halved, and dropped when few are left.
func (c *calibrator) sift(words []string) error {
	if c.questions >= maxQuestions || len(words) == 0 {
		return nil
	}
	tokens, err := c.tokens(words)
	switch {
	case err != nil:
		return err
	case tokens == len(words):
		c.good = append(c.good, words...)
		return nil
	case tokens <= 0:
		return fmt.Errorf("%d words have %d tokens", len(words), tokens)
	case len(words) <= fewWords || tokens > len(words)*11/10 && len(words) > len(c.good)+enoughWords:
		return nil // too few, or a vocabulary without whole words
	}
	half := len(words) / 2
	if err := c.sift(words[:half]); err != nil {
		return err
	}
	return c.sift(words[half:])
}

// tokens is how many tokens words have, whatever the server adds to a prompt: twice the words less once the words.
func (c *calibrator) tokens(words []string) (int, error) {
	once, err := c.count(text(words))
	if err != nil {
		return 0, err
	}
	twice, err := c.count(text(words) + text(words))
	return twice - once, err
}

// text is words as they stand in a prompt.
func text(words []string) string { return " " + strings.Join(words, " ") }

// count asks for the tokens of a prompt, or of a chat of several texts.
func (c *calibrator) count(texts ...string) (int, error) {
	c.questions++
	if !c.noCount {
		n, err := c.client.CountTokens(c.ctx, c.server, c.model, texts...)
		if !errors.Is(err, client.ErrNotFound) {
			return n, err
		}
		c.noCount = true
	}
	p := prompts.Text(texts[0])
	if c.client.Chat() {
		p = prompts.Chat(texts...)
	}
	a := c.client.Do(c.ctx, &client.Request{Server: c.server, Model: c.model, Prompt: p, MaxTokens: 1})
	switch {
	case a.Err != nil:
		return 0, a.Err
	case a.Prompt == trace.Unknown:
		return 0, ErrNoCount
	}
	return int(a.Prompt), nil
}

// probeTokens is the length of the prompts of a warm-up.
const probeTokens = 64

// WarmUp sends requests to every server, one after the other, before anything is measured: the first wave on a cold engine
// takes many times as long. It returns the last answer. Prompts share nothing with those of the replay. Errors say that a
// server does not answer.
func WarmUp(ctx context.Context, c *client.Client, m *prompts.Maker, model string, requests int) (*client.Answer, error) {
	var last *client.Answer
	for server := range c.Servers() {
		for i := range requests {
			p := m.Probe(uint64(server)<<32|uint64(i), probeTokens)
			last = c.Do(ctx, &client.Request{Server: server, Model: model, Prompt: p, MaxTokens: 4})
			if last.Err != nil {
				return nil, fmt.Errorf("warming up %s: %w", c.Base(server), last.Err)
			}
			if off := int(last.Prompt) - probeTokens; last.Prompt != trace.Unknown && m.IDs() && off != 0 {
				return nil, fmt.Errorf("warming up %s: it counts %d tokens in a prompt of %d token ids, so it does not take them as they are: try --prompts text",
					c.Base(server), last.Prompt, probeTokens)
			}
		}
	}
	return last, nil
}
