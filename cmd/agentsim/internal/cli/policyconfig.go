package cli

import (
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"

	"github.com/agentsim/agentsim/router/policyfile"
	"github.com/agentsim/agentsim/sim"
)

// usePolicyFile applies the router policy file that a row names. The row comes from a config file, or from none. What the
// policy file says must not be said anywhere else.
func (p *predict) usePolicyFile(d *sim.Deployment, config string) error {
	file := d.Router.PolicyConfig
	if file == "" {
		return nil
	}
	policy, err := policyfile.Open(file)
	if err != nil {
		return usagef("router.policy_config: %w", err)
	}
	keys, notes, err := d.Router.UsePolicyFile(policy)
	if err != nil {
		return usagef("router.policy_config: %s: %w", file, err)
	}
	given := p.given(config)
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		for _, set := range slices.Sorted(maps.Keys(given)) {
			if key == set || strings.HasPrefix(key, set+".") {
				return usagef("%s: set by %s in %s and by %s; leave one of them out", key, keys[key], file, given[set])
			}
		}
	}
	for _, n := range notes {
		p.assume("%s: %s", file, n)
	}
	return nil
}

// given tells where the config file and the command line set keys.
func (p *predict) given(config string) map[string]string {
	given := map[string]string{}
	if text, err := os.ReadFile(config); err == nil { // it was read without an error before
		var tree map[string]any
		_ = yaml.Unmarshal(text, &tree)
		leaves("", tree, func(path string) { given[path] = config })
	}
	for i := range p.short {
		if s := &p.short[i]; s.value != "" || len(s.values) > 0 {
			given[s.path] = "--" + s.name
		}
	}
	note := func(flag string, list []string) {
		for _, s := range list {
			path, _, _ := strings.Cut(s, "=")
			given[path] = flag
		}
	}
	note("--set", p.sets)
	note("--grid", p.grids)
	return given
}

// leaves calls each with the paths of the values of a YAML tree.
func leaves(path string, tree map[string]any, each func(path string)) {
	for key, value := range tree {
		if group, ok := value.(map[string]any); ok {
			leaves(path+key+".", group, each)
		} else {
			each(path + key)
		}
	}
}
