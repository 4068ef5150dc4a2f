package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agentsim/agentsim/sim"
)

func TestPlace(t *testing.T) {
	file := filepath.Join(t.TempDir(), "d.yaml")
	text := "workers: 0\nrouter:\n  thunderagent: {parameters: {pause_target: 2}}\nfaults:\n  - {at: 1s}\n  - {at: 2s, worker: 9}\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &predict{sets: []string{"engine.kv_blocks=0"}, short: []shortFlag{{name: "tp", path: "parallelism.tensor", values: []string{"3"}}}}
	for _, c := range []struct{ key, what, want string }{
		{"workers", "", ":1:1"},
		{"router.thunderagent.parameters.pause_target", "", ":3:31"},
		{"", "router.thunderagent.parameters.pause_target: 2 is out", ":3:31"}, // the text names the key
		{"router.thunderagent.preset", "", ":3:3"},                             // the nearest that is there
		{"faults[1].worker", "", ":6:14"},
		{"faults[7].worker", "", ":4:1"},
		{"engine.kv_blocks", "", "--set"},
		{"parallelism", "", "--tp"},
		{"seed", "", ""},
	} {
		got := strings.TrimPrefix(p.place(file, &sim.ConfigError{Key: c.key, What: c.what}), file)
		if got != c.want {
			t.Errorf("%q %q is at %q, want %q", c.key, c.what, got, c.want)
		}
	}
}
