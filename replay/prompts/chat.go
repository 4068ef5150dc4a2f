package prompts

import (
	"cmp"
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// The roles of messages.
const (
	system    = "system"
	user      = "user"
	assistant = "assistant"
)

// message is a part of a prompt: the tokens [from, to) are its content. In a prompt that is no chat, role is "".
type message struct {
	role     string
	from, to int32
}

// conversation says where the prompts of a workload are cut into messages. No trace records messages, but where the prompts of
// a session ended and how much was generated then: there an answer of the assistant begins, and behind it what its user, or a
// tool, says. What a chat template puts around each message takes the place of tokens at its border, so that all
// others stay where the recording has them.
//
// Prompts must be cut alike where they are alike, or a cache would find less than was recorded. So cuts belong to nodes of
// the prefix tree: a prompt has those of the nodes that it runs through.
type conversation struct {
	cuts [][]cut // by node, in order
	// systems is where the system prompt ends, by the first node of a prompt.
	systems map[trace.NodeID]int32
}

// cut is a border before token at, which belongs to the node of the token before it: an answer begins there, or ends.
type cut struct {
	at     int32
	answer bool
}

func newConversation(w *trace.Workload, perMessage int32) *conversation {
	c := &conversation{cuts: make([][]cut, w.Nodes()), systems: map[trace.NodeID]int32{}}
	latest := map[int32]int32{} // call of each session
	var path, before []trace.Span
	for i := range w.Calls {
		call := &w.Calls[i]
		path = w.Path(call.Prompt, call.Input, 1, 0, path[:0])
		c.noteSystem(path)
		if last, ok := latest[call.Session]; ok {
			prior := &w.Calls[last]
			before = w.Path(prior.Prompt, prior.Input, 1, 0, before[:0])
			if end := prior.Input + prior.Output; prior.Output > 0 && extends(path, before) && call.Input > end+2*perMessage {
				c.add(path, cut{prior.Input, true})
				c.add(path, cut{end, false})
			}
		}
		latest[call.Session] = int32(i)
	}
	for node := range c.cuts {
		slices.SortFunc(c.cuts[node], func(a, b cut) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(b.role(), a.role())) })
		c.cuts[node] = slices.Compact(c.cuts[node])
	}
	return c
}

// role is that of the message which begins at the cut.
func (c cut) role() string {
	if c.answer {
		return assistant
	}
	return user
}

// extends tells whether a path runs through all of another.
func extends(path, before []trace.Span) bool {
	if len(path) < len(before) {
		return false
	}
	for i, s := range before {
		if path[i].Key != s.Key || path[i].To < s.To {
			return false
		}
	}
	return true
}

// noteSystem takes what all prompts that begin in a node have in common for their system prompt; where one of them is no
// more than that, half of it.
func (c *conversation) noteSystem(path []trace.Span) {
	if len(path) == 0 {
		return
	}
	node, to := path[0].Key.Node(), path[0].To
	if len(path) == 1 {
		to /= 2
	}
	if s, ok := c.systems[node]; !ok || to < s {
		c.systems[node] = to
	}
}

// add puts a cut where it lies on a path.
func (c *conversation) add(path []trace.Span, at cut) {
	for _, s := range path {
		if at.at > s.From && at.at <= s.To {
			c.cuts[s.Key.Node()] = append(c.cuts[s.Key.Node()], at)
			return
		}
	}
}

// messages cuts a prompt of a chat. The template's own tokens stand in place of the first overhead tokens, of perMessage tokens
// before an answer and before the end, and of as many behind the system prompt and behind an answer. A cut that would leave a
// message without content is left out.
func (c *conversation) messages(path []trace.Span, tokens int32, scale *Scale) []message {
	begin, per := int32(scale.Overhead), int32(scale.PerMessage)
	end := tokens - per
	border := min(max(c.systemEnd(path, tokens), begin+1), end-per-1)
	if border <= begin {
		from := max(0, min(begin, tokens-1))
		return []message{{user, from, max(end, from+1)}}
	}
	list := []message{{system, begin, border}}
	open := message{user, border + per, end}
	for _, s := range path {
		for _, at := range c.cuts[s.Key.Node()] {
			if at.at <= s.From || at.at > s.To || at.role() == open.role {
				continue
			}
			next := message{at.role(), at.at, end}
			if at.answer {
				open.to = at.at - per
			} else {
				open.to, next.from = at.at, at.at+per
			}
			if open.to <= open.from || !at.answer && next.from >= end {
				continue
			}
			list = append(list, open)
			open = next
		}
	}
	if open.role == assistant { // the answer is not over, so that it is none
		open = list[len(list)-1]
		list = list[:len(list)-1]
	}
	open.to = end
	return append(list, open)
}

// systemEnd is where the system prompt of a path ends; of a prompt that is none of the workload's, half-way.
func (c *conversation) systemEnd(path []trace.Span, tokens int32) int32 {
	if len(path) == 0 {
		return tokens / 2
	}
	return c.systems[path[0].Key.Node()]
}
