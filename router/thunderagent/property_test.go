package thunderagent

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// TestTwins runs random sequences of events through the table and its slow twin: the same requests are released, all
// programs are in the same state, and what is charged incrementally is what the twin sums up. The twin also tries every
// waiting request again at each tick, as the reference does; the table need not.
func TestTwins(t *testing.T) {
	sequences := uint64(10_000)
	if testing.Short() {
		sequences = 1000
	}
	var seen Stats
	for seed := range sequences {
		d := newDuel(t, seed)
		for range 60 {
			d.step()
			d.compare()
			if t.Failed() {
				t.Fatalf("seed %d, settings %+v, after:\n%s", seed, d.table.settings, strings.Join(d.log, "\n"))
			}
		}
		got := d.table.Stats(d.now)
		seen.Pauses += got.Pauses
		seen.Marks += got.Marks
		seen.Resumes += got.Resumes
		seen.ForcedResumes += got.ForcedResumes
		seen.Migrations += got.Migrations
		seen.Expired += got.Expired
		seen.Evicted += got.Evicted
	}
	// The sequences are worth something only if they reach all kinds of decisions.
	t.Logf("decisions: %+v", seen)
	for name, n := range map[string]int64{
		"pauses": seen.Pauses, "marks": seen.Marks, "resumes": seen.Resumes, "forced resumes": seen.ForcedResumes,
		"migrations": seen.Migrations, "expired": seen.Expired, "evicted": seen.Evicted,
	} {
		if n < int64(sequences)/20 {
			t.Errorf("only %d %s in %d sequences", n, name, sequences)
		}
	}
}

// The same sequence gives the same events, with all their figures.
func TestDeterminism(t *testing.T) {
	for seed := range uint64(200) {
		var logs [2][]string
		for i := range logs {
			d := newDuel(t, seed)
			d.table.Observe(func(e Event) {
				e.Request = nil // another one in each run
				logs[i] = append(logs[i], fmt.Sprint(e))
			})
			for range 60 {
				d.step()
			}
		}
		if !slices.Equal(logs[0], logs[1]) {
			t.Fatalf("seed %d:\n%s\nthen\n%s", seed, strings.Join(logs[0], "\n"), strings.Join(logs[1], "\n"))
		}
	}
}

// duel is one sequence: the two schedulers, and the clients and engines of both.
type duel struct {
	t       *testing.T
	random  *rand.Rand
	now     time.Duration
	table   *Table
	twin    *slow
	waiting []*Request // arrived and not released
	unsent  []Release
	running []*Request
	ran     map[*Request]int32 // where
	engines
	blind bool // for a time no worker was alive
	log   []string
}

func newDuel(t *testing.T, seed uint64) *duel {
	d := &duel{t: t, random: rand.New(rand.NewPCG(seed, 0)), engines: newEngines(), ran: map[*Request]int32{}}
	s := d.settings()
	caps := make([]Capacity, 1+d.random.IntN(3))
	d.twin = &slow{s: s, first: -1, ran: map[uint64]int32{}, generated: func(q *Request) int32 { return d.generated[q] }}
	for w := range caps {
		if caps[w] = d.capacity(); seed%8 == 0 {
			caps[w] = Capacity{}
		}
		d.twin.capacity = append(d.twin.capacity, d.tokensOf(s, caps[w]))
		d.twin.alive = append(d.twin.alive, true)
	}
	table, err := New(s, caps, d.live())
	if err != nil {
		t.Fatal(err)
	}
	d.table = table
	return d
}

func pick[T any](d *duel, of ...T) T { return of[d.random.IntN(len(of))] }

func (d *duel) settings() Settings {
	s, _ := Preset(pick(d, Presets()...))
	s.ResumeTimeout = min(s.ResumeTimeout, pick(d, 0, 20, 33.3))
	s.SessionRetention = pick(d, 0, 25, 60.0)
	s.MaxTrackedRequests = pick(d, 6, 10, 1000)
	s.BlockSize = 16
	if d.random.IntN(2) == 0 {
		return s
	}
	s.ActingTokenWeight = pick(d, 1, 1, 0.5, 1.3)
	s.ActingDecayTau = pick(d, 1, 5.0)
	s.AdmitCeiling = pick(d, 1, 0.9)
	s.Gate = pick(d, gateAnyPaused, gateWaitingOnly, gateNone, gateAlways)
	s.Mark = pick(d, markAll, markUntilTarget, markNone)
	s.Decay = Decay{pick(d, true, false), pick(d, true, false), pick(d, true, false), pick(d, true, false)}
	s.Final = pick(d, finalForward, finalSwallow, finalRelease)
	s.Rounding = pick(d, roundNone, roundNone, roundBlocks)
	s.ForceAt = pick(d, forceAtTick, forceAtDeadline)
	s.ForceTo = pick(d, forceToRoom, forceToOrigin)
	s.TickOrder = pick(d, resumeFirst, pauseFirst)
	s.ResumeOrder = pick(d, orderTurns, orderStatus)
	s.ResumeBySizeAtPause = pick(d, true, false)
	s.MaxPrograms = pick(d, int64(0), 0, 2, 4)
	s.SharedPrefixBudget = d.random.IntN(4) == 0
	if s.SharedPrefixBudget && s.Rounding == roundBlocks {
		s.Rounding = roundNone
	}
	return s
}

