package sim

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/sim/kvcache"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/report"
)

// feature changes a deployment in one respect.
type feature struct {
	name  string
	apply func(*rand.Rand, *Deployment)
}

// features are what random deployments are made of, each drawn or left out. Later ones go on from earlier ones.
var features = []feature{
	{"small KV cache", func(r *rand.Rand, d *Deployment) { d.Engine.KVBlocks = fmt.Sprint(14 + r.IntN(40)) }},
	{"few tokens a step", func(r *rand.Rand, d *Deployment) {
		d.Engine.MaxNumSeqs = 1 + r.IntN(6)
		d.Engine.MaxNumBatchedTokens = d.Engine.MaxNumSeqs + 4 + r.IntN(30)
	}},
	{"engine", func(r *rand.Rand, d *Deployment) {
		d.Engine.Kind = []string{"sglang", "trtllm"}[r.IntN(2)]
		d.Engine.Version = ""
	}},
	{"asynchronous", vllmOnly(func(_ *rand.Rand, d *Deployment) { d.Engine.AsyncScheduling = "true" })},
	{"admission by chunk", vllmOnly(func(_ *rand.Rand, d *Deployment) { d.Engine.Admission = "chunk" })},
	{"no prefix caching", func(_ *rand.Rand, d *Deployment) { d.Engine.PrefixCaching = false }},
	{"speculative", vllmOnly(func(r *rand.Rand, d *Deployment) {
		d.Engine.Speculative = Speculative{Method: []string{"ngram", "eagle"}[r.IntN(2)], Tokens: 1 + r.IntN(4), Acceptance: "0.6"}
	})},
	{"scheduling", func(r *rand.Rand, d *Deployment) {
		of := schedulings[d.Engine.Kind]
		d.Engine.Scheduling = of[r.IntN(len(of))]
	}},
	{"eviction by priority", func(_ *rand.Rand, d *Deployment) {
		if d.Engine.Kind == "sglang" {
			d.Engine.KVEviction = "priority"
		}
	}},
	{"workers", func(r *rand.Rand, d *Deployment) { d.Workers = 1 + r.IntN(3) }},
	{"ranks", func(r *rand.Rand, d *Deployment) {
		d.Model, d.Parallelism.Tensor, d.Parallelism.Data = []string{"qwen3-14b", "qwen3-30b-a3b"}[r.IntN(2)], 1, 2
	}},
	{"windows", func(_ *rand.Rand, d *Deployment) { d.Model, d.Parallelism.Tensor = "gpt-oss-20b", 1 }},
	{"priced steps", func(_ *rand.Rand, d *Deployment) { d.Cost = Cost{} }},
	{"policy", func(r *rand.Rand, d *Deployment) {
		of := router.Policies()
		d.Router.Settings.Policy = of[r.IntN(len(of))]
	}},
	{"program scheduler", func(r *rand.Rand, d *Deployment) {
		d.Router.Settings.Policy = "thunderagent"
		d.Router.ThunderAgent.Preset = thunderagent.Presets()[r.IntN(4)]
		d.Router.ThunderAgent.Parameters = map[string]any{"scheduler_interval_seconds": 0.05, "resume_timeout_seconds": 0.5 * float64(r.IntN(4)),
			"session_retention_seconds": 2 * float64(r.IntN(2)), "buffer_per_program": r.IntN(9)}
	}},
	{"scheduler's limits", func(r *rand.Rand, d *Deployment) {
		if p := d.Router.ThunderAgent.Parameters; p != nil {
			p["max_tracked_requests"] = 1 + r.IntN(8)
			p["max_programs"] = r.IntN(4)
			p["rounding"] = []string{"none", "blocks"}[r.IntN(2)]
			p["shared_prefix_budget"] = r.IntN(3) == 0
			p["acting_token_weight"] = 0.5
		}
	}},
	{"gates off", func(_ *rand.Rand, d *Deployment) {
		if d.Router.Settings.Policy == "thunderagent" {
			d.Router.ThunderAgent.Gates = "none"
		}
	}},
	{"router queue", func(r *rand.Rand, d *Deployment) {
		d.Router.Threshold = 0.05
		d.Router.Queue.Policy = []string{"fcfs", "wspt", "lcfs"}[r.IntN(3)]
	}},
	{"router rejects", func(_ *rand.Rand, d *Deployment) { d.Router.Rejection.PrefillTokens = 60 }},
	{"affinity", func(r *rand.Rand, d *Deployment) {
		d.Router.SessionAffinity = router.SessionAffinity{Mode: []string{"soft", "hard"}[r.IntN(2)], TTL: time.Second, ByParent: r.IntN(2) == 0}
	}},
	{"tracks output", func(_ *rand.Rand, d *Deployment) { d.Router.TrackOutputBlocks = true }},
	{"no events", func(_ *rand.Rand, d *Deployment) { d.Router.UseKVEvents = false }},
	{"late events", func(_ *rand.Rand, d *Deployment) { d.Router.EventDelay = 7 * ms }},
	{"frontends", func(r *rand.Rand, d *Deployment) { d.Router.Frontends = 1 + r.IntN(3) }},
	{"cap on programs", func(r *rand.Rand, d *Deployment) { d.Router.MaxPrograms = fmt.Sprint(1 + r.IntN(4)) }},
	{"unlabelled", func(_ *rand.Rand, d *Deployment) { d.Router.Unlabelled = 0.5 }},
	{"patient", func(_ *rand.Rand, d *Deployment) { d.Client.Timeout = 0 }},
	{"impatient", func(r *rand.Rand, d *Deployment) {
		d.Client.Timeout, d.Client.Retries = time.Duration(20+r.IntN(400))*ms, r.IntN(3)
	}},
	{"faults", func(r *rand.Rand, d *Deployment) {
		for range 1 + r.IntN(4) {
			d.Faults = append(d.Faults, Fault{At: time.Duration(r.IntN(1500)) * ms, Worker: r.IntN(d.Workers), Action: []string{"remove", "return"}[r.IntN(2)]})
		}
	}},
	{"host tier", tiered(func(r *rand.Rand, d *Deployment) { d.KV.Host = randomTier(r) })},
	{"disk tier", func(r *rand.Rand, d *Deployment) {
		if !d.KV.Host.none() {
			d.KV.Disk = randomTier(r)
		}
	}},
	{"remote tier", func(r *rand.Rand, d *Deployment) {
		if !d.KV.Host.none() {
			d.KV.Remote = randomTier(r)
		}
	}},
	{"offload", func(r *rand.Rand, d *Deployment) {
		d.KV.Offload = []string{"through", "back", "demand"}[r.IntN(3)]
		d.KV.MinUses, d.KV.Chunk, d.KV.MinFetch = 1+r.IntN(3), 4*r.IntN(4), r.IntN(20)
		d.KV.Decoded, d.KV.Fetch = []string{"true", "false"}[r.IntN(2)], []string{"always", "faster"}[r.IntN(2)]
	}},
	{"kv policy", tiered(func(r *rand.Rand, d *Deployment) {
		of := KVPolicies()
		if d.KV.Policy = of[r.IntN(len(of))]; d.KV.Policy != "none" { // the first, which goes with no other
			d.KV.Policy += "+" + of[1+r.IntN(len(of)-1)]
		}
	})},
	{"kv rules", tiered(func(r *rand.Rand, d *Deployment) {
		for range 1 + r.IntN(8) {
			d.KV.Rules = append(d.KV.Rules, randomRule(r))
		}
	})},
	{"recorded tools", func(_ *rand.Rand, d *Deployment) { d.KV.Tools = "recorded" }},
	{"max_tokens", func(_ *rand.Rand, d *Deployment) { d.Client.MaxTokens = 30 }},
	{"ends of sessions", func(r *rand.Rand, d *Deployment) {
		d.Client.SessionFinal = []string{"last", "never", "recorded"}[r.IntN(3)]
	}},
	{"arrivals", func(r *rand.Rand, d *Deployment) {
		d.Load.Mode, d.Load.Rate = []string{"recorded", "poisson"}[r.IntN(2)], 5
	}},
	{"haste", func(_ *rand.Rand, d *Deployment) { d.Load.Speed = 20 }},
	{"slots", func(r *rand.Rand, d *Deployment) {
		d.Load.Mode, d.Load.Concurrency, d.Load.Ramp = "concurrency", 1+r.IntN(6), time.Duration(r.IntN(2)*r.IntN(500))*ms
	}},
	{"snapshot", func(_ *rand.Rand, d *Deployment) {
		if d.Load.Mode == "concurrency" {
			d.Load.Start = "snapshot"
		}
	}},
	{"rollout", func(_ *rand.Rand, d *Deployment) { d.Load.Mode, d.Load.Start, d.Load.Ramp = "rollout", "ramp", 0 }},
	{"repetitions", func(r *rand.Rand, d *Deployment) { d.Load.Programs = 1 + r.IntN(20) }},
	{"prefill workers", func(r *rand.Rand, d *Deployment) {
		if d.Engine.Kind == "sglang" || !d.Engine.PrefixCaching || strings.HasPrefix(d.Engine.Scheduling, "continuum") || d.Router.Policy == "thunderagent" {
			return
		}
		d.Workers += 1 + r.IntN(2)
		d.KV.Policy, d.KV.Rules = "", nil
		d.Disaggregation = Disaggregation{PrefillWorkers: 1 + r.IntN(d.Workers-1), Mode: []string{"always", "conditional"}[r.IntN(2)],
			MaxLocalPrefill: r.IntN(40), MaxQueue: r.IntN(3)}
		for _, policy := range []*string{&d.Disaggregation.PrefillPolicy, &d.Disaggregation.DecodePolicy} {
			of := router.Policies()
			if *policy = of[r.IntN(len(of))]; *policy == "thunderagent" {
				*policy = ""
			}
		}
		for i := range d.Faults {
			d.Faults[i].Worker = r.IntN(d.Workers)
		}
		if r.IntN(3) == 0 {
			d.KV.Host.Capacity, d.KV.Offload = "32MiB", []string{"through", "back"}[r.IntN(2)]
		}
	}},
	{"window", func(r *rand.Rand, d *Deployment) {
		d.Load.Warmup, d.Load.Duration = time.Duration(r.IntN(300))*ms, time.Duration(200+r.IntN(1000))*ms
	}},
}

