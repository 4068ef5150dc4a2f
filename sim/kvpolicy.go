package sim

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// KVRule makes an event of an agent's session an action on the session's KV. Actions are advice: what can not be done, or
// is not needed any more, is not.
type KVRule struct {
	// On is one of KVEvents, Do one of KVActions.
	On string `yaml:"on"`
	Do string `yaml:"do"`
	// Tool is a glob of the tool's name; Session is root or subagent, "" for both.
	Tool    string `yaml:"tool,omitempty"`
	Session string `yaml:"session,omitempty"`
	// LongerThan and ShorterThan bound the time that the tool is expected to take: a duration, or auto, the time that the
	// session's KV takes to leave the GPU and come back. A tool of which nothing is known matches neither.
	LongerThan  string `yaml:"longer_than,omitempty"`
	ShorterThan string `yaml:"shorter_than,omitempty"`
	// TTL is how long a pin lasts: a duration, or auto: the lease of Continuum (arXiv 2511.02230) for pin; for prefetch
	// twice the time that was expected to be left.
	TTL string `yaml:"ttl,omitempty"`
}

// kvEvent is something that happens to a session.
type kvEvent uint8

const (
	onToolStart kvEvent = iota // a turn has ended with a call of a tool
	onTurnEnd                  // a turn has ended without one, and others follow
	onToolDue                  // a tool is about to return: the time that a transfer takes before it is expected to
	onToolReturn
	onThinkingEnd // a turn has ended that reasoned
	onPause       // by the program scheduler
	onResume      // by the program scheduler before its next request, or by that on another worker than before
	onSubagentStart
	onSubagentEnd
	onCompaction // the first turn after the context was summarized
	onSessionEnd // of a root
	onWorkerLost // on which the session was: what is done there is refused
	kvEvents
)

var kvEventNames = [kvEvents]string{"tool-start", "turn-end", "tool-due", "tool-return", "thinking-end", "pause", "resume",
	"subagent-start", "subagent-end", "compaction", "session-end", "worker-lost"}

// kvAction is what is done with a session's KV.
type kvAction uint8

const (
	doPin       kvAction = iota // keep it on the GPU for a time
	doUnpin                     // end that
	doDemote                    // move what is the session's alone to the host, and free the GPU of it
	doPrefetch                  // bring it back to the GPU
	doDrop                      // forget what is the session's alone, in all tiers
	doEvictLast                 // protect it: evicted after all other KV
	doEvictFirst
	doFetch     // bring it from the worker on which it was, when a request of the session asks for it elsewhere
	doMove      // fetch it, and drop what is the session's alone where it was
	doSpeculate // compute what is known of the next prompt before it comes
	kvActions
)

var kvActionNames = [kvActions]string{"pin", "unpin", "demote", "prefetch", "drop", "evict-last", "evict-first", "fetch", "move", "speculate"}

// KVEvents are the names of the events that rules know, KVActions those of the actions.
func KVEvents() []string { return kvEventNames[:] }

// KVActions are the names of actions.
func KVActions() []string { return kvActionNames[:] }

// kvRule is a KVRule, looked up.
type kvRule struct {
	on kvEvent
	do kvAction
	KVRule
	longer, shorter, ttl time.Duration // autoTime: computed
}

// autoTime stands for a time that is computed, noTime for none.
const (
	noTime   time.Duration = 0
	autoTime time.Duration = -1
)

type kvRules []kvRule

func (rules kvRules) any(do kvAction) bool {
	return slices.ContainsFunc(rules, func(r kvRule) bool { return r.do == do })
}

func (rules kvRules) on(e kvEvent) bool {
	return slices.ContainsFunc(rules, func(r kvRule) bool { return r.on == e })
}

func (rules kvRules) has(e kvEvent, do kvAction) bool {
	return slices.ContainsFunc(rules, func(r kvRule) bool { return r.on == e && r.do == do })
}