func (d *duel) capacity() Capacity {
	return Capacity{Tokens: pick(d, int64(3000), 5000, 10_000), HostTokens: pick(d, int64(0), 2000)}
}

func (d *duel) tokensOf(s Settings, c Capacity) int64 {
	if s.HostTier && c.Tokens > 0 {
		return c.Tokens + c.HostTokens
	}
	return c.Tokens
}

func (d *duel) step() {
	switch n := d.random.IntN(100); {
	case n < 28:
		d.arrive()
	case n < 40:
		d.pass(time.Duration(d.random.Int64N(int64(pick(d, 100*time.Millisecond, 6*time.Second, 12*time.Second, 30*time.Second)))))
	case n < 60 && len(d.unsent) > 0:
		d.send()
	case n < 72 && len(d.running) > 0:
		q := pick(d, d.running...)
		d.generated[q] += d.random.Int32N(1500)
		d.logf("session %d has generated %d", q.Session, d.generated[q])
	case n < 94 && len(d.running) > 0:
		d.complete()
	case n < 96:
		d.abort()
	case n < 98:
		d.flipWorker()
	}
}

func (d *duel) logf(format string, args ...any) {
	d.log = append(d.log, fmt.Sprintf("%8.3fs ", d.now.Seconds())+fmt.Sprintf(format, args...))
}

func (d *duel) arrive() {
	q := &Request{Session: d.random.Uint64N(10), Input: d.random.Int32N(4000), Pin: nowhere, Final: d.random.IntN(16) == 0}
	if d.random.IntN(20) == 0 {
		q.Input = 0
	}
	if d.table.settings.SharedPrefixBudget || d.random.IntN(8) == 0 {
		q.Pin = d.random.Int32N(int32(len(d.table.workers)))
	}
	q.PromptBlocks = q.Input / 16
	// A system prompt of up to 40 blocks, one of two skills, and the session's own.
	skill := trace.NodeID(2 + d.random.IntN(2))
	q.Path = []trace.Span{
		{Key: 1, To: 40},
		{Key: trace.MakeKey(skill, 0), From: 40, To: 90},
		{Key: trace.MakeKey(10+trace.NodeID(q.Session), uint32(skill)), From: 90, To: 300},
	}
	d.logf("arrive session %d, input %d, pin %d, final %v, skill %d", q.Session, q.Input, q.Pin, q.Final, skill)
	out, err := d.table.Arrive(d.now, q)
	if ok := d.twin.arrive(d.now, q); ok != (err == nil) {
		d.t.Errorf("arrive: %v, the twin says %v", err, ok)
	}
	if err == nil {
		d.waiting = append(d.waiting, q)
		d.took(out)
	}
}

// pass lets time go by, with all ticks that are due.
func (d *duel) pass(by time.Duration) {
	end := d.now + by
	for {
		at, ok := d.table.NextTick(d.now)
		if !ok || at > end {
			break
		}
		d.now = at
		interval := seconds(d.twin.s.SchedulerInterval)
		d.logf("tick")
		out := d.table.Tick(at)
		d.twin.tick(at, (at-d.twin.first)%interval == 0)
		d.took(out)
		d.compare()
	}
	d.now = end
}

// took checks what was released, and that nobody waited for longer than the timeout and a tick.
func (d *duel) took(out []Release) {
	if !slices.Equal(out, d.twin.out) {
		d.t.Errorf("released\n%+v, the twin\n%+v", out, d.twin.out)
	}
	for _, r := range out {
		d.waiting = slices.DeleteFunc(d.waiting, func(q *Request) bool { return q == r.Request })
		if !r.Swallowed {
			d.unsent = append(d.unsent, r)
		}
		limit := seconds(d.twin.s.ResumeTimeout)
		if d.twin.s.ForceAt == forceAtTick {
			limit += seconds(d.twin.s.SchedulerInterval)
		}
		if d.twin.s.ResumeTimeout > 0 && r.Held > limit && !d.blind {
			d.t.Errorf("session %d was held for %v", r.Request.Session, r.Held)
		}
	}
}

