package merge

import (
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// compare counts in which calls both sides tell something else.
func (t *telling) compare() {
	fields := []Difference{{Field: "input_tokens"}, {Field: "output_tokens"}, {Field: "cached_tokens"}, {Field: "model"}}
	for i, on := range t.of {
		if on < 0 {
			continue
		}
		c, s := t.calls[i], t.served.calls[on]
		unknown := filled(c) | filled(s)
		differ := func(field int, told bool, by int32) {
			if told && by != 0 {
				fields[field].Calls++
				fields[field].Most = max(fields[field].Most, int(max(by, -by)))
			}
		}
		differ(0, unknown&trace.FieldInput == 0, c.Input-s.Input)
		differ(1, unknown&trace.FieldOutput == 0, c.Output-s.Output)
		differ(2, c.Cached != trace.Unknown && s.Cached != trace.Unknown, c.Cached-s.Cached)
		if c.Model != "" && s.Model != "" && c.Model != s.Model {
			fields[3].Calls++
		}
	}
	t.report.Differs = slices.DeleteFunc(fields, func(d Difference) bool { return d.Calls == 0 })
}

// fillCalls gives the server's calls what harnesses tell of them. The first that is heard has the last word.
func (m *merger) fillCalls() {
	known := tally{}
	for _, t := range slices.Backward(m.tellings) {
		for i, on := range t.of {
			if on < 0 {
				continue
			}
			for _, name := range fillCall(t.served.calls[on], t.calls[i], m.served.source.Capture.BlockSize).Names() {
				known[name]++
			}
		}
	}
	m.report.Known = []FieldCount{}
	for name, n := range known {
		m.report.Known = append(m.report.Known, FieldCount{name, n})
	}
	slices.SortFunc(m.report.Known, func(a, b FieldCount) int {
		return slices.Index(fieldOrder, a.Field) - slices.Index(fieldOrder, b.Field)
	})
}

// fieldOrder is the order in which trace tells fields.
var fieldOrder = trace.AllFields.Names()

// fillCall gives a server's call what a harness tells of it, and returns the fields that a rule had filled and are now told.
// Of the server stay the times, the hashes, and the counts that it told; of the harness come the session, the tools and the trigger.
func fillCall(s, h *trace.Turn, blockSize int) trace.Fields {
	const structure = trace.FieldSession | trace.FieldParent | trace.FieldToolEnd
	before, ruled := filled(s), filled(h)
	now := structure
	if h.Model != "" && (s.Model == "" || before&trace.FieldModel != 0) {
		s.Model = h.Model
		now |= trace.FieldModel
	}
	if before&trace.FieldOutput != 0 && ruled&trace.FieldOutput == 0 {
		s.Output = h.Output
		now |= trace.FieldOutput
	}
	if before&trace.FieldInput != 0 && ruled&trace.FieldInput == 0 && holds(s, h.Input, blockSize) {
		s.Input = h.Input
		s.Cached = min(s.Cached, s.Input)
		now |= trace.FieldInput
	}
	if s.Cached == trace.Unknown {
		s.Cached = min(h.Cached, s.Input)
	}
	if s.Reasoning == trace.Unknown && h.Reasoning <= s.Output {
		s.Reasoning = h.Reasoning
	}
	if s.TTFT == trace.NoTime {
		s.TTFT = h.TTFT
	}
	if h.Trigger != "" {
		s.Trigger = h.Trigger
	}
	if len(h.ToolCalls) > 0 {
		s.ToolCalls = h.ToolCalls
	}
	if s.Hints == (trace.Hints{}) {
		s.Hints = h.Hints
	}
	if s.Status == "" {
		s.Status = h.Status
	}
	s.Compaction = s.Compaction || h.Compaction
	s.Final = s.Final || h.Final
	s.Inferred = s.Inferred&^now | ruled&now
	now &^= ruled
	setRow(s, h.ID, now)
	return before & now
}

// holds tells whether a call's hashes are those of a prompt of input tokens.
func holds(s *trace.Turn, input int32, blockSize int) bool {
	n := int(s.Shared) + len(s.Hashes)
	return n == 0 || trace.CheckHashCount(n, input, int32(blockSize)) == nil
}

// setRow makes the row of a call say what is now told, and by what name the harness knows it.
func setRow(s *trace.Turn, id string, now trace.Fields) {
	if s.Row == nil {
		return
	}
	r := s.Row.Request
	if r.XRequestID == "" {
		r.XRequestID = id
	}
	if x := r.Agentsim; x != nil {
		x.Inferred = slices.DeleteFunc(x.Inferred, func(name string) bool { return now&trace.FieldsNamed([]string{name}) != 0 })
	}
}

// hashSource is the first harness whose hashes are taken because the server tells none, or nil.
func (m *merger) hashSource() *telling {
	hashed := func(calls []*trace.Turn) bool {
		return slices.ContainsFunc(calls, func(t *trace.Turn) bool { return t.Shared > 0 || len(t.Hashes) > 0 })
	}
	if hashed(m.served.calls) {
		return nil
	}
	for _, t := range m.tellings {
		if hashed(t.calls) {
			return t
		}
	}
	return nil
}

// takeHashes gives the merged calls the hashes that a harness has, where they are of a prompt of the same length.
func (m *merger) takeHashes(t *telling) {
	of := map[*trace.Turn]*trace.Turn{}
	for i, on := range t.of {
		if on >= 0 {
			of[m.served.calls[on]] = t.calls[i]
		}
	}
	for _, s := range m.sessions {
		var chain trace.Chain
		for _, c := range s.Turns {
			h := of[c]
			if h == nil || h.Shared == 0 && len(h.Hashes) == 0 {
				continue
			}
			hashes := h.Chain()
			if trace.CheckHashCount(len(hashes), c.Input, int32(t.source.Capture.BlockSize)) == nil {
				chain.Add(c, hashes)
				c.Inferred |= h.Inferred & (trace.FieldTextHashes | trace.FieldCachedHashes)
			}
		}
	}
}
