// Package perfetto draws traces as timelines for ui.perfetto.dev, in Perfetto's protobuf format or as Chrome's JSON.
//
//	captures, events sidecars ── Write ──► groups, tracks, slices, arrows, counters ──► encoder ──► file
//
// A Source is one trace. Write draws it as a group of its own: the program scheduler, the workers, and one group per
// program with its subagents inside. What is written goes straight to the encoder, so memory grows with the calls of
// a trace, whose dependencies have to be known, and not with the slices that come of them.
package perfetto

import (
	"time"
)

// Summary counts what was written, as Perfetto's trace processor counts it after import.
type Summary struct {
	Slices   int64 `json:"slices"`
	Instants int64 `json:"instants"`
	Arrows   int64 `json:"flows"`
	Counters int64 `json:"counters"`
	Tracks   int64 `json:"tracks"`
	// Dropped counts what could not be drawn: arrows against time.
	Dropped int64 `json:"dropped"`
}

// track is a row of the timeline, or a group of rows.
type track struct {
	id, parent  uint64 // parent is 0 at the top
	name        string
	description string
	rank        int32 // the place among the parent's children
	group       bool
	counter     bool
	unit        string // of a counter
}

// kind is what an event is.
type kind uint8

const (
	begin kind = iota
	end
	instant
	sample
)

// event is something on a track. Ends close what began last on their track.
type event struct {
	kind       kind
	track      uint64
	at         time.Duration
	name       string
	categories labels
	args
	// starts are the arrows that leave the event, ends those that arrive.
	starts, ends []uint64
	value        float64 // of a sample
}

// labels are the categories of an event; "" is none.
type labels [3]string

// add adds a category to those that are there.
func (l *labels) add(category string) {
	for i := range l {
		if l[i] == "" && category != "" {
			l[i] = category
			return
		}
	}
}

// encoder writes a timeline in one format. Errors of the file below it stay until close.
type encoder interface {
	track(*track)
	event(*event)
	close() error
}

// timeline hands out tracks and arrows and counts what is drawn.
type timeline struct {
	encoder
	Summary
	next, plain event // are used again and again
	arrows      uint64
	offset      time.Duration // added to all times
}

func (t *timeline) add(tr track) uint64 {
	t.Tracks++
	tr.id = uint64(t.Tracks)
	t.encoder.track(&tr)
	return tr.id
}

// group adds a group of tracks.
func (t *timeline) group(parent uint64, name string, rank int32, description string) uint64 {
	return t.add(track{parent: parent, name: name, rank: rank, group: true, description: description})
}

// row adds a track of slices and instants.
func (t *timeline) row(parent uint64, name string, rank int32) uint64 {
	return t.add(track{parent: parent, name: name, rank: rank})
}

// event makes an event, which is good until the next one is made.
func (t *timeline) event(track uint64, at time.Duration, name, category string) *event {
	t.next = event{track: track, at: at, name: name, categories: labels{category}, args: t.next.args[:0]}
	return &t.next
}

// put writes an event. Its time changes to that of the file; none is negative there.
func (t *timeline) put(e *event) {
	e.at = max(e.at+t.offset, 0)
	t.encoder.event(e)
}

// begin opens a slice, inside of that which is open on its track.
func (t *timeline) begin(e *event) {
	t.Slices++
	t.Arrows += int64(len(e.ends))
	e.kind = begin
	t.put(e)
}

// end closes the slice that was opened last on a track.
func (t *timeline) end(track uint64, at time.Duration) {
	t.plain = event{kind: end, track: track, at: at}
	t.put(&t.plain)
}

// slice draws a slice without others inside.
func (t *timeline) slice(e *event, until time.Duration) {
	t.begin(e)
	t.end(e.track, until)
}

// instant draws something that takes no time. It has no arrows.
func (t *timeline) instant(e *event) {
	t.Instants++
	e.kind = instant
	t.put(e)
}

// arrow returns the id of a new arrow.
func (t *timeline) arrow() uint64 {
	t.arrows++
	return t.arrows
}

// gauge is a counter that is written when its value changes.
type gauge struct {
	timeline *timeline
	track    uint64
	last     float64
	written  bool
}

// gauge adds a counter.
func (t *timeline) gauge(parent uint64, name, unit string, rank int32) *gauge {
	return &gauge{timeline: t, track: t.add(track{parent: parent, name: name, rank: rank, counter: true, unit: unit})}
}

func (g *gauge) set(at time.Duration, value float64) {
	if g == nil || g.written && g.last == value {
		return
	}
	g.last, g.written = value, true
	g.timeline.Counters++
	g.timeline.plain = event{kind: sample, track: g.track, at: at, value: value}
	g.timeline.put(&g.timeline.plain)
}
