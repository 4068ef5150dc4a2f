package trace

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
)

func TestFind(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"t.000002.jsonl.gz", "t.000010.jsonl.gz", "t.999999.jsonl.gz", "t.1000000.jsonl.gz", "t.000001.jsonl",
		"t.000000.jsonl.lock", "t.000011.jsonl.gz.tmp", "t.events.jsonl.gz", ".hidden.jsonl", "README.md", "u.000000.jsonl.gz", "a.json", "b.csv"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "sub.jsonl"), 0o777); err != nil {
		t.Fatal(err)
	}
	segments := []string{"t.000001.jsonl", "t.000002.jsonl.gz", "t.000010.jsonl.gz", "t.999999.jsonl.gz", "t.1000000.jsonl.gz"}
	for _, c := range []struct {
		args []string
		want []string // nil is an error
	}{
		{[]string{"t"}, segments},
		{[]string{"t.jsonl.gz"}, segments},
		{[]string{"t.jsonl"}, segments},
		{[]string{"t.*.jsonl*"}, segments},
		{[]string{"."}, append(append([]string{"a.json", "b.csv"}, segments...), "u.000000.jsonl.gz")},
		{[]string{"README.md"}, []string{"README.md"}}, // a file that is named is read
		{[]string{"u", "t.000002.jsonl.gz", "./u.000000.jsonl.gz"}, []string{"u.000000.jsonl.gz", "t.000002.jsonl.gz"}},
		{[]string{"nothing"}, nil},
		{[]string{"nothing*"}, nil},
		{[]string{"no/such/folder"}, nil},
		{[]string{"[x"}, nil},
		{[]string{"sub.jsonl"}, nil},
	} {
		var args []string
		for _, a := range c.args {
			args = append(args, filepath.Join(dir, a))
		}
		got, err := Find(args, nil)
		var names []string
		for _, s := range got {
			names = append(names, filepath.Base(s.Path))
		}
		var input *InputError
		if !slices.Equal(names, c.want) || c.want == nil && !asInput(err, &input) {
			t.Errorf("Find(%q) = %q, %v; want %q", c.args, names, err, c.want)
		}
	}
}

