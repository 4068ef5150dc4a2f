package wire

import (
	"bytes"
	"iter"
	"slices"
)

// AskUsage returns the body of a request for a stream with include_usage in its stream_options, and all else as it was;
// nil when the request asks for no stream, or for usage already.
func AskUsage(body []byte) []byte {
	const include = `"include_usage":true`
	stream := false
	options := -1
	for key, value := range members(body) {
		switch string(key) {
		case "stream":
			stream = string(body[value:value+valueEnd(body[value:])]) == "true"
		case "stream_options":
			options = value
		}
	}
	if !stream {
		return nil
	}
	if options < 0 {
		at := bytes.IndexByte(body, '{') + 1
		return slices.Concat(body[:at], []byte(`"stream_options":{`+include+`},`), body[at:])
	}
	end := options + valueEnd(body[options:])
	text := body[options:end]
	for key, value := range members(text) {
		if string(key) == "include_usage" {
			if bytes.HasPrefix(text[value:], []byte("true")) {
				return nil
			}
			at := options + value
			return slices.Concat(body[:at], []byte("true"), body[at+valueEnd(body[at:]):])
		}
	}
	inner := bytes.TrimSpace(bytes.Trim(text, "{}"))
	if !bytes.HasPrefix(text, []byte("{")) || len(inner) == 0 { // null, or {}
		return slices.Concat(body[:options], []byte("{"+include+"}"), body[end:])
	}
	return slices.Concat(body[:options], []byte("{"+include+","), text[1:], body[end:])
}

// members goes through the members of a JSON object: each key as it is written, without its quotes, and the offset of its
// value. It ends where the text is no JSON.
func members(text []byte) iter.Seq2[[]byte, int] {
	return func(yield func([]byte, int) bool) {
		at := 0
		skip := func() byte {
			at = len(text) - len(skipSpace(text[at:]))
			if at == len(text) {
				return 0
			}
			return text[at]
		}
		if skip() != '{' {
			return
		}
		for at++; skip() == '"'; at++ {
			end := at + stringEnd(text[at:])
			key := text[at+1 : max(at+1, end-1)]
			if at = end; skip() != ':' {
				return
			}
			at++
			if skip() == 0 || !yield(key, at) {
				return
			}
			if at += valueEnd(text[at:]); skip() != ',' {
				return
			}
		}
	}
}

// valueEnd is the length of the JSON value that the text begins with, up to the comma or bracket behind it.
func valueEnd(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += stringEnd(text[i:]) - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth < 0 {
				return len(bytes.TrimRight(text[:i], " \n\t\r"))
			}
		case ',':
			if depth == 0 {
				return len(bytes.TrimRight(text[:i], " \n\t\r"))
			}
		}
	}
	return len(text)
}

// stringEnd is the length of the JSON string that the text begins with, with its quotes.
func stringEnd(text []byte) int {
	for at := 1; at < len(text); {
		next := bytes.IndexByte(text[at:], '"')
		if next < 0 {
			break
		}
		at += next
		slashes := 0
		for slashes < at-1 && text[at-1-slashes] == '\\' {
			slashes++
		}
		if at++; slashes%2 == 0 {
			return at
		}
	}
	return len(text)
}
