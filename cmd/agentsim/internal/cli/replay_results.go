package cli

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"time"

	"github.com/agentsim/agentsim/replay"
	"github.com/agentsim/agentsim/replay/client"
	"github.com/agentsim/agentsim/replay/plan"
	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
	"github.com/agentsim/agentsim/trace/events"
	"github.com/agentsim/agentsim/trace/report"
)

// report puts the run into a report.
func (r *replayCommand) report(capture *trace.Capture, files []string, p *plan.Plan, run *report.Run) *report.Report {
	read := &capture.Read
	return &report.Report{Version: version(), Runs: []*report.Run{run}, Trace: &report.Trace{Format: capture.Format,
		Files: files, Calls: int64(read.Calls), RowsLost: int64(read.LostRows), Duplicates: int64(read.Duplicates)}}
}

// config is what the report says of how the replay was asked for.
func (r *replayCommand) config(p *plan.Plan, c *client.Client) json.RawMessage {
	o := &p.Options
	urls := make([]string, c.Servers())
	for i := range urls {
		urls[i] = c.Base(i)
	}
	text, err := json.Marshal(struct {
		URLs        []string `json:"urls"`
		Model       string   `json:"model,omitempty"`
		Endpoint    string   `json:"endpoint"`
		Prompts     string   `json:"prompts"`
		Timing      string   `json:"timing"`
		Speed       float64  `json:"speed"`
		MaxGap      string   `json:"max_gap,omitempty"`
		From        string   `json:"from,omitempty"`
		To          string   `json:"to,omitempty"`
		Sessions    string   `json:"sessions,omitempty"`
		Loop        int      `json:"loop"`
		Concurrency int      `json:"concurrency,omitempty"`
		MaxInFlight int      `json:"max_in_flight,omitempty"`
		LiveOutputs bool     `json:"live_outputs,omitempty"`
		Forced      bool     `json:"force_outputs,omitempty"`
		OpenEnded   bool     `json:"open_ended,omitempty"`
		Hints       bool     `json:"agent_hints,omitempty"`
		Cancel      bool     `json:"cancellations,omitempty"`
		Connections string   `json:"conn"`
		HTTP2       bool     `json:"http2,omitempty"`
	}{urls, r.model, r.client.Endpoint, r.prompts.kind, o.Timing, o.Speed, span(o.MaxGap), span(o.From), span(o.To), r.timing.sessions,
		o.Loop, o.Concurrency, r.inFlight, r.live, r.force, r.client.OpenEnded, r.hints, r.cancel,
		r.client.Connections, r.client.HTTP2})
	if err != nil {
		return nil // cannot be: it is plain values
	}
	return text
}

// span is "" for no time.
func span(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}

// write writes the report and the trace of the run.
func (r *replayCommand) write(out output, result *replay.Result, begun int64, rep *report.Report) error {
	if out.dir == "" {
		return nil
	}
	rows, requests := result.InOrder()
	records := sim.RequestRecords(result.Plan.Workload, traceBlock, requests)
	if err := writeRecords(filepath.Join(out.dir, "replay.trace"), result.Dated(rows, records, begun), trace.ReplaceExisting); err != nil {
		return err
	}
	var text bytes.Buffer
	if err := report.Write(&text, rep); err != nil {
		return err
	}
	return writeFile(filepath.Join(out.dir, reportName), text.Bytes())
}

// writeEvents writes what was read of the servers' metrics.
func writeEvents(path string, watch *replay.Watch, begun time.Time) error {
	w, err := events.Create(path, watch.Header(begun.UnixMilli()))
	if err != nil {
		return err
	}
	for e := range watch.Events(begun) {
		w.Write(e)
	}
	return w.Close()
}

// traceBlock is the tokens of a block in the trace of a replay whose source has no hashes.
const traceBlock = 16