func compress(t testing.TB, text string) []byte {
	var buf bytes.Buffer
	gz := gzip.NewWriter(&buf)
	_, err := io.WriteString(gz, text)
	if err == nil {
		err = gz.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// numbered makes rows with ids from..to.
func numbered(from, to int) string {
	var text strings.Builder
	for i := from; i <= to; i++ {
		text.WriteString(end(fmt.Sprintf(`"request_id":"r%d","input_tokens":%d,"request_received_ms":%d`, i, 5+i, 1000+i), `"session_id":"s"`))
	}
	return text.String()
}

func ids(c *Capture) (ids []string) {
	for _, s := range c.Sessions {
		for _, t := range s.Turns {
			ids = append(ids, t.ID)
		}
	}
	return ids
}

// A crash cuts the last gzip member anywhere. Every row that decompresses whole is kept.
func TestTornGzip(t *testing.T) {
	first, second := compress(t, numbered(1, 5)), compress(t, numbered(6, 40))
	file := slices.Concat(first, second)
	step := 1
	if testing.Short() {
		step = 7
	}
	for cut := 0; cut <= len(file); cut += step {
		// The reference decompresses what is there and counts whole lines; a last line may lack only its newline.
		var text []byte
		if gz, err := gzip.NewReader(bytes.NewReader(file[:cut])); err == nil {
			text, _ = io.ReadAll(gz)
		}
		want := bytes.Count(text, []byte("}}\n"))
		if bytes.HasSuffix(text, []byte("}}")) {
			want++
		}
		c, err := readText(string(file[:cut]))
		if want == 0 {
			if err == nil {
				t.Fatalf("cut at %d: read %d rows of nothing", cut, c.Read.Calls)
			}
			continue
		}
		if err != nil {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if c.Read.Calls != want {
			t.Fatalf("cut at %d of %d: %d rows, want %d", cut, len(file), c.Read.Calls, want)
		}
		if whole := cut == len(file) || cut == len(first); whole != (len(c.Read.Warnings) == 0) {
			t.Errorf("cut at %d: warnings %q", cut, c.Read.Warnings)
		}
	}
}

func TestDamagedGzip(t *testing.T) {
	members := [][]byte{compress(t, numbered(1, 3)), compress(t, numbered(4, 6)), compress(t, numbered(7, 9))}
	damage := func(at int) []byte { // flips a byte of the middle member, counted from its front or its end
		m := bytes.Clone(members[1])
		if at < 0 {
			at += len(m)
		}
		m[at] ^= 0x55
		return slices.Concat(members[0], m, members[2])
	}
	for _, c := range []struct {
		name  string
		file  []byte
		least string // ids that must be there
		lost  bool
	}{
		{"sound", slices.Concat(members...), "r1 r2 r3 r4 r5 r6 r7 r8 r9", false},
		{"a line across two members", slices.Concat(compress(t, numbered(1, 2)[:200]), compress(t, numbered(1, 2)[200:])), "r1 r2", false},
		{"bad check sum", damage(-8), "r1 r2 r3 r4 r5 r6 r7 r8 r9", true},
		{"bad length", damage(-2), "r1 r2 r3 r4 r5 r6 r7 r8 r9", true},
		{"bad data", damage(30), "r1 r2 r3 r7 r8 r9", true},
		{"bad magic", damage(0), "r1 r2 r3 r7 r8 r9", true},
		{"bad method", damage(2), "r1 r2 r3 r7 r8 r9", true},
		{"bytes between members", slices.Concat(members[0], []byte("\x1f\x8bgarbage"), members[1]), "r1 r2 r3 r4 r5 r6", true},
		{"zeros at the end", append(bytes.Clone(members[0]), make([]byte, 500)...), "r1 r2 r3", true},
		{"an empty member", slices.Concat(members[0], compress(t, ""), members[1]), "r1 r2 r3 r4 r5 r6", false},
	} {
		got, err := readText(string(c.file))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		have := strings.Join(ids(got), " ")
		for _, id := range strings.Fields(c.least) {
			if !slices.Contains(strings.Fields(have), id) {
				t.Errorf("%s: kept %s, want %s", c.name, have, c.least)
				break
			}
		}
		if c.lost != (len(got.Read.Warnings) > 0) {
			t.Errorf("%s: warnings %q", c.name, got.Read.Warnings)
		}
	}
}

func TestBounds(t *testing.T) {
	if testing.Short() {
		t.Skip("80 million lines")
	}
	// 80 MiB of blank lines compress a thousandfold.
	if _, err := readText(string(compress(t, strings.Repeat("\n", 80<<20)))); err == nil || !strings.Contains(err.Error(), "decompresses to more than") {
		t.Errorf("a bomb: %v", err)
	}
	deep := `{"event":` + strings.Repeat(`{"a":`, 1<<20) + "1" + strings.Repeat("}", 1<<20) + "}\n"
	c, err := readText(numbered(1, 1) + deep)
	if err != nil || c.Read.Calls != 1 {
		t.Errorf("deep nesting: %v", err)
	}
}

// zeros is an endless line.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func TestEndlessLine(t *testing.T) {
	if testing.Short() {
		t.Skip("needs 512 MiB")
	}
	segments, err := Find([]string{"-"}, io.MultiReader(strings.NewReader(numbered(1, 2)), zeros{}))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Read(context.Background(), segments, nil); err == nil || err.Error() != "-:3: line is longer than 256 MiB" {
		t.Error(err)
	}
}

// Chunks of one file are parsed side by side, but joined in order.
func TestReadIsDeterministic(t *testing.T) {
	dir := t.TempDir()
	var args []string
	for f := range 3 {
		var text strings.Builder
		for i := range 6000 { // 1.5 MB, more than a chunk
			n := f*6000 + i
			fmt.Fprintf(&text, `{"timestamp":%d,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":%d,`+
				`"agent_context":{"session_id":"s%d"},"request":{"request_id":"r%d","input_tokens":%d,"output_tokens":1,"request_received_ms":%d,`+
				`"replay":{"trace_block_size":4,"input_length":%d,"input_sequence_hashes":[1,2,%d]}}}}`+"\n",
				n, 5000+n, n%7, n%17000, 12, 5000+n, 12, n/100)
		}
		args = append(args, filepath.Join(dir, fmt.Sprintf("t.%06d.jsonl", f)))
		if err := os.WriteFile(args[f], []byte(text.String()), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	read := func(procs int) *Capture {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
		segments, err := Find(args, nil)
		if err != nil {
			t.Fatal(err)
		}
		c, err := Read(context.Background(), segments, nil)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	one, four := read(1), read(4)
	if one.Read.Calls != 17000 || one.Read.Duplicates != 1000 || one.Read.Dropped != 950 {
		t.Errorf("%d calls, %d duplicates, %d warnings dropped; want 17000, 1000, 950", one.Read.Calls, one.Read.Duplicates, one.Read.Dropped)
	}
	if diff := cmp.Diff(one.Read, four.Read); diff != "" {
		t.Errorf("reports differ:\n%s", diff)
	}
	if !slices.Equal(ids(one), ids(four)) {
		t.Error("the order of turns depends on the number of processors")
	}
	for i, s := range one.Sessions {
		for k, turn := range s.Turns {
			want := []uint64{1, 2, uint64(turn.Line-1+6000*int32(turn.File[len(turn.File)-7]-'0')) / 100}
			if got := four.Sessions[i].Turns[k]; !slices.Equal(turn.chain(), want) || !slices.Equal(got.chain(), want) {
				t.Fatalf("%s: chains %d and %d, want %d", turn.place(), turn.chain(), got.chain(), want)
			}
		}
	}
}

func TestReadStopsWhenCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	segments, err := Find([]string{"testdata/eras.jsonl"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Read(ctx, segments, nil); err != context.Canceled {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}
