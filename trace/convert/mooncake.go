package convert

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/agentsim/agentsim/trace"
)

const (
	// defaultBlockSize is that of the Mooncake traces (FAST '25).
	defaultBlockSize = 512
	// maxMs bounds a time in milliseconds, so that sums of a few fit a time.Duration.
	maxMs = 3e12
	// epochMs tells Unix times in milliseconds from relative ones.
	epochMs = 1e11
)

// mooncakeRow is one row of the Mooncake family: the base format, Dynamo's extensions, and both agentic versions.
type mooncakeRow struct {
	turn      *trace.Turn
	session   string
	play      string // agentic v2: the program
	kind      string
	in, out   int64
	hashes    int // length of the chain; -1 when there is none
	blockSize int64

	timestamp, delay, toolWait, apiTime float64 // milliseconds; NaN when not told
	waitFor                             []string
	explicit                            bool // wait_for or dependencies stand in the row
	own                                 *agenticEx
	header                              bool
}

// mooncakePart is the rows of one chunk.
type mooncakePart struct {
	rows []mooncakeRow
	read trace.ReadReport
}

// mooncake reads the Mooncake family. Rows with a session_id follow one another: a row begins delay after the end of
// the row before or, where only timestamps are told, not before it ends and at the recorded distance from its start.
func (in input) mooncake() (*trace.Capture, error)      { return in.mooncakeRows(FormatMooncake) }
func (in input) mooncakeDelta() (*trace.Capture, error) { return in.mooncakeRows(FormatMooncakeDelta) }

func isMooncake(l *look) bool {
	return l.hasAny("hash_ids", "input_length", "output_length") && !isAgentic(l)
}

func (in input) mooncakeRows(format string) (*trace.Capture, error) {
	c := &trace.Capture{Format: format, Resolution: time.Millisecond, SharedClock: true}
	j := &mooncakeJoiner{Joiner: trace.NewJoiner(c), format: format, blockSize: int32(in.opts.BlockSize),
		fixed: in.opts.BlockSize > 0, sessions: map[string]*mooncakeSession{}, byID: map[string]*trace.Turn{}}
	if j.blockSize == 0 {
		j.blockSize = defaultBlockSize
	}
	err := trace.MapLines(in.ctx, in.segments, in.opts.Progress, parseMooncake, j.add)
	if err != nil {
		return nil, err
	}
	if c, err = j.Capture(); err != nil {
		return nil, &trace.InputError{File: in.segments[0].Path, Err: err}
	}
	if format == FormatAgentic {
		if err := checkWaits(c, j.byID); err != nil {
			return nil, err
		}
	}
	if c.BlockSize > 0 {
		warnPartialIDs(c)
		if n := len(in.segments); n > 1 {
			c.Read.Warn(fmt.Sprintf("the block ids of %d files are taken as one space, so that equal ids are equal prefixes; load unrelated files one at a time", n))
		}
	}
	if zero := c.Rebase().Milliseconds(); zero > epochMs {
		c.Epoch = zero
	}
	return c, nil
}

// mooncakeReader reads the rows of one chunk.
type mooncakeReader struct {
	scanner
	part   mooncakePart
	names  names
	chains map[string]*trace.Chain // by session; rows without one share that of ""
	turns  []trace.Turn            // for the next rows
}

// parseMooncake reads the rows of a chunk.
func parseMooncake(c trace.Chunk) (*mooncakePart, error) {
	r := mooncakeReader{part: mooncakePart{read: c.Read}, names: names{}, chains: map[string]*trace.Chain{}}
	for number, text := range c.Lines {
		r.part.read.Lines++
		if len(r.turns) == 0 {
			r.turns = make([]trace.Turn, 64)
		}
		if r.part.rows == nil { // rows of a file tend to be alike
			r.part.rows = make([]mooncakeRow, 0, min(len(c.Data)/len(text)+1, 4096))
		}
		before := r.part.rows
		r.part.rows = append(before, mooncakeRow{turn: &r.turns[0]})
		row := &r.part.rows[len(before)]
		if err := r.row(row, text); err != nil {
			*row.turn, r.part.rows = trace.Turn{}, before
			if err := lose(&r.part.read, c.File, number, text, err); err != nil {
				return nil, err
			}
			continue
		}
		r.turns = r.turns[1:]
		if row.header {
			r.part.read.SkippedRows++
		}
		row.turn.File, row.turn.Line = c.File, int32(min(number, math.MaxInt32))
		if row.turn.ID == "" {
			row.turn.ID = rowName(c.Segment, number)
		}
	}
	return &r.part, nil
}

