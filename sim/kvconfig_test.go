package sim

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/sim/engine"
	"github.com/agentsim/agentsim/sim/memory"
	"github.com/agentsim/agentsim/trace"
)

// The presets, and what vLLM's connector does from version to version.
func TestKVPresets(t *testing.T) {
	type rules struct {
		host                                string
		minUses, spillUses, chunk, minFetch int
		decoded                             string
	}
	for _, test := range []struct {
		preset, version string
		want            rules
	}{
		{"", "0.23", rules{"1GiB", 1, 1, 0, 0, "true"}},
		{"vllm", "0.19", rules{"1GiB", 1, 1, 0, 0, "true"}},
		{"vllm", "0.22", rules{"1GiB", 1, 1, 0, 0, "true"}},
		{"vllm", "0.23", rules{"1GiB", 1, 1, 0, 0, "false"}},
		{"lmcache", "0.19", rules{"1GiB", 1, 1, 256, 0, "false"}},
		{"hicache", "0.19", rules{"x2", 1, 1, 0, 256, "true"}},
		{"kvbm", "0.19", rules{"1GiB", 1, 2, 0, 0, "true"}},
	} {
		d := fixed()
		d.Engine.Version, d.KV.Preset = test.version, test.preset
		if test.preset != "hicache" {
			d.KV.Host.Capacity = "1GiB"
		}
		p, err := d.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		k := &p.KV
		got := rules{k.Host.Capacity, k.MinUses, k.SpillUses, k.Chunk, k.MinFetch, k.Decoded}
		if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(rules{})); diff != "" {
			t.Errorf("preset %q with vLLM %s (-want +got):\n%s", test.preset, test.version, diff)
		}
	}
}

// Three sessions ask for the same prompt of 10 blocks, one after the other. The host gets it when so many requests have had
// it as kv.min_uses says, the drive when as many as kv.spill_uses, and no sooner than the host.
func TestUsesAreRequests(t *testing.T) {
	var all []*trace.Session
	for i, id := range []string{"a", "b", "c"} {
		start := time.Duration(i) * time.Second
		all = append(all, session(id, 1, trace.Turn{Start: start, End: start + 20*ms, Input: 40, Output: 1}))
	}
	for _, test := range []struct {
		minUses, spillUses, sessions int
		host, drive                  int64 // blocks
	}{
		{1, 1, 1, 10, 10},
		{1, 2, 1, 10, 0},
		{1, 2, 2, 10, 10},
		{1, 3, 2, 10, 0},
		{1, 3, 3, 10, 10},
		{2, 1, 1, 0, 0},
		{2, 1, 2, 10, 10},
		{2, 2, 2, 10, 0}, // the host has it once the request has ended; the drive, with the next one
		{2, 2, 3, 10, 10},
		{3, 1, 2, 0, 0},
	} {
		d := fixed()
		d.KV.Host.Capacity, d.KV.Disk.Capacity = "1GiB", "1GiB"
		d.KV.MinUses, d.KV.SpillUses = test.minUses, test.spillUses
		p, err := d.Resolve()
		if err != nil {
			t.Fatal(err)
		}
		r, err := newRun(compile(t, all[:test.sessions]...), p, Options{Check: true})
		if err != nil {
			t.Fatal(err)
		}
		r.openDoors()
		if err := r.loop(context.Background()); err != nil {
			t.Fatal(err)
		}
		for r.nextMove() != engine.Never { // what still moves when the last request has ended
			r.now = r.nextMove()
			r.move()
		}
		blocks := func(c memory.Cause) int64 { return r.memory.Stats.Moves[c].Bytes / p.memory.BlockBytes }
		if host, drive := blocks(memory.Offload), blocks(memory.Spill); host != test.host || drive != test.drive {
			t.Errorf("min_uses %d, spill_uses %d, %d sessions: %d blocks went to the host and %d to the drive, want %d and %d",
				test.minUses, test.spillUses, test.sessions, host, drive, test.host, test.drive)
		}
	}
}
