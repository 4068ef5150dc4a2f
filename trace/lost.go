package trace

import (
	"fmt"
	"time"

	"github.com/goccy/go-json"
)

// LostRows tells of rows that a recorder could not write: its disk was full or slow. In a trace it is the line
//
//	{"timestamp":412,"event":"agentsim.rows_lost","agentsim":{"rows":3,"first_unix_ms":1790000000000,"last_unix_ms":1790000000900}}
//
// Dynamo's readers ignore lines whose event is not an object. This package counts the rows in ReadReport.LostRows.
type LostRows struct {
	Rows int `json:"rows"`
	// FirstMs and LastMs bound the event times of the rows that had one.
	FirstMs *int64 `json:"first_unix_ms,omitempty"`
	LastMs  *int64 `json:"last_unix_ms,omitempty"`
}

const lostEvent = "agentsim.rows_lost"

type lostLine struct {
	Timestamp int64     `json:"timestamp"`
	Event     string    `json:"event"`
	Lost      *LostRows `json:"agentsim"`
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

// skip counts a line that is no record. It may be one that tells of lost rows.
func (r *ReadReport) skip(file string, line int, text []byte) {
	r.SkippedRows++
	var l lostLine
	if json.Unmarshal(text, &l) != nil || l.Event != lostEvent || l.Lost == nil || l.Lost.Rows <= 0 {
		return
	}
	r.LostRows += min(l.Lost.Rows, maxLostRows)
	when := ""
	if first, last := l.Lost.FirstMs, l.Lost.LastMs; first != nil && last != nil {
		when = fmt.Sprintf(" between %s and %s", clock(*first), clock(*last))
	}
	r.Warn(fmt.Sprintf("%s:%d: the recorder lost %d rows%s: its disk was full or slow", file, line, l.Lost.Rows, when))
}

// maxLostRows bounds what one line may add to a count.
const maxLostRows = 1 << 30

func clock(unixMs int64) string {
	return time.UnixMilli(unixMs).UTC().Format("2006-01-02 15:04:05.000")
}
