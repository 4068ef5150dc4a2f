package anonymize

import (
	"encoding/json"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/xxh3"
)

// bijection maps values, or fingerprints of them, to their replacements and back.
type bijection struct{ to, from map[uint64]uint64 }

func newBijection() bijection { return bijection{map[uint64]uint64{}, map[uint64]uint64{}} }

// bind notes that a stands for b and tells whether that agrees with all that was noted before.
func (m bijection) bind(a, b uint64) bool {
	to, known := m.to[a]
	from, taken := m.from[b]
	if known || taken {
		return known && taken && to == b && from == a
	}
	m.to[a], m.from[b] = b, a
	return true
}

// agrees is bind without noting anything.
func (m bijection) agrees(a, b uint64) bool {
	to, known := m.to[a]
	from, taken := m.from[b]
	return (!known || to == b) && (!taken || from == a)
}

// The keys whose numbers are replaced, by the last part of their path.
var (
	hashKeys = []string{"input_sequence_hashes", "completion_sequence_hashes", "output_sequence_hashes", "hash_ids",
		"prefill_worker_id", "decode_worker_id"}
	timeKeys = []string{"event_time_unix_ms", "request_received_ms", "started_at_unix_ms", "ended_at_unix_ms",
		"first_unix_ms", "last_unix_ms", "timestamp", "created_time", "not_before_ms"}
)

// countPaths are the token counts and lengths that every result must have.
var countPaths = []string{
	"request.input_tokens", "request.output_tokens", "request.cached_tokens", "request.replay.trace_block_size",
	"request.replay.input_length", "request.replay.input_sequence_hashes", "request.agentsim.reasoning_tokens",
	"input_length", "output_length", "input_tokens", "output_tokens", "hash_ids",
	"requests.in", "requests.out", "requests.hash_ids", "requests.requests.in", "requests.requests.out", "requests.requests.hash_ids",
	"message.usage.input_tokens", "message.usage.output_tokens", "message.usage.cache_read_input_tokens",
	"message.usage.cache_creation_input_tokens",
	"payload.info.last_token_usage.input_tokens", "payload.info.last_token_usage.cached_input_tokens",
	"payload.info.last_token_usage.output_tokens", "payload.info.last_token_usage.reasoning_output_tokens",
	"payload.info.total_token_usage.input_tokens", "payload.info.total_token_usage.output_tokens",
}

// counted returns the token counts of a row, each with its path, and of lists of hashes the lengths.
func counted(tree any) []string {
	if m, ok := tree.(map[string]any); ok {
		if event, ok := m["event"].(map[string]any); ok {
			tree = event
		}
	}
	var found []string
	var walk func(tree any, path string)
	walk = func(tree any, path string) {
		switch t := tree.(type) {
		case map[string]any:
			for _, key := range sortedKeys(t) {
				walk(t[key], strings.TrimPrefix(path+"."+key, "."))
			}
		case []any:
			if slices.Contains(countPaths, path) {
				found = append(found, fmt.Sprint(path, " ", len(t)))
				return
			}
			for _, e := range t {
				walk(e, path)
			}
		case json.Number:
			if slices.Contains(countPaths, path) {
				found = append(found, path+" "+t.String())
			}
		}
	}
	walk(tree, "")
	return found
}

func sortedKeys(m map[string]any) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// pairFiles finds the original of each anonymized file, whose name says nothing, by its token counts, and compares the
// two. Where several files have the same ones (none, say) it takes the first that agrees with what is known of ids.
func (v *verifier) pairFiles(original, result []outlined) error {
	waiting := map[uint64][]outlined{}
	for _, o := range original {
		waiting[o.print] = append(waiting[o.print], o)
	}
	var ties []outlined
	for _, r := range result {
		if v.proof.Counts += r.counts; len(waiting[r.print]) > 1 {
			ties = append(ties, r)
		} else if err := v.pairFile(r, waiting); err != nil {
			return err
		}
	}
	for _, r := range ties {
		if err := v.pairFile(r, waiting); err != nil {
			return err
		}
	}
	for _, o := range original {
		if o.counts > 0 && slices.ContainsFunc(waiting[o.print], func(w outlined) bool { return w.Path == o.Path }) {
			v.proof.fail("%s: no result has its token counts: some were changed, or rows were dropped", o.Path)
		}
	}
	return nil
}

// pairFile compares an anonymized file with one of the originals that wait for theirs.
func (v *verifier) pairFile(r outlined, waiting map[uint64][]outlined) error {
	candidates := waiting[r.print]
	for i, o := range candidates {
		if i < len(candidates)-1 {
			if agree, err := v.compareFiles(o.File, r.File, false); err != nil {
				return err
			} else if !agree {
				continue
			}
		}
		waiting[r.print] = slices.Delete(slices.Clone(candidates), i, i+1)
		_, err := v.compareFiles(o.File, r.File, true)
		return err
	}
	v.proof.fail("%s: no original has its token counts: some were changed, or rows were dropped", r.Path)
	return nil
}

// compareFiles goes through an original and its anonymized file row by row, and notes what stands for what; with note
// unset it only tells whether the two agree with what was noted before.
func (v *verifier) compareFiles(original, result File, note bool) (agree bool, err error) {
	next, stop := iter.Pull(func(yield func(row) bool) {
		if e := v.rows(original, yield); e != nil {
			err = e
		}
	})
	defer stop()
	agree = true
	failed := v.rows(result, func(r row) bool {
		for {
			o, ok := next()
			if !ok {
				agree = false
				if note {
					v.proof.fail("%s:%d: no row of %s has this structure and these numbers", r.file, r.line, original.Path)
				}
				return false
			}
			c := comparison{v: v, note: note}
			if !c.fits(o.tree, r.tree, "") {
				continue
			}
			if c.bind(o.tree, r.tree, ""); c.conflict != "" {
				agree = false
				if note {
					v.proof.fail("%s:%d: %s, against %s:%d", r.file, r.line, c.conflict, o.file, o.line)
				}
				return note
			}
			return true
		}
	})
	if failed != nil {
		return false, failed
	}
	return agree, err
}

