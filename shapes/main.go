// Command shapes simulates what others have published of agents on GPUs, and says whether the shapes agree: where the
// cache begins to thrash, who is ahead of whom, by how much.
//
//	go run ./shapes [-case WORDS] [-quick]
//
// Workloads are the built-in profiles with their defaults; nothing is fitted to a case. A line that is marked as missed says
// why the simulator is elsewhere. The exit code is 1 when a line is out of its range without being marked, or is marked
// and within it.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	only := flag.String("case", "", "run only cases whose name contains these `WORDS`")
	quick := flag.Bool("quick", false, "run only what takes seconds")
	flag.Parse()
	failed, err := runCases(os.Stdout, func(c *study) bool {
		return strings.Contains(c.name, *only) && (c.quick || !*quick)
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "shapes:", err)
		os.Exit(1)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// study is a published result with what the simulator makes of it.
type study struct {
	name   string
	source string
	quick  bool
	run    func(*lab) ([]check, error)
	// missed says of checks, by name, why the simulator is out of their range.
	missed map[string]string
}

// studies are all cases, in the order in which they are printed.
func studies() []study {
	var all []study
	for _, some := range [][]study{panels(), fleets(), splits(), pods(), tiers(), policies(), rules()} {
		all = append(all, some...)
	}
	return all
}

// runCases runs the studies that are wanted, prints them, and returns how many checks failed.
func runCases(w io.Writer, wanted func(*study) bool) (failed int, err error) {
	l := newLab()
	var sum tally
	for _, s := range studies() {
		if !wanted(&s) {
			continue
		}
		checks, err := s.run(l)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", s.name, err)
		}
		sum.add(s.print(w, checks))
	}
	fmt.Fprintf(w, "workloads, by the SHA-256 of their calls:\n")
	for _, line := range l.hashes() {
		fmt.Fprintf(w, "  %s\n", line)
	}
	fmt.Fprintf(w, "%d checks: %d ok, %d missed for the reason given, %d FAIL\n", sum.ok+sum.missed+sum.failed, sum.ok, sum.missed, sum.failed)
	return sum.failed, nil
}
