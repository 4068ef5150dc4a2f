package cli

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/sim"
)

func TestSetNamesWhatIsWrong(t *testing.T) {
	for _, c := range []struct{ assignment, want string }{
		{"workers", "--set workers: want path=value, such as engine.block_size=32"},
		{"wrokers=2", `--set wrokers=2: unknown key "wrokers", did you mean "workers"?`},
		{"block_size=2", `--set block_size=2: unknown key "block_size", did you mean "engine.block_size"?`},
		{"quantum=2", `--set quantum=2: unknown key "quantum"`},
		{"engine=3", `--set engine=3: unknown key "engine"`},
		{"workers=two", `--set workers=two: "two" is not a whole number`},
		{"workers=2.5", "--set workers=2.5: workers: 2.5 is not a whole number"},
		{"workers=[2]", "--set workers=[2]: a list is not a whole number"},
		{"workers={a: 2}", "--set workers={a: 2}: a group of keys is not a whole number"},
		{"workers=!!x", `--set workers=!!x: "!!x" is not a whole number`},
		{"workers=1e30", "--set workers=1e30: 1e30 is too large or negative for a whole number"},
		{"router.queue_threshold_tokens=many", `--set router.queue_threshold_tokens=many: "many" is not a whole number`},
		{"router.queue_threshold_tokens=0.5", "--set router.queue_threshold_tokens=0.5: router.queue_threshold_tokens: 0.5 is not a whole number"},
		{"router.policy_classes=[{quantum: 1.5}]", "--set router.policy_classes=[{quantum: 1.5}]: router.policy_classes.quantum: 1.5 is not a whole number"},
		{"router.policy_classes=[{quantum: x}]", `--set router.policy_classes=[{quantum: x}]: "x" is not a whole number`},
		{"router.policy_classes=[{request_queue_limit_per_worker: 1.5}]", "--set router.policy_classes=[{request_queue_limit_per_worker: 1.5}]: router.policy_classes.request_queue_limit_per_worker: 1.5 is not a whole number"},
		{"router.policy_classes=3", "--set router.policy_classes=3: int was used where sequence is expected"},
		{"router.policy_classes=[{quantun: 1}]", `--set router.policy_classes=[{quantun: 1}]: unknown key "quantun"`},
		{"seed=-1", "--set seed=-1: -1 is too large or negative for a whole number"},
		{"load.speed=fast", `--set load.speed=fast: "fast" is not a number`},
		{"engine.prefix_caching=maybe", `--set engine.prefix_caching=maybe: "maybe" is not true or false`},
		{"client.timeout=5", `--set client.timeout=5: "5" is not a duration such as 30s`},
	} {
		d := sim.Default()
		err := set(&d, c.assignment)
		if err == nil || err.Error() != c.want {
			t.Errorf("set %q: %v, want %s", c.assignment, err, c.want)
		}
	}
}

