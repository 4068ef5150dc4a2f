package perfetto

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/agentsim/agentsim/trace/events"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// dump writes what a viewer shows as text: groups and their tracks in order, what is on them, then the arrows.
func (in *imported) dump() string {
	var b strings.Builder
	children := map[uint64][]*importedTrack{}
	for _, t := range in.tracks {
		children[t.parent] = append(children[t.parent], t)
	}
	names := map[*slice]string{}
	var visit func(id uint64, indent string)
	visit = func(id uint64, indent string) {
		list := children[id]
		slices.SortFunc(list, func(a, b *importedTrack) int { return cmp.Compare(a.rank, b.rank) })
		for _, t := range list {
			fmt.Fprintf(&b, "%s%s\n", indent, t.name)
			for _, s := range in.slices {
				if s.track != t {
					continue
				}
				depth := ""
				for p := s.parent; p != nil; p = p.parent {
					depth += "  "
				}
				fmt.Fprintf(&b, "%s  %s%v +%v %s [%s]%s\n", indent, depth, s.at, s.took(), s.name, strings.Join(s.categories, " "), dumpArgs(s.args))
				names[s] = in.path(t) + ": " + s.name
			}
			for _, v := range t.values {
				fmt.Fprintf(&b, "%s  %v %g%s\n", indent, v.at, v.v, t.unit)
			}
			visit(t.id, indent+"  ")
		}
	}
	visit(0, "")
	var flows []string
	for _, f := range in.flows {
		flows = append(flows, fmt.Sprintf("%s -> %s\n", names[f.from], names[f.to]))
	}
	slices.Sort(flows)
	return b.String() + strings.Join(flows, "")
}

func dumpArgs(args map[string]any) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(args)) {
		fmt.Fprintf(&b, " %s=%v", key, args[key])
	}
	return b.String()
}

// golden compares text with a golden file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

// A small day with all that a request trace can tell: parallel, lost and failed tools, a subagent, a compaction, errors,
// overlapping calls, a person, another worker, and a call of which hardly anything is known.
func TestGoldenRecorded(t *testing.T) {
	source := Source{Label: "day", Capture: open(t, "testdata/day.jsonl")}
	golden(t, "day.txt", draw(t, Options{}, source).dump())
	var file bytes.Buffer
	if _, _, err := Write(context.Background(), &file, []Source{source}, Options{JSON: true}); err != nil {
		t.Fatal(err)
	}
	golden(t, "day.json", file.String())
}

// A run of agentsim, written by hand: two workers of which one is removed, a pause with a migration, a preemption.
func TestGoldenPredicted(t *testing.T) {
	f, err := events.Open("testdata/run.events.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	source := Source{Label: "run", Capture: open(t, "testdata/run.trace.jsonl"), Events: f}
	golden(t, "run.txt", draw(t, Options{}, source).dump())
}

// Equal inputs give equal bytes, and the file those of the golden text.
func TestDeterministic(t *testing.T) {
	var files [2]bytes.Buffer
	for i := range files {
		if _, _, err := Write(context.Background(), &files[i], []Source{{Label: "day", Capture: open(t, "testdata/day.jsonl")}}, Options{}); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(files[0].Bytes(), files[1].Bytes()) {
		t.Error("two files of one trace differ")
	}
}
