package agentsim_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/agentsim/agentsim"

// layers says what the packages of a folder may import of the project. "trace" stands for that package alone,
// "trace/..." for it and all below it. The longest name that a package lies under decides.
var layers = map[string][]string{
	"trace":            {},
	"trace/hash":       {"trace/hash/..."},
	"trace/report":     {},
	"trace/wire":       {"trace", "trace/wire/..."},
	"trace/events":     {"trace"},
	"trace/compare":    {"trace", "trace/report"},
	"trace/recorder":   {"trace", "trace/hash/...", "trace/wire/...", "trace/recorder/..."},
	"trace/inspect":    {"trace", "trace/report"},
	"trace/merge":      {"trace"},
	"trace/anonymize":  {"trace", "trace/hash/..."},
	"trace/validate":   {"trace"},
	"trace/convert":    {"trace", "trace/hash/..."},
	"trace/synth":      {"trace", "trace/hash/...", "trace/report"},
	"models":           {"trace", "models/..."},
	"router":           {"trace", "router/..."},
	"sim":              {"trace/...", "models/...", "router/...", "sim/..."},
	"sim/link":         {},
	"sim/memory":       {"trace", "sim/engine", "sim/kvcache", "sim/link"},
	"replay":           {"trace/...", "models/...", "router/...", "replay/..."},
	"perfetto":         {"trace/...", "models/...", "router/...", "perfetto/..."},
	"accuracy":         {"trace/...", "models/...", "router/...", "sim/...", "accuracy/..."},
	"accuracy/steplog": {"trace"},
	"shapes":           {"trace/...", "models/...", "router/...", "sim/..."},
	"cmd":              {"..."},
}

// TestImports pins the directions of imports: cmd, then sim, replay and perfetto, then router and models, then trace.
// Tests may import what they like, but cmd.
func TestImports(t *testing.T) {
	files := 0
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if d.IsDir() {
			if base := path.Base(name); name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata") {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" || path.Dir(name) == "." {
			return nil
		}
		files++
		return checkFile(t, name)
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 50 {
		t.Errorf("only %d files checked: is this the root of the repository?", files)
	}
}

func checkFile(t *testing.T, name string) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
	if err != nil {
		return err
	}
	if slices.Contains([]string{"util", "utils", "common", "helpers", "types"}, file.Name.Name) {
		t.Errorf("%s: package %s says nothing of what is in it", name, file.Name.Name)
	}
	from := path.Dir(name)
	allowed, ok := layerOf(from)
	if !ok {
		t.Errorf("%s: folder %s has no place in the layers of this test", name, from)
	}
	for _, spec := range file.Imports {
		full, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		to, ours := strings.CutPrefix(full, module+"/")
		switch {
		case !ours:
		case matches("cmd/...", to) && !matches("cmd/...", from):
			t.Errorf("%s imports %s: nothing below imports the command", name, to)
		case strings.HasSuffix(name, "_test.go"):
		case !slices.ContainsFunc(allowed, func(pattern string) bool { return matches(pattern, to) }):
			t.Errorf("%s imports %s: %s may import %q", name, to, from, allowed)
		}
	}
	return nil
}

// layerOf returns what a package may import.
func layerOf(pkg string) ([]string, bool) {
	for at := pkg; at != "."; at = path.Dir(at) {
		if allowed, ok := layers[at]; ok {
			// trace stands for itself: what is new below it needs a line of its own.
			return allowed, at != "trace" || pkg == "trace"
		}
	}
	return nil, false
}

// matches tells whether a pattern of layers covers a package.
func matches(pattern, pkg string) bool {
	folder, below := strings.CutSuffix(pattern, "...")
	if !below {
		return pkg == pattern
	}
	return strings.HasPrefix(pkg+"/", folder)
}

// TestImportRules checks the rules themselves, so that the test above cannot pass by matching everything.
func TestImportRules(t *testing.T) {
	tests := []struct {
		from, to string
		want     bool
	}{
		{"sim/engine", "trace/report", true},
		{"sim", "models", true},
		{"models", "sim", false},
		{"models", "router", false},
		{"router/thunderagent", "trace", true},
		{"router", "trace/report", false},
		{"trace", "trace/hash", false},
		{"trace/synth", "trace", true},
		{"trace/report", "trace", false},
		{"replay", "sim", false},
		{"cmd/agentsim/internal/cli", "sim", true},
	}
	for _, test := range tests {
		allowed, ok := layerOf(test.from)
		if got := slices.ContainsFunc(allowed, func(p string) bool { return matches(p, test.to) }); !ok || got != test.want {
			t.Errorf("%s imports %s: allowed is %v, want %v", test.from, test.to, got, test.want)
		}
	}
	for _, unknown := range []string{"engine", "trace/fresh"} {
		if _, ok := layerOf(unknown); ok {
			t.Errorf("a new folder %s has a place in the layers", unknown)
		}
	}
}
