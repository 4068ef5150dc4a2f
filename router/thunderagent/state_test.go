package thunderagent

import (
	"testing"
	"time"
)

// TestStateTable is Dynamo's state table: every state of session 1, and what every event makes of it. Session 2 reasons
// all the time; the tokens that it generates are the pressure on the one worker, of 10,000 tokens.
func TestStateTable(t *testing.T) {
	quiet := func(r *rig) { r.generated[r.running[2]] = 0 }
	press := func(r *rig) { r.generated[r.running[2]] = 9_000 } // used above 9,500 with session 1, above 8,000 without
	states := map[string]func(*rig){
		"none":                   func(r *rig) {},
		"reasoning on 0":         func(r *rig) { r.arrive(1, 1000) },
		"acting on 0":            func(r *rig) { r.act(1, 1000) },
		"acting, paused":         func(r *rig) { r.act(1, 1000); press(r); r.tick() },
		"reasoning, held":        func(r *rig) { r.act(1, 1000); press(r); r.tick(); r.arrive(1, 1200) },
		"reasoning on 0, marked": func(r *rig) { r.arrive(1, 1000); press(r); r.tick() },
	}
	arrives := func(r *rig) { r.arrive(1, 1200) }
	final := func(r *rig) { r.request(&Request{Session: 1, Input: 1200, Pin: nowhere, Final: true}) }
	firstToken := func(r *rig) {
		before := r.Used(0)
		r.generated[r.running[1]]++
		r.used(before + 1)
	}
	ends := func(r *rig) { r.end(1, 1100) }
	over := func(r *rig) { press(r); r.tick() }
	room := func(r *rig) { quiet(r); r.tick() }
	long := func(r *rig) { r.ticks(30*time.Minute + 5*time.Second) } // the timeout and the retention, and a tick
	for _, test := range []struct {
		state, name string
		event       func(*rig)
		want        string
	}{
		{"none", "request arrives", arrives, "reasoning on 0"},
		{"none", "request arrives without room", func(r *rig) { press(r); arrives(r) }, "reasoning, held"},
		{"none", "final", final, "none"},
		{"reasoning on 0", "request arrives", arrives, "reasoning on 0, 1 behind"},
		{"reasoning on 0", "first token", firstToken, "reasoning on 0"},
		{"reasoning on 0", "request ends", ends, "acting on 0"},
		{"reasoning on 0", "tick over threshold", over, "reasoning on 0, marked"},
		{"reasoning on 0", "tick with room", room, "reasoning on 0"},
		{"reasoning on 0", "long time", long, "reasoning on 0"},
		{"reasoning on 0", "final", final, "reasoning on 0, 1 behind"},
		{"reasoning on 0, marked", "request ends", ends, "acting, paused"},
		{"reasoning on 0, marked", "tick with room", room, "reasoning on 0, marked"},
		{"acting on 0", "request arrives", arrives, "reasoning on 0"},
		{"acting on 0", "request arrives without room", func(r *rig) { press(r); arrives(r) }, "reasoning on 0"},
		{"acting on 0", "tick over threshold", over, "acting, paused"},
		{"acting on 0", "tick with room", room, "acting on 0"},
		{"acting on 0", "long time", long, "none"},
		{"acting on 0", "final", final, "none"},
		{"acting, paused", "request arrives", arrives, "reasoning, held"},
		{"acting, paused", "tick over threshold", over, "acting, paused"},
		{"acting, paused", "tick with room", room, "acting on 0"},
		{"acting, paused", "long time", long, "none"},
		{"acting, paused", "final", final, "none"},
		{"reasoning, held", "request arrives", arrives, "reasoning, held, 1 behind"},
		{"reasoning, held", "tick over threshold", over, "reasoning, held"},
		{"reasoning, held", "tick with room", room, "reasoning on 0"},
		{"reasoning, held", "long time", long, "reasoning on 0, marked"}, // the worker is over its threshold again
		{"reasoning, held", "final", final, "reasoning, held, 1 behind"},
	} {
		t.Run(test.state+"/"+test.name, func(t *testing.T) {
			r := native1(t)
			r.arrive(2, 100)
			states[test.state](r)
			r.is(1, test.state)
			test.event(r)
			r.is(1, test.want)
		})
	}
}

// What a final request does once it is at the front: its program is gone, and it goes where the program was.
func TestFinalGoesToItsWorker(t *testing.T) {
	r := newRig(t, native(), 10_000, 10_000)
	r.act(1, 1000)
	r.act(2, 1000) // on worker 1
	r.request(&Request{Session: 2, Input: 1200, Pin: nowhere, Final: true})
	r.releasedOnly(2)
	if out := r.released[0]; out.Target != 1 || out.Reason != LastRequest || out.Forced {
		t.Errorf("released %+v, want target 1", out)
	}
	r.used(1100, 0)
	r.end(2, 1300)
	if got := len(r.entries); got != 1 {
		t.Errorf("%d sessions are left, want 1", got)
	}
	// Behind a running request it waits its turn, and a request behind it begins a new program.
	r.arrive(1, 1100)
	r.request(&Request{Session: 1, Input: 1200, Pin: nowhere, Final: true})
	r.arrive(1, 50)
	r.is(1, "reasoning on 0, 2 behind")
	r.end(1, 1200)
	r.is(1, "none")
	r.releasedOnly(1)
	r.end(1, 1300)
	r.is(1, "reasoning on 0")
	r.used(150, 0)
}

// Tokens that a request has generated count at once where room is sought, but pause nobody before the next tick.
func TestGeneratedTokensCount(t *testing.T) {
	r := native1(t)
	r.arrive(1, 5000)
	r.generated[r.running[1]] = 3000
	r.used(8100)
	r.arrive(2, 1801) // 1,900 are left, buffer included
	r.is(2, "reasoning, held")
	r.end(1, -1) // as large as it got
	r.is(1, "acting on 0")
	r.used(8100)
}

// The tick comes at whole intervals after the first request, also after a time without programs.
func TestTicks(t *testing.T) {
	r := native1(t)
	if at, ok := r.NextTick(r.now); ok {
		t.Errorf("a tick is due at %v in a new table", at)
	}
	r.now = 2 * time.Second
	r.arrive(1, 100)
	for _, want := range []time.Duration{7, 12, 17} {
		r.tick()
		if r.now != want*time.Second {
			t.Errorf("tick at %v, want %v", r.now, want*time.Second)
		}
	}
	r.request(&Request{Session: 1, Input: 100, Pin: nowhere, Final: true})
	r.end(1, 100)
	r.end(1, 100)
	if at, ok := r.NextTick(r.now); ok {
		t.Errorf("a tick is due at %v in an empty table", at)
	}
	r.now = 41 * time.Second
	r.arrive(1, 100)
	r.now = 41500 * time.Millisecond
	if out := r.Tick(r.now); len(out) > 0 || r.stats.UsedPeak != 200 {
		t.Errorf("a tick before its time released %v, peak %d", out, r.stats.UsedPeak)
	}
	if r.tick(); r.now != 42*time.Second {
		t.Errorf("tick at %v, want 42s", r.now)
	}
}
