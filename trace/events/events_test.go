package events

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agentsim/agentsim/trace"
)

var header = Header{Schema: Schema, Run: "kv", Origin: Predicted, EpochMs: 1750000000000, BlockSize: 16,
	Workers: []Worker{{GPUs: 2, Blocks: 1000}, {URL: "http://127.0.0.1:8000"}}}

// readAll reads a file and returns what was in it.
func readAll(t testing.TB, path string) (Header, []Event, trace.ReadReport) {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []Event
	report, err := f.Read(context.Background(), func(e *Event) error {
		list = append(list, *e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return f.Header, list, report
}

func genEvent(t *rapid.T) Event {
	count := rapid.IntRange(0, 1<<40)
	big := rapid.Int64Range(0, 1<<60)
	text := rapid.String()
	worker := rapid.Int32Range(0, 1).Draw(t, "worker")
	holding := func(label string) Holding {
		return Holding{count.Draw(t, label+" active"), count.Draw(t, label+" acting"), count.Draw(t, label+" paused")}
	}
	e := Event{At: time.Duration(rapid.Int64Range(1<<61, 1<<62).Draw(t, "at"))}
	switch rapid.IntRange(0, 11).Draw(t, "kind") {
	case 0:
		e.Step = &Step{Worker: worker, Took: time.Duration(big.Draw(t, "took")), Steps: 1 + big.Draw(t, "steps"), Running: count.Draw(t, "running"),
			Waiting: count.Draw(t, "waiting"), Prefill: big.Draw(t, "prefill"), Decode: big.Draw(t, "decode"), Output: big.Draw(t, "output"),
			Admitted: count.Draw(t, "admitted"), Queried: big.Draw(t, "queried"), Hit: big.Draw(t, "hit"), Evicted: big.Draw(t, "evicted")}
	case 1:
		e.Preemption = &Preemption{worker, text.Draw(t, "session"), text.Draw(t, "request")}
	case 2:
		e.KV = &KV{worker, count.Draw(t, "used"), holding("root"), holding("subagent"), count.Draw(t, "cached")}
	case 3:
		e.Programs = &Programs{count.Draw(t, "live"), count.Draw(t, "paused"), count.Draw(t, "held"), count.Draw(t, "queued")}
	case 4:
		e.Decision = &Decision{text.Draw(t, "what"), text.Draw(t, "why"), text.Draw(t, "session"), text.Draw(t, "request"),
			rapid.Int32Range(-1, 1).Draw(t, "to"), big.Draw(t, "size"), big.Draw(t, "used"), big.Draw(t, "capacity"), -big.Draw(t, "room")}
	case 5:
		e.Fault = &Fault{worker, text.Draw(t, "action")}
	case 6:
		e.Tier = &Tier{rapid.Int32Range(-1, 1).Draw(t, "of"), text.Draw(t, "level"), count.Draw(t, "used")}
	case 7:
		e.Residency = &Residency{text.Draw(t, "session"), worker, count.Draw(t, "gpu"), count.Draw(t, "host"), count.Draw(t, "disk"), count.Draw(t, "remote")}
	case 8:
		e.Transfer = &Transfer{text.Draw(t, "cause"), Place{worker, text.Draw(t, "from")}, Place{rapid.Int32Range(-1, 1).Draw(t, "to"), Remote},
			text.Draw(t, "session"), text.Draw(t, "request"), big.Draw(t, "bytes"), time.Duration(big.Draw(t, "took")), text.Draw(t, "outcome")}
	case 9:
		took := big.Draw(t, "took")
		e.Link = &Link{rapid.Int32Range(-1, 1).Draw(t, "of"), text.Draw(t, "name"), time.Duration(took), time.Duration(rapid.Int64Range(0, took).Draw(t, "busy"))}
	case 10:
		e.Action = &Action{text.Draw(t, "what"), text.Draw(t, "outcome"), text.Draw(t, "session"), worker, rapid.Int32Min(0).Draw(t, "blocks"),
			time.Duration(big.Draw(t, "took"))}
	default:
		e.Gauge = &Gauge{Worker: worker, Running: rapid.Ptr(rapid.Float64Range(0, 1e9), true).Draw(t, "running"),
			Hit: rapid.Ptr(rapid.Float64Range(0, 1e12), true).Draw(t, "hit")}
	}
	return e
}

// Events that are written are read back as they were.
func TestWriteReadRoundTrip(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run"+Suffix)
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.SliceOfN(rapid.Custom(genEvent), 0, 8).Draw(rt, "events")
		slices.SortStableFunc(want, func(a, b Event) int { return int(max(-1, min(1, a.At-b.At))) })
		w, err := Create(path, header)
		if err != nil {
			rt.Fatal(err)
		}
		for i := range want {
			w.Write(&want[i])
		}
		if err := w.Close(); err != nil {
			rt.Fatal(err)
		}
		head, got, report := readAll(t, path)
		if report.LostRows+report.SkippedRows > 0 || len(report.Warnings) > 0 {
			rt.Fatal(report)
		}
		if diff := cmp.Diff(header, head); diff != "" {
			rt.Fatalf("(-written +read):\n%s", diff)
		}
		if diff := cmp.Diff(want, got, cmp.Transformer("nil", func(l []Event) []Event { return append([]Event{}, l...) })); diff != "" {
			rt.Fatalf("(-written +read):\n%s", diff)
		}
	})
}

// steps returns lines of that many steps, one a second.
func write(t *testing.T, path string, steps int) {
	t.Helper()
	w, err := Create(path, header)
	if err != nil {
		t.Fatal(err)
	}
	for i := range steps {
		w.Write(&Event{At: time.Duration(i+1) * time.Second, Step: &Step{Took: time.Second, Steps: 10, Running: 1, Decode: 10, Output: 10}})
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLines(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run"+Suffix)
	write(t, path, 1)
	segments, err := trace.Find([]string{path}, nil)
	if err != nil {
		t.Fatal(err)
	}
	text, err := segments[0].Head(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"schema":"agentsim.events.v1","run":"kv","origin":"predicted","epoch_unix_ms":1750000000000,"block_size":16,"workers":[{"gpus":2,"kv_blocks":1000},{"url":"http://127.0.0.1:8000"}]}
{"at_ns":1000000000,"step":{"worker":0,"took_ns":1000000000,"steps":10,"running":1,"waiting":0,"decode_tokens":10,"output_tokens":10}}
`
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), "*.tmp")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A file that was torn in the middle of a gzip member keeps the members before.
func TestTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run"+Suffix)
	const steps = 20_000 // 2.8 MB of text: three members
	write(t, path, steps)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, whole[:len(whole)*3/4], 0o644); err != nil {
		t.Fatal(err)
	}
	_, list, report := readAll(t, path)
	if len(list) < steps/2 || len(list) == steps || len(report.Warnings) == 0 || !strings.Contains(report.Warnings[0], "is damaged") {
		t.Errorf("%d of %d events, %+v", len(list), steps, report)
	}
	for i := range list {
		if list[i].At != time.Duration(i+1)*time.Second {
			t.Fatalf("event %d is at %v", i, list[i].At)
		}
	}
}

// plain writes a sidecar of these lines behind the header.
func plain(t testing.TB, lines ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "run.events.jsonl")
	text := strings.Join(append([]string{`{"schema":"agentsim.events.v1","run":"r","origin":"predicted","workers":[{},{}]}`}, lines...), "\n")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBadLines(t *testing.T) {
	tests := []struct {
		name, line, want string // want is part of the warning; "" for a line that is skipped
	}{
		{"torn", `{"at_ns":5,"fau`, ":3: lost a row"},
		{"no number", `{"at_ns":"5","fault":{"worker":0,"action":"remove"}}`, ":3: lost a row"},
		{"before the run", `{"at_ns":-1,"fault":{"worker":0,"action":"remove"}}`, "out of range"},
		{"worker", `{"at_ns":9,"fault":{"worker":2,"action":"remove"}}`, "worker 2 is none of the 2"},
		{"negative worker", `{"at_ns":9,"fault":{"worker":-1,"action":"remove"}}`, "out of range"},
		{"two kinds", `{"at_ns":9,"fault":{"worker":0,"action":"remove"},"programs":{"live":1}}`, "2 kinds"},
		{"a tier of no worker", `{"at_ns":9,"tier":{"worker":2,"level":"host","used":1}}`, "worker 2 is none of the 2"},
		{"negative tier", `{"at_ns":9,"tier":{"worker":-1,"level":"remote","used":-1}}`, "out of range"},
		{"nobody's KV", `{"at_ns":9,"residency":{"session":"a","worker":-1,"gpu":1}}`, "out of range"},
		{"from nowhere to nowhere", `{"at_ns":9,"transfer":{"from":{"worker":-1},"to":{"worker":-1},"took_ns":1}}`, "out of range"},
		{"to another deployment", `{"at_ns":9,"transfer":{"from":{"worker":0},"to":{"worker":2},"took_ns":1}}`, "worker 2 is none of the 2"},
		{"began before the run", `{"at_ns":9,"transfer":{"from":{"worker":0},"to":{"worker":1},"took_ns":10}}`, "out of range"},
		{"busier than busy", `{"at_ns":9,"link":{"worker":0,"took_ns":3,"busy_ns":4}}`, "out of range"},
		{"wanted before the run", `{"at_ns":9,"action":{"worker":0,"blocks":1,"took_ns":10}}`, "out of range"},
		{"action on less than nothing", `{"at_ns":9,"action":{"worker":0,"blocks":-1}}`, "out of range"},
		{"no steps", `{"at_ns":9,"step":{"worker":0,"took_ns":1,"steps":0}}`, "out of range"},
		{"longer than the run", `{"at_ns":9,"step":{"worker":0,"took_ns":10,"steps":1}}`, "out of range"},
		{"negative blocks", `{"at_ns":9,"kv":{"worker":0,"root":{"paused":-4}}}`, "out of range"},
		{"time goes back", `{"at_ns":3,"programs":{"live":1}}`, ":3: lost an event of 3ns that stands behind one of 4ns"},
		{"long", `{"at_ns":9,"decision":{"what":"` + strings.Repeat("x", maxEvent) + `"}}`, "longer than"},
		{"of the future", `{"at_ns":9,"weather":{"rain":true}}`, ""},
		{"nothing", `{}`, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			path := plain(t, `{"at_ns":4,"programs":{"live":1}}`, test.line, `{"at_ns":11,"programs":{"live":2}}`)
			_, list, report := readAll(t, path)
			if len(list) != 2 || list[1].At != 11 {
				t.Errorf("the good lines: %+v", list)
			}
			if test.want == "" {
				if report.SkippedRows != 1 || report.LostRows != 0 {
					t.Errorf("want one skipped row: %+v", report)
				}
				return
			}
			if report.LostRows != 1 || len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0], test.want) {
				t.Errorf("want a warning with %q: %+v", test.want, report)
			}
		})
	}
}

