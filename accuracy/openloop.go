package accuracy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/agentsim/agentsim/models"
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
			SharedPrefix sharedPrefix `json:"shared_prefix"`
			Stages       []stage      `json:"stages"`
		} `json:"inference_perf"`
	} `json:"workload"`
}

// sharedPrefix is the lengths of inference-perf's shared_prefix load, in tokens.
type sharedPrefix struct {
	System   int `json:"system_prompt_len" yaml:"system_prompt_len"`
	Question int `json:"question_len" yaml:"question_len"`
	Output   int `json:"output_len" yaml:"output_len"`
}

// stage is a stretch of constant load.
type stage struct {
	Duration float64 `json:"duration" yaml:"duration"` // seconds
	Rate     float64 `json:"rate" yaml:"rate"`         // requests per second
}

// maxOpenLoop bounds the requests of an open-loop run.
const maxOpenLoop = 1 << 20

// isOf tells whether a folder of lifecycle/ is that of the run: its name is the ID, or begins with it and a hyphen.
func (r *openLoopRun) isOf(folder string) bool { return strings.HasPrefix(folder+"-", r.ID+"-") }

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
// in these inference-perf's own files in lifecycle/. Requests arrive at a constant rate, stage by stage. A run in which more
// than 1 % of the requests failed stands apart, since figures are of those that did not.
//
// The time per output token is taken over the tokens that were asked for: servers ran with ignore_eos, and what the
// client counts are the tokens of the text, up to a fifth fewer. Whether requests sampled with top-p is not published:
// that they did not is nearer to the times of all models but Qwen2.5-7B.
func OpenLoop(dir string, reading Reading) ([]*Case, error) {
	runs, err := readRuns(filepath.Join(dir, workloads))
	if err != nil {
		return nil, err
	}
	if runs, err = withProfiles(dir, runs); err != nil {
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
	var unknown []*Case
	path := filepath.Join(dir, "experiments.csv")
	err = readRows(path, []string{"exp_id", "slug", "precision", "stage", "ttft_mean_ms", "ttft_p99_ms", "e2e_mean_ms", "e2e_p99_ms"}, func(r *row) error {
		c := byID[r.text("exp_id")]
		if c == nil {
			if r.text("stage") == "-1" {
				unknown = append(unknown, &Case{Source: "BLIS", Name: r.text("slug"), Skip: "run whose load is not told"})
			}
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
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for i, c := range cases {
		for j := range c.Parts {
			m := &c.Parts[j].Measured
			m[TPOT] = max(0, m[E2E]-m[TTFT]) / float64(max(1, runs[i].Workload.InferencePerf.SharedPrefix.Output-1))
		}
	}
	return append(cases, unknown...), nil
}

// readLifecycle reads the figures of a run from inference-perf's files, where there are any.
func (r *openLoopRun) readLifecycle(dir string, c *Case) error {
	folders, err := filepath.Glob(filepath.Join(dir, "lifecycle", "*"))
	folders = slices.DeleteFunc(folders, func(f string) bool { return !r.isOf(filepath.Base(f)) })
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
			Failures struct {
				Count int `json:"count"`
			} `json:"failures"`
			Successes struct {
				Count   int `json:"count"`
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
		if sent := file.Failures.Count + file.Successes.Count; sent > 0 {
			c.Parts[i].Measured[Failed] = float64(file.Failures.Count) / float64(sent)
		}
		if c.Parts[i].Measured[Failed] > 0.01 {
			c.Apart = overload
		}
	}
	return nil
}

// overload is why a run stands apart whose clients gave up.
const overload = "overloaded: clients gave up"

// withProfiles appends the runs of lifecycle/ that are not listed, in the order of their names: exp-config.yaml has the server,
// profile.yaml the load. Their KV blocks are those of a listed run of the same server, where there is one.
func withProfiles(dir string, runs []openLoopRun) ([]openLoopRun, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "lifecycle", "*", "profile.yaml"))
	if err != nil {
		return nil, err
	}
	listed := runs
	for _, path := range paths {
		folder := filepath.Dir(path)
		name := filepath.Base(folder)
		if slices.ContainsFunc(listed, func(r openLoopRun) bool { return r.isOf(name) }) {
			continue
		}
		run := openLoopRun{ID: name}
		var server struct {
			Model            string `yaml:"model"`
			Tensor           int    `yaml:"tensor_parallelism"`
			MaxNumSeqs       int    `yaml:"max_num_seqs"`
			MaxBatchedTokens int    `yaml:"max_num_batched_tokens"`
		}
		var load struct {
			Data struct {
				SharedPrefix sharedPrefix `yaml:"shared_prefix"`
			} `yaml:"data"`
			Load struct {
				Stages []stage `yaml:"stages"`
			} `yaml:"load"`
		}
		if err := readYAML(filepath.Join(folder, "exp-config.yaml"), &server); err != nil {
			return nil, err
		}
		if err := readYAML(path, &load); err != nil {
			return nil, err
		}
		run.Model, run.Tensor, run.MaxNumSeqs, run.MaxBatchedTokens = server.Model, server.Tensor, server.MaxNumSeqs, server.MaxBatchedTokens
		run.Workload.InferencePerf.SharedPrefix, run.Workload.InferencePerf.Stages = load.Data.SharedPrefix, load.Load.Stages
		for i := range listed {
			if l := &listed[i]; l.Model == run.Model && l.Tensor == run.Tensor && l.MaxBatchedTokens == run.MaxBatchedTokens {
				run.Blocks = l.Blocks
			}
		}
		if err := run.check(); err != nil {
			return nil, fmt.Errorf("%s: %w", folder, err)
		}
		runs = append(runs, run)
	}
	return runs, nil
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
	return readFile(path, 1<<26, func(r io.Reader) error { return json.NewDecoder(r).Decode(into) })
}

// readYAML decodes a file of at most 64 KiB; keys that are not asked for are passed over.
func readYAML(path string, into any) error {
	return readFile(path, 1<<16, func(r io.Reader) error { return yaml.NewDecoder(r).Decode(into) })
}

// readFile decodes at most limit bytes of a file.
func readFile(path string, limit int64, decode func(io.Reader) error) error {
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("reading measurements: %w", err)
	}
	defer f.Close()
	if err := decode(io.LimitReader(f, limit)); err != nil {
		return fmt.Errorf("reading measurements of %s: %w", path, err)
	}
	return nil
}

// newCase has a part for the whole run and one for each stage. Between stages the server runs empty.
func (r *openLoopRun) newCase(reading Reading) *Case {
	c := &Case{Source: "BLIS", Name: r.ID, Parts: []Part{{Name: whole}}}
	d := sim.Default()
	model, weights, err := models.LookupCheckpoint(r.Model)
	if err != nil {
		c.Skip = skipModel
		return c
	}
	d.Model, d.DType.Weights = model.Name, string(weights)
	d.GPU = cmp.Or(strings.ToLower(r.Hardware), "h100-sxm")
	d.Parallelism.Tensor = r.Tensor
	d.Engine.MaxNumSeqs, d.Engine.MaxNumBatchedTokens = r.MaxNumSeqs, r.MaxBatchedTokens
	d.Engine.MaxModelLen = 4096
	d.Engine.Version = "0.15.1"
	if r.Blocks > 0 {
		d.Engine.KVBlocks = strconv.Itoa(r.Blocks)
	}
	d.Load.Mode = "recorded"
	d.Client.Timeout = 300 * time.Second
	c.Deployment = d
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
	if _, err := c.Plan(); err != nil {
		c.Skip = skipLayout
	}
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
