package convert

import (
	"cmp"
	"errors"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// place is where a row stands.
type place struct {
	file          string
	segment, line int
}

// fail makes err a fault of the row.
func (at place) fail(err error) error {
	return &trace.InputError{File: at.file, Line: at.line, Err: err}
}

// turn returns a call that was read at the place, of which nothing is told yet.
func (at place) turn() *trace.Turn {
	return &trace.Turn{Start: trace.NoTime, End: trace.NoTime, TTFT: trace.NoTime, Cached: trace.Unknown, Reasoning: trace.Unknown,
		File: at.file, Line: int32(min(at.line, math.MaxInt32))}
}

// errHeader tells that a row names the columns.
var errHeader = errors.New("a header")

// readRows reads the lines of all files and calls each with what parse makes of them, in the order of the lines. Rows
// that parse refuses are lost and counted; errors of each end the load. What parse is given is valid until it returns.
func readRows[T any](in input, parse func(text []byte) (T, error), each func(at place, row T) error) (trace.ReadReport, error) {
	type row struct {
		at    place
		value T
	}
	type rows struct {
		list []row
		read trace.ReadReport
	}
	var report trace.ReadReport
	err := trace.MapLines(in.ctx, in.segments, in.opts.Progress, func(c trace.Chunk) (rows, error) {
		out := rows{read: c.Read}
		for number, text := range c.Lines {
			out.read.Lines++
			value, err := parse(text)
			switch {
			case err == nil:
				out.list = append(out.list, row{place{c.File, c.Segment, number}, value})
			case errors.Is(err, errHeader):
				out.read.Skip("headers")
			default:
				if err := lose(&out.read, c.File, number, text, err); err != nil {
					return out, err
				}
			}
		}
		return out, nil
	}, func(out rows) error {
		report.Add(&out.read)
		for _, r := range out.list {
			if err := each(r.at, r.value); err != nil {
				return err
			}
		}
		return nil
	})
	return report, err
}

// session is a chain of calls, as readers gather them before all is read.
type session struct {
	trace.Session
	calls []*trace.Turn
	chain trace.Chain
}

// add adds a call with the hashes of its prompt, which are not kept.
func (s *session) add(t *trace.Turn, hashes []uint64) {
	if len(hashes) > 0 {
		s.chain.Add(t, hashes)
	}
	s.calls = append(s.calls, t)
}

// join makes c the capture of the sessions, which are brought in the order of their first starts and, where those are
// equal, of their names. Calls of one session keep their order.
func (in input) join(c *trace.Capture, blockSize int, sessions []*session, read *trace.ReadReport) (*trace.Capture, error) {
	start := func(s *session) time.Duration {
		first := time.Duration(math.MaxInt64)
		for _, t := range s.calls {
			if t.Start != trace.NoTime {
				first = min(first, t.Start)
			}
		}
		return first
	}
	slices.SortStableFunc(sessions, func(a, b *session) int {
		return cmp.Or(cmp.Compare(start(a), start(b)), strings.Compare(a.ID, b.ID))
	})
	part := trace.Part{BlockSize: blockSize, Read: *read}
	for _, s := range sessions {
		part.Sessions = append(part.Sessions, &s.Session)
		part.Read.Tools += len(s.Tools)
		for _, t := range s.calls {
			t.Session = &s.Session
			part.Turns = append(part.Turns, t)
		}
	}
	joiner := trace.NewJoiner(c)
	if err := joiner.Add(&part); err != nil {
		return nil, err
	}
	c, err := joiner.Capture()
	if err != nil {
		return nil, &trace.InputError{File: in.segments[0].Path, Err: err}
	}
	return c, nil
}
