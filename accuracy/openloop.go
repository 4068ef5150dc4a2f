package accuracy

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/hash"
)

// Reading is how much of a prompt of inference-perf's shared_prefix load is the same in later requests.
type Reading int

const (
	// Repeating sends the same few prompts over and over: ten users of ten system prompts, the defaults of inference-perf. Mean
	// prompt lengths of runs of 3,000 to 12,000 requests are whole multiples of 1/100 token, and equal in both stages
	// of a run, as only a hundred prompts taken in turn make them.
	Repeating Reading = iota
	// Fresh repeats nothing but the system prompt.
	Fresh
)

const (
	sharedPrompts = 100
	promptGroups  = 10
)

// openLoopRun is an entry of workloads.json.
type openLoopRun struct {
	ID               string `json:"id"`
	Model            string `json:"model"`
	Hardware         string `json:"hardware"`
	Tensor           int    `json:"tp"`
	MaxNumSeqs       int    `json:"max_num_seqs"`
	MaxBatchedTokens int    `json:"max_num_batched_tokens"`
	Blocks           int    `json:"total_kv_blocks"`
	Workload         struct {
		InferencePerf struct {
			SharedPrefix struct {
				System   int `json:"system_prompt_len"`
				Question int `json:"question_len"`
				Output   int `json:"output_len"`
			} `json:"shared_prefix"`
			Stages []struct {
				Duration float64 `json:"duration"` // seconds
				Rate     float64 `json:"rate"`     // requests per second
			} `json:"stages"`
		} `json:"inference_perf"`
	} `json:"workload"`
}

// maxOpenLoop bounds the requests of an open-loop run.
const maxOpenLoop = 1 << 20

func (r *openLoopRun) check() error {
	p := &r.Workload.InferencePerf
	switch s := p.SharedPrefix; {
	case s.System < 0 || s.Question < 1 || s.Output < 1 || max(s.System, s.Question, s.Output) > 1<<20:
		return fmt.Errorf("shared_prefix wants lengths from 1 to %d tokens", 1<<20)
	case len(p.Stages) == 0 || len(p.Stages) > 100:
		return fmt.Errorf("%d stages, want 1 to 100", len(p.Stages))
	}
	for _, s := range p.Stages {
		if !(s.Rate > 0 && s.Duration > 0 && s.Duration <= 1e6 && s.Rate*s.Duration <= maxOpenLoop) {
			return fmt.Errorf("stage of %g s at %g requests/s: want positive numbers and at most %d requests", s.Duration, s.Rate, maxOpenLoop)
		}
	}
	return nil
}

