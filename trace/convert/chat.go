package convert

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// message is one message of a conversation as agents of the SWE-agent family keep it.
type message struct {
	role    string
	content string
	calls   []byte // the JSON text of the tool calls
	tool    string // name of the first tool called
}

// message reads a message; other reads the values of the keys that it does not know.
func (s *scanner) message(other func(key string)) message {
	m := message{}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch name := string(key); name {
		case "role":
			m.role = s.str()
		case "content":
			m.content = s.content()
		case "tool_calls":
			m.calls = slices.Clone(s.span())
			calls := scanner{data: m.calls}
			for ok := calls.list(); ok; ok = calls.more() {
				m.tool = cmp.Or(m.tool, calls.stringAt("function", "name"))
			}
		default:
			other(name)
		}
	}
	return m
}

// text is what the message adds to a prompt.
func (m *message) text() []byte {
	return slices.Concat([]byte(m.role), []byte{'\n'}, []byte(m.content), []byte{'\n'}, m.calls, []byte{'\n'})
}

// stringAt consumes a value and returns the string that stands in it at the path of keys, or "".
func (s *scanner) stringAt(path ...string) (found string) {
	if len(path) == 0 {
		if s.peek() == '"' {
			return s.str()
		}
		s.skip()
		return ""
	}
	for key, ok := s.looseObject(); ok; key, ok = s.next() {
		if string(key) == path[0] {
			found = s.stringAt(path[1:]...)
		} else {
			s.skip()
		}
	}
	return found
}

// readFiles reads files of JSON values, most of which hold one, in their order. What parse makes of a value that is cut off or
// damaged is kept and counts as a lost row.
func readFiles[T any](in input, parse func(text []byte) (T, error), each func(at place, value T) error) (trace.ReadReport, error) {
	type found struct {
		at    place
		value T
	}
	type file struct {
		values []found
		read   trace.ReadReport
	}
	var report trace.ReadReport
	err := trace.MapFiles(in.ctx, in.segments, in.opts.Progress, func(c trace.Chunk) (file, error) {
		f := file{read: c.Read}
		line := c.Line
		for rest := c.Data; ; {
			next := bytes.TrimLeft(rest, " \t\r\n")
			line += bytes.Count(rest[:len(rest)-len(next)], []byte{'\n'})
			if len(next) == 0 {
				break
			}
			at := place{c.File, c.Segment, line}
			text := firstValue(next)
			value, err := parse(text)
			f.read.Lines++
			if err != nil {
				f.read.LostRows++
				f.read.Warn(fmt.Sprintf("%s: damaged or cut off, what stands before that is read: %v", c.File, err))
			}
			f.values = append(f.values, found{at, value})
			line += bytes.Count(text, []byte{'\n'})
			rest = next[len(text):]
		}
		return f, nil
	}, func(f file) error {
		report.Add(&f.read)
		for _, v := range f.values {
			if err := each(v.at, v.value); err != nil {
				return err
			}
		}
		return nil
	})
	return report, err
}

// firstValue returns the JSON value that a text begins with, or all of it if that is broken.
func firstValue(text []byte) []byte {
	s := scanner{data: text}
	if s.skip(); s.err != nil {
		return text
	}
	return text[:s.pos]
}

// readObjects reads files of JSON objects, each on a line or each a file.
func readObjects[T any](in input, parse func(text []byte) (T, error), each func(at place, value T) error) (trace.ReadReport, error) {
	if linewise(in.heads) {
		return readRows(in, parse, each)
	}
	return readFiles(in, parse, each)
}

// newSession returns a session named after a file that holds nothing else.
func (b *logbook) newSession(file string) *trace.Session {
	name := filepath.Base(file)
	for _, suffix := range []string{".gz", ".json", ".jsonl", ".traj"} {
		name = strings.TrimSuffix(name, suffix)
	}
	id := name
	for n := 2; b.sessions[id] != nil; n++ {
		id = fmt.Sprintf("%s#%d", name, n)
	}
	return b.session(id)
}

// addTool adds a tool that the call ran for the given time from its end on; trace.NoTime is not told. It returns when it
// ended.
func (c *call) addTool(id, class string, took time.Duration) time.Duration {
	c.ToolCalls = append(c.ToolCalls, trace.ToolCall{ID: id, Name: class})
	if took == trace.NoTime {
		c.Inferred |= trace.FieldToolEnd
		return c.End
	}
	c.Session.Tools = append(c.Session.Tools, trace.ToolSpan{ID: id, Class: class, Start: c.End, End: c.End + took})
	return c.End + took
}

// eachOnItsOwnClock moves the times of each program so that it begins at 0: for logs of which some tell no times, so
// that nothing is known of what ran beside what.
func (b *logbook) eachOnItsOwnClock() {
	root := func(s *trace.Session) *trace.Session {
		for n := 0; n < maxTrajectoryDepth && b.sessions[s.Parent] != nil; n++ {
			s = b.sessions[s.Parent]
		}
		return s
	}
	first := map[*trace.Session]time.Duration{}
	for _, c := range b.calls {
		if at, ok := first[root(c.Session)]; !ok || c.Start < at {
			first[root(c.Session)] = c.Start
		}
	}
	for _, c := range b.calls {
		c.Start -= first[root(c.Session)]
		c.End -= first[root(c.Session)]
	}
	for _, s := range b.sessions {
		for i := range s.Tools {
			s.Tools[i].Start -= first[root(s)]
			s.Tools[i].End -= first[root(s)]
		}
	}
	b.relative = true
}

// unixSeconds reads a time in seconds since 1970; what is none is trace.NoTime.
func (s *scanner) unixSeconds() time.Duration {
	if c := s.peek(); c != '-' && c-'0' > 9 {
		s.skip()
		return trace.NoTime
	}
	f := s.float()
	if !(f > 0 && f <= maxSeconds) {
		return trace.NoTime
	}
	return time.Duration(math.Round(f*1e6)) * time.Microsecond // a float64 tells no more of today
}
