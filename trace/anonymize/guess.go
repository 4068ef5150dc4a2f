package anonymize

import "github.com/agentsim/agentsim/trace/hash"

// likelyPrompts are beginnings of prompts that somebody would try first.
var likelyPrompts = []string{
	"hi", "Hi", "hello", "Hello", "Hello!", "test", "Test", "ping", "continue", "Continue", "go on", "yes", "ok", "thanks",
	"You are a helpful assistant.", "You are a helpful assistant", "You are Claude Code, Anthropic's official CLI for Claude.",
	"You are a coding agent", "You are ChatGPT, a large language model trained by OpenAI.", "What is the capital of France?",
	"Write a hello world program.", "Say hello", "Who are you?", "Warmup", "1+1", "Tell me a joke", "Summarize", "Translate",
}

// oneToken is the number of token ids of which each alone is tried as a prompt, more than any vocabulary has.
const oneToken = 1 << 18

// guess tries likely prompts, hashed as anybody can without the key, on the hashes of the result: as one token, byte by
// byte, and as the estimate cuts a text for whose model there is no tokenizer.
func (v *verifier) guess() {
	try := func(hashes []uint64, what string) {
		v.proof.Guesses++
		for _, h := range hashes {
			if _, there := v.hashes.from[h]; there {
				v.proof.fail("block hash %d of the result is that of %s, hashed without a key", h, what)
			}
		}
	}
	if len(v.hashes.from) == 0 {
		return
	}
	for id := range uint32(oneToken) {
		try(hash.Blocks([]uint32{id}, 1), "a prompt of one token")
	}
	for _, size := range []int{1, 4, 16, 32, 64, 128, 256, 512} {
		for _, prompt := range likelyPrompts {
			tokens := make([]uint32, len(prompt))
			for i := range tokens {
				tokens[i] = uint32(prompt[i])
			}
			try(hash.Blocks(tokens, size), "the bytes of the prompt "+prompt)
			try(hash.NewEstimator(size).Prompt().Blocks(prompt, 0), "the text of the prompt "+prompt)
		}
	}
}
