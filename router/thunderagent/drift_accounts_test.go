package thunderagent

import (
	"testing"
	"time"
)

// More of what drifts apart: what is charged where, and what the router is told.

// Capacity and assignment are by (worker, rank), which is a worker here: two ranks of half the size are not one pool.
func TestDrift19RanksAreSeparatePools(t *testing.T) {
	r := newRig(t, native(), 5000, 5000)
	r.arrive(1, 3000)
	r.arrive(2, 3000)
	r.is(2, "reasoning on 1")
	r.arrive(3, 3000) // 3,800 of 10,000 are left
	r.is(3, "reasoning, held")
}

// Rounding to blocks counts what partial blocks waste: up for reasoning programs, down for acting ones.
func TestDrift24BlockRounding(t *testing.T) {
	r := newRig(t, with(func(s *Settings) { s.Rounding, s.BlockSize = roundBlocks, 64 }), 10_000)
	r.arrive(1, 1000)
	r.used(1152) // 1,100 is 17.2 blocks
	r.generated[r.running[1]] = 5
	r.used(1157)
	r.end(1, 1005)
	r.used(960) // 15.7 blocks, no buffer
}

// The priority jump of [Y]: -2 s for the programs of a nearly full worker, for 7.5 s from a tick on. The router's queue
// clamps it to 0.
func TestDrift25SoftDemotion(t *testing.T) {
	for _, test := range []struct {
		at   time.Duration
		want time.Duration
	}{
		{4999 * time.Millisecond, 0},
		{5 * time.Second, -2 * time.Second},
		{12400 * time.Millisecond, -2 * time.Second},
		{12500 * time.Millisecond, 0},
	} {
		r := newRig(t, python(), 10_000)
		r.act(1, 4000)
		r.act(2, 3900) // 8,100 of 10,000, within 0.80..0.95
		if test.at >= 5*time.Second {
			r.tick()
		}
		r.now = test.at
		r.arrive(1, 4000)
		if got := r.released[0]; got.PriorityJump != test.want || got.Worker != 0 || got.Target != nowhere {
			t.Errorf("at %v: released %+v, want a jump of %v, bound to worker 0", test.at, got, test.want)
		}
	}
}

// In [Y], what was held gets a jump of 1 s.
func TestDrift26ResumeBoost(t *testing.T) {
	for _, test := range []struct {
		s    Settings
		want time.Duration
	}{{native(), 0}, {python(), time.Second}} {
		r := newRig(t, test.s, 10_000)
		r.arrive(1, 9000)
		if got := r.released[0].PriorityJump; got != 0 {
			t.Errorf("a jump of %v for what was not held", got)
		}
		r.arrive(2, 1000)
		r.end(1, 10)
		r.tick()
		r.releasedOnly(2)
		if got := r.released[0].PriorityJump; got != test.want {
			t.Errorf("a jump of %v for what was held, want %v", got, test.want)
		}
	}
}

// The host tier counts as capacity in [Y], not in [N].
func TestDrift28HostTier(t *testing.T) {
	for _, test := range []struct {
		s    Settings
		want string
	}{{native(), "reasoning, held"}, {python(), "reasoning on 0"}} {
		r := newRig(t, test.s, 1)
		if err := r.SetWorker(0, Capacity{Tokens: 10_000, HostTokens: 5000}); err != nil {
			t.Fatal(err)
		}
		r.arrive(1, 14_000)
		r.is(1, test.want)
	}
}

// Each frontend has its own table and thinks that it owns all capacity: together they overcommit.
func TestDrift29TwoFrontends(t *testing.T) {
	var used int64
	for range 2 {
		r := native1(t)
		r.arrive(1, 9000)
		r.is(1, "reasoning on 0")
		used += r.Used(0)
	}
	if used <= 10_000 {
		t.Errorf("%d tokens are used, want more than 10,000", used)
	}
}

// Pausing tells no engine, and the KV may still be there at resume. The program goes back to its worker only if that has
// the most room; else it migrates, and its KV is of no use.
func TestDrift31ResumesMayMigrate(t *testing.T) {
	for _, test := range []struct {
		elsewhere  int32 // generated on worker 1
		target     int32
		migrations int64
	}{{7000, 0, 0}, {0, 1, 1}} {
		r := newRig(t, native(), 10_000, 10_000)
		r.act(1, 2000)
		r.arrive(2, 2000) // on worker 1
		r.arrive(3, 100)  // on worker 0
		r.generated[r.running[3]] = 7300
		r.is(3, "reasoning on 0")
		r.tick() // 2,100 + 7,500
		r.is(1, "acting, paused")
		r.arrive(1, 2100)
		r.generated[r.running[3]] = 3000
		r.generated[r.running[2]] = test.elsewhere
		r.tick()
		if out := r.released[0]; out.Target != test.target || r.Stats(r.now).Migrations != test.migrations {
			t.Errorf("resumed on %d with %d migrations, want %d and %d", out.Target, r.Stats(r.now).Migrations, test.target, test.migrations)
		}
	}
}

// max_programs limits the programs that reason on a worker, as SGLang's max_running_requests does.
func TestDrift35MaxPrograms(t *testing.T) {
	r := newRig(t, with(func(s *Settings) { s.MaxPrograms = 4 }), 1_000_000, 1_000_000)
	for session := range uint64(8) {
		r.arrive(session, 10)
	}
	r.arrive(8, 10)
	r.is(8, "reasoning, held")
	r.tick() // 4 of 4 is over 0.95 of them, so all are marked
	r.is(0, "reasoning on 0, marked")
	r.is(8, "reasoning, held")
	r.end(0, 10)
	r.is(0, "acting, paused")
	r.tick() // 3 of at most floor(0.85*4) = 3; acting takes no slot
	r.is(8, "reasoning, held")
	r.is(0, "acting on 0")
	r.end(2, 10)
	r.tick()
	r.is(8, "reasoning on 0")
}
