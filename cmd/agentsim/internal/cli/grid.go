package cli

import (
	"maps"
	"strings"

	"github.com/agentsim/agentsim/sim"
)

// axis is a config path and the values that it takes in turn.
type axis struct {
	path   string
	values []string
}

// maxCells bounds the rows of one comparison.
const maxCells = 10_000

// parseAxis reads "path=v1,v2,...".
func parseAxis(s string) (axis, error) {
	path, list, ok := strings.Cut(s, "=")
	values := strings.Split(list, ",")
	for _, v := range values {
		if !ok || v == "" {
			return axis{}, usagef("--grid %s: want path=value,value, such as router.policy=round-robin,kv", s)
		}
	}
	return axis{path, values}, nil
}

// expand returns a deployment for each combination of the axes' values, the last axis fastest, named after the values
// that differ.
func expand(base sim.Deployment, axes []axis) ([]sim.Deployment, error) {
	cells := []sim.Deployment{base}
	for _, a := range axes {
		if len(cells)*len(a.values) > maxCells {
			return nil, usagef("the grid has more than %d cells", maxCells)
		}
		var next []sim.Deployment
		for _, c := range cells {
			for _, v := range a.values {
				d := c
				d.Models = maps.Clone(c.Models)
				if err := set(&d, a.path+"="+v); err != nil {
					return nil, err
				}
				if len(a.values) > 1 {
					d.Name = strings.TrimSpace(d.Name + " " + label(a.path, v))
				}
				next = append(next, d)
			}
		}
		cells = next
	}
	return cells, nil
}

// label names a cell after one of its values: policies, models and GPUs speak for themselves.
func label(path, value string) string {
	switch path {
	case "router.policy", "model", "gpu", "kv.policy", "kv.preset":
		return value
	case "kv.host.capacity", "kv.disk.capacity", "kv.remote.capacity":
		path = strings.TrimSuffix(path, ".capacity")
	case "parallelism.tensor":
		return "tp" + value
	}
	return path[strings.LastIndex(path, ".")+1:] + "=" + value
}
