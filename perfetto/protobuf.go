package perfetto

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/agentsim/agentsim/perfetto/perfettopb"
)

// The built-in clocks of the format that are used. BOOTTIME is that of packets which name none.
const (
	clockRealtime = 1
	clockBoottime = 6
)

// protobuf writes Perfetto's own format. A Trace is its packets one after the other, so each is written as it comes.
// The messages are used again for the next one.
type protobuf struct {
	w     *bufio.Writer
	bytes []byte
	err   error

	names, categories, keys, texts table
	fresh                          perfettopb.InternedData // what the next packet has to tell

	packet perfettopb.TracePacket
	out    perfettopb.TrackEvent
	at     uint64
	uuid   uint64
	kind   perfettopb.TrackEvent_Type
	iid    uint64
	name   string
	value  float64
	args   []*annotation
}

// annotation is a DebugAnnotation with room for any kind of name and value.
type annotation struct {
	message perfettopb.DebugAnnotation
	iid     uint64
	key     string
	textIID uint64
	text    string
	number  int64
	real    float64
	yes     bool
}

// newProtobuf begins a file. At is the time of its first events and wall the Unix time at that time, in nanoseconds; a
// negative one is not known.
func newProtobuf(w io.Writer, at, wall time.Duration) *protobuf {
	p := &protobuf{w: bufio.NewWriterSize(w, 1<<16)}
	p.packet.TrustedPacketSequenceId = proto.Uint32(1)
	first := &perfettopb.TracePacket{
		TrustedPacketSequenceId: proto.Uint32(1),
		FirstPacketOnSequence:   proto.Bool(true),
		SequenceFlags:           proto.Uint32(uint32(perfettopb.TracePacket_SEQ_INCREMENTAL_STATE_CLEARED)),
		Timestamp:               proto.Uint64(uint64(at)),
	}
	if wall >= 0 {
		first.ClockSnapshot = &perfettopb.ClockSnapshot{Clocks: []*perfettopb.ClockSnapshot_Clock{
			{ClockId: proto.Uint32(clockBoottime), Timestamp: proto.Uint64(uint64(at))},
			{ClockId: proto.Uint32(clockRealtime), Timestamp: proto.Uint64(uint64(wall))},
		}}
	}
	p.write(first)
	p.packet.SequenceFlags = proto.Uint32(uint32(perfettopb.TracePacket_SEQ_NEEDS_INCREMENTAL_STATE))
	return p
}

// write adds a packet, field 1 of the Trace.
func (p *protobuf) write(packet *perfettopb.TracePacket) {
	if p.err != nil {
		return
	}
	if p.bytes, p.err = (proto.MarshalOptions{}).MarshalAppend(p.bytes[:0], packet); p.err != nil {
		return
	}
	head := protowire.AppendTag(p.w.AvailableBuffer(), 1, protowire.BytesType)
	p.w.Write(protowire.AppendVarint(head, uint64(len(p.bytes))))
	_, p.err = p.w.Write(p.bytes)
}

func (p *protobuf) close() error {
	if p.err == nil {
		p.err = p.w.Flush()
	}
	return p.err
}

func (p *protobuf) track(t *track) {
	d := &perfettopb.TrackDescriptor{
		Uuid:                 proto.Uint64(t.id),
		Name:                 proto.String(clean(t.name)),
		SiblingOrderRank:     proto.Int32(t.rank),
		SiblingMergeBehavior: perfettopb.TrackDescriptor_SIBLING_MERGE_BEHAVIOR_NONE.Enum(),
	}
	if t.parent != 0 {
		d.ParentUuid = proto.Uint64(t.parent)
	}
	if t.description != "" {
		d.Description = proto.String(clean(t.description))
	}
	if t.group {
		d.ChildOrdering = perfettopb.TrackDescriptor_EXPLICIT.Enum()
	}
	if t.counter {
		d.Counter = &perfettopb.CounterDescriptor{}
		if t.unit != "" {
			d.Counter.UnitName = proto.String(t.unit)
		}
	}
	p.write(&perfettopb.TracePacket{
		TrustedPacketSequenceId: p.packet.TrustedPacketSequenceId,
		SequenceFlags:           p.packet.SequenceFlags,
		TrackDescriptor:         d,
	})
}

// eventTypes are the types of events, by kind.
var eventTypes = [...]perfettopb.TrackEvent_Type{
	begin:   perfettopb.TrackEvent_TYPE_SLICE_BEGIN,
	end:     perfettopb.TrackEvent_TYPE_SLICE_END,
	instant: perfettopb.TrackEvent_TYPE_INSTANT,
	sample:  perfettopb.TrackEvent_TYPE_COUNTER,
}

