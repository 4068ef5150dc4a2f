package prompts

import (
	"cmp"
	"encoding/json"
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// splice is tokens that a server generated at a place of a tree node.
type splice struct {
	from int32
	ids  []uint32
}

// said is a text that a server generated in the place of the tokens [from, to). It cannot be cut, so that it stands in prompts
// which run through all of it, as far as it is known: up to token known, which lies in node end.
type said struct {
	from, to, known int32
	end             trace.Key
	text            []byte // as in a JSON string
}

// Generated splices the token ids that a server generated for a call into the later prompts that contain its output. Of
// two calls whose outputs lie in the same place the first counts.
func (m *Maker) Generated(call int32, copy uint32, ids []uint32) {
	c := &m.workload.Calls[call]
	to := min(c.Identified, c.Input+int32(len(ids)))
	if !m.alphabet.ids || to <= c.Input {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.workload.Path(c.End, to, 1, copy, nil) {
		from := max(s.From, c.Input)
		if from >= s.To || m.covers(s.Key, from, s.To) {
			continue
		}
		m.live[s.Key] = append(m.live[s.Key], splice{from: from, ids: ids[from-c.Input : s.To-c.Input]})
		slices.SortFunc(m.live[s.Key], func(a, b splice) int { return cmp.Compare(a.from, b.from) })
	}
}

// covers tells whether a splice overlaps [from, to) of a node.
func (m *Maker) covers(key trace.Key, from, to int32) bool {
	for _, s := range m.live[key] {
		if s.from < to && from < s.from+int32(len(s.ids)) {
			return true
		}
	}
	return false
}

// GeneratedText splices the text that a server generated for a call into the later prompts that contain its output, all of
// it but for part of a block, which the hashes of a trace do not show. Of two calls whose outputs lie in the same place the
// first counts.
func (m *Maker) GeneratedText(call int32, copy uint32, text string) {
	c := &m.workload.Calls[call]
	block := int32(max(1, m.workload.Capture.BlockSize))
	if m.alphabet.ids || text == "" || c.Identified <= c.Input || c.Computed()-c.Identified >= block {
		return
	}
	quoted, err := json.Marshal(text)
	if err != nil { // of a string there is none
		return
	}
	path := m.workload.Path(c.End, c.Computed(), 1, copy, nil)
	heard := said{from: c.Input, to: c.Input + c.Output, known: c.Identified - 1, text: quoted[1 : len(quoted)-1]}
	for _, s := range path {
		if s.From <= heard.known && heard.known < s.To {
			heard.end = s.Key
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range path {
		if s.From > c.Input || s.To <= c.Input {
			continue
		}
		at, there := slices.BinarySearchFunc(m.texts[s.Key], c.Input, func(t said, from int32) int { return cmp.Compare(t.from, from) })
		if !there {
			m.texts[s.Key] = slices.Insert(m.texts[s.Key], at, heard)
		}
	}
}

// on tells whether a path runs through all of a text.
func (t *said) on(path []trace.Span) bool {
	for _, s := range path {
		if s.Key == t.end && s.From <= t.known && t.known < s.To {
			return true
		}
	}
	return false
}
