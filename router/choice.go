package router

import "time"

// Why is what made a router choose a worker.
type Why string

// The reasons of choices, the strongest first.
const (
	Pinned       Why = "pinned"        // the request may go nowhere else
	HardAffinity Why = "hard affinity" // its session may go nowhere else
	Preferred    Why = "preferred"     // the target of the program scheduler
	SoftAffinity Why = "soft affinity" // the worker of its session, while that is eligible
	ByPolicy     Why = "policy"        // none of these: the policy chose
)

// Choice says why a request goes to a worker.
type Choice struct {
	Request *Request
	Worker  int
	// Overlap is the leading blocks of the prompt that the router takes the worker to hold.
	Overlap int32
	Why     Why
	// Options are the workers that could be chosen, in their order, as they were before the choice. Costed tells that the
	// policy has costs; it may have been overruled.
	Options []Option
	Costed  bool
}

// Option is a worker that could be chosen.
type Option struct {
	Worker  int32
	Overlap int32
	// Requests and PrefillTokens are the load that the router has booked there.
	Requests, PrefillTokens int64
	// Cost is the policy's, in blocks for kv and in tokens for thunderagent; the lowest is best.
	Cost float64
}

// Observe has f called with every choice from now on. A Choice is valid during the call, and f must not call the router.
// It changes no choice.
func (r *Router) Observe(f func(Choice)) { r.observe = f }

// tell explains a choice that has been made and not yet booked.
func (r *Router) tell(now time.Duration, q *Request, worker int, overlap int32) {
	if r.observe == nil {
		return
	}
	c := Choice{Request: q, Worker: worker, Overlap: overlap, Why: r.why(now, q), Costed: r.policy.weigh != nil}
	if r.cache != nil || r.guess != nil {
		r.lookup(now, q)
	}
	if c.Costed {
		r.share(q)
		r.policy.weigh(r, q)
	}
	for i, w := range r.candidates {
		o := Option{Worker: w, Requests: r.loads[w].requests, PrefillTokens: r.loads[w].prefill}
		if r.cache != nil || r.guess != nil {
			o.Overlap = r.score.overlap[w]
		}
		if c.Costed {
			o.Cost = r.score.cost[i]
		}
		c.Options = append(c.Options, o)
	}
	r.observe(c)
}

// why repeats the order in which choose looks for a worker.
func (r *Router) why(now time.Duration, q *Request) Why {
	switch {
	case q.Pinned >= 0:
		return Pinned
	case q.exact >= 0:
		return HardAffinity
	case r.policy.moves || r.target(now, q) < 0:
		return ByPolicy
	case r.eligible(q.Preferred):
		return Preferred
	}
	return SoftAffinity
}