// rowName names a call by its place.
func rowName(segment, line int) string {
	name := make([]byte, 0, 64)
	if segment > 0 {
		name = fmt.Appendf(name, "file-%d-", segment+1)
	}
	return string(strconv.AppendInt(append(name, "row-"...), int64(line), 10))
}

// row reads one row.
func (r *mooncakeReader) row(row *mooncakeRow, text []byte) error {
	t, nan := row.turn, math.NaN()
	row.in, row.out, row.hashes = -1, -1, -1
	row.timestamp, row.delay, row.toolWait, row.apiTime = nan, nan, nan, nan
	var hashes []byte
	s := &r.scanner
	*s = scanner{data: text}
	for key, ok := s.object(); ok; key, ok = s.next() {
		switch string(key) {
		case "timestamp", "created_time", "not_before_ms":
			row.timestamp = s.float()
		case "input_length", "input_tokens":
			row.in = s.integer()
		case "output_length", "output_tokens":
			row.out = s.integer()
		case "hash_ids":
			hashes = s.flat()
		case "request_id":
			t.ID = s.name()
		case "session_id":
			row.session = r.names.of(s.nameText())
		case "play_id":
			row.play = r.names.of(s.nameText())
		case "model":
			t.Model = r.names.of(s.nullable())
		case "request_kind":
			row.kind = r.names.of(s.nullable())
		case "delay", "delay_ms":
			row.delay = s.float()
		case "tool_wait_ms":
			row.toolWait = s.float()
		case "recorded_api_time_ms":
			row.apiTime = s.float()
		case "priority":
			t.Hints.Priority = int32(s.whole(math.MinInt32, math.MaxInt32))
		case "strict_priority":
			t.Hints.StrictPriority = uint32(s.whole(0, math.MaxUint32))
		case "policy_class":
			t.Hints.PolicyClass = r.names.of(s.nullable())
		case "wait_for":
			row.readWaitFor(s)
		case "dependencies":
			row.readDependencies(s)
		case "agentsim":
			row.readOwn(s)
		case "schema":
			row.header = true
			s.skip()
		case "block_size":
			row.blockSize = s.whole(1, 1<<20)
		default:
			s.skip()
		}
	}
	if err := s.end(); err != nil {
		return err
	}
	// A header says what follows and is no call; rows may name their schema too.
	row.header = row.header && row.in < 0 && t.ID == ""
	if len(hashes) > 0 && !row.header {
		var err error
		if row.hashes, err = r.chain(row.session).AddText(t, hashes); err != nil {
			return fmt.Errorf("hash_ids: %w", err)
		}
	}
	return nil
}

func (r *mooncakeReader) chain(session string) *trace.Chain {
	c := r.chains[session]
	if c == nil {
		c = new(trace.Chain)
		r.chains[session] = c
	}
	return c
}

// mooncakeSession is a session whose rows follow one another.
type mooncakeSession struct {
	trace.Session
	last *trace.Turn
}

// mooncakeJoiner turns rows into turns, in the order of the rows.
type mooncakeJoiner struct {
	*trace.Joiner
	format    string
	blockSize int32
	fixed     bool                        // the user chose the block size
	sessions  map[string]*mooncakeSession // those that rows name
	unused    []mooncakeSession           // for the next ones
	byID      map[string]*trace.Turn      // agentic rows, whose ids others refer to
}

func (j *mooncakeJoiner) add(p *mooncakePart) error {
	part := trace.Part{Read: p.read, BlockSize: int(j.blockSize), Turns: make([]*trace.Turn, 0, len(p.rows))}
	for i := range p.rows {
		r := &p.rows[i]
		if r.header {
			if r.blockSize > 0 && !j.fixed {
				j.blockSize = int32(r.blockSize)
				part.BlockSize = int(j.blockSize)
			}
			continue
		}
		if err := j.finish(r, &part); err != nil {
			return &trace.InputError{File: r.turn.File, Line: int(r.turn.Line), Err: err}
		}
	}
	return j.Add(&part)
}