// randomTier holds from a tenth of what the GPU does to 3 times as much, over a link that takes from no time to long.
func randomTier(r *rand.Rand) KVTier {
	rate := func() string { return []string{"20MB/s", "300MB/s", "5GB/s"}[r.IntN(3)] }
	return KVTier{Capacity: []string{"x0.1", "x0.5", "x3"}[r.IntN(3)], Read: rate(), Write: rate(), Latency: time.Duration(1+r.IntN(3000)) * time.Microsecond}
}

// tiered leaves out what cannot have KV below the GPU.
func tiered(apply func(*rand.Rand, *Deployment)) func(*rand.Rand, *Deployment) {
	return func(r *rand.Rand, d *Deployment) {
		if d.Engine.Kind != "sglang" && d.Engine.PrefixCaching {
			apply(r, d)
		}
	}
}

// randomRule makes a rule of any event and any action.
func randomRule(r *rand.Rand) KVRule {
	some := func(of ...string) string { return of[r.IntN(len(of))] }
	rule := KVRule{On: some(KVEvents()...), Do: some(KVActions()...), Session: some("", "", "root", "subagent"), TTL: some("", "auto", "30ms", "2s")}
	if rule.On == "tool-start" || rule.On == "tool-due" {
		rule.Tool, rule.LongerThan, rule.ShorterThan = some("", "", "ba*"), some("", "auto", "10ms"), some("", "", "auto", "300ms")
	}
	return rule
}

