package perfetto

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"pgregory.net/rapid"
)

// The checker reads files as Perfetto's importer does, by a walker of the wire format that shares nothing with the writer
// but the numbers of the fields.

// field is one field of a message: num for varints and fixed ones, bytes for the rest.
type field struct {
	number int
	num    uint64
	bytes  []byte
}

// walk calls each with the fields of a message.
func walk(message []byte, each func(field) error) error {
	for len(message) > 0 {
		tag, n := binary.Uvarint(message)
		if n <= 0 {
			return errors.New("bad tag")
		}
		message = message[n:]
		f := field{number: int(tag >> 3)}
		switch tag & 7 {
		case 0:
			if f.num, n = binary.Uvarint(message); n <= 0 {
				return errors.New("bad varint")
			}
		case 1:
			if n = 8; len(message) < n {
				return errors.New("short fixed64")
			}
			f.num = binary.LittleEndian.Uint64(message)
		case 2:
			length, m := binary.Uvarint(message)
			if m <= 0 || uint64(len(message)-m) < length {
				return errors.New("bad length")
			}
			f.bytes, n = message[m:m+int(length)], m+int(length)
		default:
			return fmt.Errorf("field %d has wire type %d", f.number, tag&7)
		}
		message = message[n:]
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}

// imported is what a viewer makes of a file.
type imported struct {
	tracks   map[uint64]*importedTrack
	slices   []*slice // instants too, by begin
	flows    []flow
	counters int64
	clocks   map[uint64]uint64
	errors   []string // what Perfetto counts as import errors
}

type importedTrack struct {
	id, parent uint64
	name       string
	rank       int64
	explicit   bool // order of children
	unmerged   bool
	counter    bool
	unit       string
	values     []value
	open       []*slice
}

type value struct {
	at time.Duration
	v  float64
}

// slice is a slice, or an instant.
type slice struct {
	track      *importedTrack
	at, until  time.Duration
	name       string
	categories []string
	args       map[string]any
	instant    bool
	parent     *slice
	closed     bool
}

func (s *slice) is(category string) bool { return slices.Contains(s.categories, category) }

func (s *slice) took() time.Duration { return s.until - s.at }

// flow is an arrow.
type flow struct{ from, to *slice }

// packet is a track event before it is sorted.
type packet struct {
	at           time.Duration
	kind         uint64
	track        uint64
	name         string
	categories   []string
	args         map[string]any
	starts, ends []uint64
	value        float64
	hasValue     bool
}

// importFile reads a file by the rules of Perfetto's importer: packets sorted by time, those of one time in the order of the
// file; ends close what is open on their track; ids are interned before they are used; flows begin before they end.
func importFile(file []byte) (*imported, error) {
	in := &imported{tracks: map[uint64]*importedTrack{}, clocks: map[uint64]uint64{}}
	interned := map[int]map[uint64]string{2: {}, 1: {}, 3: {}, 29: {}}
	var packets []packet
	first := true
	err := walk(file, func(f field) error {
		if f.number != 1 {
			return fmt.Errorf("field %d of a trace", f.number)
		}
		var p packet
		var sequence, flags, stamp uint64
		var event, descriptor []byte
		stamped := false
		err := walk(f.bytes, func(f field) error {
			switch f.number {
			case 6:
				return in.clock(f.bytes)
			case 8:
				stamp, stamped = f.num, true
			case 10:
				sequence = f.num
			case 11:
				event = f.bytes
			case 12:
				return intern(interned, f.bytes)
			case 13:
				flags = f.num
			case 60:
				descriptor = f.bytes
			case 87:
			default:
				return fmt.Errorf("field %d of a packet", f.number)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if sequence == 0 {
			in.fail("a packet of no sequence")
		}
		if first != (flags&1 != 0) {
			in.fail("incremental state is cleared %v in the first packet", flags&1 != 0)
		}
		first = false
		if descriptor != nil {
			return in.descriptor(descriptor)
		}
		if event == nil {
			return nil
		}
		if !stamped || flags&2 == 0 {
			in.fail("an event without a time, or that does not need the interned state")
		}
		p.at = time.Duration(stamp)
		if err := in.event(&p, event, interned); err != nil {
			return err
		}
		packets = append(packets, p)
		return nil
	})
	if err != nil {
		return nil, err
	}
	in.replay(packets)
	return in, nil
}

func (in *imported) fail(format string, args ...any) {
	in.errors = append(in.errors, fmt.Sprintf(format, args...))
}

func (in *imported) clock(message []byte) error {
	return walk(message, func(f field) error {
		var id, at uint64
		err := walk(f.bytes, func(f field) error {
			if f.number == 1 {
				id = f.num
			} else {
				at = f.num
			}
			return nil
		})
		in.clocks[id] = at
		return err
	})
}

// intern notes the strings of an InternedData, by the number of their list.
func intern(interned map[int]map[uint64]string, message []byte) error {
	return walk(message, func(f field) error {
		var iid uint64
		var text string
		err := walk(f.bytes, func(f field) error {
			if f.number == 1 {
				iid = f.num
			} else {
				text = string(f.bytes)
			}
			return nil
		})
		list := interned[f.number]
		if list == nil || iid == 0 {
			return fmt.Errorf("list %d, iid %d of interned data", f.number, iid)
		}
		if was, ok := list[iid]; ok {
			return fmt.Errorf("iid %d of list %d is %q, and now %q", iid, f.number, was, text)
		}
		list[iid] = text
		return err
	})
}

func (in *imported) descriptor(message []byte) error {
	t := &importedTrack{}
	err := walk(message, func(f field) error {
		switch f.number {
		case 1:
			t.id = f.num
		case 2:
			t.name = string(f.bytes)
		case 5:
			t.parent = f.num
		case 8:
			t.counter = true
			return walk(f.bytes, func(f field) error {
				if f.number == 6 {
					t.unit = string(f.bytes)
				}
				return nil
			})
		case 11:
			t.explicit = f.num == 3
		case 12:
			t.rank = int64(f.num)
		case 14:
		case 15:
			t.unmerged = f.num == 2
		default:
			return fmt.Errorf("field %d of a track", f.number)
		}
		return nil
	})
	if t.id == 0 || in.tracks[t.id] != nil {
		in.fail("track %d is described twice, or has no uuid", t.id)
	}
	if t.parent != 0 && in.tracks[t.parent] == nil {
		in.fail("track %q stands before its parent", t.name)
	}
	in.tracks[t.id] = t
	return err
}

func (in *imported) event(p *packet, message []byte, interned map[int]map[uint64]string) error {
	p.args = map[string]any{}
	lookup := func(list int, iid uint64) string {
		text, ok := interned[list][iid]
		if !ok {
			in.fail("iid %d of list %d is used before it is told", iid, list)
		}
		return text
	}
	return walk(message, func(f field) error {
		switch f.number {
		case 3:
			p.categories = append(p.categories, lookup(1, f.num))
		case 4:
			var key string
			var v any
			err := walk(f.bytes, func(f field) error {
				switch f.number {
				case 1:
					key = lookup(3, f.num)
				case 10:
					key = string(f.bytes)
				case 2:
					v = f.num != 0
				case 4:
					v = int64(f.num)
				case 5:
					v = math.Float64frombits(f.num)
				case 6:
					v = string(f.bytes)
				case 17:
					v = lookup(29, f.num)
				default:
					return fmt.Errorf("field %d of an annotation", f.number)
				}
				return nil
			})
			p.args[key] = v
			return err
		case 9:
			p.kind = f.num
		case 10:
			p.name = lookup(2, f.num)
		case 11:
			p.track = f.num
		case 22:
			p.categories = append(p.categories, string(f.bytes))
		case 23:
			p.name = string(f.bytes)
		case 44:
			p.value, p.hasValue = math.Float64frombits(f.num), true
		case 47:
			p.starts = append(p.starts, f.num)
		case 48:
			p.ends = append(p.ends, f.num)
		default:
			return fmt.Errorf("field %d of an event", f.number)
		}
		return nil
	})
}

// replay applies the events in order of time.
func (in *imported) replay(packets []packet) {
	last := map[uint64]time.Duration{}
	for i := range packets {
		p := &packets[i]
		if p.at < last[p.track] {
			in.fail("track %d goes back from %v to %v", p.track, last[p.track], p.at)
		}
		last[p.track] = p.at
	}
	slices.SortStableFunc(packets, func(a, b packet) int { return cmp.Compare(a.at, b.at) })
	flows := map[uint64]*slice{}
	for i := range packets {
		p := &packets[i]
		t := in.tracks[p.track]
		if t == nil {
			in.fail("an event on track %d, which is not described", p.track)
			continue
		}
		if t.counter != (p.kind == 4) || p.hasValue != (p.kind == 4) {
			in.fail("an event of type %d on track %q", p.kind, t.name)
		}
		var s *slice
		switch p.kind {
		case 1, 3:
			s = &slice{track: t, at: p.at, until: p.at, name: p.name, categories: p.categories, args: p.args, instant: p.kind == 3}
			if n := len(t.open); n > 0 {
				s.parent = t.open[n-1]
			}
			in.slices = append(in.slices, s)
			if p.kind == 1 {
				t.open = append(t.open, s)
			}
			if p.name == "" || len(p.categories) == 0 {
				in.fail("an event without a name or a category on track %q", t.name)
			}
		case 2:
			n := len(t.open)
			if n == 0 {
				in.fail("an end without a begin on track %q at %v", t.name, p.at)
				continue
			}
			t.open[n-1].until, t.open[n-1].closed = p.at, true
			t.open = t.open[:n-1]
		case 4:
			in.counters++
			t.values = append(t.values, value{p.at, p.value})
		default:
			in.fail("an event of type %d", p.kind)
		}
		for _, id := range p.ends {
			if flows[id] == nil {
				in.fail("flow %d ends before it begins", id)
				continue
			}
			in.flows = append(in.flows, flow{flows[id], s})
			delete(flows, id)
		}
		for _, id := range p.starts {
			if flows[id] != nil {
				in.fail("flow %d begins twice", id)
			}
			flows[id] = s
		}
	}
	for _, t := range in.tracks {
		for _, s := range t.open {
			in.fail("slice %q on track %q has no end", s.name, t.name)
		}
	}
}

// count counts slices and instants.
func (in *imported) count() (slices, instants int64) {
	for _, s := range in.slices {
		if s.instant {
			instants++
		} else {
			slices++
		}
	}
	return slices, instants
}

// sum adds up the slices of a category.
func (in *imported) sum(category string) time.Duration {
	var total time.Duration
	for _, s := range in.slices {
		if s.is(category) {
			total += s.took()
		}
	}
	return total
}

// path is the names of a track and of the groups that it lies in.
func (in *imported) path(t *importedTrack) string {
	path := t.name
	for t.parent != 0 {
		t = in.tracks[t.parent]
		path = t.name + "/" + path
	}
	return path
}

// mustImport reads a file that has to be without faults, and whose counts are those of the summary.
func mustImport(t rapid.TB, file []byte, want Summary) *imported {
	t.Helper()
	in, err := importFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(in.errors) > 0 {
		t.Fatalf("%d import errors: %s", len(in.errors), strings.Join(in.errors[:min(len(in.errors), 10)], "\n"))
	}
	slices, instants := in.count()
	got := Summary{slices, instants, int64(len(in.flows)), in.counters, int64(len(in.tracks)), want.Dropped}
	if got != want {
		t.Fatalf("the file has %+v, the summary says %+v", got, want)
	}
	for _, s := range in.slices {
		if p := s.parent; p != nil && (s.at < p.at || s.until > p.until) {
			t.Fatalf("%q [%v, %v] leads out of %q [%v, %v] on track %q", s.name, s.at, s.until, p.name, p.at, p.until, in.path(s.track))
		}
	}
	for _, f := range in.flows {
		if f.from == f.to || f.to.at < f.from.at {
			t.Fatalf("an arrow from %q at %v to %q at %v", f.from.name, f.from.at, f.to.name, f.to.at)
		}
	}
	for _, track := range in.tracks {
		if !track.unmerged {
			t.Fatalf("track %q may be merged with its namesakes", in.path(track))
		}
		if up := in.tracks[track.parent]; up != nil && !up.explicit {
			t.Fatalf("the parent of %q does not order its children", in.path(track))
		}
	}
	return in
}