func TestBadHeaders(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"empty", "", "no header"},
		{"another schema", `{"schema":"dynamo.request.trace.v1"}`, `schema is "dynamo.request.trace.v1", want "agentsim.events.v1"`},
		{"torn", `{"schema":"agentsim.ev`, "no header"},
		{"too many workers", `{"schema":"agentsim.events.v1","workers":[{}` + strings.Repeat(",{}", maxWorkers) + `]}`, "workers are more than"},
		{"no time", `{"schema":"agentsim.events.v1","epoch_unix_ms":-9223372036854775808}`, "not a Unix time"},
		{"no time either", `{"schema":"agentsim.events.v1","epoch_unix_ms":9223372036854775807}`, "not a Unix time"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "x.events.jsonl")
			if err := os.WriteFile(path, []byte(test.text), 0o644); err != nil {
				t.Fatal(err)
			}
			_, err := Open(path)
			if input := (*trace.InputError)(nil); !errors.As(err, &input) || input.File != path || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

// An error of the reader's caller ends the reading; one of the disk is told by Close.
func TestErrors(t *testing.T) {
	f, err := Open(plain(t, `{"at_ns":4,"programs":{"live":1}}`, `{"at_ns":5,"programs":{"live":1}}`))
	if err != nil {
		t.Fatal(err)
	}
	enough, n := errors.New("enough"), 0
	if _, err := f.Read(context.Background(), func(*Event) error { n++; return enough }); !errors.Is(err, enough) || n != 1 {
		t.Errorf("%v after %d events", err, n)
	}
	path := filepath.Join(t.TempDir(), "no such folder", "x"+Suffix)
	w, err := Create(path, header)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}

