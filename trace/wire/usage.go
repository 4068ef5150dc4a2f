package wire

import (
	"bytes"
	"slices"
)

// AskUsage returns the body of a request for a stream with include_usage in its stream_options, and all else as it was;
// nil when the request asks for no stream, or for usage already, or is no JSON.
func AskUsage(body []byte) []byte {
	const include = `"include_usage":true`
	stream := false
	options := -1
	all := object{text: body}
	for all.next() {
		switch string(all.key) {
		case "stream":
			stream = string(all.value) == "true"
		case "stream_options":
			options = all.from
		}
	}
	if !stream || !all.whole {
		return nil
	}
	if options < 0 {
		at := bytes.IndexByte(body, '{') + 1
		return slices.Concat(body[:at], []byte(`"stream_options":{`+include+`},`), body[at:])
	}
	end := options + valueEnd(body[options:])
	text := body[options:end]
	inside := object{text: text}
	for inside.next() {
		if string(inside.key) == "include_usage" {
			if string(inside.value) == "true" {
				return nil
			}
			at := options + inside.from
			return slices.Concat(body[:at], []byte("true"), body[at+len(inside.value):])
		}
	}
	inner := bytes.TrimSpace(bytes.Trim(text, "{}"))
	if !bytes.HasPrefix(text, []byte("{")) || len(inner) == 0 { // null, or {}
		return slices.Concat(body[:options], []byte("{"+include+"}"), body[end:])
	}
	return slices.Concat(body[:options], []byte("{"+include+","), text[1:], body[end:])
}
