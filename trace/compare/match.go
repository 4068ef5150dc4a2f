// Package compare matches the calls of two traces of the same work, recorded, predicted or replayed, and tells how far their
// times are apart.
package compare

import (
	"slices"
	"strings"

	"github.com/agentsim/agentsim/trace"
)

// pair is a call of one workload and the same call of another, as indexes into Workload.Calls.
type pair struct{ a, b int32 }

// matching is the calls of two workloads that are the same.
type matching struct {
	pairs []pair
	// ofA and ofB count the calls that have no counterpart.
	ofA, ofB unmatched
}

// unmatched counts calls by why they have no counterpart: the other trace lacks their session, or that session lacks them.
type unmatched struct{ session, turn int64 }

// match pairs calls by session and, within it, by request id, or by their place where no id is on both sides. Each copy of a
// session, whose id is NAME#1 and so on, pairs with the same copy, or else with the session itself.
func match(a, b *trace.Workload) matching {
	var m matching
	callsA, callsB := bySession(a), bySession(b)
	hasA, hasB := make([]bool, len(a.Calls)), make([]bool, len(b.Calls)) // a counterpart
	pairedA, pairedB := make([]bool, len(callsA)), make([]bool, len(callsB))
	for _, s := range sessionPairs(a, b) {
		pairedA[s.a], pairedB[s.b] = true, true
		for _, p := range matchCalls(a, b, callsA[s.a], callsB[s.b]) {
			m.pairs = append(m.pairs, p)
			hasA[p.a], hasB[p.b] = true, true
		}
	}
	m.ofA, m.ofB = countUnmatched(a, hasA, pairedA), countUnmatched(b, hasB, pairedB)
	return m
}

// bySession lists the calls of each session in order of start.
func bySession(w *trace.Workload) [][]int32 {
	calls := make([][]int32, len(w.Sessions))
	for i := range w.Calls {
		s := w.Calls[i].Session
		calls[s] = append(calls[s], int32(i))
	}
	return calls
}

// sessionPairs pairs sessions, as indexes into Workload.Sessions.
func sessionPairs(a, b *trace.Workload) []pair {
	indexA, indexB := sessionIndex(a), sessionIndex(b)
	paired := make([]bool, len(a.Sessions))
	var pairs []pair
	for i, s := range b.Sessions {
		at, ok := indexA[s.ID]
		if !ok {
			at, ok = indexA[original(s.ID)]
		}
		if ok {
			pairs = append(pairs, pair{at, int32(i)})
			paired[at] = true
		}
	}
	for i, s := range a.Sessions {
		if at, ok := indexB[original(s.ID)]; ok && !paired[i] {
			pairs = append(pairs, pair{int32(i), at})
		}
	}
	return pairs
}

func sessionIndex(w *trace.Workload) map[string]int32 {
	index := make(map[string]int32, len(w.Sessions))
	for i, s := range w.Sessions {
		if _, taken := index[s.ID]; !taken {
			index[s.ID] = int32(i)
		}
	}
	return index
}

// matchCalls pairs the calls of a session.
func matchCalls(a, b *trace.Workload, callsA, callsB []int32) []pair {
	byID := make(map[string]int32, len(callsA))
	for _, i := range callsA {
		byID[a.Calls[i].Turn.ID] = i
	}
	var pairs []pair
	for _, i := range callsB {
		id := b.Calls[i].Turn.ID
		at, ok := byID[id]
		if !ok {
			at, ok = byID[original(id)]
		}
		if ok {
			pairs = append(pairs, pair{at, i})
		}
	}
	if len(pairs) > 0 {
		return pairs
	}
	for i := range min(len(callsA), len(callsB)) {
		pairs = append(pairs, pair{callsA[i], callsB[i]})
	}
	return pairs
}

// original is the id that a copy's was made from.
func original(id string) string {
	at := strings.LastIndexByte(id, '#')
	notDigit := func(r rune) bool { return r < '0' || r > '9' }
	if at <= 0 || at == len(id)-1 || strings.ContainsFunc(id[at+1:], notDigit) {
		return id
	}
	return id[:at]
}

func countUnmatched(w *trace.Workload, has, paired []bool) (u unmatched) {
	for i := range w.Calls {
		switch {
		case has[i]:
		case paired[w.Calls[i].Session]:
			u.turn++
		default:
			u.session++
		}
	}
	return u
}

// programs pairs the programs of which every call has its counterpart in the other.
func (m *matching) programs(a, b *trace.Workload) []pair {
	counts := map[pair]int{}
	var pairs []pair
	for _, p := range m.pairs {
		program := pair{a.Calls[p.a].Program, b.Calls[p.b].Program}
		if counts[program]++; counts[program] == 1 {
			pairs = append(pairs, program)
		}
	}
	return slices.DeleteFunc(pairs, func(p pair) bool {
		n, x, y := counts[p], &a.Programs[p.a], &b.Programs[p.b]
		return n != int(x.Last-x.First) || n != int(y.Last-y.First)
	})
}
