package models

import "testing"

// TestEffectsOfSettings: what a setting does to the room for KV and to a step of 32 decodes at 8,000 tokens, on two H100s
// with qwen3-30b-a3b in bf16, tensor parallelism 2. Ratios are to that.
func TestEffectsOfSettings(t *testing.T) {
	base := Deployment{Model: lookup(t, "qwen3-30b-a3b"), GPU: gpu(t, "h100-sxm"), Parallelism: Parallelism{Tensor: 2}}
	type effect struct {
		weights, kv     [2]float64 // bytes per GPU, bytes per token and GPU: least and most
		tokens          [2]float64 // room of a rank
		products, reads [2]float64 // time of products and experts; of decode attention
		links           [2]float64
	}
	same, any := [2]float64{1, 1}, [2]float64{0, 100}
	for _, test := range []struct {
		name   string
		change func(*Deployment)
		want   effect
	}{
		// The same bytes for two tokens instead of one; reading them takes half as long, but for floors.
		{"FP8 KV", func(d *Deployment) { d.KV = FP8 }, effect{same, [2]float64{0.5, 0.5}, [2]float64{1.99, 2.01}, same, [2]float64{0.4, 0.9}, same}},
		// Embeddings and router stay bf16: a little more than half.
		{"FP8 weights", func(d *Deployment) { d.Weights = FP8 }, effect{[2]float64{0.5, 0.52}, same, [2]float64{1.2, 1.6}, [2]float64{0.4, 0.8}, same, same}},
		{"MXFP4 weights", func(d *Deployment) { d.Weights = MXFP4 }, effect{[2]float64{0.26, 0.3}, same, [2]float64{1.3, 1.8}, [2]float64{0.3, 0.7}, same, same}},
		// Whole experts instead of halves: the same weights, another grouping.
		{"expert parallel", func(d *Deployment) { d.Parallelism.Expert = 2 }, effect{same, same, [2]float64{0.8, 1}, [2]float64{0.8, 1.2}, same, same}},
		// Each rank has all of attention, and half of the experts. A GPU keeps all KV heads of its own requests.
		{"attention data parallel", func(d *Deployment) { d.Parallelism = Parallelism{Tensor: 1, Data: 2, Expert: 2} },
			effect{[2]float64{1.01, 1.1}, [2]float64{2, 2}, [2]float64{0.4, 0.55}, any, [2]float64{1.5, 2}, any}},
		{"EAGLE", func(d *Deployment) { d.Speculative = Speculative{Method: DraftEAGLE, Tokens: 3} },
			effect{[2]float64{1.001, 1.01}, [2]float64{49. / 48, 49. / 48}, [2]float64{0.95, 0.999}, same, [2]float64{1.01, 1.1}, same}},
	} {
		t.Run(test.name, func(t *testing.T) {
			d := base
			test.change(&d)
			now, then := effectsOf(t, d), effectsOf(t, base)
			for i, want := range [...][2]float64{test.want.weights, test.want.kv, test.want.tokens, test.want.products, test.want.reads, test.want.links} {
				if ratio := now[i] / then[i]; ratio < want[0]*0.9999 || ratio > want[1]*1.0001 {
					t.Errorf("%s %.4f times as large, want %v", [...]string{"weights are", "KV of a token is", "room is", "products are", "attention is", "communication is"}[i], ratio, want)
				}
			}
		})
	}
}

// effectsOf measures a deployment in the order of TestEffectsOfSettings.
func effectsOf(t *testing.T, d Deployment) [6]float64 {
	t.Helper()
	capacity, err := d.Capacity()
	if err != nil {
		t.Fatal(err)
	}
	c, b := cost(t, d, "physical"), Batch{Decodes: 32}
	return [6]float64{float64(d.WeightBytesPerGPU()), float64(capacity.KVBytesPerToken), float64(capacity.Tokens),
		term(c, TermProducts, b, 0) + term(c, TermExperts, b, 0), term(c, TermDecode, b, 32*8000), term(c, TermLinks, b, 0)}
}

// TestLatentNeedsDataParallel: every tensor rank has the whole latent of MLA, so that only data parallelism makes room. On
// eight H200s deepseek-v3 in fp8 has a rank with all GPUs, or eight, each with as many KV bytes per token.
func TestLatentNeedsDataParallel(t *testing.T) {
	d := Deployment{Model: lookup(t, "deepseek-v3"), GPU: gpu(t, "h200-sxm"), Parallelism: Parallelism{Tensor: 8}}
	tensor, err := d.Capacity()
	if err != nil {
		t.Fatal(err)
	}
	d.Parallelism = Parallelism{Tensor: 1, Data: 8, Expert: 8}
	data, err := d.Capacity()
	if err != nil {
		t.Fatal(err)
	}
	if tensor.KVBytesPerToken != data.KVBytesPerToken {
		t.Errorf("a token has %d bytes on a tensor rank, %d on a data rank", tensor.KVBytesPerToken, data.KVBytesPerToken)
	}
	if ratio := float64(8*data.Tokens) / float64(tensor.Tokens); ratio < 4 || ratio > 8 { // less for eight copies of attention
		t.Errorf("eight ranks have room for %.2f times the tokens of one", ratio)
	}
}
