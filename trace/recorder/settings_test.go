package recorder

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agentsim/agentsim/trace/recorder/toolevent"
)

func TestReadSettings(t *testing.T) {
	tools := []string{"tool_start", "tool_end", "tool_error"}
	for _, c := range []struct {
		name string
		env  map[string]string // without DYN_REQUEST_TRACE_
		want Settings          // without the default topic
	}{
		{"nothing", nil, Settings{}},
		{"all", map[string]string{"RECORDS": "request_end, tool", "SINKS": "file", "FILE_PATH": "/data/run", "FILE_FORMAT": "jsonl_gz",
			"CAPACITY": "1", "FILE_BUFFER_BYTES": "2", "FILE_FLUSH_INTERVAL_MS": "3", "FILE_ROLL_BYTES": "4", "FILE_ROLL_LINES": "5",
			"FILE_MAX_BYTES": "0", "TOOL_EVENTS_ZMQ_ENDPOINT": "tcp://127.0.0.1:20390", "TOOL_EVENTS_ZMQ_TOPIC": "tools"},
			Settings{Sink: SinkOptions{Prefix: "/data/run", Records: append([]string{"request_end"}, tools...), QueueRows: 1, FlushBytes: 2,
				FlushInterval: 3 * time.Millisecond, RollBytes: 4, RollLines: 5}, ToolEndpoint: "tcp://127.0.0.1:20390", ToolTopic: "tools"}},
		{"old names", map[string]string{"OUTPUT_PATH": "old", "JSONL_BUFFER_BYTES": "2", "JSONL_FLUSH_INTERVAL_MS": "3", "JSONL_GZ_ROLL_BYTES": "4", "JSONL_GZ_ROLL_LINES": "5"},
			Settings{Sink: SinkOptions{Prefix: "old", FlushBytes: 2, FlushInterval: 3 * time.Millisecond, RollBytes: 4, RollLines: 5}}},
		{"new before old", map[string]string{"FILE_PATH": "new", "OUTPUT_PATH": "old"}, Settings{Sink: SinkOptions{Prefix: "new"}}},
		{"blank is unset", map[string]string{"FILE_PATH": " ", "OUTPUT_PATH": "old"}, Settings{Sink: SinkOptions{Prefix: "old"}}},
		{"tools alone", map[string]string{"RECORDS": "tool_end"}, Settings{Sink: SinkOptions{Records: tools}}},
	} {
		if c.want.ToolTopic == "" {
			c.want.ToolTopic = toolevent.DefaultTopic
		}
		got, err := ReadSettings(func(name string) string { return c.env[strings.TrimPrefix(name, "DYN_REQUEST_TRACE_")] })
		if diff := cmp.Diff(c.want, got, cmpopts.IgnoreFields(SinkOptions{}, "Logf")); diff != "" || err != nil {
			t.Errorf("%s: %v (-want +got):\n%s", c.name, err, diff)
		}
	}
}

func TestReadSettingsErrors(t *testing.T) {
	env := map[string]string{"CAPACITY": "many", "FILE_ROLL_BYTES": "-1", "FILE_FLUSH_INTERVAL_MS": "0", "RECORDS": "request_end,request_payload",
		"SINKS": "file,nats", "FILE_FORMAT": "jsonl", "FILE_MAX_AGE_SECS": "60"}
	_, err := ReadSettings(func(name string) string { return env[strings.TrimPrefix(name, "DYN_REQUEST_TRACE_")] })
	if err == nil {
		t.Fatal("no error")
	}
	for name, value := range env {
		if want := "DYN_REQUEST_TRACE_" + name + "=" + value + ": "; !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in %v", want, err)
		}
	}
}