func TestSet(t *testing.T) {
	got, want := sim.Default(), sim.Default()
	for _, assignment := range []string{"workers=3", "engine.block_size=32", "engine.version=0.22", "load.speed=0.5", "client.timeout=1m30s",
		"name=a # b", "models.*-haiku.v2=drop", "models.other=fold", "seed=18446744073709551615"} {
		if err := set(&got, assignment); err != nil {
			t.Fatal(err)
		}
	}
	want.Workers, want.Engine.BlockSize, want.Engine.Version = 3, 32, "0.22"
	want.Load.Speed, want.Client.Timeout, want.Name = 0.5, 90e9, "a # b"
	want.Models = map[string]string{"*-haiku.v2": "drop", "other": "fold"}
	want.Seed = 1<<64 - 1
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

// A file sets what it names and leaves the defaults alone.
func TestLoadConfig(t *testing.T) {
	engine := sim.Default()
	engine.Engine.BlockSize = 32
	for _, c := range []struct {
		name, text string
		want       sim.Deployment
		fails      string
	}{
		{"empty", "", sim.Default(), ""},
		{"comment", "# nothing\n", sim.Default(), ""},
		{"one key of a group", "engine: {block_size: 32}\n", engine, ""},
		{"empty group", "engine:\n", sim.Default(), ""},
		{"unknown key", "engine:\n  block_sise: 32\n", sim.Default(), `FILE:2:3: unknown key "block_sise", did you mean "block_size"?`},
		{"wrong type", "seed: 1\nworkers: many\n", sim.Default(), `FILE:2:10: "many" is not a whole number`},
		{"key twice", "seed: 1\nseed: 2\n", sim.Default(), `FILE:2:1: mapping key "seed" already defined at [1:1]`},
		{"list", "- seed\n", sim.Default(), "FILE:1:1: sequence was used where mapping is expected"},
		{"two documents", "seed: 1\n---\nseed: 2\n", sim.Default(), "FILE: more than one YAML document"},
		{"fraction", "engine: {block_size: 1.5}\n", sim.Default(), "FILE: engine.block_size: 1.5 is not a whole number"},
	} {
		file := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(file, []byte(c.text), 0o644); err != nil {
			t.Fatal(err)
		}
		got, _, err := loadConfig(file)
		if c.fails != "" {
			want := file + c.fails[len("FILE"):]
			if err == nil || err.Error() != want {
				t.Errorf("%s: %v, want %s", c.name, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: -want +got:\n%s", c.name, diff)
		}
	}
}

// Every key of a deployment has a line of help, and no other has.
func TestKeyHelp(t *testing.T) {
	keys := configKeys()
	for _, key := range keys {
		if keyHelp[key] == "" {
			t.Errorf("%s has no help", key)
		}
	}
	for key := range keyHelp {
		if !slices.Contains(keys, key) {
			t.Errorf("%s is no key", key)
		}
	}
}

func TestSuggestion(t *testing.T) {
	known := []string{"predict", "synth", "models", "gpus", "engine.block_size"}
	for name, want := range map[string]string{
		"pedict":     `, did you mean "predict"?`,
		"predicts":   `, did you mean "predict"?`,
		"model":      `, did you mean "models"?`,
		"gpu":        `, did you mean "gpus"?`,
		"block_size": `, did you mean "engine.block_size"?`,
		"replay":     "",
		"":           "",
	} {
		if got := suggestion(name, known); got != want {
			t.Errorf("suggestion for %q is %q, want %q", name, got, want)
		}
	}
}

// A grid is every combination, the last axis fastest; only axes with several values name a row, and rows do not share
// the map of models.
func TestExpand(t *testing.T) {
	base := sim.Default()
	base.Models = map[string]string{"a": "drop"}
	cells, err := expand(base, []axis{{"gpu", []string{"h200-sxm"}}, {"router.policy", []string{"random", "kv"}},
		{"parallelism.tensor", []string{"2", "4"}}, {"engine.kv_blocks", []string{"x0.5", "x1"}}})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range cells {
		names = append(names, c.Name)
		if c.GPU != "h200-sxm" {
			t.Errorf("%s is on %s", c.Name, c.GPU)
		}
	}
	want := []string{
		"random tp2 kv_blocks=x0.5", "random tp2 kv_blocks=x1", "random tp4 kv_blocks=x0.5", "random tp4 kv_blocks=x1",
		"kv tp2 kv_blocks=x0.5", "kv tp2 kv_blocks=x1", "kv tp4 kv_blocks=x0.5", "kv tp4 kv_blocks=x1",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	cells[0].Models["b"] = "fold"
	if len(cells[1].Models) != 1 || len(base.Models) != 1 {
		t.Error("rows share their models")
	}
}

func TestFileName(t *testing.T) {
	taken := map[string]bool{}
	for _, c := range []struct{ name, want string }{
		{"kv", "kv"}, {"kv", "kv-2"}, {"kv", "kv-3"},
		{"workers=2 kv_blocks=x0.5", "workers=2-kv_blocks=x0.5"},
		{"../../etc/passwd", "etc-passwd"}, {"a/b", "a-b"}, {"a b", "a-b-2"},
		{"", "run"}, {"..", "run-2"}, {"名前", "run-3"},
	} {
		if got := unique(fileName(c.name), taken); got != c.want {
			t.Errorf("the file of %q is %q, want %q", c.name, got, c.want)
		}
	}
}

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text  string
		width int
		want  string
	}{
		{"", 10, ""},
		{"one two three", 7, "one two\nthree"},
		{"one two three", 6, "one\ntwo\nthree"},
		{"  spaces   are one ", 40, "spaces are one"},
		{"unbreakable word", 4, "unbreakable\nword"},
	} {
		if got := wrap(c.text, c.width); got != c.want {
			t.Errorf("wrap %q at %d: %q, want %q", c.text, c.width, got, c.want)
		}
	}
}

// Whatever stands behind --set, it is taken or refused as wrong usage.
func FuzzSet(f *testing.F) {
	for _, assignment := range []string{"workers=2", "workers=!!x", "models.*=drop", "name=#", "load.speed=.nan", "engine.version=[", "workers=*a",
		"client.timeout=5s", "slo.ttft=-1h", "seed=0x10", "name=\"\xff", "workers=&a *a", "engine.kv_blocks=>-"} {
		f.Add(assignment)
	}
	f.Fuzz(func(t *testing.T, assignment string) {
		d := sim.Default()
		err := set(&d, assignment)
		var exit *exitError
		if err != nil && (!errors.As(err, &exit) || exit.code != exitUsage) {
			t.Errorf("%v is no usage error", err)
		}
	})
}
