package convert

import (
	"fmt"
	"slices"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// lmcacheRow is one LLM call of LMCache's agent traces: its prompt and its answer as text.
type lmcacheRow struct {
	session       string
	at            int64 // microseconds since 1970
	input, output []byte
}

func isLMCache(l *look) bool { // what follows a long input is not seen
	at := l.keys["timestamp"]
	return l.has("timestamp", "input") && len(at) == 1 && at[0]-'0' <= 9
}

func parseLMCache(text []byte) (*lmcacheRow, error) {
	r := &lmcacheRow{at: -1}
	s := &scanner{data: text}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "timestamp":
			r.at = s.integer()
		case "session_id":
			r.session = s.name()
		case "input":
			r.input = []byte(s.content())
		case "output":
			r.output = []byte(s.content())
		default:
			s.skip()
		}
	}
	return r, s.end()
}

// lmcache reads LMCache's agent traces. Rows are in no order. When a call ended is not told: after the time that its answer
// takes at the default speed, and not after the next call of its session began.
func (in input) lmcache() (*trace.Capture, error) {
	book := newLogbook(FormatLMCache)
	book.resolution = time.Microsecond
	var err error
	calls := map[*trace.Session][]*call{}
	roots := map[*trace.Session]*passage{}
	book.read, err = readRows(in, parseLMCache, func(at place, r *lmcacheRow) error {
		if r.at < 0 || r.at > maxMs*1000 {
			return at.fail(fmt.Errorf("timestamp is %d: want microseconds since 1970", r.at))
		}
		s := book.session(r.session)
		if roots[s] == nil {
			roots[s] = (*passage)(nil).then(nil)
		}
		c := newCall(s)
		c.File, c.Line = at.file, int32(at.line)
		c.Start = time.Duration(r.at) * time.Microsecond
		c.prompt, c.written = roots[s].then(r.input), len(r.output)
		calls[s] = append(calls[s], c)
		book.calls = append(book.calls, c)
		return nil
	})
	if err != nil {
		return nil, err
	}
	for s, list := range calls {
		slices.SortStableFunc(list, func(a, b *call) int { return int(max(min(a.Start-b.Start, 1), -1)) })
		for i, c := range list {
			c.ID = fmt.Sprintf("%s/%d", s.ID, i+1)
			c.End = c.Start + decodeTime(c.output())
			if i+1 < len(list) {
				c.End = min(c.End, list[i+1].Start)
			}
			c.Inferred |= trace.FieldEnd
		}
	}
	return book.capture(in)
}
