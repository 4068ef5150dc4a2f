package merge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// Clock is how a harness's clock stands to the server's.
type Clock struct {
	// Ahead is by how much it is ahead: the median over Pairs events that both clocks time. Spread is the median distance from it.
	Ahead  time.Duration `json:"ahead_ns"`
	Spread time.Duration `json:"spread_ns"`
	Pairs  int           `json:"pairs"`
	// By says what the events are.
	By string `json:"by"`
}

// What a clock is told by.
const (
	byIDs    = "calls with equal ids"
	byTokens = "calls with equal token counts"
	bySpans  = "tools that another recording times"
	byAsking = "the calls that asked for the tools"
	byHand   = "hand"
)

// Bounds on what is trusted.
const (
	// window is how far from the clock's median what a harness notes of a call may be.
	window = time.Second
	// minPairs is how many calls must agree in their token counts, and agreeing is one in how many must.
	minPairs = 3
	agreeing = 4
	// maxAhead bounds what is taken for a difference between clocks: the time zones span from -12 to +14 hours.
	maxAhead = 15 * time.Hour
	// maxByHand bounds Options.Ahead: what was recorded within ten years.
	maxByHand = 10 * 365 * 24 * time.Hour
	// maxSpread bounds Clock.Spread.
	maxSpread = 2 * time.Second
	// maxVotes bounds the pairs of calls with one pair of token counts: what many calls have tells nothing.
	maxVotes = 64
)

// median returns the median of differences, which it sorts, and their median distance from it.
func median(list []time.Duration) (middle, spread time.Duration) {
	slices.Sort(list)
	middle = list[len(list)/2]
	far := make([]time.Duration, len(list))
	for i, d := range list {
		far[i] = (d - middle).Abs()
	}
	slices.Sort(far)
	return middle, far[len(far)/2]
}

// clockOf is the clock that differences tell. A wide spread tells none.
func clockOf(differences []time.Duration, by string) (*Clock, error) {
	c := &Clock{Pairs: len(differences), By: by}
	if c.Ahead, c.Spread = median(differences); c.Spread > maxSpread {
		return nil, fmt.Errorf("its clock cannot be told by %s: over %d of them the median difference to the server's is %v, but half of them are more than %v away from that; "+
			"--clock-skew sets how far it is ahead", by, c.Pairs, c.Ahead, c.Spread)
	}
	return c, nil
}

// vote is how far a harness's clock is ahead if two calls are one.
type vote struct {
	ahead time.Duration
	call  int32 // of the harness
}

// clockByTokens estimates the clock by calls whose input and output tokens are equal on both sides: for the true difference
// many of them agree, for any other only few.
func (t *telling) clockByTokens() (*Clock, error) {
	votes, voters := t.votes()
	best, second := densest(votes, 2*(window+t.resolution))
	where := fmt.Sprintf("%d of its %d calls with known token counts", best.calls, voters)
	if best.calls < minPairs || best.calls*agreeing < min(voters, len(t.served.calls)) {
		return nil, fmt.Errorf("no ids in common, and only %s agree with the server's calls in token counts and on one clock difference (wanted: %d, and one in %d): "+
			"is it another run? --clock-skew sets how far its clock is ahead", where, minPairs, agreeing)
	}
	if best.calls < 2*second.calls {
		return nil, fmt.Errorf("no ids in common, and two clock differences fit: %v (%s) and %v (%d calls); --clock-skew sets how far its clock is ahead",
			votes[best.from].ahead.Round(time.Millisecond), where, votes[second.from].ahead.Round(time.Millisecond), second.calls)
	}
	return clockOf(best.nearest(votes), byTokens)
}

// votes pairs the calls of equal token counts, in order of the clock difference. It counts the calls that could have voted.
func (t *telling) votes() (votes []vote, voters int) {
	type tokens struct{ input, output int32 }
	key := func(c *trace.Turn) (tokens, bool) {
		return tokens{c.Input, c.Output}, filled(c)&(trace.FieldInput|trace.FieldOutput) == 0
	}
	served, told := map[tokens][]*trace.Turn{}, map[tokens][]int32{}
	for _, c := range t.served.calls {
		if k, ok := key(c); ok {
			served[k] = append(served[k], c)
		}
	}
	for i, c := range t.calls {
		if k, ok := key(c); ok {
			told[k] = append(told[k], int32(i))
			voters++
		}
	}
	for k, calls := range told {
		if len(calls)*len(served[k]) > maxVotes {
			continue
		}
		for _, i := range calls {
			for _, on := range served[k] {
				if d, ok := t.ahead(t.calls[i], on); ok && (!t.absolute || d.Abs() <= maxAhead) {
					votes = append(votes, vote{d, i})
				}
			}
		}
	}
	slices.SortFunc(votes, func(a, b vote) int { return cmp.Or(cmp.Compare(a.ahead, b.ahead), cmp.Compare(a.call, b.call)) })
	return votes, voters
}

// stretch is a range of votes, and how many calls voted in it.
type stretch struct{ from, to, calls int }

// densest returns the stretch of votes of a width in which the most calls voted, and the one after that which has no part of it.
func densest(votes []vote, width time.Duration) (best, second stretch) {
	each := func(do func(stretch)) {
		voted := map[int32]int{}
		from := 0
		for to := range votes {
			voted[votes[to].call]++
			for ; votes[to].ahead-votes[from].ahead > width; from++ {
				if voted[votes[from].call]--; voted[votes[from].call] == 0 {
					delete(voted, votes[from].call)
				}
			}
			do(stretch{from, to + 1, len(voted)})
		}
	}
	each(func(s stretch) {
		if s.calls > best.calls {
			best = s
		}
	})
	each(func(s stretch) {
		apart := s.to <= best.from && votes[best.from].ahead-votes[s.to-1].ahead > width/2 ||
			s.from >= best.to && votes[s.from].ahead-votes[best.to-1].ahead > width/2
		if apart && s.calls > second.calls {
			second = s
		}
	})
	return best, second
}

// nearest returns for each call that voted in the stretch its vote that is nearest to the median.
func (s stretch) nearest(votes []vote) []time.Duration {
	all := make([]time.Duration, 0, s.to-s.from)
	for _, v := range votes[s.from:s.to] {
		all = append(all, v.ahead)
	}
	middle, _ := median(all)
	nearest := map[int32]time.Duration{}
	for _, v := range votes[s.from:s.to] {
		if d, ok := nearest[v.call]; !ok || (v.ahead-middle).Abs() < (d-middle).Abs() {
			nearest[v.call] = v.ahead
		}
	}
	list := all[:0]
	for _, d := range nearest {
		list = append(list, d)
	}
	slices.Sort(list)
	return list
}
