package accuracy

import (
	"context"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// RequestRun is one server whose requests were all recorded: the scheduler alone is under test, since the time of a
// step is interpolated in kernel tables of the same GPU.
type RequestRun struct {
	*Case
	// Truth is what became of each request, in the order of the file.
	Truth []report.Request
	// Running is the number of running requests at the whole seconds from 1 on, as the server logged it.
	Running []float64
}

// requestMeta is a run's meta.json.
type requestMeta struct {
	Model   string `json:"model"`
	Version string `json:"vllm_version"`
	Engine  struct {
		Tensor           int `json:"tensor_parallel_size"`
		MaxNumSeqs       int `json:"max_num_seqs"`
		MaxBatchedTokens int `json:"max_num_batched_tokens"`
	} `json:"engine_kwargs"`
	KV struct {
		Blocks int `json:"num_gpu_blocks"`
	} `json:"kv_cache"`
}

// Requests reads the runs of LLMServingSim's validation in dir and its subfolders: folders GPU_MODEL with requests.csv,
// timeseries.csv and meta.json. Their kernel tables are in op-tables/GPU_MODEL_tpN of a folder above, up to dir, or of one of
// the folders others.
func Requests(dir string, others ...string) ([]*RequestRun, error) {
	var runs []*RequestRun
	err := filepath.WalkDir(dir, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || entry.Name() != "requests.csv" {
			return err
		}
		run, err := readRequestRun(dir, filepath.Dir(file), others)
		if err == nil {
			runs = append(runs, run)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading measurements: %w", err)
	}
	return runs, nil
}

// above is the path of a name in a folder, in the nearest one above it up to root, or in one of others; "" when none has it.
func above(folder, root, name string, others []string) string {
	candidates := []string{folder}
	for folder != root && folder != filepath.Dir(folder) {
		folder = filepath.Dir(folder)
		candidates = append(candidates, folder)
	}
	for _, dir := range append(candidates, others...) {
		if path := filepath.Join(dir, name); exists(path) {
			return path
		}
	}
	return ""
}

func readRequestRun(root, folder string, others []string) (*RequestRun, error) {
	var meta requestMeta
	if err := readJSON(filepath.Join(folder, "meta.json"), &meta); err != nil {
		return nil, err
	}
	name := filepath.Base(folder)
	d := sim.Default()
	model, weights, err := models.LookupCheckpoint(meta.Model)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", folder, err)
	}
	d.Model, d.DType.Weights = model.Name, string(weights)
	// The GPU only has to be one on which the model fits: step times and KV blocks are given.
	d.GPU = "h100-sxm"
	d.Parallelism.Tensor = meta.Engine.Tensor
	d.Engine.Version = meta.Version
	d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens = meta.Engine.MaxNumSeqs, meta.Engine.MaxBatchedTokens
	if meta.KV.Blocks > 0 {
		d.Engine.KVBlocks = strconv.Itoa(meta.KV.Blocks)
	}
	d.Load.Mode = "recorded"
	d.Client.Timeout = 0
	run := &RequestRun{Case: &Case{Source: "LLMServingSim", Name: name, Deployment: d, Parts: []Part{{Name: whole}}}}
	if err := run.readTruth(filepath.Join(folder, "requests.csv")); err != nil {
		return nil, err
	}
	err = readRows(filepath.Join(folder, "timeseries.csv"), []string{"running"}, func(r *row) error {
		n, err := r.number("running", 1e6)
		run.Running = append(run.Running, n)
		return err
	})
	if err != nil {
		return nil, err
	}
	tables := above(folder, root, filepath.Join("op-tables", fmt.Sprintf("%s_tp%d", name, meta.Engine.Tensor)), others)
	if tables == "" {
		run.Skip = "no kernel tables of its GPU"
		return run, nil
	}
	if run.Table, err = readStepTable(tables, model.Layers); err != nil {
		return nil, err
	}
	run.Parts[0].Measured = run.Parts[0].sum(run.Truth)
	run.Parts[0].Measured[Throughput] = 0 // the load is open
	run.capture = func() (*trace.Capture, error) { return run.arrivals(), nil }
	return run, nil
}

// readTruth reads when each request was sent and got its first and last token. Times of the client and of the engine
// both count from the first request.
func (run *RequestRun) readTruth(path string) error {
	return readRows(path, []string{"input_toks", "output_toks", "arrival_s", "first_token_s", "last_token_s"}, func(r *row) error {
		input, err := r.count("input_toks", 1, 1<<24)
		if err != nil {
			return err
		}
		output, err := r.count("output_toks", 1, 1<<24)
		if err != nil {
			return err
		}
		var at [3]time.Duration
		for i, column := range []string{"arrival_s", "first_token_s", "last_token_s"} {
			s, err := r.number(column, 1e7)
			if err != nil {
				return err
			}
			at[i] = seconds(s)
		}
		run.Truth = append(run.Truth, report.Request{Status: report.Completed, Input: int32(input), Output: int32(output),
			Arrival: at[0], FirstToken: at[1], End: at[2]})
		return nil
	})
}

// arrivals lists the requests as they came; they share no prompts.
func (run *RequestRun) arrivals() *trace.Capture {
	c := &trace.Capture{Format: "llmservingsim", Resolution: time.Nanosecond, SharedClock: true}
	for i := range run.Truth {
		q := &run.Truth[i]
		t := &trace.Turn{ID: strconv.Itoa(i), Start: q.Arrival, End: trace.NoTime, TTFT: trace.NoTime, Input: q.Input, Output: q.Output,
			Cached: trace.Unknown, Reasoning: trace.Unknown}
		c.Sessions = append(c.Sessions, &trace.Session{ID: t.ID, Turns: []*trace.Turn{t}, Final: true})
	}
	c.Read.Calls = len(run.Truth)
	return c
}

// RequestErrors is how far a run is from its truth.
type RequestErrors struct {
	Name     string
	Requests int
	// E2E is the mean absolute relative error of requests' latencies, Bias the mean signed one.
	E2E, Bias float64
	// Running is the mean absolute difference of running requests at the logged seconds, as a share of their mean.
	Running float64
}

// Compare simulates the run, with the host terms of a profile (nil: that of the deployment), and compares request by
// request.
func (run *RequestRun) Compare(ctx context.Context, profile *models.Profile) (RequestErrors, error) {
	e := RequestErrors{Name: run.Name, Requests: len(run.Truth)}
	res, err := run.simulate(ctx, profile)
	if err != nil {
		return e, err
	}
	for i := range run.Truth {
		q, p := &run.Truth[i], &res.Requests[i]
		off := float64(p.End-p.Arrival)/float64(q.End-q.Arrival) - 1
		e.E2E += math.Abs(off) / float64(len(run.Truth))
		e.Bias += off / float64(len(run.Truth))
	}
	total := 0.0
	for i, n := range run.Running {
		e.Running += math.Abs(float64(runningAt(res.Requests, time.Duration(i+1)*time.Second)) - n)
		total += n
	}
	if total > 0 {
		e.Running /= total
	}
	return e, nil
}

// runningAt counts the requests that have their first token but not their last at a time.
func runningAt(requests []report.Request, at time.Duration) int {
	n := 0
	for i := range requests {
		if q := &requests[i]; q.FirstToken != report.None && q.FirstToken <= at && at < q.End {
			n++
		}
	}
	return n
}

// readStepTable reads kernel times in µs: dense.csv by layer and tokens, per_sequence.csv by layer and sequences,
// attention.csv by prompt chunk, its past, decodes and their context.
func readStepTable(dir string, layers int) (*models.StepTable, error) {
	var dense, perSequence points
	err := readRows(filepath.Join(dir, "dense.csv"), []string{"layer", "tokens", "time_us"}, func(r *row) error {
		times := float64(layers)
		switch r.text("layer") {
		case "embedding", "final_layernorm":
			times = 1
		case "layernorm": // before attention and before the FFN
			times *= 2
		}
		return dense.add(r, "tokens", times)
	})
	if err != nil {
		return nil, err
	}
	err = readRows(filepath.Join(dir, "per_sequence.csv"), []string{"layer", "sequences", "time_us"}, func(r *row) error {
		return perSequence.add(r, "sequences", 1)
	})
	if err != nil {
		return nil, err
	}
	a, err := fitAttention(filepath.Join(dir, "attention.csv"), layers)
	if err != nil {
		return nil, err
	}
	return &models.StepTable{
		Tokens:         dense.at,
		Sequences:      perSequence.at,
		AttentionUs:    a[0],
		DecodeUs:       a[1],
		ContextNs:      1e3 * a[2],
		PrefillPairNs:  1e3 * a[3],
		PrefillTokenNs: 1e3 * a[4],
	}, nil
}

// points is a function of a whole number, known at some of them: straight lines between them and beyond.
type points struct {
	x []int
	y []float64
}

// add adds the row's time, so many times, to what its number of tokens or sequences takes.
func (p *points) add(r *row, column string, times float64) error {
	n, err := r.count(column, 1, 1<<24)
	if err != nil {
		return err
	}
	us, err := r.number("time_us", 1e9)
	if err != nil {
		return err
	}
	i, found := slices.BinarySearch(p.x, n)
	if !found {
		p.x, p.y = slices.Insert(p.x, i, n), slices.Insert(p.y, i, 0)
	}
	p.y[i] += times * us
	return nil
}

func (p *points) at(n float64) float64 {
	if len(p.x) == 0 || n <= 0 {
		return 0
	}
	i, _ := slices.BinarySearchFunc(p.x, n, func(x int, n float64) int {
		if float64(x) < n {
			return -1
		}
		return 1
	})
	if i == 0 || len(p.x) == 1 {
		return p.y[0]
	}
	i = min(i, len(p.x)-1)
	x0, x1 := float64(p.x[i-1]), float64(p.x[i])
	return p.y[i-1] + (n-x0)/(x1-x0)*(p.y[i]-p.y[i-1])
}

// fitAttention makes the attention table of a layer linear, for all layers, with the smallest sum of squared relative
// errors: µs per step, per decode, per token of the decodes' contexts, per doubled query-key pair of the chunk, per token
// of its keys. Decodes are fitted to the steps without a chunk, chunks to those without decodes; steps with both are
// taken as the sum, though the kernel then reads the decodes' contexts at half the rate.
func fitAttention(path string, layers int) ([5]float64, error) {
	var decodes, chunks [][]float64
	err := readRows(path, []string{"prefill_chunk", "kv_prefill", "n_decode", "kv_decode", "time_us"}, func(r *row) error {
		var n [5]float64
		var err error
		for i, column := range strings.Fields("prefill_chunk kv_prefill n_decode kv_decode time_us") {
			if n[i], err = r.number(column, 1e9); err != nil {
				return err
			}
		}
		switch chunk, past, batch, context, us := n[0], n[1], n[2], n[3], n[4]; {
		case us == 0 || chunk > 0 && batch > 0:
		case chunk == 0:
			decodes = append(decodes, []float64{1 / us, batch / us, batch * context / us})
		default:
			chunks = append(chunks, []float64{1 / us, chunk * (2*past + chunk) / us, (past + chunk) / us})
		}
		return nil
	})
	if err != nil {
		return [5]float64{}, err
	}
	d, c := nonNegative(decodes), nonNegative(chunks)
	if d == nil || c == nil {
		return [5]float64{}, fmt.Errorf("%s has no steps of decodes alone, or none of a prompt chunk alone", path)
	}
	a := [5]float64{d[0], d[1], d[2], c[1], c[2]} // the floors of chunk and decodes are one
	for i := range a {
		a[i] *= float64(layers)
	}
	return a, nil
}

// nonNegative is the x without an element below 0 for which rows · x is nearest to 1 in least squares, by coordinate
// descent; nil without rows.
func nonNegative(rows [][]float64) []float64 {
	if len(rows) == 0 {
		return nil
	}
	k := len(rows[0])
	a, b := make([]float64, k*k), make([]float64, k)
	for _, row := range rows {
		for p, v := range row {
			b[p] += v
			for q, w := range row {
				a[p*k+q] += v * w
			}
		}
	}
	x := make([]float64, k)
	for range 20_000 {
		for p := range x {
			slope := b[p]
			for q, v := range x {
				slope -= a[p*k+q] * v
			}
			if a[p*k+p] > 0 {
				x[p] = max(0, x[p]+slope/a[p*k+p])
			}
		}
	}
	return x
}
