package validate

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"

	"github.com/agentsim/agentsim/trace"
)

// keys are the keys that an object of a record may have, each with those of the object that it holds; nil is anything.
type keys map[string]keys

// knownKeys are the keys of trace.Record, and those that Dynamo writes and this project does not read.
func knownKeys() keys {
	known := keysOf(reflect.TypeFor[trace.Record]())
	known["payload"] = nil
	known["timestamp"] = nil // beside a bare record
	known["event"] = nil
	known["tool"]["claude"] = nil
	known["request"]["replay"]["kv_hints"] = nil
	known["request"]["replay"]["output_sequence_hashes"] = nil
	return known
}

func keysOf(t reflect.Type) keys {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil
	}
	k := keys{}
	for i := range t.NumField() {
		name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		k[name] = keysOf(t.Field(i).Type)
	}
	return k
}

// unknown returns the paths of the keys of a JSON object that are not known, in order.
func (k keys) unknown(object []byte, path string) []string {
	var values map[string]json.RawMessage
	if json.Unmarshal(object, &values) != nil {
		return nil
	}
	var unknown []string
	for key, value := range values {
		below, known := k[key]
		switch {
		case !known:
			unknown = append(unknown, path+key)
		case below != nil:
			unknown = append(unknown, below.unknown(value, path+key+".")...)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// objectAt returns the value of a key of an object, if it is an object.
func objectAt(object []byte, key string) (json.RawMessage, bool) {
	var values map[string]json.RawMessage
	json.Unmarshal(object, &values)
	value := values[key]
	return value, len(value) > 0 && value[0] == '{'
}

func hasObject(object []byte, key string) bool {
	_, ok := objectAt(object, key)
	return ok
}

// inspectBodies looks at what a record has of prompts, answers and headers.
func (l *line) inspectBodies(record []byte) {
	if context, ok := objectAt(record, "agent_context"); ok {
		l.bodies = hasObject(context, "agent_headers")
	}
	payload, ok := objectAt(record, "payload")
	if !ok {
		return
	}
	request, _ := objectAt(payload, "request")
	_, response := objectAt(payload, "response")
	var body struct {
		Messages, Prompt, Input json.RawMessage
	}
	json.Unmarshal(request, &body)
	l.bodies = l.bodies || response || hasObject(payload, "http_request_headers") || body.Messages != nil || body.Prompt != nil || body.Input != nil
	l.cut = l.record.Payload != nil && l.record.Payload.Complete && !response && len(request) > 0 && body.Messages != nil
}