// vllmOnly leaves out what other engines do not have.
func vllmOnly(apply func(*rand.Rand, *Deployment)) func(*rand.Rand, *Deployment) {
	return func(r *rand.Rand, d *Deployment) {
		if d.Engine.Kind == "vllm" {
			apply(r, d)
		}
	}
}

// experiment is a deployment of some features and the sessions that it serves.
type experiment struct {
	seed     uint64
	features []int
	sessions []int
}

// randomExperiment draws one: some experiments have few features, some many.
func randomExperiment(seed uint64) experiment {
	r := rand.New(rand.NewPCG(seed, 1))
	x := experiment{seed: seed}
	share := 0.1 + 0.5*r.Float64()
	for i := range features {
		if r.Float64() < share {
			x.features = append(x.features, i)
		}
	}
	for i := range 1 + r.IntN(10) {
		x.sessions = append(x.sessions, i)
	}
	return x
}

func (x experiment) String() string {
	s := fmt.Sprintf("seed %d, sessions %v", x.seed, x.sessions)
	for _, f := range x.features {
		s += ", " + features[f].name
	}
	return s
}

func (x experiment) deployment() Deployment {
	d := fixed()
	for _, f := range x.features {
		features[f].apply(rand.New(rand.NewPCG(x.seed, 100+uint64(f))), &d)
	}
	return d
}

