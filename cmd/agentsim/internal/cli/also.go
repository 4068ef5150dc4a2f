package cli

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"github.com/agentsim/agentsim/sim"
)

// addAlso puts behind each deployment the same one with the keys of a file over it.
func addAlso(deployments []sim.Deployment, file string) ([]sim.Deployment, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, usagef("--also: %w", err)
	}
	if err := boundConfig(file, text); err != nil {
		return nil, err
	}
	var all []sim.Deployment
	for _, d := range deployments {
		with := d
		with.Models, with.Router.ThunderAgent.Parameters = maps.Clone(d.Models), maps.Clone(d.Router.ThunderAgent.Parameters)
		err := decode(&with, text, func(line, column int) string { return fmt.Sprintf("%s:%d:%d", file, line, column) }, file)
		if err != nil {
			return nil, err
		}
		if with.Router.PolicyConfig != d.Router.PolicyConfig {
			return nil, usagef("%s: router.policy_config has no effect here; name it with -c or --set", file)
		}
		name := with.Name
		if name == d.Name { // the file gives none
			name = filepath.Base(file)
		}
		with.Name = d.Name + "+" + name
		all = append(all, d, with)
	}
	return all, nil
}
