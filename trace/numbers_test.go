package trace

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"testing"
)

func itoa(n int) string { return strconv.Itoa(n) }

func asInput(err error, target **InputError) bool { return errors.As(err, target) }

func TestAppendHashes(t *testing.T) {
	for _, c := range []struct {
		text string
		want []uint64 // nil is an error
	}{
		{"[]", []uint64{}},
		{" [ 0 ,\t1,\n18446744073709551615 ] ", []uint64{0, 1, 18446744073709551615}},
		{"[9007199254740993]", []uint64{9007199254740993}}, // 2^53+1 is no float64
		{"[18446744073709551616]", nil},
		{"[99999999999999999999]", nil},
		{"[100000000000000000000000000]", nil},
		{"[-1]", nil}, {"[1.0]", nil}, {"[1e3]", nil}, {"[01]", nil}, {"[1,]", nil}, {"[,1]", nil}, {"[1 2]", nil},
		{"[1", nil}, {"[", nil}, {"", nil}, {"1", nil}, {"[1]]", nil}, {"[]x", nil}, {"[null]", nil}, {`["1"]`, nil},
	} {
		got, err := AppendHashes([]uint64{}, []byte(c.text))
		if c.want == nil != (err != nil) || err == nil && !slices.Equal(got, c.want) {
			t.Errorf("%q: %d, %v; want %d", c.text, got, err, c.want)
		}
	}
}

// FuzzAppendHashes compares with encoding/json.
func FuzzAppendHashes(f *testing.F) {
	for _, seed := range []string{"[1,2]", "[18446744073709551616]", "[01]", "[ ]", "[1,,2]", "[1.0]"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := AppendHashes([]uint64{}, text)
		var raw []json.RawMessage
		want := []uint64{}
		wantErr := json.Unmarshal(text, &raw)
		for _, r := range raw { // element by element: encoding/json takes null for 0
			n, err := strconv.ParseUint(string(r), 10, 64)
			want = append(want, n)
			wantErr = errors.Join(wantErr, err)
		}
		if raw == nil {
			wantErr = errors.New("null")
		}
		if (err == nil) != (wantErr == nil) || err == nil && !slices.Equal(got, want) {
			t.Errorf("%q: %d, %v; encoding/json says %d, %v", text, got, err, want, wantErr)
		}
	})
}

func TestIntegralNumbers(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{"a":130.0,"b":1.3e2,"c":[-5.0,0.0]}`, `{"a":130,"b":130,"c":[-5,0]}`},
		{`{"a":1.5,"b":1e300,"c":18446744073709551615,"d":9007199254740993.0}`, `{"a":1.5,"b":1e300,"c":18446744073709551615,"d":9007199254740993.0}`},
		{`{"1.0":"2.0 \" 3.0"}`, `{"1.0":"2.0 \" 3.0"}`},
		{`"\`, `"\`},
	} {
		if got := string(integralNumbers([]byte(c.text))); got != c.want {
			t.Errorf("%s: %s, want %s", c.text, got, c.want)
		}
	}
}

func TestParseRecordWholeFloats(t *testing.T) {
	r, err := ParseRecord([]byte(`{"event_type":"request_end","request":{"request_id":"1.0","input_tokens":1.3e2,"total_time_ms":1000,
		"worker":{"decode_worker_id":9007199254740995},"replay":{"trace_block_size":64.0,"input_sequence_hashes":[18446744073709551615]}}}`))
	if err != nil {
		t.Fatal(err)
	}
	q := r.Request
	if q.RequestID != "1.0" || *q.InputTokens != 130 || *q.TotalTimeMs != 1000 || *q.Worker.DecodeWorkerID != 9007199254740995 ||
		q.Replay.BlockSize != 64 || q.Replay.Hashes[0] != 18446744073709551615 {
		t.Errorf("%+v, worker %+v, replay %+v", q, q.Worker, q.Replay)
	}
	if _, err := ParseRecord([]byte(`{"request":{"input_tokens":1.5}}`)); err == nil {
		t.Error("half a token was accepted")
	}
}
