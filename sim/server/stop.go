package server

import (
	"strings"

	"github.com/goccy/go-json"

	"github.com/agentsim/agentsim/trace/wire"
)

// Bounds on the stop strings of a request.
const (
	maxStops   = 64
	maxStopLen = 1024
)

// stopsOf reads the strings that end an answer: one, or a list.
func stopsOf(q *wire.Request) ([]string, *wire.Error) {
	list := q.StopSequences
	if text := q.Stop; len(text) > 0 && string(text) != "null" {
		var one string
		switch {
		case json.Unmarshal(text, &list) == nil:
		case json.Unmarshal(text, &one) == nil:
			list = []string{one}
		default:
			return nil, badRequest("stop: want a string or a list of strings")
		}
	}
	if len(list) > maxStops {
		return nil, badRequest("stop: want at most %d strings, got %d", maxStops, len(list))
	}
	for _, s := range list {
		if s == "" || len(s) > maxStopLen {
			return nil, badRequest("stop: want strings of 1 to %d bytes", maxStopLen)
		}
	}
	return list, nil
}

// stopAt cuts the answer off where a stop string appears in it, as vLLM does: the token that completes the string is the
// last, and the text ends before the string. Text of the first least tokens is not looked at. It returns the tokens of the
// answer, at most n.
func (o *output) stopAt(stops []string, least, n int) int {
	longest := 0
	for _, s := range stops {
		longest = max(longest, len(s))
	}
	var text strings.Builder
	seen := 0
	for k := range n {
		text.WriteString(o.word(k))
		if k < least {
			seen = text.Len()
			continue
		}
		for _, s := range stops {
			if at := strings.Index(text.String()[seen:], s); at >= 0 {
				o.stop, o.textEnd = s, seen+at
				return k + 1
			}
		}
		seen = max(seen, text.Len()-longest+1)
	}
	return n
}

// text is the word of token number k as far as it stands before the stop string; written is the text before it in bytes.
func (o *output) text(k, written int) string {
	word := o.word(k)
	if o.stop == "" {
		return word
	}
	return word[:max(0, min(len(word), o.textEnd-written))]
}