// OpenLoop reads the runs of an inference-perf campaign on vLLM: workloads.json (each run's server and load) and
// experiments.csv (its mean TTFT and E2E, whole and by stage; stage -1 is the whole) in dir, and for runs that are not
// in that table inference-perf's own files in lifecycle/. Requests arrive at a constant rate, stage by stage.
//
// The time per output token is taken over the tokens that were asked for: servers ran with ignore_eos, and what the
// client counts are the tokens of the text, up to a fifth fewer. Whether requests sampled with top-p is not published:
// that they did not is nearer to the times of all models but Qwen2.5-7B.
func OpenLoop(dir string, reading Reading) ([]*Case, error) {
	runs, err := readRuns(filepath.Join(dir, "workloads.json"))
	if err != nil {
		return nil, err
	}
	cases := make([]*Case, len(runs))
	byID := map[string]*Case{}
	for i := range runs {
		cases[i] = runs[i].newCase(reading)
		byID[runs[i].ID] = cases[i]
		if err := runs[i].readLifecycle(dir, cases[i]); err != nil {
			return nil, err
		}
	}
	path := filepath.Join(dir, "experiments.csv")
	err = readRows(path, []string{"exp_id", "slug", "precision", "stage", "ttft_mean_ms", "ttft_p99_ms", "e2e_mean_ms", "e2e_p99_ms"}, func(r *row) error {
		c := byID[r.text("exp_id")]
		if c == nil {
			return nil
		}
		stage, err := strconv.Atoi(r.text("stage"))
		if err != nil || stage < -1 || stage+1 >= len(c.Parts) {
			return fmt.Errorf("stage is %q, want -1 to %d", r.text("stage"), len(c.Parts)-2)
		}
		c.Name = r.text("slug")
		for _, f := range []struct {
			column  string
			measure Measure
		}{
			{"ttft_mean_ms", TTFT}, {"e2e_mean_ms", E2E}, {"ttft_p99_ms", TTFTP99}, {"e2e_p99_ms", E2EP99},
		} {
			if c.Parts[stage+1].Measured[f.measure], err = r.number(f.column, maxLatencyMs); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i, c := range cases {
		for j := range c.Parts {
			m := &c.Parts[j].Measured
			m[TPOT] = max(0, m[E2E]-m[TTFT]) / float64(max(1, runs[i].Workload.InferencePerf.SharedPrefix.Output-1))
		}
	}
	return cases, nil
}

// readLifecycle reads the figures of a run from inference-perf's files, where there are any.
func (r *openLoopRun) readLifecycle(dir string, c *Case) error {
	folders, err := filepath.Glob(filepath.Join(dir, "lifecycle", r.ID+"*"))
	if err != nil || len(folders) != 1 {
		return nil
	}
	c.Name = filepath.Base(folders[0])
	for i := range c.Parts {
		name := "summary_lifecycle_metrics.json"
		if i > 0 {
			name = fmt.Sprintf("stage_%d_lifecycle_metrics.json", i-1)
		}
		type spread struct {
			Mean float64 `json:"mean"`
			P99  float64 `json:"p99"`
		}
		var file struct {
			Successes struct {
				Latency struct {
					Request spread `json:"request_latency"` // seconds
					First   spread `json:"time_to_first_token"`
				} `json:"latency"`
			} `json:"successes"`
		}
		path := filepath.Join(folders[0], name)
		if err := readJSON(path, &file); err != nil {
			return err
		}
		l := &file.Successes.Latency
		c.Parts[i].Measured = Figures{TTFT: 1e3 * l.First.Mean, E2E: 1e3 * l.Request.Mean, TTFTP99: 1e3 * l.First.P99, E2EP99: 1e3 * l.Request.P99}
	}
	return nil
}

func readRuns(path string) ([]openLoopRun, error) {
	var file struct {
		Experiments []openLoopRun `json:"experiments"`
	}
	if err := readJSON(path, &file); err != nil {
		return nil, err
	}
	for i := range file.Experiments {
		if err := file.Experiments[i].check(); err != nil {
			return nil, fmt.Errorf("%s: run %q: %w", path, file.Experiments[i].ID, err)
		}
	}
	return file.Experiments, nil
}

// readJSON decodes a file of at most 64 MiB.
func readJSON(path string, into any) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading measurements: %w", err)
	}
	defer f.Close()
	if err := json.NewDecoder(io.LimitReader(f, 1<<26)).Decode(into); err != nil {
		return fmt.Errorf("reading measurements of %s: %w", path, err)
	}
	return nil
}

// newCase has a part for the whole run and one for each stage. Between stages the server runs empty.
func (r *openLoopRun) newCase(reading Reading) *Case {
	d := sim.Default()
	d.Model, d.DType = modelName(r.Model, "")
	d.GPU = "h100-sxm"
	d.Parallelism.Tensor = r.Tensor
	d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens = r.MaxNumSeqs, r.MaxBatchedTokens
	d.Engine.MaxModelLen = 4096
	d.Engine.Version, d.Engine.AsyncScheduling = "0.15.1", true
	d.Engine.KVBlocks = strconv.Itoa(r.Blocks)
	d.Load.Mode = "recorded"
	d.Client.Timeout = 300 * time.Second
	c := &Case{Source: "blis-h100-vllm", Name: r.ID, Deployment: d, Parts: []Part{{Name: "whole"}}}
	at := time.Duration(0)
	var starts []time.Duration
	for i, s := range r.Workload.InferencePerf.Stages {
		part := Part{Name: "stage " + strconv.Itoa(i), From: at, To: at + seconds(s.Duration)}
		c.Parts = append(c.Parts, part)
		for n := range int(s.Rate*s.Duration + 0.5) {
			starts = append(starts, at+seconds(float64(n)/s.Rate))
		}
		at = part.To + 10*time.Minute
	}
	c.capture = func() (*trace.Capture, error) { return r.capture(starts, reading), nil }
	return c
}

func seconds(s float64) time.Duration { return time.Duration(s * 1e9) }

// capture lists the requests, with a hash for each full block of their prompts.
func (r *openLoopRun) capture(starts []time.Duration, reading Reading) *trace.Capture {
	const block = 16
	load := &r.Workload.InferencePerf.SharedPrefix
	input := load.System + load.Question
	c := &trace.Capture{Format: "inference-perf", BlockSize: block, Resolution: time.Nanosecond, SharedClock: true}
	sessions := make([]trace.Session, len(starts))
	turns := make([]trace.Turn, len(starts))
	for i, start := range starts {
		prompt := i % sharedPrompts
		t := &turns[i]
		*t = trace.Turn{ID: strconv.Itoa(i), Start: start, End: trace.NoTime, TTFT: trace.NoTime, Input: int32(input), Output: int32(load.Output),
			Cached: trace.Unknown, Reasoning: trace.Unknown}
		if reading == Repeating && i >= sharedPrompts {
			t.Base, t.Shared = &turns[prompt], int32(input/block)
		} else {
			chain := hash.Combine(1, uint64(prompt%promptGroups))
			for b := range input / block {
				if b == load.System/block {
					chain = hash.Combine(chain, uint64(i))
				}
				chain = hash.Combine(chain, uint64(b))
				t.Hashes = append(t.Hashes, chain)
			}
		}
		sessions[i] = trace.Session{ID: t.ID, Turns: []*trace.Turn{t}, Final: true}
		c.Sessions = append(c.Sessions, &sessions[i])
	}
	c.Read.Calls = len(starts)
	return c
}
