package perfetto

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/events"
)

// Source is one trace to draw.
type Source struct {
	// Label is the name of its group.
	Label string
	// Capture is linked, and read with details where its format has any.
	Capture *trace.Capture
	// Events is the sidecar of the run; nil for none.
	Events *events.File
}

// Options say how to draw.
type Options struct {
	Scope
	// NoStages leaves out the parts of calls, NoCounters all counters.
	NoStages, NoCounters bool
	// AbsoluteTime makes times Unix times. Otherwise they count from the start of each trace.
	AbsoluteTime bool
	// JSON writes Chrome's JSON in place of Perfetto's protobuf.
	JSON bool
}

// Write draws the sources, each in a group of its own, all from time 0 on unless times are absolute. It returns what was
// drawn and what was lost of the sidecars. An error that wraps ErrScope is one of the options.
func Write(ctx context.Context, w io.Writer, sources []Source, o Options) (Summary, trace.ReadReport, error) {
	var read trace.ReadReport
	pictures := make([]*picture, len(sources))
	var earliest, latest time.Duration
	for i, s := range sources {
		p := &picture{plan: newPlan(s.Capture), noStages: o.NoStages, noCounters: o.NoCounters, pauses: map[string][]interval{}}
		workers := 0
		if s.Events != nil {
			workers = len(s.Events.Header.Workers)
		}
		var err error
		if p.view, err = p.scope(o.Scope, workers); err != nil {
			return Summary{}, read, fmt.Errorf("%s: %w", s.Label, err)
		}
		pictures[i] = p
		earliest, latest = min(earliest, p.earliest()), max(latest, p.latest())
	}
	if o.From > latest {
		return Summary{}, read, fmt.Errorf("%w: all has ended by %v, before %v", ErrScope, latest, o.From)
	}
	t := &timeline{offset: -earliest}
	first := pictures[0]
	wall := time.Duration(-1)
	if first.capture.Epoch >= firstEpochMs {
		wall = time.Duration(first.capture.Epoch)*time.Millisecond + earliest
	}
	switch start := max(wall, 0); {
	case o.JSON:
		t.encoder = newChrome(w, describeOrigin(first.capture.Epoch))
	case o.AbsoluteTime:
		t.encoder = newProtobuf(w, start, wall)
	default:
		t.encoder = newProtobuf(w, 0, wall)
	}
	for i, p := range pictures {
		p.timeline = t
		if o.AbsoluteTime {
			t.offset = time.Duration(p.capture.Epoch) * time.Millisecond
		}
		p.top = p.group(0, sources[i].Label, int32(i), describeOrigin(p.capture.Epoch))
		lost, err := p.draw(ctx, sources[i].Events)
		read.Add(&lost)
		if err != nil {
			return t.Summary, read, err
		}
	}
	if err := t.close(); err != nil {
		return t.Summary, read, fmt.Errorf("writing the timeline: %w", err)
	}
	return t.Summary, read, nil
}

// draw draws a source in its group.
func (p *picture) draw(ctx context.Context, file *events.File) (trace.ReadReport, error) {
	var read trace.ReadReport
	p.groups, p.depths, p.brought = make([]uint64, len(p.sessions)), make([]int32, len(p.sessions)), map[stageOf][]uint64{}
	if file != nil {
		var err error
		if read, err = p.drawEvents(ctx, file); err != nil {
			return read, fmt.Errorf("reading events: %w", err)
		}
	}
	if !p.noCounters {
		p.drawCounters()
	}
	return read, p.drawPrograms(ctx)
}
