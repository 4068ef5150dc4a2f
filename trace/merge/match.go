package merge

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// telling is what one harness tells of calls. Its times are on the server's clock as soon as its own is known.
type telling struct {
	source Source
	served *served
	calls  []*trace.Turn // in order of start
	// of is the server's call that each is, or -1; heard is the reverse.
	of, heard []int32
	// absolute tells that both clocks count from the Unix epoch; resolution is the sum of both.
	absolute   bool
	resolution time.Duration
	report     HarnessReport
}

// hear makes what a harness tells ready to be matched.
func (s *served) hear(h Source) *telling {
	t := &telling{source: h, served: s, report: HarnessReport{Count: count(h)}}
	server := s.source.Capture
	t.absolute = h.Capture.Epoch != 0 && server.Epoch != 0
	t.resolution = h.Capture.Resolution + server.Resolution
	for _, session := range h.Capture.Sessions {
		for _, c := range session.Turns {
			c.Session = session
			t.calls = append(t.calls, c)
		}
	}
	if t.absolute {
		shift(h.Capture, time.Duration(h.Capture.Epoch-server.Epoch)*time.Millisecond)
	}
	slices.SortFunc(t.calls, byStart)
	t.of, t.heard = fill(len(t.calls)), fill(len(s.calls))
	return t
}

// fill returns a list of n times -1.
func fill(n int) []int32 {
	list := make([]int32, n)
	for i := range list {
		list[i] = -1
	}
	return list
}

// shift moves all times of a capture.
func shift(c *trace.Capture, by time.Duration) {
	move := func(at *time.Duration) {
		if *at != trace.NoTime {
			*at += by
		}
	}
	for _, s := range c.Sessions {
		for _, t := range s.Turns {
			move(&t.Start)
			move(&t.End)
		}
		for i := range s.Tools {
			move(&s.Tools[i].Start)
			move(&s.Tools[i].End)
		}
	}
}

// match finds the calls on the server's side: by ids, and then by tokens and time.
func (t *telling) match(o Options) error {
	t.matchIDs()
	if err := t.checkIDs(); err != nil {
		return err
	}
	if !t.source.Capture.SharedClock {
		if t.matched() == 0 {
			return errors.New("no ids in common, and its times are on no clock that its sessions share")
		}
		return nil
	}
	clock, err := t.clock(o)
	if err != nil {
		return err
	}
	t.report.Clock = clock
	shift(t.source.Capture, -clock.Ahead)
	t.matchTimes()
	if t.matched() == 0 {
		return fmt.Errorf("none of its %d calls is one of the server's, with its clock ahead by %v: is it another run?", len(t.calls), clock.Ahead)
	}
	return nil
}

func (t *telling) matched() int { return t.report.Matched() }

// pair notes that a harness's call is a server's.
func (t *telling) pair(i, on int32, how *int) {
	t.of[i], t.heard[on] = on, i
	*how++
}

// matchIDs pairs calls that have an id in common, or the id of a tool call and prompts of equal length: some servers count tool
// calls from 0 in each answer.
func (t *telling) matchIDs() {
	own, ownTools := idsOf(t.calls), toolsOf(t.calls)
	try := func(i, on int32) bool {
		if on >= 0 && t.of[i] < 0 && t.heard[on] < 0 {
			t.pair(i, on, &t.report.ByID)
		}
		return t.of[i] >= 0
	}
	for n, c := range t.calls {
		i := int32(n)
		for _, id := range append([]string{c.ID}, c.Aliases...) {
			if find(own, id) == i && try(i, find(t.served.ids, id)) {
				break
			}
		}
	}
	for n, c := range t.calls {
		i := int32(n)
		for _, tool := range c.ToolCalls {
			on := find(t.served.tools, tool.ID)
			if find(ownTools, tool.ID) == i && on >= 0 && sameInput(c, t.served.calls[on]) && try(i, on) {
				break
			}
		}
	}
}

// sameInput tells whether nothing speaks against two prompts being equally long.
func sameInput(a, b *trace.Turn) bool {
	return a.Input == b.Input || (filled(a)|filled(b))&trace.FieldInput != 0
}

// checkIDs refuses ids that say nothing: most of the prompts are of quite different lengths.
func (t *telling) checkIDs() error {
	told, apart := 0, 0
	for i, on := range t.of {
		if on < 0 {
			continue
		}
		c, s := t.calls[i], t.served.calls[on]
		if (filled(c)|filled(s))&trace.FieldInput != 0 {
			continue
		}
		told++
		if far := max(c.Input, s.Input) - min(c.Input, s.Input); far > max(c.Input, s.Input)/4 {
			apart++
		}
	}
	if 2*apart > told {
		return fmt.Errorf("%d calls have ids in common, but the prompts of %d are of quite other lengths: is it another run?", t.matched(), apart)
	}
	return nil
}

// byEnd tells whether a harness's call is found by its end, which most note better than the start.
func byEnd(c *trace.Turn) bool {
	startTold := c.Start != trace.NoTime && c.Inferred&trace.FieldStart == 0
	endTold := c.End != trace.NoTime && c.Inferred&trace.FieldEnd == 0
	return endTold || !startTold && c.End != trace.NoTime
}