// capture makes the sessions, of which some are children of others. Each is the same whichever others there are.
func (x experiment) capture() *trace.Capture {
	c := &trace.Capture{Format: "test", BlockSize: 4, Resolution: ms, SharedClock: true}
	for _, i := range x.sessions {
		r := rand.New(rand.NewPCG(x.seed, 1000+uint64(i)))
		var turns []trace.Turn
		at, input := time.Duration(r.IntN(400))*ms, int32(1+r.IntN(20))
		for range 1 + r.IntN(4) {
			turn := trace.Turn{Start: at, End: at + time.Duration(5+r.IntN(60))*ms, Input: input, Output: int32(r.IntN(16)), Trigger: "tool_result"}
			turn.Hints = trace.Hints{Priority: int32(r.IntN(5)) - 2, StrictPriority: uint32(r.IntN(2)), OSL: int32(r.IntN(20))}
			if r.IntN(3) > 0 {
				turn.ToolCalls = []trace.ToolCall{{Name: "bash"}}
			}
			turns = append(turns, turn)
			at = max(0, turn.End+time.Duration(r.IntN(600)-30)*ms)
			input = min(60, input+turn.Output+int32(r.IntN(12)))
		}
		turns[len(turns)-1].Final = r.IntN(3) > 0
		s := session(fmt.Sprint("s", i), uint64(1000*(i/2*2)), turns...) // two share their first blocks
		for _, t := range s.Turns {
			if r.IntN(4) == 0 {
				t.Reasoning = r.Int32N(t.Output + 1)
			}
			t.Compaction = r.IntN(6) == 0
		}
		if i > 0 && r.IntN(3) == 0 && slices.Contains(x.sessions, i-1) {
			s.Parent = fmt.Sprint("s", i-1)
		}
		c.Sessions = append(c.Sessions, s)
	}
	return c
}

// errContradiction says that the settings do not go together.
var errContradiction = errors.New("no such deployment")

// run returns what is wrong with the experiment, twice run.
func (x experiment) run() error {
	c := x.capture()
	if err := c.Link(); err != nil {
		return err
	}
	w, err := c.Compile(trace.OutputsInferred)
	if err != nil {
		return err
	}
	p, err := x.deployment().Resolve()
	if err != nil {
		return fmt.Errorf("%w: %w", errContradiction, err)
	}
	res, err := Run(context.Background(), w, p, Options{Check: true, Samples: 20, Accounts: true})
	if err != nil {
		if strings.Contains(err.Error(), "ended without a call that this deployment can serve") {
			return nil
		}
		return err
	}
	var accounts error
	audit := newAudit(p)
	// That nobody looks at the accounts makes no difference to them, nor do they to anything else.
	again, err := Run(context.Background(), w, p, Options{Accounts: x.seed%2 == 0, Observe: func(Event) {}, Events: audit.note, Ticks: func(_ int, at time.Duration, before bool, t *thunderagent.Table) {
		if e := checkAccounts(p, at, t); e != nil && accounts == nil {
			accounts = e
		}
	}})
	if accounts != nil {
		return accounts
	}
	if err != nil {
		return err
	}
	again.Series = res.Series
	if again.Held != nil && !slices.Equal(again.Held, res.Held) {
		return fmt.Errorf("sessions held %v, and again %v", res.Held, again.Held)
	}
	if diff := cmp.Diff(res, again, cmpopts.IgnoreUnexported(Plan{}), cmpopts.IgnoreFields(Result{}, "Plan", "Workload", "Gaps", "Held")); diff != "" {
		return fmt.Errorf("the same run differs:\n%s", diff)
	}
	if err := report.CheckRequests(res.Requests); err != nil {
		return err
	}
	return errors.Join(addUp(res), withinCapacity(res), heldAddsUp(res), res.Report(nil, nil).Check(), audit.agrees(res))
}

// checkAccounts tells whether a table charges its workers with just what its programs hold.
func checkAccounts(p *Plan, at time.Duration, t *thunderagent.Table) error {
	if p.scheduler.Rounding == "blocks" || p.scheduler.SharedPrefixBudget {
		return nil
	}
	charged := make([]int64, p.Ranks)
	for _, q := range t.Programs(at) {
		if q.Worker < 0 || q.Paused {
			continue
		}
		tokens := q.Tokens
		if q.Acting {
			tokens = int64(float64(tokens) * p.scheduler.ActingTokenWeight)
		}
		charged[q.Worker] += t.Need(tokens)
	}
	for _, a := range t.Accounts() {
		if a.Used != charged[a.Worker] {
			return fmt.Errorf("at %v worker %d is charged %d tokens, its programs hold %d", at, a.Worker, a.Used, charged[a.Worker])
		}
	}
	return nil
}

