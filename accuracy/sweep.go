package accuracy

import (
	"fmt"
	"strings"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/synth"
)

// trend is why batch sweeps stand apart.
const trend = "engines of 2023 and 2024: the trend counts, not the level"

// batch is a number of equal requests that a server gets at once: a static batch, whose prompts are computed in one step.
type batch struct {
	source, model, gpu          string
	tensor, size, input, output int
	measured                    Figures
	rows                        int
}

// newCase makes a case of a batch on vLLM before asynchronous scheduling. Figures are summed over rows.
func (b *batch) newCase() *Case {
	for m := range b.measured {
		b.measured[m] /= float64(b.rows)
	}
	c := &Case{
		Source: b.source,
		Name:   fmt.Sprintf("%s tp%d %d/%d b%d", b.model, b.tensor, b.input, b.output, b.size),
		Parts:  []Part{{Name: whole, Measured: b.measured}},
		Apart:  trend,
	}
	model, weights, err := models.LookupCheckpoint(b.model)
	if err != nil {
		c.Skip = skipModel
		return c
	}
	d := sim.Default()
	d.Model, d.DType.Weights, d.GPU, d.Parallelism.Tensor = model.Name, string(weights), b.gpu, b.tensor
	d.Engine.Version = "0.5"
	d.Engine.MaxNumSeqs = b.size
	d.Engine.MaxNumBatchedTokens = max(8192, b.size*b.input)
	d.Engine.MaxModelLen = b.input + b.output // may be longer than the model was made for
	d.Engine.PrefixCaching = false
	d.Load.Mode, d.Load.Concurrency = "concurrency", b.size
	d.Client.Timeout = 0
	c.Deployment = d
	c.capture = func() (*trace.Capture, error) {
		return synth.Generate("plain", synth.Options{Programs: b.size, Seed: 1,
			Set: []string{fmt.Sprintf("input=%d", b.input), fmt.Sprintf("output=%d", b.output), "rate=0"}})
	}
	if _, err := c.Plan(); err != nil {
		c.Skip = skipLayout
	}
	return c
}

// TokenSweep reads Splitwise's table of Llama-2-70B by prompt, batch and output size (Mutinifni/splitwise-sim,
// data/perf_model.csv): the time of the prompts and that of a token, without a server around. Its whole times are of answers
// that ended early, and not read. Repetitions are averaged.
func TokenSweep(path string) ([]*Case, error) {
	columns := []string{"model", "hardware", "tensor_parallel", "prompt_size", "batch_size", "token_size", "prompt_time", "token_time"}
	return readBatches(path, columns, func(r *row) (*batch, error) {
		b := &batch{source: "Splitwise", model: strings.Replace(r.text("model"), "llama2-", "llama-2-", 1), gpu: sweepGPU(r.text("hardware"))}
		return b, r.fill([]field{
			{"tensor_parallel", &b.tensor, 1, 64}, {"prompt_size", &b.input, 1, 1 << 20}, {"batch_size", &b.size, 1, 1 << 10},
			{"token_size", &b.output, 1, 1 << 20}, {"prompt_time", &b.measured[TTFT], 0, maxLatencyMs},
			{"token_time", &b.measured[TPOT], 0, maxLatencyMs}})
	})
}

// LatencySweep reads the latencies of whole batches on vLLM that Argonne published (argonne-lcf/LLM-Inference-Bench,
// Plots/All_results.csv), with as many output as input tokens.
func LatencySweep(path string) ([]*Case, error) {
	columns := []string{"Hardware", "Num of Hardware", "Framework", "Model", "Input Output Length", "Batch Size", "Latency"}
	return readBatches(path, columns, func(r *row) (*batch, error) {
		b := &batch{source: "Argonne", model: r.text("Model"), gpu: sweepGPU(r.text("Hardware"))}
		err := r.fill([]field{{"Num of Hardware", &b.tensor, 1, 64}, {"Input Output Length", &b.input, 1, 1 << 20},
			{"Batch Size", &b.size, 1, 1 << 10}, {"Latency", &b.measured[E2E], 0, maxLatencyMs / 1000}})
		b.output = b.input
		b.measured[E2E] *= 1e3 // from seconds
		return b, err
	})
}

// sweepGPU is the catalogue's name of what a table calls "h100-80gb" or "Nvidia H100 GPU".
func sweepGPU(hardware string) string {
	for _, name := range models.GPUs() {
		if kind, _, _ := strings.Cut(name, "-"); strings.Contains(strings.ToLower(hardware), kind) {
			return name
		}
	}
	return hardware
}

// readBatches makes a case of each batch, of the mean of rows that repeat it, in the order of the file.
func readBatches(path string, columns []string, read func(*row) (*batch, error)) ([]*Case, error) {
	var order []*batch
	byKey := map[string]*batch{}
	err := readRows(path, columns, func(r *row) error {
		b, err := read(r)
		if err != nil {
			return err
		}
		key := fmt.Sprint(b.model, b.tensor, b.size, b.input, b.output)
		first, ok := byKey[key]
		if !ok {
			b.model, b.rows = strings.Clone(b.model), 1
			byKey[key] = b
			order = append(order, b)
			return nil
		}
		first.rows++
		for m, v := range b.measured {
			first.measured[m] += v
		}
		return nil
	})
	cases := make([]*Case, len(order))
	for i, b := range order {
		cases[i] = b.newCase()
	}
	return cases, err
}
