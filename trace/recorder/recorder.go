// Package recorder is a reverse proxy that stands in front of a server of language models and writes down what agents do
// there: one trace record for each request, with its session, times, tokens and KV block hashes, and no text.
//
// A Recorder makes the records and hands them to Options.Emit; a Sink writes them, so that serving never waits for a disk.
package recorder

import "github.com/agentsim/agentsim/trace"

// Options adjust a Recorder.
type Options struct {
	// Emit takes each record. It is called from several goroutines and must not block: Sink.Offer.
	Emit func(*trace.Record)
}