// addUp tells whether what the engines did is what the requests got, as far as that can be said.
func addUp(res *Result) error {
	listed := map[[2]int32]int{}
	for i := range res.Programs {
		listed[[2]int32{res.Programs[i].Index, int32(res.Programs[i].Copy)}]++
	}
	for i := range res.Requests {
		q := &res.Requests[i]
		if n := listed[[2]int32{q.Program, int32(q.Copy)}]; n != 1 {
			return fmt.Errorf("the program of request %d is listed %d times", i, n)
		}
	}
	if res.Window != (report.Window{}) {
		return nil
	}
	var computed, decoded, prefilled, generated int64
	for _, e := range res.Engines {
		prefilled += e.PrefillTokens
		generated += e.DecodeTokens
		if e.Busy > res.End {
			return fmt.Errorf("an engine was busy for %v of %v", e.Busy, res.End)
		}
	}
	whole := true // nothing was cut short or done again
	for i := range res.Requests {
		q := &res.Requests[i]
		computed += int64(q.Computed)
		decoded += int64(max(q.Output-1, 0))
		whole = whole && q.Status == report.Completed && q.Preemptions == 0 && q.Retries == 0
		if q.Retries > 0 {
			return nil
		}
	}
	if speculated := res.Plan.rules.any(doSpeculate); prefilled < computed || prefilled > computed && !speculated {
		return fmt.Errorf("engines prefilled %d tokens, requests %d", prefilled, computed)
	}
	if whole && generated != decoded {
		return fmt.Errorf("engines decoded %d tokens, requests %d", generated, decoded)
	}
	return nil
}

// withinCapacity tells whether the KV blocks that are in use or cached are never more than there are.
func withinCapacity(res *Result) error {
	for i, q := range res.Series.Samples {
		if min(q.Running, q.Pinned, q.Cached, q.Wanted, q.Accounted, q.RequestsWaiting, q.Programs, q.Held) < 0 || q.Running+q.Pinned+q.Cached > res.Series.Capacity {
			return fmt.Errorf("sample %d is %+v of %d tokens", i, q, res.Series.Capacity)
		}
	}
	const rounding = 1 + 1e-9
	for i, e := range res.Engines {
		o := e.Occupancy
		all := o.Time.Seconds() * float64(res.Plan.Blocks)
		if o.Used+o.Cached > all*rounding || o.Prefill+o.Recompute+o.Pinned > o.Used*rounding || e.Recompute > e.Busy {
			return fmt.Errorf("engine %d: %+v of %v block-seconds, %v of %v computed again", i, o, all, e.Recompute, e.Busy)
		}
	}
	return nil
}

// heldAddsUp tells whether what sessions held is what the engines integrate of their blocks in use. They take the mean of
// the two ends of a leap, and count as cached also what holds nothing any more.
func heldAddsUp(res *Result) error {
	var o engine.Occupancy
	for _, e := range res.Engines {
		o.Add(e.Occupancy)
	}
	used, unused := 0.0, 0.0
	for _, h := range res.Held {
		for state, blocks := range h.Blocks {
			if s := blocks.Seconds(); kvcache.State(state) <= kvcache.Pinned {
				used += s
			} else {
				unused += s
			}
		}
	}
	if diff := math.Abs(used - o.Used); diff > 0.1*o.Used+0.1 || unused > o.Cached*(1+1e-9)+1e-9 {
		return fmt.Errorf("sessions held %v block-seconds in use and %v unused, the engines count %v and %v", used, unused, o.Used, o.Cached)
	}
	return nil
}

// shrink drops features and sessions while the experiment still fails.
func (x experiment) shrink() (experiment, error) {
	err := x.run()
	for smaller := true; smaller; {
		smaller = false
		for _, of := range []*[]int{&x.sessions, &x.features} {
			for i := 0; i < len(*of); i++ {
				was := *of
				*of = slices.Delete(slices.Clone(was), i, i+1)
				if e := x.run(); len(x.sessions) > 0 && e != nil && !errors.Is(e, errContradiction) {
					err, smaller = e, true
					i--
				} else {
					*of = was
				}
			}
		}
	}
	return x, err
}

// TestRandomDeployments: every conservation law holds on deployments and workloads that nobody thought of.
func TestRandomDeployments(t *testing.T) {
	deployments, runs := 600, 0
	if testing.Short() {
		deployments = 120
	}
	for seed := range uint64(deployments) {
		x := randomExperiment(seed)
		err := x.run()
		if errors.Is(err, errContradiction) {
			continue
		}
		if runs++; err != nil {
			small, err := x.shrink()
			t.Fatalf("%v: %v\n(first: %v)", small, err, x)
		}
	}
	if 60*runs < 59*deployments {
		t.Errorf("%d of %d deployments could be run, want nearly all: the features contradict each other", runs, deployments)
	}
}