// kvPolicies are the built-in policies (Dynamo's and others' proposals: see the README).
var kvPolicies = map[string][]KVRule{
	// No tier is used, or as today's engines do: each tier keeps what was used last.
	"none": nil,
	"lru":  nil,
	// Continuum (arXiv 2511.02230): keep the KV on the GPU while a tool runs.
	"continuum": {{On: "tool-start", Do: "pin", TTL: "auto"}},
	// Leave the GPU while a tool runs for longer than the way out and back takes.
	"offload-on-tool": {{On: "tool-start", Do: "demote", LongerThan: "auto"}},
	// And be back when the tool returns.
	"prefetch-before-return": {{On: "tool-start", Do: "demote", LongerThan: "auto"}, {On: "tool-due", Do: "prefetch", TTL: "auto"}},
	// What a subagent alone had is worth nothing when it has ended.
	"evict-subagents": {{On: "subagent-end", Do: "drop"}},
	// Dynamo's kv.fetch: a session that goes on elsewhere brings its KV from where it was.
	"kvcr": {{On: "resume", Do: "move"}},
	// Dynamo's speculative_prefill: the answer without its reasoning is computed while the tool runs.
	"speculative-prefill": {{On: "tool-start", Do: "speculate"}, {On: "turn-end", Do: "speculate"}},
	"all": {
		{On: "tool-start", Do: "demote", LongerThan: "auto"},
		{On: "tool-start", Do: "pin", ShorterThan: "auto", TTL: "auto"},
		{On: "tool-due", Do: "prefetch", TTL: "auto"},
		{On: "pause", Do: "demote"},
		{On: "resume", Do: "move"},
		{On: "thinking-end", Do: "evict-first"},
		{On: "subagent-end", Do: "drop"},
		{On: "compaction", Do: "drop"},
		{On: "session-end", Do: "drop"},
	},
}

// KVPolicies are the names of the built-in policies.
func KVPolicies() []string {
	return []string{"none", "lru", "continuum", "offload-on-tool", "prefetch-before-return", "evict-subagents", "kvcr", "speculative-prefill", "all"}
}

// maxKVRules bounds the rules: each event is held against all of them.
const maxKVRules = 100

// rules looks up the rules of the policy, and those that stand in the config.
func (k *KV) rules() (kvRules, error) {
	var rules kvRules
	add := func(key string, list []KVRule) error {
		for i, from := range list {
			rule, err := from.resolve(fmt.Sprintf("%s[%d]", key, i))
			if err != nil {
				return err
			}
			rules = append(rules, rule)
		}
		return nil
	}
	for name := range strings.SplitSeq(k.Policy, "+") {
		list, ok := kvPolicies[name]
		switch {
		case !ok:
			return nil, bad("kv.policy", "%q is unknown, want one of %s, or several joined by +", name, strings.Join(KVPolicies(), ", "))
		case name == "none" && k.Policy != name:
			return nil, bad("kv.policy", "%q: none, which leaves out the tiers, goes with no other", k.Policy)
		}
		if err := add("kv.policy", list); err != nil {
			return nil, err
		}
	}
	if len(k.Rules) > maxKVRules {
		return nil, bad("kv.rules", "%d rules, want at most %d", len(k.Rules), maxKVRules)
	}
	return rules, add("kv.rules", k.Rules)
}

func (from KVRule) resolve(key string) (kvRule, error) {
	r := kvRule{KVRule: from}
	on, do := slices.Index(kvEventNames[:], from.On), slices.Index(kvActionNames[:], from.Do)
	switch {
	case on < 0:
		return r, bad(key+".on", "%q is unknown, want one of %s", from.On, strings.Join(kvEventNames[:], ", "))
	case do < 0:
		return r, bad(key+".do", "%q is unknown, want one of %s", from.Do, strings.Join(kvActionNames[:], ", "))
	case !slices.Contains([]string{"", "root", "subagent"}, from.Session):
		return r, bad(key+".session", "%q is unknown, want root, subagent or nothing", from.Session)
	}
	r.on, r.do = kvEvent(on), kvAction(do)
	if _, err := path.Match(from.Tool, ""); err != nil {
		return r, bad(key+".tool", "%q is not a glob: %v", from.Tool, err)
	}
	tool := r.on == onToolStart || r.on == onToolDue
	if !tool && (from.Tool != "" || from.LongerThan != "" || from.ShorterThan != "") {
		return r, bad(key, "tool, longer_than and shorter_than go with tool-start and tool-due")
	}
	for _, t := range []struct {
		key, from string
		to        *time.Duration
	}{{"longer_than", from.LongerThan, &r.longer}, {"shorter_than", from.ShorterThan, &r.shorter}, {"ttl", from.TTL, &r.ttl}} {
		switch d, err := time.ParseDuration(t.from); {
		case t.from == "":
		case t.from == "auto":
			*t.to = autoTime
		case err != nil || d <= 0 || d > longest:
			return r, bad(key+"."+t.key, "%q is not auto or a positive duration such as 2s", t.from)
		default:
			*t.to = d
		}
	}
	return r, nil
}