// finish makes the row's turn.
func (j *mooncakeJoiner) finish(r *mooncakeRow, part *trace.Part) (err error) {
	t := r.turn
	t.TTFT, t.End = trace.NoTime, trace.NoTime
	t.Cached, t.Reasoning = trace.Unknown, trace.Unknown
	if j.format == FormatAgentic {
		if first := j.byID[t.ID]; first != nil {
			return fmt.Errorf("request_id %q was used before, at %s:%d", t.ID, first.File, first.Line)
		}
		j.byID[t.ID] = t
	}
	s := j.session(r, part)
	t.Session = &s.Session
	if err := j.setTokens(r, s.last); err != nil {
		return err
	}
	if err := j.setTimes(r, s.last); err != nil {
		return err
	}
	if r.own != nil {
		if err := r.setOwn(); err != nil {
			return err
		}
		t.Session.Final = t.Session.Final || t.Final
	}
	s.last = t
	part.Turns = append(part.Turns, t)
	return nil
}

// session returns the row's session; rows without one are sessions of their own.
func (j *mooncakeJoiner) session(r *mooncakeRow, part *trace.Part) *mooncakeSession {
	id := cmp.Or(r.session, r.turn.ID)
	if r.play != "" && id != r.play && !strings.HasPrefix(id, r.play+"/") {
		id = r.play + "/" + id
	}
	if s := j.sessions[id]; s != nil && r.session != "" {
		return s
	}
	if len(j.unused) == 0 {
		j.unused = make([]mooncakeSession, 64)
	}
	s := &j.unused[0]
	j.unused = j.unused[1:]
	s.Session = trace.Session{ID: id, Class: r.kind}
	if r.own != nil {
		s.Parent, s.Class = r.own.Parent, cmp.Or(r.kind, r.own.Class)
	}
	if r.session != "" {
		j.sessions[id] = s
	}
	part.Sessions = append(part.Sessions, &s.Session)
	return s
}

func (j *mooncakeJoiner) setTokens(r *mooncakeRow, prev *trace.Turn) (err error) {
	t := r.turn
	if r.in < 0 && r.hashes > 0 {
		r.in = int64(r.hashes) * int64(j.blockSize)
	}
	if t.Input, err = tokens("input_length", r.in, 1); err != nil {
		return err
	}
	if t.Output, err = tokens("output_length", r.out, 0); err != nil {
		return err
	}
	if r.hashes > 0 {
		if err := trace.CheckHashCount(r.hashes, t.Input, j.blockSize); err != nil {
			return fmt.Errorf("%w%s", err, otherBlockSize(r.hashes, t.Input))
		}
	}
	if j.format == FormatMooncakeDelta && prev != nil {
		return j.addDelta(t, prev)
	}
	return nil
}

// otherBlockSize says which size of blocks would fit n hashes of input tokens, if it is one power of two: rows of Mooncake do
// not tell theirs.
func otherBlockSize(n int, input int32) string {
	var fit []int32
	for size := int32(8); size <= 8192; size *= 2 {
		if trace.CheckHashCount(n, input, size) == nil {
			fit = append(fit, size)
		}
	}
	if len(fit) != 1 {
		return ""
	}
	return fmt.Sprintf("; blocks of %d would fit: --trace-block-size %d", fit[0], fit[0])
}

// addDelta turns a row that holds the new part of a prompt into the whole prompt: the previous prompt, its output,
// and the new part. Blocks from the previous prompt's last full one on have no known identity and get one of their own.
func (j *mooncakeJoiner) addDelta(t, prev *trace.Turn) (err error) {
	if t.Input, err = tokens("the prompt with all that came before", int64(prev.Input)+int64(prev.Output)+int64(t.Input), 1); err != nil {
		return err
	}
	full := min(prev.Input/j.blockSize, prev.Shared+int32(len(prev.Hashes)))
	t.Base, t.Shared, t.Hashes = prev, full, nil
	if full == 0 {
		t.Base = nil
	}
	for i := full; i < (t.Input+j.blockSize-1)/j.blockSize; i++ {
		t.Hashes = append(t.Hashes, privateHash(t.File, t.Line, i))
	}
	return nil
}