// ahead is how much later the harness's clock has a call than the server's.
func (t *telling) ahead(c, on *trace.Turn) (time.Duration, bool) {
	ends := byEnd(c)
	at, served := timeOf(c, ends), timeOf(on, ends)
	return at - served, at != trace.NoTime && served != trace.NoTime
}

// clock tells how far the harness's clock is ahead: by hand, by the calls that are paired already, or by tokens. A hand that
// those calls contradict is refused: tools, which nothing pairs, would be moved to wrong times.
func (t *telling) clock(o Options) (*Clock, error) {
	var differences []time.Duration
	for i, on := range t.of {
		if on < 0 {
			continue
		}
		if d, ok := t.ahead(t.calls[i], t.served.calls[on]); ok {
			differences = append(differences, d)
		}
	}
	if o.Ahead != nil {
		if len(differences) > 0 {
			if told, spread := median(differences); spread <= maxSpread && (told-*o.Ahead).Abs() > maxSpread {
				return nil, fmt.Errorf("by %d %s its clock is ahead by %v, not by %v: leave out --clock-skew", len(differences), byIDs, told, *o.Ahead)
			}
		}
		return &Clock{Ahead: *o.Ahead, By: byHand}, nil
	}
	if len(differences) > 0 {
		return clockOf(differences, byIDs)
	}
	return t.clockByTokens()
}

// candidate is a server's call that a harness's may be.
type candidate struct {
	call, on int32
	off      time.Duration // by which their times differ
	level    int8
	fit      time.Duration // how well session and conversation fit
}

// The levels of candidates.
const (
	levelTime   int8 = iota // nothing but the time
	levelInput              // input tokens are equal
	levelTokens             // so are output tokens
)

// together is a session of a harness and a conversation of the server.
type together struct {
	session      *trace.Session
	conversation int32
}

// matchTimes pairs the calls that are left by time and tokens. Where several would do, the conversation of the server decides that
// has most of the session's calls, then the time.
func (t *telling) matchTimes() {
	list := t.candidates()
	slack := t.slack()
	fits := map[together]time.Duration{}
	for i, on := range t.of {
		if on >= 0 {
			fits[t.together(int32(i), on)] += 2 * slack
		}
	}
	for _, c := range list {
		if c.level > levelTime {
			fits[t.together(c.call, c.on)] += 2*slack - c.off
		}
	}
	for i := range list {
		c := &list[i]
		at := t.together(c.call, c.on)
		c.fit = fits[at]
		if name := t.served.names[at.conversation]; name != "" && name == at.session.ID {
			c.fit += 1 << 60 // more than any sum
		}
	}
	slices.SortFunc(list, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(b.level, a.level), cmp.Compare(b.fit, a.fit), cmp.Compare(a.off, b.off), cmp.Compare(a.on, b.on), cmp.Compare(a.call, b.call))
	})
	free := func(c candidate) bool { return t.of[c.call] < 0 && t.heard[c.on] < 0 }
	timed := list[len(list):]
	for at, c := range list {
		if c.level == levelTime {
			timed = list[at:]
			break
		}
		if free(c) {
			how := &t.report.ByTokens
			if c.level == levelInput {
				how = &t.report.ByInput
			}
			t.pair(c.call, c.on, how)
		}
	}
	// The time alone is enough where it leaves no choice.
	timed = slices.DeleteFunc(timed, func(c candidate) bool { return !free(c) })
	calls, ons := map[int32]int{}, map[int32]int{}
	for _, c := range timed {
		calls[c.call]++
		ons[c.on]++
	}
	for _, c := range timed {
		if calls[c.call] == 1 && ons[c.on] == 1 {
			t.pair(c.call, c.on, &t.report.ByTime)
		}
	}
}

func (t *telling) together(i, on int32) together {
	return together{t.calls[i].Session, t.served.conversation[on]}
}

// slack is how far apart the times of a call may be, on one clock: the clock is off by up to window itself.
func (t *telling) slack() time.Duration { return 2*window + t.resolution }

// candidates are the calls of the server that each call that is left may be.
func (t *telling) candidates() []candidate {
	var list []candidate
	s := t.served
	for n, c := range t.calls {
		i, ends := int32(n), byEnd(c)
		at := timeOf(c, ends)
		if t.of[i] >= 0 || at == trace.NoTime {
			continue
		}
		add := func(line *timeline, level int8) {
			if line == nil {
				return
			}
			for _, on := range line.near(s.calls, ends, at, t.slack()) {
				if t.heard[on] >= 0 {
					continue
				}
				served := s.calls[on]
				found := candidate{call: i, on: on, off: (timeOf(served, ends) - at).Abs(), level: level}
				if level == levelInput && c.Output == served.Output && (filled(c)|filled(served))&trace.FieldOutput == 0 {
					found.level = levelTokens
				}
				list = append(list, found)
			}
		}
		if filled(c)&trace.FieldInput != 0 {
			add(&s.everything, levelTime)
			continue
		}
		add(s.byInput[c.Input], levelInput)
		add(&s.untold, levelTime)
	}
	return list
}