// FuzzRead checks that whatever is read keeps the promises of Read.
func FuzzRead(f *testing.F) {
	head := `{"schema":"agentsim.events.v1","workers":[{"gpus":1},{}]}` + "\n"
	f.Add([]byte(head + `{"at_ns":4,"step":{"worker":1,"took_ns":2,"steps":3,"prefill_tokens":7}}`))
	f.Add([]byte(head + `{"at_ns":4,"decision":{"what":"pause","worker":-1}}` + "\n" + `{"at_ns":5,"gauge":{"worker":0,"running":1.5}}`))
	f.Add([]byte(head + `{"at_ns":4,"kv":{"worker":0,"used":3,"root":{"active":3}}}` + "\n" + `{"at_ns":3,"fault":{"action":"remove"}}`))
	f.Add([]byte(head + `{"at_ns":4,"transfer":{"from":{"worker":0,"level":"gpu"},"to":{"worker":-1,"level":"remote"},"bytes":3,"took_ns":2}}` + "\n" +
		`{"at_ns":5,"residency":{"session":"a","worker":1,"gpu":3,"host":2}}`))
	f.Add([]byte("\x1f\x8b\x08\x00"))
	f.Fuzz(func(t *testing.T, text []byte) {
		path := filepath.Join(t.TempDir(), "x.events.jsonl")
		if err := os.WriteFile(path, text, 0o644); err != nil {
			t.Fatal(err)
		}
		file, err := Open(path)
		if err != nil {
			return
		}
		last, events := time.Duration(0), 0
		report, err := file.Read(context.Background(), func(e *Event) error {
			if err := e.check(len(file.Header.Workers)); err != nil || e.At < last {
				t.Fatalf("%+v after %v: %v", e, last, err)
			}
			last = e.At
			events++
			return nil
		})
		if lines := bytes.Count(text, []byte{'\n'}) + 1; err == nil && events+report.LostRows+report.SkippedRows > lines && !bytes.HasPrefix(text, []byte("\x1f\x8b")) {
			t.Fatalf("%d events and %+v from %d lines", events, report, lines)
		}
	})
}
