package synth

import "strconv"

// names collects the ids of one program in one text, so that they cost one allocation.
type names struct {
	text []byte
	ends []nameEnds
}

// nameEnds are the ends, in the text, of the ids of a call: "p000012" (the session's, as "p000012/s01" for the first
// subagent), "p000012-t003" (the request's) and "p000012-t003-bash" (the tool call's). Each begins where the
// entry before ends.
type nameEnds struct{ session, request, tool int }

func (n *names) reset() { n.text, n.ends = n.text[:0], n.ends[:0] }

func (n *names) add(program, session, turn int, tool string) {
	n.text = appendSessionID(n.text, program, session)
	e := nameEnds{session: len(n.text)}
	n.text = appendTurnID(n.text, turn)
	e.request = len(n.text)
	if tool != "" {
		n.text = append(append(n.text, '-'), tool...)
	}
	e.tool = len(n.text)
	n.ends = append(n.ends, e)
}

func appendSessionID(b []byte, program, session int) []byte {
	b = appendPadded(append(b, 'p'), program, 6)
	if session > 0 {
		b = appendPadded(append(b, "/s"...), session, 2)
	}
	return b
}

func appendTurnID(b []byte, turn int) []byte { return appendPadded(append(b, "-t"...), turn, 3) }

// appendPadded appends n with leading zeros up to width digits.
func appendPadded(b []byte, n, width int) []byte {
	for limit := 10; width > 1; width-- {
		if n < limit {
			b = append(b, '0')
		}
		limit *= 10
	}
	return strconv.AppendInt(b, int64(n), 10)
}
