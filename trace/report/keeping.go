package report

import (
	"fmt"
	"slices"
	"strings"
)

// The configuration keys that the sentence about KV below the GPUs looks at.
const (
	policyKey = "kv.policy"
	hostKey   = "kv.host.capacity"
)

// keeping says what tiers below the GPUs, and a policy for the KV of sessions, were worth: of the best row that has them
// against the one that differs in that alone, and why. "" where no two rows do. What the winner is against the baseline has
// been said before.
func (c *comparison) keeping(winner int) string {
	if len(c.runs) == 1 && len(c.ranked) == 1 {
		if facts := c.runs[0].keptBy(&Run{}); len(facts) > 0 {
			return "KV: " + strings.Join(facts, ", ") + "."
		}
	}
	tiered := func(r *Run) bool { return len(r.KV.Tiers) > 0 }
	acted := func(r *Run) bool { return len(r.KV.Actions) > 0 }
	for _, by := range []struct {
		key string
		of  func(*Run) bool
	}{{policyKey, tiered}, {hostKey, tiered}, {policyKey, acted}} {
		for _, i := range c.ranked {
			if j := c.without(c.runs[i], by.key); j >= 0 && by.of(c.runs[i]) {
				return c.worth(i, j, i == winner && j == c.base)
			}
		}
	}
	return ""
}

// without returns the ranked run that differs from r only in that it has no policy, or no tier; -1 if there is none, or r is it.
func (c *comparison) without(r *Run, key string) int {
	value, ok := r.axis(key)
	if !ok || plain(value) {
		return -1
	}
	at := slices.IndexFunc(c.ranked, func(j int) bool {
		other := c.runs[j]
		if v, ok := other.axis(key); !ok || !plain(v) || len(other.Axes) != len(r.Axes) || !sameWork(r, other) {
			return false
		}
		return !slices.ContainsFunc(r.Axes, func(a Axis) bool {
			v, ok := other.axis(a.Key)
			return !ok || a.Key != key && v != a.Value
		})
	})
	if at < 0 {
		return -1
	}
	return c.ranked[at]
}

// plain tells that a value of policyKey or hostKey means that nothing is done.
func plain(value string) bool {
	return value == "lru" || value == "none" || value == "" || value == "0"
}

// worth is the sentence about run i, which has what run j lacks; told that all but the facts about KV is known.
func (c *comparison) worth(i, j int, told bool) string {
	r, other := c.runs[i], c.runs[j]
	facts, pair := r.keptBy(other), fmt.Sprintf("KV: %s against %s: ", r.label(), other.label())
	if told && len(facts) > 0 {
		return pair + strings.Join(facts, ", ") + "."
	}
	var same, changes []string
	for _, m := range []Metric{c.metric, ttftP99, reprefillShare} {
		if m.differ(r, other) {
			changes = append(changes, fmt.Sprintf("%s %s against %s", m.Name, c.print(m, i), c.print(m, j)))
		} else if m.Of(r).Known && m.Of(other).Known {
			same = append(same, m.Name)
		}
	}
	text := pair + strings.Join(changes, ", ")
	if len(changes) == 0 {
		text += "the same " + list(same)
	}
	if len(facts) > 0 {
		text += "; " + strings.Join(facts, ", ")
	}
	return text + "."
}

// keptBy tells how a run came by KV that was not on its GPUs, against another where that differs, and what it cost.
func (r *Run) keptBy(other *Run) []string {
	var facts []string
	if share, before := broughtShare(r), broughtShare(other); share.Value > 0 {
		text := percent(share.Value) + " of prompt tokens come from " + r.sources()
		switch {
		case brought.differ(r, other):
			text += " against " + percent(before.Value)
		case !before.Known:
			text += " instead of being computed"
		}
		facts = append(facts, text)
	}
	if d := r.KV.Actions["demote"]; d.Refused > 0 && !r.KV.Tiers["host"].CapacityTokens.Known {
		facts = append(facts, fmt.Sprintf("all %d demotes were refused, for there is no host memory for KV (%s)", d.Refused, hostKey))
	}
	if p := r.KV.Actions["prefetch"]; p.done() > 0 {
		facts = append(facts, fmt.Sprintf("%d of %d prefetches were wasted and %d late", p.Wasted, p.done(), p.Late))
	}
	if p := r.KV.Actions["pin"]; p.done() > 0 && p.Late > 0 {
		facts = append(facts, countOf(p.Late, p.done(), "pin")+" ended before the tool returned")
	}
	if idleKV.differ(r, other) {
		facts = append(facts, fmt.Sprintf("KV held idle is %s GiB·s against %s", number(idleKV.Of(r).Value), number(idleKV.Of(other).Value)))
	}
	if l := busiest(r); l != nil {
		facts = append(facts, fmt.Sprintf("the busiest link, %s, moves KV %s of the time", l.Name, percent(l.BusiestShare.Value)))
	}
	return facts
}

// sources lists the tiers from which tokens came.
func (r *Run) sources() string {
	names := map[string]string{"host": "host memory", "disk": "drives", "remote": "the remote pool", "peer": "other workers"}
	var from []string
	for _, name := range tierNames {
		if r.KV.Tiers[name].ReadTokens.Value > 0 {
			from = append(from, names[name])
		}
	}
	return list(from)
}
