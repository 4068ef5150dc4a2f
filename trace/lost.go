package trace

import (
	"fmt"
	"time"
)

// LostRows tells of rows that a recorder could not write: its disk was full or slow. It stands in Record.Lost.
type LostRows struct {
	Rows int `json:"lost_rows"`
	// FirstMs and LastMs bound the event times of the rows that had one.
	FirstMs *int64 `json:"first_unix_ms,omitempty"`
	LastMs  *int64 `json:"last_unix_ms,omitempty"`
}

// lostName stands where the record of lost rows must have an id, an endpoint and a reason.
const lostName = "agentsim.rows_lost"

// Record returns the record that tells of lost rows. It is a request_payload without a payload, the one kind of row that
// Dynamo's readers pass over whatever is in it; this package's readers count the rows in ReadReport.LostRows.
func (l LostRows) Record() *Record {
	return &Record{Schema: Schema, EventType: EventRequestPayload, EventTimeMs: l.LastMs,
		Payload: &Payload{RequestID: lostName, Endpoint: lostName, DropReason: lostName}, Lost: &l}
}

// Add adds other lost rows.
func (l *LostRows) Add(o LostRows) {
	l.Rows += o.Rows
	if o.FirstMs != nil && (l.FirstMs == nil || *o.FirstMs < *l.FirstMs) {
		l.FirstMs = o.FirstMs
	}
	if o.LastMs != nil && (l.LastMs == nil || *o.LastMs > *l.LastMs) {
		l.LastMs = o.LastMs
	}
}

// maxLostRows bounds what one record may add to a count.
const maxLostRows = 1 << 30

// missing counts rows that the recorder says it lost.
func (r *ReadReport) missing(file string, line int, l *LostRows) {
	if l == nil || l.Rows <= 0 {
		return
	}
	r.LostRows += min(l.Rows, maxLostRows)
	when := ""
	if l.FirstMs != nil && l.LastMs != nil {
		when = fmt.Sprintf(" between %s and %s", clock(*l.FirstMs), clock(*l.LastMs))
	}
	r.Warn(fmt.Sprintf("%s:%d: the recorder lost %d rows%s: its disk was full or slow", file, line, l.Rows, when))
}

func clock(unixMs int64) string {
	return time.UnixMilli(unixMs).UTC().Format("2006-01-02 15:04:05.000")
}
