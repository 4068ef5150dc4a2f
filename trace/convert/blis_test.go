package convert

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agentsim/agentsim/trace"
)

const blisHeader = "request_id,client_id,slo_class,session_id,round_index,prefix_group,prefix_length,input_tokens,output_tokens,reason_ratio,model,server_input_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us,status,error_message\n"

// Requests 0 and 2 are of one session and one group: they share the 32 tokens of its prefix, 2 blocks, and nothing else.
func TestBLIS(t *testing.T) {
	c, err := openText(blisHeader+`0,c,batch,s,0,g,32,10,4,0.5,m,0,1000,1500,2500,5500,ok,
1,c,,,0,,0,7,0,0,m,9,2000,0,0,0,timeout,"no answer, in 30 s"
2,c,batch,s,1,g,32,20,4,0,m,0,9000,9000,9100,9500,ok,
`, Options{})
	if err != nil {
		t.Fatal(err)
	}
	turns := []*trace.Turn{c.Sessions[0].Turns[0], c.Sessions[0].Turns[1]}
	if a, b := chain(turns[0]), chain(turns[1]); len(a) != 3 || len(b) != 4 || !slices.Equal(a[:2], b[:2]) || a[2] == b[2] {
		t.Errorf("blocks %x and %x", a, b)
	}
	turns[0].Hashes, turns[1].Base, turns[1].Hashes = nil, nil, nil
	checkText(t, describe(c), `
session-s parent="" class="batch" scope=0
  0:2 500µs..4.5ms 42+4 [] ttft=1ms m/ {Priority:0 StrictPriority:0 OSL:0 SpeculativePrefill:false PolicyClass:batch}
  2:4 8ms..8.5ms 52+4 [] ttft=100µs m/ {Priority:0 StrictPriority:0 OSL:0 SpeculativePrefill:false PolicyClass:batch}
1 parent="" class="" scope=0
  1:3 1ms..? 9+0 [] m/
`)
	if turns[0].Reasoning != 2 || c.Sessions[1].Turns[0].Status != "error" {
		t.Errorf("reasoning %d, status %q", turns[0].Reasoning, c.Sessions[1].Turns[0].Status)
	}
}

// Sends that count from 1970 beside arrivals that count from the start say how long a call took and not when it began. All
// else that mixes origins is an error.
func TestBLISOrigins(t *testing.T) {
	const header = "request_id,input_tokens,output_tokens,arrival_time_us,send_time_us,first_chunk_time_us,last_chunk_time_us\n"
	c, err := openText(header+"0,5,1,23000000,1787000000000000,1787000000400000,1787000001000000\n", Options{})
	if err != nil {
		t.Fatal(err)
	}
	checkText(t, describe(c), `
0 parent="" class="" scope=0
  0:2 0s..1s 5+1 [] ttft=400ms
`)
	if len(c.Read.Warnings) != 1 || !strings.Contains(c.Read.Warnings[0], "-:2: send_time_us is 1787000000000000 and arrival_time_us 23000000, of different origins") {
		t.Errorf("warnings %q", c.Read.Warnings)
	}
	for _, bad := range []struct{ rows, want string }{
		{"0,5,1,23000000,0,0,0\n1,5,1,1787000000000000,0,0,0\n", "-:3: arrival_time_us is 1787000000000000, but 23000000 at -:2"},
		{"0,5,1,23000000,23000001,1787000000400000,0\n", "-:2: the answer came at 1787000000400000"},
	} {
		_, err := openText(header+bad.rows, Options{})
		var input *trace.InputError
		if err == nil || !errors.As(err, &input) || !strings.Contains(err.Error(), bad.want) {
			t.Errorf("%v, want %q", err, bad.want)
		}
	}
}

func TestBLISHeader(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		return path
	}
	data := write("trace_data.csv", blisHeader+"0,,,,0,,0,10,4,0,,0,1000,0,0,0,ok,\n")
	if c, err := Open(t.Context(), []string{write("trace_header.yaml", "trace_version: 2\ntime_unit: \"microseconds\"\nmode: real\n"), data}, Options{}); err != nil || c.Read.Calls != 1 {
		t.Errorf("%v", err)
	}
	_, err := Open(t.Context(), []string{write("trace_header.yaml", "trace_version: 2\ntime_unit: ns\n"), data}, Options{})
	if err == nil || !strings.Contains(err.Error(), `time_unit is "ns"`) {
		t.Errorf("nanoseconds: %v", err)
	}
}

func FuzzBLIS(f *testing.F) {
	fuzzFormat(f, blisHeader+"0,c,batch,s,0,g,32,10,4,0.5,m,0,1000,1500,2500,5500,ok,\n1,c,batch,s,1,g,32,10,4,0.5,m,0,1000,1500,0,0,ok,\"a,b\"\n", "trace_version: 2\n")
}