// privateHash makes a hash for block i of the call in a line that no other block has: FNV-1a over the place, then
// mixed (splitmix64) so that it looks like other hashes.
func privateHash(file string, line, i int32) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range []byte(file) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h += uint64(uint32(line))<<32 + uint64(uint32(i))
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

func (j *mooncakeJoiner) setTimes(r *mooncakeRow, prev *trace.Turn) (err error) {
	t := r.turn
	if t.Start, err = optionalMs("timestamp", r.timestamp); err != nil {
		return err
	}
	delay, err := optionalMs("delay", r.delay)
	if err != nil {
		return err
	}
	if r.explicit || j.format == FormatAgentic {
		return r.setWaits(delay)
	}
	switch {
	case prev != nil && delay != trace.NoTime:
		t.Explicit = true
		t.Waits = []trace.Wait{{ID: prev.ID, Delay: delay}}
		t.Start = trace.NoTime
	case prev != nil && t.Start != trace.NoTime && prev.Start != trace.NoTime:
		// The end of the row before is not recorded, so the distance of the starts is all that is known of the gap.
		t.Explicit = true
		t.Waits = []trace.Wait{{ID: prev.ID},
			{ID: prev.ID, Delay: max(0, t.Start-prev.Start), OnDispatch: true}}
	case t.Start == trace.NoTime:
		return errors.New("timestamp is missing")
	}
	return nil
}

// optionalMs turns milliseconds into a duration, rounded to nanoseconds.
func optionalMs(name string, ms float64) (time.Duration, error) {
	if math.IsNaN(ms) {
		return trace.NoTime, nil
	}
	if !(ms >= 0 && ms <= maxMs) {
		return 0, fmt.Errorf("%s is %g: want 0 to %g milliseconds", name, ms, float64(maxMs))
	}
	return time.Duration(math.Round(ms * 1e6)), nil
}

// warnPartialIDs finds ids that stand for a whole block in one row and for a shorter one at the end of another. A
// prompt made of such ids cannot exist; the two are not taken as equal.
func warnPartialIDs(c *trace.Capture) {
	size := int32(c.BlockSize)
	partial := map[uint64]*trace.Turn{}
	each := func(visit func(t *trace.Turn, full int32)) {
		for _, s := range c.Sessions {
			for _, t := range s.Turns {
				visit(t, min(t.Input/size, t.Shared+int32(len(t.Hashes))))
			}
		}
	}
	each(func(t *trace.Turn, full int32) {
		if t.Shared+int32(len(t.Hashes)) > full {
			if id := hashAt(t, full); partial[id] == nil {
				partial[id] = t
			}
		}
	})
	// A bit for each id that may be one of them spares most of the others the map.
	shift := 60 - bits.Len(uint(len(partial)))
	maybe := make([]bool, 1<<(64-shift))
	at := func(id uint64) *bool { return &maybe[id*0x9e3779b97f4a7c15>>shift] }
	for id := range partial {
		*at(id) = true
	}
	warn := func(t *trace.Turn, id uint64) {
		if !*at(id) {
			return
		}
		if p := partial[id]; p != nil {
			c.Read.Warn(fmt.Sprintf("%s:%d: hash id %d stands for a whole block of %d tokens, but for %d at %s:%d: not taken as equal",
				t.File, t.Line, id, size, p.Input%size, p.File, p.Line))
		}
	}
	each(func(t *trace.Turn, full int32) {
		// What a row shares was looked at where it was read, except the last block, which may be partial there.
		for i := max(0, t.Shared-1); i < full; i++ {
			warn(t, hashAt(t, i))
		}
	})
}

// hashAt returns entry i of the turn's chain.
func hashAt(t *trace.Turn, i int32) uint64 {
	for i < t.Shared {
		t = t.Base
	}
	return t.Hashes[i-t.Shared]
}
