package cli

import (
	"cmp"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/agentsim/agentsim/sim"
)

// prediction is a config of NVIDIA's aisimulate (aisimulate predict -c), on its way to a deployment. Keys and defaults are
// those of ai-dynamo/aisimulate 0.13, docs/cli/user-guide.md. What they say of the work is kept apart.
type prediction struct {
	file   string
	values []predictionValue // in the order of the file
	sim.Deployment
	traffic
}

// traffic is the trace that a config names.
type traffic struct {
	paths     []string
	format    string
	blockSize int
}

// predictionValue is a value of the file.
type predictionValue struct {
	path         string
	words        string
	list         []string // words are empty then
	quoted       bool     // words were written as a text
	line, column int
}

// predictionMarks are keys, or beginnings of keys, that no config of agentsim has.
var predictionMarks = []string{"traffic.", "evaluation.", "execution.", "planner.", "optimization.", "optimizer.", "engine.hardware.", "engine.workers."}

// readPrediction recognises a config of aisimulate; nil is no such.
func readPrediction(file string, text []byte) *prediction {
	tree, err := parser.ParseBytes(text, 0)
	if err != nil || len(tree.Docs) != 1 || tree.Docs[0].Body == nil {
		return nil
	}
	p := &prediction{file: file, Deployment: sim.Default()}
	p.flatten(tree.Docs[0].Body, "")
	for _, v := range p.values {
		for _, mark := range predictionMarks {
			if strings.HasPrefix(v.path+".", mark) {
				return p
			}
		}
	}
	return nil
}

// flatten gathers the values below a node.
func (p *prediction) flatten(n ast.Node, path string) {
	at := n.GetToken().Position
	v := predictionValue{path: path, line: at.Line, column: at.Column}
	switch n := n.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		for pairs := n.(ast.MapNode).MapRange(); pairs.Next(); {
			p.flatten(pairs.Value(), strings.TrimPrefix(path+"."+pairs.Key().GetToken().Value, "."))
		}
		return
	case *ast.AnchorNode:
		p.flatten(n.Value, path)
		return
	case *ast.SequenceNode:
		for _, item := range n.Values {
			v.list = append(v.list, item.GetToken().Value)
		}
	case *ast.NullNode:
		return // as if it were not there
	case *ast.StringNode:
		v.words, v.quoted = n.Value, true
	default:
		v.words = n.GetToken().Value
	}
	p.values = append(p.values, v)
}

// get returns the value of a key; without it, an empty one of the same path.
func (p *prediction) get(path string) (v predictionValue, ok bool) {
	for _, v := range p.values {
		if v.path == path {
			return v, true
		}
	}
	return predictionValue{path: path, line: 1, column: 1}, false
}

// fail is an error of a value.
func (p *prediction) fail(v predictionValue, format string, args ...any) error {
	return usagef("%s:%d:%d: %s: %s", p.file, v.line, v.column, v.path, fmt.Sprintf(format, args...))
}

// deployment translates the file.
func (p *prediction) deployment() (sim.Deployment, traffic, error) {
	if err := p.setDefaults(); err != nil {
		return p.Deployment, p.traffic, err
	}
	for _, v := range p.values {
		set, known := predictionKeys[v.path]
		if !known {
			return p.Deployment, p.traffic, p.unknown(v)
		}
		if err := set(p, v); err != nil {
			return p.Deployment, p.traffic, err
		}
	}
	return p.Deployment, p.traffic, p.settle()
}

// unknown refuses a key that is not simulated, or is none of aisimulate's.
func (p *prediction) unknown(v predictionValue) error {
	var known []string
	for key := range predictionKeys {
		if strings.HasPrefix(key, v.path+".") {
			return p.fail(v, "want a group of keys")
		}
		known = append(known, key)
	}
	for _, prefix := range predictionOnly {
		if v.path == prefix || strings.HasPrefix(v.path, prefix+".") {
			return p.fail(v, "agentsim does not simulate this")
		}
	}
	slices.Sort(known)
	return p.fail(v, "unknown key%s", suggestion(v.path, known))
}

// setDefaults sets what differs between the two programs' defaults.
func (p *prediction) setDefaults() error {
	backend, ok := p.get("engine.backend")
	if !ok {
		backend.words = "vllm"
	}
	e := &p.Engine
	e.Kind, e.MaxNumSeqs, e.MaxNumBatchedTokens, e.GPUMemoryUtilization = backend.words, 256, 8192, 0.9
	switch backend.words {
	case "vllm":
		e.BlockSize = 64
	case "sglang":
		e.BlockSize, e.GPUMemoryUtilization = 1, 0.88
	case "trtllm":
		e.BlockSize = 32
	default:
		return p.fail(backend, "%q is unknown, want vllm, sglang or trtllm", backend.words)
	}
	p.Parallelism.Tensor = 1
	p.Router.Policy = "round-robin"
	return nil
}

