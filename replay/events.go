package replay

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace/events"
)

// Header says what the events of a replay are of, which began at the given Unix time in ms. Its workers are the servers.
func (w *Watch) Header(epoch int64) events.Header {
	h := events.Header{Run: "replay", Origin: events.Replayed, EpochMs: epoch, Workers: make([]events.Worker, w.client.Servers())}
	for server := range h.Workers {
		h.Workers[server].URL = w.client.Base(server)
	}
	return h
}

// Events yields what was read of the servers since begun, in order of time. Those of before count as of then. Stop comes first.
func (w *Watch) Events(begun time.Time) iter.Seq[*events.Event] {
	var all []*events.Event
	for server, readings := range w.readings {
		for i := range readings {
			at := max(0, readings[i].at.Sub(begun))
			all = append(all, &events.Event{At: at, Gauge: readings[i].gauge(int32(server))})
		}
	}
	slices.SortStableFunc(all, func(a, b *events.Event) int { return cmp.Compare(a.At, b.At) })
	return slices.Values(all)
}

func (s *sample) gauge(server int32) *events.Gauge {
	known := func(f int) *float64 {
		if v := s[f]; !math.IsNaN(v) {
			return &v
		}
		return nil
	}
	return &events.Gauge{Worker: server, Running: known(running), Waiting: known(waiting), KVUtilization: known(kvUtilization),
		Queried: known(queriedTokens), Hit: known(cachedTokens), Prompt: known(promptTokens), Generated: known(generatedTokens),
		Preemptions: known(preemptions)}
}
