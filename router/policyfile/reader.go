package policyfile

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// reader walks the tree of a YAML file and keeps its first error, after which all values are what they default to.
type reader struct {
	file string
	err  error
}

// group is a mapping of the file.
type group struct {
	r    *reader
	path string // with a dot at its end, but for the top
	// node is what an error that is of no key points at.
	node   ast.Node
	values map[string]*ast.MappingValueNode
}

// anyKey stands for all keys in the list of those that a group may have.
const anyKey = "*"

// identifiers are Dynamo's names of classes, families, buckets and instances.
var identifiers = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// failAt keeps the first error.
func (r *reader) failAt(n ast.Node, format string, args ...any) {
	if r.err == nil {
		at := n.GetToken().Position
		r.err = fmt.Errorf("%s:%d:%d: %s", r.file, at.Line, at.Column, fmt.Sprintf(format, args...))
	}
}

// document reads the file's only document.
func (r *reader) document(text []byte, known ...string) group {
	empty := group{r: r}
	file, err := parser.ParseBytes(text, 0)
	var syntax yaml.Error
	switch {
	case errors.As(err, &syntax) && syntax.GetToken() != nil:
		at := syntax.GetToken().Position
		r.err = fmt.Errorf("%s:%d:%d: %s", r.file, at.Line, at.Column, syntax.GetMessage())
	case err != nil:
		r.err = fmt.Errorf("%s: %w", r.file, err)
	case len(file.Docs) > 1:
		r.err = fmt.Errorf("%s: more than one YAML document", r.file)
	case len(file.Docs) == 1 && file.Docs[0].Body != nil:
		return r.group(file.Docs[0].Body, "", known)
	}
	return empty
}

// group reads a mapping whose keys are among those known.
func (r *reader) group(n ast.Node, path string, known []string) group {
	g := group{r: r, path: path, node: n, values: map[string]*ast.MappingValueNode{}}
	mapping, ok := n.(ast.MapNode)
	if _, alias := n.(*ast.AliasNode); !ok || alias {
		r.failAt(n, "%swant a group of keys", label(path))
		return g
	}
	for pairs := mapping.MapRange(); pairs.Next(); {
		pair := pairs.KeyValue()
		key := pair.Key.GetToken().Value
		switch {
		case !slices.Contains(known, key) && !slices.Contains(known, anyKey):
			r.failAt(pair.Key, "unknown key %q%s", path+key, among(known))
		case g.values[key] != nil:
			r.failAt(pair.Key, "%s: given twice", path+key)
		}
		g.values[key] = pair
	}
	return g
}

func label(path string) string {
	if path == "" {
		return ""
	}
	return strings.TrimSuffix(path, ".") + ": "
}

func among(known []string) string {
	if len(known) == 0 {
		return ", want none"
	}
	return ", want " + strings.Join(known, ", ")
}

func (g group) has(key string) bool { return g.values[key] != nil }

// fail is an error of a key, or of the group where it lacks the key.
func (g group) fail(key, format string, args ...any) {
	n := g.node
	if pair := g.values[key]; pair != nil {
		n = pair.Key
	}
	if n != nil {
		g.r.failAt(n, "%s%s: %s", g.path, key, fmt.Sprintf(format, args...))
	}
}

// require makes the absence of keys an error.
func (g group) require(keys ...string) {
	for _, key := range keys {
		if !g.has(key) {
			g.fail(key, "missing")
		}
	}
}

// group reads the mapping under a key; without the key it is empty.
func (g group) group(key string, known ...string) group {
	if !g.has(key) {
		return group{r: g.r, path: g.path + key + ".", node: g.node}
	}
	return g.r.group(g.values[key].Value, g.path+key+".", known)
}

// groups reads the list of mappings under a key.
func (g group) groups(key string, known ...string) []group {
	if !g.has(key) {
		return nil
	}
	list, ok := g.values[key].Value.(*ast.SequenceNode)
	if !ok || len(list.Values) == 0 {
		g.fail(key, "want a list of at least one group")
		return nil
	}
	var all []group
	for i, item := range list.Values {
		all = append(all, g.r.group(item, fmt.Sprintf("%s%s[%d].", g.path, key, i), known))
	}
	return all
}

// scalar returns the words of a value, and whether there is one. Quoted tells that it was written as a text.
func (g group) scalar(key string) (words string, quoted, ok bool) {
	if !g.has(key) {
		return "", false, false
	}
	switch n := g.values[key].Value.(type) {
	case *ast.StringNode:
		return n.Value, true, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value, false, true
	case *ast.NullNode:
		g.fail(key, "no value")
	default:
		g.fail(key, "want one value")
	}
	return "", false, false
}

// number reads a number from lo to hi.
func (g group) number(key string, otherwise, lo, hi float64) float64 {
	words, quoted, ok := g.scalar(key)
	if !ok {
		return otherwise
	}
	f, err := strconv.ParseFloat(words, 64)
	if quoted || err != nil || !(f >= lo && f <= hi) {
		g.fail(key, "%q is not a number from %g to %g", words, lo, hi)
		return otherwise
	}
	return f
}

// whole reads a whole number from lo to hi.
func (g group) whole(key string, otherwise, lo, hi int) int {
	words, quoted, ok := g.scalar(key)
	if !ok {
		return otherwise
	}
	n, err := strconv.Atoi(words)
	if quoted || err != nil || n < lo || n > hi {
		g.fail(key, "%q is not a whole number from %d to %d", words, lo, hi)
		return otherwise
	}
	return n
}

func (g group) optionalNumber(key string, lo, hi float64) *float64 {
	if !g.has(key) {
		return nil
	}
	f := g.number(key, math.NaN(), lo, hi)
	return &f
}

func (g group) optionalWhole(key string, lo, hi int) *int {
	if !g.has(key) {
		return nil
	}
	n := g.whole(key, 0, lo, hi)
	return &n
}

// notAbove verifies the order of two numbers.
func (g group) notAbove(key string, value float64, bound string, most float64) {
	if value > most {
		g.fail(key, "%g is above %s, want 0 to %g", value, bound, most)
	}
}

// flag reads true or false.
func (g group) flag(key string, otherwise bool) bool {
	words, quoted, ok := g.scalar(key)
	if ok && (quoted || words != "true" && words != "false") {
		g.fail(key, "%q is not true or false", words)
	}
	if !ok {
		return otherwise
	}
	return words == "true"
}

func (g group) text(key, otherwise string) string {
	if words, _, ok := g.scalar(key); ok {
		return words
	}
	return otherwise
}

// oneOf reads a word out of a few; without a default it must be there.
func (g group) oneOf(key, otherwise string, known ...string) string {
	if otherwise == "" {
		g.require(key)
	}
	word := g.text(key, otherwise)
	if !slices.Contains(known, word) {
		g.fail(key, "%q is unknown, want %s", word, strings.Join(known, " or "))
	}
	return word
}

// identifier reads a name, which must be there.
func (g group) identifier(key string) string {
	g.require(key)
	name := g.text(key, "")
	if !identifiers.MatchString(name) {
		g.fail(key, "%q is no name, want letters, digits, '_', '.' and '-'", name)
	}
	return name
}

// keys lists the keys of a map in order.
func keys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
