package wire

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"
)

// collect feeds a stream in pieces of the given size and returns its events as "name|data".
func collect(t testing.TB, text string, size int, end bool) []string {
	t.Helper()
	var s Stream
	var got []string
	take := func() {
		for e, ok := s.Next(); ok; e, ok = s.Next() {
			got = append(got, e.Name+"|"+string(e.Data))
		}
	}
	read := make([]byte, size) // as of a connection: each read overwrites the one before
	for piece := range slices.Chunk([]byte(text), size) {
		s.Feed(read[:copy(read, piece)])
		take()
	}
	if end {
		s.End()
		take()
	}
	if s.Err() != nil {
		t.Fatalf("%q: %v", text, s.Err())
	}
	return got
}

func TestStream(t *testing.T) {
	tests := []struct {
		name, text string
		want       []string
	}{
		{"lf", "data: a\n\ndata: b\n\n", []string{"|a", "|b"}},
		{"crlf", "data: a\r\n\r\ndata: b\r\n\r\n", []string{"|a", "|b"}},
		{"cr", "data: a\r\rdata: b\r\r", []string{"|a", "|b"}},
		{"mixed ends", "data: a\r\n\ndata: b\n\r\n", []string{"|a", "|b"}},
		{"no space after the colon", "data:{\"x\":1}\n\n", []string{`|{"x":1}`}},
		{"one space only is taken", "data:  a\n\n", []string{"| a"}},
		{"several data lines", "data: a\ndata: b\n\n", []string{"|a\nb"}},
		{"empty data lines", "data\ndata\n\n", []string{"|\n"}},
		{"comments keep alive", ": ping\n\ndata: a\n: x\n\n:\n\n", []string{"|a"}},
		{"byte order mark", "\xef\xbb\xbfdata: a\n\n", []string{"|a"}},
		{"byte order mark later is a name", "data: a\n\n\xef\xbb\xbfdata: b\n\n", []string{"|a"}},
		{"names", "event: error\ndata: a\n\ndata: b\n\n", []string{"error|a", "|b"}},
		{"name without data", "event: ping\n\ndata: b\n\n", []string{"|b"}},
		{"unknown fields", "id: 7\nretry: 3\nfoo: bar\ndata: a\n\n", []string{"|a"}},
		{"no empty line at the end", "data: a\n\ndata: b\n", []string{"|a", "|b"}},
		{"no line end at the end", "data: a\n\ndata: b", []string{"|a", "|b"}},
		{"after the end of an answer", "data: [DONE]\n\ndata: b\n\n", []string{"|[DONE]", "|b"}},
		{"many empty lines", "\n\n\ndata: a\n\n\n\n", []string{"|a"}},
		{"nothing", "", nil},
	}
	for _, test := range tests {
		for _, size := range []int{1, 2, 3, 7, 1 << 20} {
			if got := collect(t, test.text, size, true); !slices.Equal(got, test.want) {
				t.Errorf("%s in reads of %d: %q, want %q", test.name, size, got, test.want)
			}
		}
	}
}

// A connection that breaks inside an event leaves it untold.
func TestStreamCut(t *testing.T) {
	for _, text := range []string{"data: a\n\ndata: {\"x\"", "data: a\n\ndata: b\n"} {
		var s Stream
		s.Feed([]byte(text))
		if e, ok := s.Next(); !ok || string(e.Data) != "a" {
			t.Fatalf("%q: first event %q", text, e.Data)
		}
		if e, ok := s.Next(); ok || !s.Partial() {
			t.Errorf("%q: event %q, partial %v; want none, true", text, e.Data, s.Partial())
		}
	}
	var s Stream
	s.Feed([]byte("data: a\n\n"))
	s.Next()
	if s.Next(); s.Partial() {
		t.Error("a stream between events is partial")
	}
}

func TestStreamLimit(t *testing.T) {
	for _, text := range []string{
		"data: " + strings.Repeat("x", 200) + "\n\n",        // one line, whole
		strings.Repeat("x", 200),                            // one line that never ends
		strings.Repeat("data: xxxxxxxxxx\n", 20) + "\n\n\n", // many lines
	} {
		for _, size := range []int{1, 1000} {
			s := Stream{Limit: 100}
			for piece := range slices.Chunk([]byte(text), size) {
				s.Feed(piece)
				if _, ok := s.Next(); ok {
					t.Fatalf("%.20q: an event beyond the limit", text)
				}
			}
			if !errors.Is(s.Err(), ErrEventTooLong) {
				t.Errorf("%.20q in reads of %d: error %v", text, size, s.Err())
			}
		}
	}
	long := strings.Repeat("x", 1<<20) // far beyond the 64 KiB at which bufio.Scanner stops
	if got := collect(t, "data: "+long+"\n\n", 1000, false); len(got) != 1 || len(got[0]) != 1+1<<20 {
		t.Error("a line of 1 MiB is not one event")
	}
}

func TestAppendEvent(t *testing.T) {
	b := AppendEvent(nil, "ping", []byte("a\nb"))
	b = AppendEvent(b, "", []byte("c"))
	if got := collect(t, string(b), 5, false); !slices.Equal(got, []string{"ping|a\nb", "|c"}) {
		t.Errorf("%q is read as %q", b, got)
	}
}

// slowEvents is the obvious twin of Stream: it normalises line ends first and then looks at whole lines.
func slowEvents(text string) (events []string) {
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	name, data := "", []string(nil)
	flush := func() {
		if data != nil {
			events = append(events, name+"|"+strings.Join(data, "\n"))
		}
		name, data = "", nil
	}
	for i, line := range strings.Split(text, "\n") {
		if i == 0 {
			line = strings.TrimPrefix(line, "\xef\xbb\xbf")
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			flush()
		case field == "data":
			data = append(data, value)
		case field == "event":
			name = value
		}
	}
	flush()
	return events
}

func FuzzStream(f *testing.F) {
	for _, text := range []string{"data: a\r\n\r\nevent: x\rdata: b\n\n", "\xef\xbb\xbf:c\n\ndata\n", "data: a\n\r\ndata:b", "\r\n\ndata:\n\n"} {
		f.Add(text, uint8(3))
	}
	f.Fuzz(func(t *testing.T, text string, size uint8) {
		want := slowEvents(text)
		if got := collect(t, text, int(size)+1, true); !slices.Equal(got, want) {
			t.Fatalf("%q in reads of %d: %q, want %q", text, int(size)+1, got, want)
		}
	})
}

// BenchmarkStream reads and parses chat events as a client does, 16 in a read. Its events/s are per core.
func BenchmarkStream(b *testing.B) {
	a := Answer{Dialect: Chat, ID: "chatcmpl-0123456789abcdef", Model: "qwen3-14b", Created: 1790000000, Stream: true}
	event := AppendEvent(nil, "", a.Append(nil, &Chunk{Text: " token"}))
	read := bytes.Repeat(event, 16)
	var s Stream
	var c Parser
	b.ReportAllocs()
	b.SetBytes(int64(len(event)))
	n := 0
	for n < b.N {
		s.Feed(read)
		for e, ok := s.Next(); ok; e, ok = s.Next() {
			if err := c.Parse(e.Data); err != nil || !c.Generates() {
				b.Fatal(err)
			}
			n++
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
}