// settle checks and sets what follows from several keys.
func (p *prediction) settle() error {
	for _, key := range []string{"engine.model", "engine.hardware"} {
		if v, ok := p.get(key); !ok {
			return p.fail(v, "missing")
		}
	}
	for _, step := range []func() error{p.settleTraffic, p.settleEngine, p.settleRouter} {
		if err := step(); err != nil {
			return err
		}
	}
	if p.Engine.Kind == "sglang" { // it sets both limits, which are one in aisimulate
		p.Engine.MaxPrefillTokens = p.Engine.MaxNumBatchedTokens
	}
	return nil
}

// settleTraffic settles arrivals. Without traffic they are the command line's, as is the trace.
func (p *prediction) settleTraffic() error {
	at := slices.IndexFunc(p.values, func(v predictionValue) bool { return strings.HasPrefix(v.path, "traffic.") })
	if at < 0 {
		return nil
	}
	if _, ok := p.get("traffic.source.type"); !ok {
		return p.fail(p.values[at], "traffic.source.type is synthetic where it is not given; agentsim takes a trace")
	}
	load, _ := p.get("traffic.load.type")
	lanes, laned := p.get("traffic.load.agentic_lanes")
	snapshot, snapped := p.get("traffic.load.agentic_snapshot.seed")
	concurrency, counted := p.get("traffic.load.concurrency")
	speedup, sped := p.get("traffic.load.speedup")
	timed := load.words == "trace_timestamps"
	switch {
	case laned && !timed:
		return p.fail(lanes, "goes with traffic.load.type trace_timestamps")
	case snapped && !laned:
		return p.fail(snapshot, "goes with traffic.load.agentic_lanes")
	case sped && !timed:
		return p.fail(speedup, "goes with traffic.load.type trace_timestamps")
	case counted && timed:
		return p.fail(concurrency, "goes with traffic.load.type concurrency")
	case timed && !laned:
		p.Load.Mode = "closed"
	default:
		p.Load.Mode, p.Load.Concurrency = "concurrency", cmp.Or(p.Load.Concurrency, 10)
	}
	return nil
}

// settleEngine settles KV capacity, step times and the split of experts.
func (p *prediction) settleEngine() error {
	capacity, _ := p.get(predictionWorker + "kv_cache.capacity.type")
	blocks, sized := p.get(predictionWorker + "kv_cache.capacity.blocks")
	share, shared := p.get(predictionWorker + "kv_cache.capacity.memory_fraction")
	fixed := capacity.words == "fixed"
	switch {
	case fixed && !sized:
		return p.fail(capacity, "fixed needs blocks")
	case fixed && shared:
		return p.fail(share, "goes with type default")
	case !fixed && sized:
		return p.fail(blocks, "goes with type fixed")
	}
	timing, _ := p.get(predictionWorker + "timing.type")
	for _, key := range []string{"timing.prefill_ms", "timing.decode_ms"} {
		v, given := p.get(predictionWorker + key)
		switch fixed := timing.words == "fixed"; {
		case fixed && !given:
			return p.fail(timing, "fixed needs prefill_ms and decode_ms")
		case !fixed && given:
			return p.fail(v, "goes with type fixed")
		}
	}
	if v, ok := p.get(predictionWorker + "parallelism.moe_tensor"); ok {
		n, err := strconv.Atoi(v.words)
		if ranks := p.Parallelism.Tensor * p.Parallelism.Data; err != nil || n != 1 && n*p.Parallelism.Expert != ranks {
			return p.fail(v, "%s, want the %d ranks of a worker divided by moe_expert %d", v.words, ranks, p.Parallelism.Expert)
		}
	}
	return nil
}

// settleRouter refuses the kv router's keys beside another policy, as aisimulate does.
func (p *prediction) settleRouter() error {
	for _, key := range []string{"router.overlap_score_credit", "router.prefill_load_scale", "router.temperature"} {
		if v, ok := p.get(key); ok && p.Router.Policy != "kv" {
			return p.fail(v, "goes with router.policy kv_router")
		}
	}
	return nil
}

// predictionWorker begins the keys of a worker of aggregated serving.
const predictionWorker = "engine.workers.aggregated."

// addTraffic takes the trace that a config names. Configs that name one must agree.
func (p *predict) addTraffic(file string, t traffic) error {
	if len(t.paths) == 0 {
		return nil
	}
	if len(p.named.paths) > 0 && !reflect.DeepEqual(p.named, t) {
		return usagef("%s: traffic.source is not that of the config before; one command takes one trace", file)
	}
	p.named = t
	return nil
}

// useTraffic takes the trace of a config where the command line has none.
func (p *predict) useTraffic(args []string) []string {
	switch t := p.named; {
	case len(t.paths) == 0:
	case len(args) > 0 || p.profile != "":
		p.assume("the work of the command line, not %s of the config", strings.Join(t.paths, ", "))
	default:
		p.format, p.blockSize = cmp.Or(p.format, t.format), cmp.Or(p.blockSize, t.blockSize)
		return t.paths
	}
	return args
}