// comparison is that of one row of an original with one of a result.
type comparison struct {
	v        *verifier
	note     bool
	conflict string
}

// fits tells whether the result's tree is that of the original with parts left out and values replaced.
func (c *comparison) fits(o, r any, key string) bool {
	switch r := r.(type) {
	case map[string]any:
		om, ok := o.(map[string]any)
		if isArguments(r) && (!ok || om["text"] == nil) {
			return true
		}
		for k, e := range r {
			if oe, there := om[k]; !there || !c.fits(oe, e, k) {
				return isArguments(r)
			}
		}
		return ok
	case []any:
		ol, ok := o.([]any)
		if !ok || slices.Contains(hashKeys, key) {
			return ok && len(ol) == len(r)
		}
		_, ok = align(ol, r, func(o, r any) bool { return c.fits(o, r, key) })
		return ok
	case json.Number:
		on, ok := o.(json.Number)
		return ok && (on == r || slices.Contains(hashKeys, key) || slices.Contains(timeKeys, key))
	case string:
		switch os := o.(type) {
		case json.Number:
			return isPseudonym(r)
		case string:
			switch {
			case r == os, isPseudonym(r), r == "error" && strings.HasPrefix(os, r):
				return true
			case isTime(r):
				return isTime(os)
			}
			return isFiller(r) && (len(r) == len(os) || strings.HasPrefix(r, "{"))
		}
		return false
	}
	return o == r
}

// align finds for each element of r one of o that matches, in order.
func align(o, r []any, match func(o, r any) bool) (pairs [][2]any, ok bool) {
	at := 0
	for _, e := range r {
		for at < len(o) && !match(o[at], e) {
			at++
		}
		if at == len(o) {
			return nil, false
		}
		pairs = append(pairs, [2]any{o[at], e})
		at++
	}
	return pairs, true
}

// isArguments tells what stands for the arguments of a tool.
func isArguments(m map[string]any) bool {
	s, ok := m["text"].(string)
	return ok && len(m) == 1 && isFiller(s)
}

// bind holds the replacements of two trees that fit against all others.
func (c *comparison) bind(o, r any, key string) {
	switch r := r.(type) {
	case map[string]any:
		om, _ := o.(map[string]any)
		for k, e := range r {
			if oe, there := om[k]; there && c.fits(oe, e, k) {
				c.bind(oe, e, k)
			}
		}
	case []any:
		ol := o.([]any)
		if slices.Contains(hashKeys, key) {
			for i := range r {
				c.bindHash(ol[i], r[i], key)
			}
			return
		}
		pairs, _ := align(ol, r, func(o, r any) bool { return c.fits(o, r, key) })
		for _, p := range pairs {
			c.bind(p[0], p[1], key)
		}
	case json.Number:
		c.bindNumber(o.(json.Number), r, key)
	case string:
		c.bindString(o, r)
	}
}

func (c *comparison) bindNumber(o, r json.Number, key string) {
	switch {
	case slices.Contains(hashKeys, key):
		c.bindHash(o, r, key)
	case slices.Contains(timeKeys, key):
		a, _ := o.Float64()
		b, _ := r.Float64()
		if a >= epochMs {
			c.bindShift(int64(math.Round(b-a)), key)
		} else if o != r {
			c.conflict = fmt.Sprintf("%s is %s, was %s", key, r, o)
		}
	}
}

func (c *comparison) bindHash(o, r any, key string) {
	a, errA := strconv.ParseUint(fmt.Sprint(o), 10, 64)
	b, errB := strconv.ParseUint(fmt.Sprint(r), 10, 64)
	if errA != nil || errB != nil || !c.hold(c.v.hashes, a, b) {
		c.conflict = fmt.Sprintf("%s: %v stands for two values, or two for it", key, r)
	}
}

// bindShift holds the distance of two times, in milliseconds, against that of all others.
func (c *comparison) bindShift(by int64, what string) {
	if c.v.shift == nil {
		c.v.shift = &by
		c.v.proof.Shifted = by != 0
	}
	if *c.v.shift != by {
		c.conflict = fmt.Sprintf("%s is moved by %d ms, other times by %d ms", what, by, *c.v.shift)
	}
}

func (c *comparison) bindString(o any, r string) {
	os := fmt.Sprint(o) // a number that is an id
	a, b := xxh3.HashString(os), xxh3.HashString(r)
	words := c.v.proof
	switch {
	case isPseudonym(r):
		if !c.hold(c.v.ids, a, b) {
			c.conflict = fmt.Sprintf("pseudonym %s stands for two ids, or two for one", r)
		}
	case r == os && words.Words[r]+words.Models[r]+words.Tools[r] > 0:
	case isTime(r) && isTime(os):
		ta, _ := time.Parse(time.RFC3339Nano, os)
		tb, _ := time.Parse(time.RFC3339Nano, r)
		c.bindShift(tb.Sub(ta).Round(time.Millisecond).Milliseconds(), "time")
	case len(r) >= certain:
		if !c.hold(c.v.texts, a, b) {
			c.conflict = "one text has two fillers, or two texts one"
		}
	}
}

func (c *comparison) hold(m bijection, a, b uint64) bool {
	if !c.note {
		return m.agrees(a, b)
	}
	return m.bind(a, b)
}
