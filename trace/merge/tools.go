package merge

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// toolKey names a tool call: its id is unique in its session, more or less.
type toolKey struct{ session, id string }

// placeTools gives the tools of all recordings to the merged sessions. Of a tool of which several tell, tool events are kept before
// what a log has, which tells when its rows were written.
func (m *merger) placeTools() (events []HarnessReport, err error) {
	logged := map[toolKey][]trace.ToolSpan{}
	lists := make([]map[toolKey][]trace.ToolSpan, len(m.tellings))
	for i, t := range m.tellings {
		if t.report.Clock == nil { // their times are on no clock
			t.report.ToolsLost = t.report.Tools
			continue
		}
		lists[i] = m.homesOfTools(t.source, &t.report)
		for k, spans := range lists[i] {
			if logged[k] == nil {
				logged[k] = spans
			}
		}
	}
	for _, e := range m.events {
		report := HarnessReport{Count: count(e)}
		if e.Capture.Epoch != 0 && m.served.source.Capture.Epoch != 0 {
			shift(e.Capture, time.Duration(e.Capture.Epoch-m.served.source.Capture.Epoch)*time.Millisecond)
		}
		spans := m.homesOfTools(e, &report)
		clock, err := m.clockOfTools(spans, logged)
		if err != nil {
			return nil, fmt.Errorf("merging %s into %s: %w", e.Name, m.served.source.Name, err)
		}
		if report.Clock = clock; clock != nil {
			for _, list := range spans {
				for i := range list {
					list[i].Start -= clock.Ahead
					list[i].End -= clock.Ahead
				}
			}
		}
		m.addTools(spans, &report)
		events = append(events, report)
	}
	for i, t := range m.tellings {
		m.addTools(lists[i], &t.report)
	}
	return events, nil
}

// homesOfTools returns the tools of a recording by the merged session that they belong to: that of their session, else that of the
// call which asked for them.
func (m *merger) homesOfTools(s Source, report *HarnessReport) map[toolKey][]trace.ToolSpan {
	spans := map[toolKey][]trace.ToolSpan{}
	for _, session := range s.Capture.Sessions {
		home, known := m.homes[session.ID]
		for _, span := range session.Tools {
			at := home
			if !known {
				if i := find(m.asked, span.ID); i >= 0 {
					at = m.home[i]
				}
			}
			if at == "" || span.End == trace.NoTime {
				report.ToolsLost++
				continue
			}
			k := toolKey{at, span.ID}
			spans[k] = append(spans[k], span)
		}
	}
	return spans
}

// addTools adds the tools that no recording before told.
func (m *merger) addTools(spans map[toolKey][]trace.ToolSpan, report *HarnessReport) {
	for k, list := range spans { // in any order: they are sorted at the end
		if k.id != "" && m.placed[k] {
			report.ToolsKnown += len(list)
			continue
		}
		m.sessions[k.session].Tools = append(m.sessions[k.session].Tools, list...)
	}
	for k := range spans {
		m.placed[k] = true
	}
}

// clockOfTools tells how far the clock of tool events is ahead: by what a log tells of the same tools, else by the calls that asked
// for them. Where each tool runs between that call and the next, the clock is taken to be the server's. It is nil where nothing tells.
func (m *merger) clockOfTools(spans, logged map[toolKey][]trace.ToolSpan) (*Clock, error) {
	if m.options.Ahead != nil {
		return &Clock{Ahead: *m.options.Ahead, By: byHand}, nil
	}
	var toLog, toCalls []time.Duration
	within := 0
	for k, list := range spans {
		if len(list) != 1 || k.id == "" {
			continue
		}
		span := list[0]
		if log := logged[k]; len(log) == 1 {
			toLog = append(toLog, span.End-log[0].End)
		}
		i := find(m.asked, k.id)
		if i < 0 || m.served.calls[i].End == trace.NoTime {
			continue
		}
		toCalls = append(toCalls, span.Start-m.served.calls[i].End)
		if m.fits(span, i) {
			within++
		}
	}
	switch {
	case len(toLog) > 0:
		return clockOf(toLog, bySpans)
	case len(toCalls) == 0:
		return nil, nil
	case 10*within >= 9*len(toCalls):
		return &Clock{Pairs: len(toCalls), By: byAsking}, nil
	}
	return clockOf(toCalls, byAsking)
}

// fits tells whether a tool ran after the call that asked for it and before the next of its session, to a tenth of a second.
func (m *merger) fits(span trace.ToolSpan, asked int32) bool {
	const about = 100 * time.Millisecond
	end := m.served.calls[asked].End
	if span.Start < end-about {
		return false
	}
	turns := m.sessions[m.home[asked]].Turns
	next, _ := slices.BinarySearchFunc(turns, end-about, func(t *trace.Turn, at time.Duration) int { return cmp.Compare(t.Start, at) })
	for ; next < len(turns); next++ {
		if turns[next] != m.served.calls[asked] {
			return span.End <= turns[next].Start+about
		}
	}
	return true
}
