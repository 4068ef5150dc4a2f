package cli

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/router"
	"github.com/agentsim/agentsim/router/thunderagent"
	"github.com/agentsim/agentsim/sim"
)

// explainedOption is a worker that a router could choose.
type explainedOption struct {
	Worker        int32    `json:"worker"`
	OverlapBlocks int32    `json:"overlap_blocks"`
	Requests      int64    `json:"requests"`
	PrefillTokens int64    `json:"prefill_tokens"`
	Cost          *float64 `json:"cost,omitempty"`
}

// describeEvent puts an event of a call into words.
func describeEvent(e *sim.Event, c *explainedCall) explainedEvent {
	d := explainedEvent{AtNs: int64(e.At), What: string(e.What), Why: e.Why, Figures: map[string]int64{}}
	if e.Worker >= 0 {
		d.Worker = &e.Worker
	}
	switch e.What {
	case sim.Arrived:
		d.text = "arrives"
		if e.Attempt > 0 {
			d.Figures["attempt"] = int64(e.Attempt) + 1
			d.text = fmt.Sprintf("arrives again, attempt %d", e.Attempt+1)
		}
	case sim.Gated:
		d.Figures["ahead"], d.Figures["active_programs"] = int64(e.Ahead), int64(e.Running)
		d.text = fmt.Sprintf("held by router.max_programs: %d programs are let in, %d wait before its own", e.Running, e.Ahead)
	case sim.LetIn:
		d.text = "its program is let in by router.max_programs, " + seconds(e.Since) + " after it was sent"
	case sim.Queued:
		d.Figures["ahead"] = int64(e.Ahead)
		d.text = fmt.Sprintf("waits in the router's queue behind %d: all workers are busy (router.queue_threshold)", e.Ahead)
	case sim.Routed:
		describeChoice(&d, e.Choice)
	case sim.Enqueued:
		d.Figures["ahead"], d.Figures["running"] = int64(e.Ahead), int64(e.Running)
		d.text = fmt.Sprintf("reaches worker %d: %d wait before it, %d run", e.Worker, e.Ahead, e.Running)
	case sim.Admitted:
		describeAdmission(&d, e, c)
	case sim.Prefilled:
		d.text = fmt.Sprintf("its prompt is computed on worker %d, which keeps the KV until another has read it", e.Worker)
	case sim.HandedOver:
		d.Figures["took_ns"] = int64(e.Took)
		d.text = fmt.Sprintf("worker %d has its KV after %s on the network", e.Worker, seconds(e.Took))
	case sim.FirstToken:
		d.Figures["since_sent_ns"] = int64(e.Since)
		d.text = "first token, " + seconds(e.Since) + " after it was sent"
		if e.Request.Preemptions > 0 {
			d.text = "goes on generating"
		}
	case sim.Preempted:
		d.text = fmt.Sprintf("preempted on worker %d: the KV cache is full, and it was the last to start; it loses its blocks", e.Worker)
	case sim.Completed:
		d.Figures["since_sent_ns"] = int64(e.Since)
		d.text = "ends, " + seconds(e.Since) + " after it was sent"
		if n := e.Request.Recomputed.Preemption; n > 0 {
			d.Figures["recomputed_preemption"] = int64(n)
			d.text += fmt.Sprintf("; %s tokens were computed again after preemptions", grouped(int64(n)))
		}
	case sim.Leased:
		d.Figures["until_ns"] = int64(e.Until)
		d.text = "its KV stays pinned for up to " + seconds(e.Until-e.At) + " while its tool runs"
	case sim.Fetched, sim.Prefetched, sim.Demoted, sim.Dropped:
		describeMove(&d, e)
	case sim.Failed:
		d.text = "fails: " + e.Why
	case sim.Denied:
		d.text = "refused: " + e.Why
	}
	return d
}

// describeAdmission tells what an engine found in its cache, and why it computes what had been computed before.
func describeAdmission(d *explainedEvent, e *sim.Event, c *explainedCall) {
	r := e.Request
	if r.Preemptions > 0 {
		d.Figures["readmit_hit"] = int64(r.ReadmitHit)
		d.text = fmt.Sprintf("starts again on worker %d; %s tokens were still cached after preemptions", e.Worker, grouped(int64(r.ReadmitHit)))
		return
	}
	d.Figures["hit"] = int64(r.Hit)
	d.text = fmt.Sprintf("starts on worker %d with %s of %s prompt tokens cached", e.Worker, grouped(int64(r.Hit)), grouped(int64(c.Input)))
	if r.Brought > 0 {
		d.Figures["brought"] = int64(r.Brought)
		d.text += fmt.Sprintf(", %s of them fetched", grouped(int64(r.Brought)))
	}
	lost := r.Lost()
	for _, cause := range []struct {
		name, why string
		tokens    int32
	}{
		{"recomputed_eviction", "this worker had evicted them", lost.Eviction},
		{"recomputed_migration", "another worker had computed them", lost.Migration},
	} {
		if cause.tokens > 0 {
			d.Figures[cause.name] = int64(cause.tokens)
			d.text += fmt.Sprintf("; %s are computed again: %s", grouped(int64(cause.tokens)), cause.why)
		}
	}
}