func (p *protobuf) event(e *event) {
	p.at, p.uuid, p.kind = uint64(e.at), e.track, eventTypes[e.kind]
	out := &p.out
	out.Type, out.TrackUuid = &p.kind, &p.uuid
	out.CategoryIids, out.Categories = out.CategoryIids[:0], out.Categories[:0]
	out.DebugAnnotations = out.DebugAnnotations[:0]
	out.NameIid, out.Name, out.DoubleCounterValue = nil, nil, nil
	out.FlowIds, out.TerminatingFlowIds = e.starts, e.ends
	switch e.kind {
	case begin, instant:
		p.label(e)
	case sample:
		p.value = e.value
		out.DoubleCounterValue = &p.value
	}
	p.packet.Timestamp, p.packet.TrackEvent, p.packet.InternedData = &p.at, out, nil
	if f := &p.fresh; len(f.EventNames)+len(f.EventCategories)+len(f.DebugAnnotationNames)+len(f.DebugAnnotationStringValues) > 0 {
		p.packet.InternedData = f
	}
	p.write(&p.packet)
	if p.packet.InternedData != nil {
		proto.Reset(&p.fresh)
	}
}

// label sets the name, the categories and the arguments of an event.
func (p *protobuf) label(e *event) {
	out := &p.out
	p.name = clean(e.name)
	iid, fresh := p.names.id(p.name)
	if fresh {
		p.fresh.EventNames = append(p.fresh.EventNames, &perfettopb.EventName{Iid: proto.Uint64(iid), Name: proto.String(p.name)})
	}
	if p.iid = iid; iid > 0 {
		out.NameIid = &p.iid
	} else {
		out.Name = &p.name
	}
	for _, c := range e.categories {
		if c == "" {
			break
		}
		iid, fresh := p.categories.id(c)
		if fresh {
			p.fresh.EventCategories = append(p.fresh.EventCategories, &perfettopb.EventCategory{Iid: proto.Uint64(iid), Name: proto.String(c)})
		}
		if iid > 0 {
			out.CategoryIids = append(out.CategoryIids, iid)
		} else {
			out.Categories = append(out.Categories, c)
		}
	}
	for i := range e.args {
		out.DebugAnnotations = append(out.DebugAnnotations, p.annotate(i, &e.args[i]))
	}
}

// annotate fills the i-th annotation of the event.
func (p *protobuf) annotate(i int, from *arg) *perfettopb.DebugAnnotation {
	if i == len(p.args) {
		p.args = append(p.args, new(annotation))
	}
	a := p.args[i]
	out := &a.message
	iid, fresh := p.keys.id(from.key)
	if fresh {
		p.fresh.DebugAnnotationNames = append(p.fresh.DebugAnnotationNames,
			&perfettopb.DebugAnnotationName{Iid: proto.Uint64(iid), Name: proto.String(from.key)})
	}
	out.NameIid, out.Name = nil, nil
	if a.iid, a.key = iid, from.key; iid > 0 {
		out.NameIid = &a.iid
	} else {
		out.Name = &a.key
	}
	out.IntValue, out.DoubleValue, out.BoolValue, out.StringValue, out.StringValueIid = nil, nil, nil, nil, nil
	switch from.kind {
	case argNumber:
		a.number = from.number
		out.IntValue = &a.number
	case argReal:
		a.real = from.real
		out.DoubleValue = &a.real
	case argTrue:
		a.yes = true
		out.BoolValue = &a.yes
	default:
		p.annotateText(a, from)
	}
	return out
}

func (p *protobuf) annotateText(a *annotation, from *arg) {
	a.text = clean(from.text)
	a.message.StringValue = &a.text
	if from.kind == argID {
		return
	}
	iid, fresh := p.texts.id(a.text)
	if fresh {
		p.fresh.DebugAnnotationStringValues = append(p.fresh.DebugAnnotationStringValues,
			&perfettopb.InternedString{Iid: proto.Uint64(iid), Str: []byte(a.text)})
	}
	if iid > 0 {
		a.textIID = iid
		a.message.StringValue, a.message.StringValueIid = nil, &a.textIID
	}
}

// table numbers strings from 1. It is bounded: what finds no place is written out wherever it stands.
type table struct{ ids map[string]uint64 }

// Bounds of a table: entries, and bytes of a string.
const (
	maxInterned     = 1 << 14
	maxInternedText = 256
)

// id returns the number of a string, 0 for none, and whether it is new.
func (t *table) id(s string) (iid uint64, fresh bool) {
	if iid, ok := t.ids[s]; ok {
		return iid, false
	}
	if len(t.ids) == maxInterned || len(s) > maxInternedText {
		return 0, false
	}
	if t.ids == nil {
		t.ids = map[string]uint64{}
	}
	iid = uint64(len(t.ids) + 1)
	t.ids[strings.Clone(s)] = iid
	return iid, true
}

// maxText bounds a name or an argument, in bytes.
const maxText = 4096

// clean makes a text valid UTF-8 of bounded length.
func clean(s string) string {
	if len(s) > maxText {
		s = s[:maxText] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// describeOrigin says in words what time 0 of a timeline is.
func describeOrigin(epochMs int64) string {
	if epochMs == 0 {
		return "time 0 is the start of the trace, which tells no time of day"
	}
	return fmt.Sprintf("time 0 is %s", time.UnixMilli(epochMs).UTC().Format("2006-01-02T15:04:05.000Z"))
}
