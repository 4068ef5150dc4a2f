package convert

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// sharedTraces returns the folder of recorded traces beside the repository, or skips the test.
func sharedTraces(t testing.TB) string {
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for dir != filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			traces := filepath.Join(filepath.Dir(dir), "shared", "traces")
			if _, err := os.Stat(traces); err == nil {
				return traces
			}
			break
		}
		dir = filepath.Dir(dir)
	}
	t.Skip("needs the recorded traces in ../shared/traces beside the repository")
	return ""
}

// openText opens text as if it came on standard input.
func openText(text string, opts Options) (*trace.Capture, error) {
	opts.Stdin = strings.NewReader(text)
	return Open(context.Background(), []string{"-"}, opts)
}

// open opens a file of testdata.
func open(t *testing.T, name string, opts Options) *trace.Capture {
	t.Helper()
	c, err := Open(context.Background(), []string{filepath.Join("testdata", name)}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// chain expands a turn's prompt hashes.
func chain(t *trace.Turn) []uint64 {
	if t.Base == nil {
		return slices.Clone(t.Hashes)
	}
	return append(chain(t.Base)[:t.Shared:t.Shared], t.Hashes...)
}

// describe prints a capture, one line a turn, in the terms of its sources.
func describe(c *trace.Capture) string {
	var b strings.Builder
	at := func(d time.Duration) string {
		if d == trace.NoTime {
			return "?"
		}
		return d.String()
	}
	for _, s := range c.Sessions {
		fmt.Fprintf(&b, "%s parent=%q class=%q scope=%d\n", s.ID, s.Parent, s.Class, s.Scope)
		for _, t := range s.Turns {
			fmt.Fprintf(&b, "  %s:%d %s..%s %d+%d %d", t.ID, t.Line, at(t.Start), at(t.End), t.Input, t.Output, chain(t))
			for _, w := range t.Waits {
				fmt.Fprintf(&b, " waits=%s+%v,%v,%v", w.ID, w.Delay, w.Kind, w.OnDispatch)
			}
			if t.TTFT != trace.NoTime {
				fmt.Fprintf(&b, " ttft=%v", t.TTFT)
			}
			if t.Model != "" || t.Trigger != "" {
				fmt.Fprintf(&b, " %s/%s", t.Model, t.Trigger)
			}
			if t.Gap.Tool > 0 {
				fmt.Fprintf(&b, " tool=%v", t.Gap.Tool)
			}
			if t.Inferred > 0 {
				fmt.Fprintf(&b, " inferred=%b", t.Inferred)
			}
			if t.Hints != (trace.Hints{}) {
				fmt.Fprintf(&b, " %+v", t.Hints)
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

func checkText(t *testing.T, got, want string) {
	t.Helper()
	if want = strings.TrimPrefix(want, "\n"); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}

func TestDetect(t *testing.T) {
	for _, c := range []struct{ head, want string }{
		{`{"timestamp":1,"event":{"schema":"dynamo.request.trace.v1"`, FormatDynamo},
		{`{"schema":"dynamo.agent.trace.v1","event_type":"tool_end"}`, FormatDynamo},
		{`garbage` + "\n" + `{"event_type":"request_end"}`, FormatDynamo},
		{`{"timestamp":0,"input_length":5,"output_length":1,"hash_ids":[1,2`, FormatMooncake},
		{`{"timestamp":0,"input_length":5,"output_length":1,"hash_ids":[1]}` + "\n" + `{"request_id":"b","wait_for":["a"],"hash_ids":[]}`, FormatAgentic},
		{`{"schema":"dynamo.agentic_mooncake","version":2}`, FormatAgentic},
		{"{\n\"id\": \"x\", \"requests\": [", FormatWeka},
		{"TIMESTAMP,ContextTokens,GeneratedTokens\r\n", FormatArrivals},
		{"arrived_at,num_prefill_tokens,num_decode_tokens", FormatArrivals},
		{"id,output,input,time\n", FormatArrivals},
		{`{"time":1,"input":2,"output":3}`, FormatArrivals},
		{`{"chat_id":1,"parent_chat_id":-1,"timestamp":1,"input_length":5,"output_length":1,"hash_ids":[1`, FormatBailian},
		{`{"input_toks":1,"output_toks":1,"arrival_time_ns":0}`, FormatServingSim},
		{`{"session_id":"a","sub_requests":[{`, FormatServingSim},
		{`{"num_turns":0,"assistant_response_length":[],"tool_call_output_length":[]`, FormatApplied},
		{`{"provider":"claude","session_id":"a","round_index":0,"input_tokens_total":5}`, FormatTracelab},
		{"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type", FormatArrivals},
		{"request_id,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,input_tokens,output_tokens\n", FormatBLIS},
		{"id,input_len,output_len,arrival_time,round_idx,tool_wait_after_ms,prefix_len\n", FormatTracelabReplay},
		{"trace_version: 2\ntime_unit: microseconds\n", FormatBLIS},
		{"0,0,0,,0,0\n600,1.5,0.9,Gamma,1.1,0.7\n", FormatServeGen},
		{`{"0": {"input_tokens": "{}", "output_tokens": "{}"}, "21600": {"input_tokens": "{5: 0.1, `, FormatServeGen},
		{`{"role":"user"}`, ""},
		{"time,input\n", ""},
		{"hello", ""},
		{"{", ""},
		{"\x00\x01", ""},
	} {
		got := ""
		if f := detect([]byte(c.head)); f != nil {
			got = f.Name
		}
		if got != c.want {
			t.Errorf("%q looks like %q, want %q", c.head, got, c.want)
		}
	}
}

// A writer that was killed in the first row of a segment spoils none of the others.
func TestOpenTornSegment(t *testing.T) {
	const row = `{"timestamp":0,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":9,` +
		`"request":{"request_id":"a","input_tokens":5,"output_tokens":1,"request_received_ms":5}}}` + "\n"
	dir := t.TempDir()
	for i, text := range []string{row, row[:5]} {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("run.%06d.jsonl", i)), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Open(context.Background(), []string{filepath.Join(dir, "run")}, Options{})
	if err != nil || c.Read.Calls != 1 || c.Read.LostRows != 1 {
		t.Errorf("%+v, %v; want 1 call and 1 lost row", c, err)
	}
}

func TestOpenErrors(t *testing.T) {
	mooncake := `{"timestamp":0,"input_length":5,"output_length":1,"hash_ids":[1]}` + "\n"
	for _, c := range []struct {
		name, text string
		opts       Options
		want       string
	}{
		{"unknown format", "what is this\n", Options{}, `-: unknown format, it begins "what is this\n"; known are agentic-mooncake, applied-compute, arrivals,`},
		{"wrong format", mooncake, Options{Format: FormatWeka}, "-: format weka was asked for, but the file looks like mooncake"},
		{"no such format", mooncake, Options{Format: "wekka"}, `unknown trace format "wekka"`},
		{"empty", " \n", Options{}, "-: empty"},
		{"block size", mooncake, Options{BlockSize: -1}, "block size -1"},
	} {
		if _, err := openText(c.text, c.opts); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	_, err := Open(context.Background(), []string{"testdata/mooncake.jsonl", "testdata/conversation.json"}, Options{})
	if err == nil || !strings.Contains(err.Error(), "conversation.json: looks like weka, but testdata/mooncake.jsonl looks like mooncake") {
		t.Errorf("two formats: %v", err)
	}
}

// Files that are no logs, but are taken for some, say what they are and what to do.
func TestStrangers(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"opencode.db", "SQLite format 3\x00\x10\x00", "an SQLite database, which is not read. OpenCode from 1.2 on keeps its sessions in opencode.db: 'opencode export SESSION"},
		{"trace.parquet", "PAR1\x15\x04", "a Parquet file"},
		{"logs.zip", "PK\x03\x04\x14", "a zip archive: unpack it first"},
		{"trace.jsonl.zst", "\x28\xb5\x2f\xfd\x04", "a zstd archive"},
		{"trace.jsonl", "version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a pointer of Git LFS"},
		{"trace.html", "\n<!DOCTYPE html>", "a web page"},
		{"exec.jsonl", `{"type":"thread.started","thread_id":"t"}` + "\n" + `{"type":"turn.started"}` + "\n", "the output of codex exec --json"},
		{"ls", "\x7fELF\x02\x01\x00", "a binary file"},
	} {
		_, err := openFile(t, c.name, c.text, Options{})
		var input *trace.InputError
		if err == nil || !strings.Contains(err.Error(), c.name+": "+c.want) || !errors.As(err, &input) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := openText(`{"a":1}`, Options{Format: FormatOTel}); err == nil || !strings.Contains(err.Error(), "format otel was asked for, but the file does not look like it") {
		t.Errorf("no format: %v", err)
	}
	for _, c := range []struct{ name, text, want string }{
		{"opencode.db", "SQLite format 3\x00", "opencode.db: an SQLite database"},
		{"clients/a-trace.csv", "0,0,0,,0,0\n600,1.5,0.9,Gamma,1.1,0.7", "a-trace.csv looks like servegen: name the folder"},
	} {
		dir := t.TempDir()
		logFile(t, dir, c.name, c.text)
		if _, err := Open(context.Background(), []string{dir}, Options{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("a folder with %s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// TestRowErrors lists faults that make a result meaningless: an InputError names file and line.
func TestRowErrors(t *testing.T) {
	weka := func(request string) string { return `{"id":"x","block_size":4,"requests":[` + request + `]}` }
	for _, c := range []struct{ name, text, want string }{
		{"mooncake: no timestamp", `{"timestamp":0,"input_length":5,"output_length":1}` + "\n" + `{"input_length":5,"output_length":1}`, "-:2: timestamp is missing"},
		{"mooncake: NaN", `{"timestamp":0,"input_length":5,"output_length":1}` + "\n" + `{"timestamp":NaN,"input_length":5,"output_length":1}`, "-:2: byte 13: not a finite number"},
		{"mooncake: 1e999", `{"timestamp":1e999,"input_length":5,"output_length":1}`, "not a finite number"},
		{"mooncake: negative time", `{"timestamp":-1,"input_length":5,"output_length":1}`, "timestamp is -1"},
		{"mooncake: no input", `{"timestamp":0,"input_length":0,"output_length":1}`, "-:1: input_length is 0"},
		{"mooncake: no output", `{"timestamp":0,"input_length":5}`, "output_length is -1"},
		{"mooncake: hash count", `{"timestamp":0,"input_length":600,"output_length":1,"hash_ids":[1,2,3]}`, "3 hashes for 600 tokens in blocks of 512: want 2, or 1 without a partial last block; blocks of 256 would fit: --trace-block-size 256"},
		{"mooncake: hashes of no block size", `{"timestamp":0,"input_length":5000,"output_length":1,"hash_ids":[1,2,3,4,5,6]}`, "want 10, or 9 without a partial last block"},
		{"agentic: duplicate", `{"request_id":"a","wait_for":[],"timestamp":0,"input_length":5,"output_length":1}` + "\n" +
			`{"request_id":"a","wait_for":[],"timestamp":0,"input_length":5,"output_length":1}`, `-:2: request_id "a" was used before, at -:1`},
		{"agentic: unknown id", `{"request_id":"a","wait_for":["z"],"input_length":5,"output_length":1}`, `-:1: request "a" waits for "z", which is not in the trace`},
		{"agentic: cycle", `{"request_id":"a","wait_for":["b"],"input_length":5,"output_length":1}` + "\n" +
			`{"request_id":"b","wait_for":["a"],"input_length":5,"output_length":1}`, `-:2: request "b" waits for "a" (-:1), which waits for it in turn`},
		{"agentic: waits for itself", `{"request_id":"a","wait_for":["a"],"input_length":5,"output_length":1}`, `request "a" waits for "a"`},
		{"agentic: no start", `{"request_id":"a","wait_for":[],"input_length":5,"output_length":1}`, `"a" waits for nothing and has no timestamp`},
		{"weka: no time", weka(`{"type":"n","in":5,"out":1,"hash_ids":[1]}`), `-:1: request 1 of conversation "x": t is missing`},
		{"weka: no input", weka(`{"t":0,"in":0,"out":1}`), "in is 0"},
		{"weka: hash count", weka(`{"t":0,"in":5,"out":1,"hash_ids":[1,2,3]}`), "3 hashes for 5 tokens in blocks of 4: want 2, or 1"},
		{"weka: endless", weka(`{"t":1e30,"in":5,"out":1}`), "t is 1e+30"},
		{"weka: no block size", `{"id":"x","requests":[{"t":0,"in":5,"out":1,"hash_ids":[1,2,3]}]}`, "no block_size"},
		{"arrivals: no time", "time,input,output\n0,1,1\n,1,1\n", "-:3: time is missing"},
		{"arrivals: NaN", "time,input,output\nNaN,1,1\n", "-:2: time NaN: not a finite number"},
		{"arrivals: no input", "time,input,output\n0,0,1\n", "-:2: input is 0"},
		{"arrivals: dates and seconds", "time,input,output\n2023-11-16 18:17:03,1,1\n23000000,1,1\n", "-:3: a time in seconds, but a date at -:2"},
	} {
		_, err := openText(c.text, Options{})
		var input *trace.InputError
		if err == nil || !strings.Contains(err.Error(), c.want) || !errors.As(err, &input) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// Rows that are no JSON are lost, counted and located; the rest is read.
func TestLostRows(t *testing.T) {
	for _, c := range []struct {
		name, text string
		calls      int
	}{
		{"mooncake", `{"timestamp":0,"input_length":5,"output_length":1}` + "\n{\"timestamp\":0,\"inp\n" + `{"timestamp":1,"input_length":5,"output_length":1}`, 2},
		{"mooncake: a broken hash", `{"timestamp":0,"input_length":5,"output_length":1,"hash_ids":[1]}` + "\n" + `{"timestamp":0,"input_length":5,"output_length":1,"hash_ids":[-1]}`, 1},
		{"weka", `{"id":"x","block_size":4,"requests":[{"t":0,"in":5,"out":1}]}` + "\n" + `{"id":"y","block_size":4,"requests":[{"t":0,"in"`, 1},
		{"weka: nests too deep", `{"id":"x","block_size":4,"requests":[{"t":0,"in":5,"out":1}]}` + "\n" + strings.Repeat(`{"id":"y","requests":[`, 30) + strings.Repeat("]}", 30), 1},
		{"arrivals", "time,input,output\n0,1,1\n1,1\n2,x,1\nsoon,1,1\n", 1},
	} {
		got, err := openText(c.text, Options{})
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		} else if got.Read.Calls != c.calls || got.Read.LostRows == 0 || len(got.Read.Warnings) != got.Read.LostRows {
			t.Errorf("%s: %+v, want %d calls and a lost row", c.name, got.Read, c.calls)
		}
	}
}

func TestOpenStdinGzipAndDynamo(t *testing.T) {
	row := `{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1,"request":{"request_id":"a","input_tokens":1,"request_received_ms":1}}`
	c, err := openText(row, Options{})
	if err != nil || c.Format != FormatDynamo || c.Read.Calls != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

// The recorded traces give the counts that were measured on them with other tools.
func TestSharedTraces(t *testing.T) {
	dir := sharedTraces(t)
	for _, c := range []struct {
		path, format                      string
		sessions, calls, tools, blockSize int
		hashes                            int64 // of all prompts together
	}{
		{"dynamo/pi_request_trace.jsonl.gz", FormatDynamo, 5, 17, 22, 16, 4163},
		{"mooncake/conversation_trace.jsonl.gz", FormatMooncake, 12031, 12031, 0, 512, 288500},
		{"weka", FormatWeka, 328, 18771, 0, 64, 34377449},
		{"azure/AzureLLMInferenceTrace_code.csv.gz", FormatArrivals, 8819, 8819, 0, 0, 0},
		{"azure/splitwise_code_vidur.csv.gz", FormatArrivals, 8819, 8819, 0, 0, 0},
	} {
		if testing.Short() && c.hashes > 1e6 {
			t.Logf("%s is long: skipped", c.path)
			continue
		}
		got, err := Open(context.Background(), []string{filepath.Join(dir, c.path)}, Options{})
		if err != nil {
			t.Errorf("%s: %v", c.path, err)
			continue
		}
		hashes := int64(0)
		for _, s := range got.Sessions {
			for _, turn := range s.Turns {
				hashes += int64(turn.Shared) + int64(len(turn.Hashes))
			}
		}
		if got.Format != c.format || len(got.Sessions) != c.sessions || got.Read.Calls != c.calls || got.Read.Tools != c.tools ||
			got.BlockSize != c.blockSize || hashes != c.hashes || len(got.Read.Warnings) > 0 {
			t.Errorf("%s: %s, %d sessions, %d calls, %d tools, blocks of %d, %d hashes, warnings %q; want %+v", c.path, got.Format,
				len(got.Sessions), got.Read.Calls, got.Read.Tools, got.BlockSize, hashes, got.Read.Warnings, c)
		}
	}
}

func TestOpenIsDeterministic(t *testing.T) {
	files := "trace_00[0-4]*.json.gz"
	if testing.Short() {
		files = "trace_000*.json.gz"
	}
	args := []string{filepath.Join(sharedTraces(t), "weka", files)}
	var want string
	for _, procs := range []int{1, 4} {
		old := runtime.GOMAXPROCS(procs)
		c, err := Open(context.Background(), args, Options{})
		runtime.GOMAXPROCS(old)
		if err != nil {
			t.Fatal(err)
		}
		if got := describe(c); want == "" {
			want = got
		} else if got != want {
			t.Error("the capture depends on the number of processors")
		}
	}
}

// openShared opens one of the recorded traces.
func openShared(t *testing.T, name string) *trace.Capture {
	t.Helper()
	c, err := Open(context.Background(), []string{filepath.Join(sharedTraces(t), name)}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}