// describeMove tells where KV went, or came from.
func describeMove(d *explainedEvent, e *sim.Event) {
	d.Figures["tokens"] = int64(e.Tokens)
	tokens := grouped(int64(e.Tokens)) + " tokens"
	if e.Took > 0 {
		d.Figures["took_ns"] = int64(e.Took)
	}
	switch {
	case e.What == sim.Demoted:
		d.text = fmt.Sprintf("%s of its session's KV have left the GPU of worker %d", tokens, e.Worker)
	case e.What == sim.Dropped:
		d.text = fmt.Sprintf("%s of its session's KV are forgotten on worker %d", tokens, e.Worker)
	case e.What == sim.Fetched && e.Tokens == 0:
		d.text = "the KV that it waits for does not come; it is computed"
	case e.What == sim.Fetched:
		d.text = fmt.Sprintf("%s that it waits for have come from %s in %s", tokens, e.Why, seconds(e.Took))
	case e.Tokens == 0:
		d.text = "its session's KV is not brought back: " + e.Why
	default:
		d.text = fmt.Sprintf("%s of its session's KV are back on worker %d, from %s in %s", tokens, e.Worker, e.Why, seconds(e.Took))
	}
}

// reasons of a router's choice, in words.
var reasons = map[router.Why]string{
	router.Pinned:       "pinned there by the program scheduler",
	router.HardAffinity: "its session is bound there (hard affinity)",
	router.Preferred:    "preferred by the program scheduler",
	router.SoftAffinity: "its session was there before (soft affinity)",
	router.ByPolicy:     "the policy's choice",
}

// maxOptions bounds the workers that are told of one choice: the best ones, and the chosen.
const maxOptions = 8

// describeChoice tells where a request goes, and what the others would have cost.
func describeChoice(d *explainedEvent, c *router.Choice) {
	d.Why = string(c.Why)
	why := reasons[c.Why]
	if c.Why == router.ByPolicy && c.Costed {
		why = "least cost"
	}
	d.Figures["overlap_blocks"], d.Figures["prompt_blocks"] = int64(c.Overlap), int64(c.Request.PromptBlocks)
	d.text = fmt.Sprintf("routed to worker %d: %s; %d of %d prompt blocks are known there", c.Worker, why, c.Overlap, c.Request.PromptBlocks)
	for _, o := range c.Options {
		e := explainedOption{Worker: o.Worker, OverlapBlocks: o.Overlap, Requests: o.Requests, PrefillTokens: o.PrefillTokens}
		if c.Costed {
			e.Cost = &o.Cost
		}
		d.Options = append(d.Options, e)
	}
	if len(d.Options) > maxOptions {
		rank := func(o explainedOption) float64 {
			switch {
			case int(o.Worker) == c.Worker:
				return -1
			case o.Cost != nil:
				return *o.Cost
			}
			return float64(o.Requests)
		}
		slices.SortStableFunc(d.Options, func(a, b explainedOption) int { return cmp.Compare(rank(a), rank(b)) })
		d.Options = d.Options[:maxOptions]
		slices.SortFunc(d.Options, func(a, b explainedOption) int { return cmp.Compare(a.Worker, b.Worker) })
	}
}

// describeDecision puts a program scheduler's decision into words.
func describeDecision(e *thunderagent.Event) explainedEvent {
	d := explainedEvent{AtNs: int64(e.At), What: string(e.Kind), Why: string(e.Reason),
		Figures: map[string]int64{"size": e.Size}}
	account := ""
	if e.Worker >= 0 {
		d.Worker = new(e.Worker)
		d.Figures["used"], d.Figures["capacity"], d.Figures["room"] = e.Used, e.Capacity, e.Room
		account = fmt.Sprintf("; worker %d: used %s of %s, room %s", e.Worker, grouped(e.Used), grouped(e.Capacity), grouped(e.Room))
	}
	to, on := "", ""
	if e.Worker >= 0 {
		to, on = fmt.Sprintf(" to worker %d", e.Worker), fmt.Sprintf(" on worker %d", e.Worker)
	}
	size := fmt.Sprintf(" (%s tokens)", grouped(e.Size))
	switch e.Kind {
	case thunderagent.Admitted:
		d.text = fmt.Sprintf("let through%s: %s%s", to, e.Reason, size)
		if e.Reason == thunderagent.Fits {
			d.text += account
		}
	case thunderagent.Deferred:
		d.text = fmt.Sprintf("held: %s%s%s", e.Reason, size, account)
	case thunderagent.Paused:
		d.text = fmt.Sprintf("its program is paused: %s%s%s", e.Reason, size, account)
	case thunderagent.Marked:
		d.text = fmt.Sprintf("marked, its program is paused when this turn ends: %s%s%s", e.Reason, size, account)
	case thunderagent.Resumed:
		d.text = fmt.Sprintf("its program is resumed%s: %s%s%s", on, e.Reason, size, account)
	case thunderagent.Forced:
		d.text = fmt.Sprintf("let go%s whatever the room: %s%s%s", to, e.Reason, size, account)
	case thunderagent.Expired:
		d.text = fmt.Sprintf("its program is forgotten: %s%s", e.Reason, size)
	case thunderagent.Migrated:
		d.text = fmt.Sprintf("its program moves%s: %s", to, e.Reason)
	case thunderagent.Restored:
		d.text = fmt.Sprintf("its program is as before the request: %s", e.Reason)
	default:
		d.text = string(e.Kind) + ": " + string(e.Reason)
	}
	return d
}

// seconds prints a time to the millisecond.
func seconds(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }

// grouped prints a number with commas.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	var b strings.Builder
	for i, c := range s {
		if i > 0 && (len(s)-i)%3 == 0 {
			b.WriteByte(',')
		}
		b.WriteRune(c)
	}
	return sign + b.String()
}
