package sim

import (
	"slices"
	"testing"
)

// Every name has a line, and no other has: so no two kinds share a name.
func TestDescribeKV(t *testing.T) {
	names := slices.Concat(KVPolicies(), KVPresets(), KVEvents(), KVActions())
	for _, name := range names {
		if DescribeKV(name) == "" {
			t.Errorf("%s is not described", name)
		}
	}
	if len(names) != len(kvHelp) {
		t.Errorf("%d names, %d lines", len(names), len(kvHelp))
	}
}
