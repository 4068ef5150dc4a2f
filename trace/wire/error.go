package wire

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/goccy/go-json"
)

// Error is a failure as a server tells it, by status or inside an answer.
type Error struct {
	// Status is the HTTP status, 0 inside an answer that had begun.
	Status int
	// Message is for people; Type and Code are the server's words for the kind.
	Message, Type, Code string
	// Param names the field of the request that is wrong.
	Param string
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("server error")
	if e.Status != 0 {
		fmt.Fprintf(&b, " %d", e.Status)
	}
	if e.Type != "" {
		fmt.Fprintf(&b, " (%s)", e.Type)
	}
	if e.Message != "" {
		fmt.Fprintf(&b, ": %s", e.Message)
	}
	return b.String()
}

// maxMessage bounds what is kept of an error that is no JSON, in bytes.
const maxMessage = 1024

// errorBody is the "error" of a body, or a body of vLLM before 0.10, which had none around it.
type errorBody struct {
	Message json.RawMessage `json:"message"`
	Type    json.RawMessage `json:"type"`
	Code    json.RawMessage `json:"code"`
	Param   json.RawMessage `json:"param"`
	Detail  json.RawMessage `json:"detail"` // FastAPI
	Error   json.RawMessage `json:"error"`
}

// ParseError reads the body of an error in the forms of OpenAI, vLLM, Anthropic and FastAPI. Of anything else the first
// bytes are the message. The result is never nil.
func ParseError(status int, body []byte) *Error {
	e := &Error{Status: status}
	var b errorBody
	if checkDepth(body) != nil || json.Unmarshal(body, &b) != nil {
		e.Message = strings.ToValidUTF8(string(body[:min(len(body), maxMessage)]), "\uFFFD")
		return e
	}
	if len(b.Error) > 0 && b.Error[0] == '{' {
		outer := b
		b = errorBody{}
		_ = json.Unmarshal(outer.Error, &b) // it was read once as part of the body
	} else if len(b.Error) > 0 {
		b.Message = b.Error
	}
	if b.Message == nil {
		b.Message = b.Detail
	}
	e.Message, e.Type, e.Code, e.Param = plain(b.Message), plain(b.Type), plain(b.Code), plain(b.Param)
	return e
}

// plain is the text of a string, or the JSON of another value; "" for null.
func plain(raw json.RawMessage) string {
	var text string
	if len(raw) == 0 || string(raw) == "null" {
		return ""
	}
	if raw[0] == '"' && json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}

// Append appends the body that vLLM sends for the error: {"error": {...}}. A Code that is a number is written as one.
func (e *Error) Append(b []byte) []byte {
	b = append(b, `{"error":{"message":`...)
	b = appendString(b, e.Message)
	b = append(b, `,"type":`...)
	b = appendString(b, e.Type)
	b = append(b, `,"param":`...)
	if e.Param == "" {
		b = append(b, "null"...)
	} else {
		b = appendString(b, e.Param)
	}
	b = append(b, `,"code":`...)
	switch _, err := strconv.Atoi(e.Code); {
	case err == nil:
		b = append(b, e.Code...)
	case e.Code == "":
		b = append(b, "null"...)
	default:
		b = appendString(b, e.Code)
	}
	return append(b, "}}"...)
}
