package cli

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/agentsim/agentsim/sim"
)

// place says where a key is set that an error is of: by a flag, or in the config file, there with line and column. It names
// the file when it is of no key, or of one that is not set.
func (p *predict) place(file string, err error) string {
	var config *sim.ConfigError
	if !errors.As(err, &config) {
		return file
	}
	key := config.Key
	if key == "" {
		key, _, _ = strings.Cut(config.What, ":")
	}
	flags := p.given("")
	for _, set := range slices.Sorted(maps.Keys(flags)) {
		if key == set || strings.HasPrefix(set, key+".") || strings.HasPrefix(key, set+".") || strings.HasPrefix(key, set+"[") {
			return flags[set]
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return file
	}
	tree, err := parser.ParseBytes(text, 0)
	if err != nil || len(tree.Docs) != 1 {
		return file
	}
	node := find(tree.Docs[0].Body, key)
	if node == nil {
		return file
	}
	at := node.GetToken().Position
	return fmt.Sprintf("%s:%d:%d", file, at.Line, at.Column)
}

// step is one step of a key's path: a name, or an index in brackets.
var step = regexp.MustCompile(`^\.?([^.\[\]]+)|^\[(\d+)\]`)

// find returns where a key's path leads from a node of a YAML tree, or the last of its parents that is there; nil when
// the first is not.
func find(n ast.Node, path string) ast.Node {
	var found ast.Node
	for path != "" && n != nil {
		m := step.FindStringSubmatch(path)
		if m == nil {
			break
		}
		path = path[len(m[0]):]
		at, next := child(n, m[1], m[2])
		if at == nil {
			break
		}
		found, n = at, next
	}
	return found
}

// child returns the key, or the element with the given index, below a node, and its value.
func child(n ast.Node, name, index string) (at, value ast.Node) {
	switch n := n.(type) {
	case ast.MapNode:
		for pairs := n.MapRange(); pairs.Next(); {
			if pairs.Key().GetToken().Value == name && name != "" {
				return pairs.Key(), pairs.Value()
			}
		}
	case *ast.SequenceNode:
		if i, err := strconv.Atoi(index); err == nil && i < len(n.Values) {
			return n.Values[i], n.Values[i]
		}
	}
	return nil, nil
}