// send sends a release where it must or should go, or where the router likes.
func (d *duel) send() {
	i := d.random.IntN(len(d.unsent))
	r := d.unsent[i]
	w := max(r.Worker, r.Target)
	if w == nowhere || r.Worker == nowhere && d.random.IntN(5) == 0 {
		w = d.random.Int32N(int32(len(d.twin.alive)))
	}
	if !d.twin.alive[w] {
		return
	}
	d.unsent = slices.Delete(d.unsent, i, i+1)
	d.logf("send session %d to %d", r.Request.Session, w)
	d.running = append(d.running, r.Request)
	d.sent(r.Request, w, d.twin.s.Final)
	d.ran[r.Request] = w
	d.table.Sent(d.now, r.Request, w)
	d.twin.sent(r.Request, w)
}

// ended forgets a request on the side of the clients and engines.
func (d *duel) ended(q *Request) {
	d.waiting = slices.DeleteFunc(d.waiting, func(o *Request) bool { return o == q })
	d.unsent = slices.DeleteFunc(d.unsent, func(r Release) bool { return r.Request == q })
	d.running = slices.DeleteFunc(d.running, func(o *Request) bool { return o == q })
	delete(d.on, q)
}

func (d *duel) complete() {
	q := pick(d, d.running...)
	context := q.Input + d.generated[q]
	if d.random.IntN(5) == 0 {
		context = -1
	}
	d.ended(q)
	d.logf("complete session %d with %d", q.Session, context)
	out := d.table.Complete(d.now, q, context)
	d.twin.complete(d.now, q, context)
	d.took(out)
}

func (d *duel) abort() {
	all := slices.Concat(d.waiting, d.running)
	for _, r := range d.unsent {
		all = append(all, r.Request)
	}
	if len(all) > 0 {
		d.end(pick(d, all...))
	}
}

func (d *duel) end(q *Request) {
	d.ended(q)
	d.logf("abort session %d", q.Session)
	out := d.table.Abort(d.now, q)
	d.twin.abort(d.now, q)
	d.took(out)
}

func (d *duel) flipWorker() {
	w := d.random.IntN(len(d.twin.alive))
	if d.twin.alive[w] && d.random.IntN(2) == 0 {
		d.logf("remove worker %d", w)
		d.table.RemoveWorker(d.now, w)
		d.twin.removeWorker(w)
		d.blind = d.blind || !slices.Contains(d.twin.alive, true)
		d.compare()
		for _, q := range slices.Clone(d.running) {
			if d.ran[q] == int32(w) {
				d.end(q)
			}
		}
		return
	}
	c := d.capacity()
	d.logf("worker %d has %+v", w, c)
	if err := d.table.SetWorker(w, c); err != nil {
		d.t.Error(err)
	}
	d.twin.alive[w], d.twin.capacity[w] = true, d.tokensOf(d.twin.s, c)
}

// compare checks that both are in the same state, and that the state is a sound one.
func (d *duel) compare() {
	for w := range d.twin.alive {
		if got, want := d.table.Used(w), d.twin.used(w); got != want {
			d.t.Errorf("worker %d uses %d, recomputed %d", w, got, want)
		}
	}
	got := d.table.Programs(d.now)
	if len(got) != len(d.twin.programs) {
		d.t.Errorf("%d programs, the twin has %d", len(got), len(d.twin.programs))
		return
	}
	for _, p := range got {
		q := d.twin.program(p.Session)
		if q == nil {
			d.t.Errorf("session %d has a program, in the twin none", p.Session)
			continue
		}
		waiting := 0
		for _, r := range d.twin.requests {
			if r.q.Session == p.Session && !r.released {
				waiting++
			}
		}
		want := Program{
			Session: p.Session, Worker: q.worker, Turns: q.turns, Tokens: d.twin.size(q), Acting: q.acting, Paused: q.paused,
			Held: q.paused && waiting > 0, Marked: q.marked, Waiting: waiting, PausedFor: p.PausedFor,
		}
		if p != want {
			d.t.Errorf("session %d is %+v, in the twin %+v", p.Session, p, want)
		}
		if p.Paused && p.Worker != nowhere {
			d.t.Errorf("session %d is paused and assigned", p.Session)
		}
		if e := d.table.entries[p.Session]; d.table.idle.has(e) != (p.Acting && waiting == 0 && e.current == nil) {
			d.t.Errorf("session %d is in the idle list: %v", p.Session, d.table.idle.has(e))
		}
	}
	if d.table.requests != len(d.twin.requests) {
		d.t.Errorf("%d requests, the twin has %d", d.table.requests, len(d.twin.requests))
	}
	stats := d.table.Stats(d.now)
	if int(stats.Evicted) != d.twin.evictions || int(stats.Migrations) != d.twin.migrations {
		d.t.Errorf("%d evicted, %d migrations; the twin has %d and %d", stats.Evicted, stats.Migrations, d.twin.evictions, d.twin.migrations)
	}
}
