package perfetto

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// checkChrome reads Chrome's JSON as its importer does: begins and ends of a thread pair up in the order of the file, flows
// bind to the slice that is open where they stand, and begin before they end. It returns what there is.
func checkChrome(t rapid.TB, file []byte) Summary {
	t.Helper()
	var doc struct {
		TraceEvents []struct {
			Ph, Name, Cat, ID, S string
			Pid, Tid             int
			Ts                   float64
			Args                 map[string]any
		} `json:"traceEvents"`
	}
	if err := json.Unmarshal(file, &doc); err != nil {
		t.Fatal(err)
	}
	type thread struct{ pid, tid int }
	open, last, flows := map[thread]int{}, map[thread]float64{}, map[string]bool{}
	var s Summary
	for i, e := range doc.TraceEvents {
		at := thread{e.Pid, e.Tid}
		if e.Ph != "M" && e.Ts < last[at] {
			t.Fatalf("event %d: thread %v goes back from %v to %v", i, at, last[at], e.Ts)
		}
		last[at] = max(last[at], e.Ts)
		switch e.Ph {
		case "M":
		case "B":
			open[at]++
			s.Slices++
		case "E":
			if open[at]--; open[at] < 0 {
				t.Fatalf("event %d: an end without a begin", i)
			}
		case "i":
			s.Instants++
		case "C":
			s.Counters++
		case "s", "f":
			if open[at] == 0 {
				t.Fatalf("event %d: a flow outside a slice", i)
			}
			flows[e.ID+e.Ph] = true
			if e.Ph == "f" {
				s.Arrows++
			}
		default:
			t.Fatalf("event %d of phase %q", i, e.Ph)
		}
	}
	for at, n := range open {
		if n > 0 {
			t.Fatalf("%d slices of thread %v have no end", n, at)
		}
	}
	for id := range flows {
		if id[len(id)-1] == 'f' && !flows[id[:len(id)-1]+"s"] {
			t.Fatalf("flow %s has no begin", id)
		}
	}
	return s
}

func TestChromeRandom(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var file bytes.Buffer
		want, _, err := Write(context.Background(), &file, []Source{{Label: "random", Capture: genCapture(t)}}, Options{JSON: true})
		if err != nil {
			t.Fatal(err)
		}
		got := checkChrome(t, file.Bytes())
		if got.Tracks, got.Dropped = want.Tracks, want.Dropped; got != want {
			t.Fatalf("the file has %+v, the summary says %+v", got, want)
		}
	})
}

// 64-bit ids are strings, errors have a colour, and times all their digits.
func TestChromeDetails(t *testing.T) {
	var file bytes.Buffer
	c := newChrome(&file, "a \"day\"")
	line := &timeline{encoder: c}
	group := line.group(0, "top", 0, "")
	row := line.row(line.group(group, "inner", 0, ""), "row", 0)
	e := line.event(row, 1_234_567, "pause", catDecision)
	e.starts = []uint64{1}
	line.slice(e, e.at)
	e = line.event(row, 2_000_000, "resume\xff", catDecision)
	e.categories.add(catError)
	e.ends = []uint64{1}
	id := uint64(1<<64 - 1)
	e.big("worker", &id)
	e.real("share", 0.5)
	e.yes("inferred", true)
	line.slice(e, e.at)
	if err := line.close(); err != nil {
		t.Fatal(err)
	}
	if got := checkChrome(t, file.Bytes()); got.Arrows != 1 {
		t.Errorf("%d arrows, want 1", got.Arrows)
	}
	for _, want := range []string{`"name":"top / inner"`, `"ts":1234.567,"name":"pause"`, `"name":"resume` + "\uFFFD" + `","cat":"decision,error","cname":"terrible"`,
		`"args":{"worker":"18446744073709551615","share":0.5,"inferred":true}`, `"origin":"a \"day\""`} {
		if !bytes.Contains(file.Bytes(), []byte(want)) {
			t.Errorf("no %s in\n%s", want, file.String())
		}
	}
}

// What finds no place among the interned strings is written out.
func TestInternedStringsAreBounded(t *testing.T) {
	var file bytes.Buffer
	line := &timeline{encoder: newProtobuf(&file, 0, -1)}
	row := line.row(line.group(0, "top", 0, ""), "row", 0)
	const names = maxInterned + 100
	for i := range names {
		e := line.event(row, 0, fmt.Sprint("name ", i), catTurn)
		e.text("text", fmt.Sprint("text ", i))
		e.text("long", string(make([]byte, 2*maxText)))
		line.instant(e)
	}
	if err := line.close(); err != nil {
		t.Fatal(err)
	}
	in := mustImport(t, file.Bytes(), line.Summary)
	for i, s := range in.slices {
		if s.name != fmt.Sprint("name ", i) || s.args["text"] != fmt.Sprint("text ", i) || len(s.args["long"].(string)) > maxText+8 {
			t.Fatalf("event %d is %q, %v", i, s.name, s.args)
		}
	}
}
