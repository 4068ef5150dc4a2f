package models

import (
	"strings"
	"testing"
)

// drafting returns qwen3-32b on two H100 with speculative decoding.
func drafting(t *testing.T, s Speculative) Deployment {
	return Deployment{Model: lookup(t, "qwen3-32b"), GPU: gpu(t, "h100-sxm"), Parallelism: Parallelism{Tensor: 2}, Speculative: s}
}

// term is the time of one term in µs.
func term(c *StepCost, name string, b Batch, context int64) float64 {
	for _, t := range c.Terms(b, context, 0) {
		if t.Name == name {
			return float64(t.Duration) / 1e3
		}
	}
	return 0
}

// TestDraftsByHand: what drafts add to weights and KV of qwen3-32b, 64 layers of width 5120 with 64 heads and 8 KV heads.
func TestDraftsByHand(t *testing.T) {
	plain := drafting(t, Speculative{})
	// One dense layer on one of two GPUs: queries and output 2·5120·32·128, keys and values 2·5120·4·128, FFN 3·5120·12,800,
	// and what joins two vectors, on each GPU, 2·5120².
	const layer = 2*5120*(32+4)*128 + 3*5120*12_800 + 2*5120*5120
	draft := lookup(t, "qwen3-8b") // 36 layers
	for _, test := range []struct {
		Speculative
		weights, kv int64 // more than without, per GPU
	}{
		{Speculative{Method: DraftNGram, Tokens: 3}, 0, 0},
		{Speculative{Method: DraftEAGLE, Tokens: 3}, 2 * layer, 2 * 4 * 128 * 2},
		{Speculative{Method: DraftMTP, Tokens: 3}, 2 * layer, 2 * 4 * 128 * 2},
		{Speculative{Method: DraftModel, Tokens: 3, Draft: draft},
			(&Deployment{Model: draft, GPU: plain.GPU, Parallelism: plain.Parallelism}).WeightBytesPerGPU(), 36 * 2 * 4 * 128 * 2},
	} {
		t.Run(string(test.Method), func(t *testing.T) {
			d := drafting(t, test.Speculative)
			if got := d.WeightBytesPerGPU() - plain.WeightBytesPerGPU(); got != test.weights {
				t.Errorf("%d bytes of weights more, want %d", got, test.weights)
			}
			with, err := d.Capacity()
			if err != nil {
				t.Fatal(err)
			}
			without, err := plain.Capacity()
			if err != nil {
				t.Fatal(err)
			}
			if got := with.KVBytesPerToken - without.KVBytesPerToken; got != test.kv {
				t.Errorf("%d bytes of KV per token more, want %d", got, test.kv)
			}
			if (with.Tokens < without.Tokens) != (test.weights > 0) {
				t.Errorf("room for %d tokens, without drafts %d", with.Tokens, without.Tokens)
			}
		})
	}
}

// TestDraftsPrice: 32 sequences verify 3 drafts each. The products see 128 rows, attention reads each context once, and the
// drafter runs three times: for 128 rows, then twice for 32.
func TestDraftsPrice(t *testing.T) {
	const context = 32 * 8000
	plain := cost(t, drafting(t, Speculative{}), "physical")
	verify := Batch{Decodes: 32, Drafts: 96}
	for _, method := range DraftMethods() {
		s := Speculative{Method: method, Tokens: 3}
		if method == DraftModel {
			s.Draft = lookup(t, "qwen3-8b")
		}
		d := drafting(t, s)
		c := cost(t, d, "physical")
		for _, name := range []string{TermProducts, TermHead, TermSmall, TermLinks} {
			if got, want := term(c, name, verify, 0), term(plain, name, Batch{Decodes: 128}, 0); got != want {
				t.Errorf("%s: %s takes %v µs, that of 128 decodes %v", method, name, got, want)
			}
		}
		drafts := 0.0
		attention := term(plain, TermDecode, verify, context)
		if of := d.drafter(); of != nil {
			drafter := cost(t, *of, "physical")
			us := func(b Batch) float64 { return float64(drafter.own(b, 32)) / FixedPerNs / 1e3 }
			drafts = us(verify) + 2*us(Batch{Decodes: 32})
			attention += 3 * (term(drafter, TermDecode, verify, context) - term(drafter, TermDecode, verify, 0))
		}
		if got := term(c, TermDrafts, verify, 0); got < drafts-0.01 || got > drafts+0.01 {
			t.Errorf("%s: drafts take %.3f µs, want %.3f", method, got, drafts)
		}
		if got := term(c, TermDecode, verify, context); got < attention*0.9999 || got > attention*1.0001 {
			t.Errorf("%s: attention takes %.3f µs, want %.3f", method, got, attention)
		}
	}
}

// TestManyRowsCompute: products bind attention instead of reading when enough rows share a read. With MLA each token has a
// row for every head.
func TestManyRowsCompute(t *testing.T) {
	d := Deployment{Model: lookup(t, "deepseek-v3"), GPU: gpu(t, "h200-sxm"), Parallelism: Parallelism{Tensor: 8}}
	one := cost(t, d, "physical").PerContext()
	d.Speculative = Speculative{Method: DraftNGram, Tokens: 31}
	if many := cost(t, d, "physical").PerContext(); many <= one {
		t.Errorf("32 tokens take %d per token of context, one %d", many, one)
	}
	d = drafting(t, Speculative{Method: DraftNGram, Tokens: 3}) // 8 heads of 4 rows share a KV head
	if with, without := cost(t, d, "physical").PerContext(), cost(t, drafting(t, Speculative{}), "physical").PerContext(); with != without {
		t.Errorf("4 tokens take %d per token of context, one %d", with, without)
	}
}

// TestSpeculativeRefused: what is not simulated says so, by key.
func TestSpeculativeRefused(t *testing.T) {
	for _, test := range []struct {
		Speculative
		pipeline int
		want     string
	}{
		{Speculative{Tokens: 3}, 1, "engine.speculative.method is not set"},
		{Speculative{Method: "medusa", Tokens: 3}, 1, `engine.speculative.method is "medusa", want one of [ngram eagle mtp draft_model]`},
		{Speculative{Method: DraftMTP}, 1, "engine.speculative.tokens is 0"},
		{Speculative{Method: DraftModel, Tokens: 3}, 1, "engine.speculative.draft_model is not set"},
		{Speculative{Method: DraftNGram, Tokens: 3, Draft: lookup(t, "qwen3-8b")}, 1, "engine.speculative.draft_model is set"},
		{Speculative{Method: DraftModel, Tokens: 3, Draft: lookup(t, "gpt-oss-20b")}, 1, "drafts by gpt-oss-20b with GQA + window are not simulated"},
		{Speculative{Method: DraftMTP, Tokens: 3}, 2, "parallelism.pipeline 2"},
	} {
		d := drafting(t, test.Speculative)
		d.Parallelism.Pipeline = test.pipeline
		if err := d.Validate(); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: error %v, want %q", test.Speculative, err, test.want)
		}
	}
}
