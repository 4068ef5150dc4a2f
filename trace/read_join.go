package trace

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Part is what one piece of a source tells.
type Part struct {
	// Sessions are in order of first appearance; their Turns are empty.
	Sessions []*Session
	// Turns are in the order of their rows, each with its Session.
	Turns []*Turn
	// BlockSize is the number of tokens per hash; 0 when the part has no hashes.
	BlockSize int
	Read      ReadReport
}

// Joiner makes one capture of the parts of a source. A session may go on from part to part. Of the turns with one
// id the first is kept.
type Joiner struct {
	capture  *Capture
	sessions map[string]*Session
	merged   map[*Session]*Session // sessions of parts that went on with one of an earlier part
	turns    map[string]*Turn
	hashed   *Turn // where the block size was first told
	// toolsSuffice keeps sessions that have tools, but no call.
	toolsSuffice bool
}

// NewJoiner returns a Joiner that fills the capture.
func NewJoiner(c *Capture) *Joiner {
	return &Joiner{capture: c, sessions: map[string]*Session{}, merged: map[*Session]*Session{}, turns: map[string]*Turn{}}
}

// Add takes over the next part. Two block sizes in one load are an error that names both places.
func (j *Joiner) Add(p *Part) error {
	if err := j.checkBlockSize(p); err != nil {
		return err
	}
	j.capture.Read.Add(&p.Read)
	for _, s := range p.Sessions {
		j.addSession(s)
	}
	dropped := map[*Turn]bool{}
	for _, t := range p.Turns {
		for dropped[t.Base] {
			t.skipBase()
		}
		if kept := j.turns[t.ID]; kept != nil {
			dropped[t] = true
			j.capture.Read.Duplicates++
			j.capture.Read.Warn(fmt.Sprintf("%s: request id %q was read before, at %s: dropped", t.place(), t.ID, kept.place()))
			continue
		}
		j.turns[t.ID] = t
		if known := j.merged[t.Session]; known != nil {
			t.Session = known
		}
		t.Session.Turns = append(t.Session.Turns, t)
		j.capture.Read.Calls++
	}
	return nil
}

// Turn returns the turn with the given id, or nil.
func (j *Joiner) Turn(id string) *Turn { return j.turns[id] }

func (j *Joiner) checkBlockSize(p *Part) error {
	if p.BlockSize == 0 {
		return nil
	}
	at := slices.IndexFunc(p.Turns, func(t *Turn) bool { return t.Shared > 0 || len(t.Hashes) > 0 })
	if at < 0 {
		return nil
	}
	t := p.Turns[at]
	if j.hashed == nil {
		j.hashed, j.capture.BlockSize = t, p.BlockSize
	}
	if p.BlockSize != j.capture.BlockSize {
		return mixedBlockSizes(t, p.BlockSize, j.hashed, j.capture.BlockSize)
	}
	return nil
}

func mixedBlockSizes(t *Turn, size int, before *Turn, sizeBefore int) error {
	return &InputError{t.File, int(t.Line), fmt.Errorf("block size %d, but %d at %s: hashes of two block sizes cannot be "+
		"compared; load them one by one", size, sizeBefore, before.place())}
}

func (j *Joiner) addSession(s *Session) {
	known := j.sessions[s.ID]
	if known == nil {
		j.sessions[s.ID] = s
		j.capture.Sessions = append(j.capture.Sessions, s)
		return
	}
	j.merged[s] = known
	if known.Parent != "" && s.Parent != "" && s.Parent != known.Parent {
		j.capture.Read.Warn(fmt.Sprintf("session %q: parent %q, before %q: kept the first", s.ID, s.Parent, known.Parent))
	}
	known.Parent = cmp.Or(known.Parent, s.Parent)
	known.Class = cmp.Or(known.Class, s.Class)
	known.Final = known.Final || s.Final
	known.Tools = append(known.Tools, s.Tools...)
}

// Capture returns the joined capture. Sessions without a call are left out; no calls at all is an error.
func (j *Joiner) Capture() (*Capture, error) {
	c := j.capture
	c.Sessions = slices.DeleteFunc(c.Sessions, func(s *Session) bool {
		return len(s.Turns) == 0 && !(j.toolsSuffice && len(s.Tools) > 0)
	})
	if len(c.Sessions) == 0 {
		msg := fmt.Sprintf("no LLM calls in %d lines of %s format", c.Read.Lines, c.Format)
		if len(c.Read.Warnings) > 0 {
			msg += "; the first problem: " + c.Read.Warnings[0]
		}
		return nil, errors.New(msg)
	}
	return c, nil
}

// Rebase makes the earliest start of a call, or of a tool where there is no call, the time zero of the capture. Until then its times count from the Unix epoch, or
// from wherever the source counts. It returns by how much the times moved, a whole number of milliseconds.
func (c *Capture) Rebase() time.Duration {
	zero := NoTime
	for _, s := range c.Sessions {
		for _, t := range s.Turns {
			if t.Start != NoTime && (zero == NoTime || t.Start < zero) {
				zero = t.Start
			}
		}
	}
	if zero == NoTime && c.Read.Calls == 0 {
		for _, s := range c.Sessions {
			for _, t := range s.Tools {
				if zero == NoTime || t.Start < zero {
					zero = t.Start
				}
			}
		}
	}
	if zero == NoTime {
		return 0
	}
	zero = zero.Truncate(time.Millisecond)
	for _, s := range c.Sessions {
		for _, t := range s.Turns {
			if t.Start != NoTime {
				t.Start -= zero
			}
			if t.End != NoTime {
				t.End -= zero
			}
		}
		for i := range s.Tools {
			s.Tools[i].Start -= zero
			if s.Tools[i].End != NoTime {
				s.Tools[i].End -= zero
			}
		}
	}
	return zero
}

// place says where the turn was read.
func (t *Turn) place() string { return fmt.Sprintf("%s:%d", t.File, t.Line) }

// Add adds another report.
func (r *ReadReport) Add(o *ReadReport) {
	r.Files += o.Files
	r.Lines += o.Lines
	r.Calls += o.Calls
	r.Tools += o.Tools
	r.SkippedRows += o.SkippedRows
	r.LostRows += o.LostRows
	r.LostBytes += o.LostBytes
	r.Duplicates += o.Duplicates
	r.Dropped += o.Dropped
	for why, rows := range o.Skipped {
		r.skip(why, rows)
		r.SkippedRows -= rows // counted above
	}
	for _, w := range o.Warnings {
		r.Warn(w)
	}
}

// Lose counts a row that could not be read and says why.
func (r *ReadReport) Lose(file string, line int, row []byte, why error) {
	r.LostRows++
	r.LostBytes += int64(len(row))
	r.Warn(fmt.Sprintf("%s:%d: lost a row of %d bytes: %s", file, line, len(row), strings.TrimSpace(why.Error())))
}
