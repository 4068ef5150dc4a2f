// Package synth makes synthetic agent workloads: captures whose programs look like those of a known kind of agent,
// in any number and without anybody's data.
//
// A workload follows from its profile, the overridden parameters and the seed alone. Program i is the same however
// many programs there are.
package synth

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// Options say what to generate from a profile.
type Options struct {
	// Programs is the number of programs; of requests, for profile "plain".
	Programs int
	Seed     uint64
	// Set overrides parameters of the profile, each as "key=value". A value is a number, or LOW:HIGH where the
	// parameter is a distribution: a number stretches the profile's distribution to that mean, LOW:HIGH makes it
	// uniform (LOW = HIGH: constant). Entries are applied in order.
	Set []string
}

// profile is a kind of workload with its parameters.
type profile interface {
	params() []param
	// check refuses parameters that do not go together, or make more than the limits allow.
	check(programs int) error
	generate(programs int, seed uint64) *trace.Capture
}

// profiles lists the profiles by name, with a constructor that fills in the defaults.
var profiles = []struct {
	name, about string
	make        func() profile
}{
	{"mini-swe-agent", "mini-SWE-agent on SWE-bench: one shell, a short system prompt, growing contexts", miniSWEAgent},
	{"openhands", "OpenHands on SWE-bench: long system prompt with tools, quick edits, growing contexts", openHands},
	{"claude-code", "Claude Code on repository issues: long shared system prompt, subagents, compaction", claudeCode},
	{"deep-research", "a lead that sends searchers out in rounds, side by side, and writes a report", deepResearch},
	{"subagent-fanout", "a coding agent that plans and hands work to executors that run side by side", subagentFanout},
	{"chat", "people who talk with a model, at their own pace, without tools", newChat},
	{"plain", "independent requests of one call each, nothing shared", newPlain},
}

// Profiles returns the names of the profiles.
func Profiles() []string {
	names := make([]string, len(profiles))
	for i, p := range profiles {
		names[i] = p.name
	}
	return names
}

// Profile is a kind of work, from which any number of programs can be made.
type Profile struct {
	// Name is the class of the sessions too; About says in a line what the work is.
	Name, About string
	profile     profile
}

// Find returns the profile of a name, with its defaults.
func Find(name string) (*Profile, error) {
	for _, p := range profiles {
		if p.name == name {
			return &Profile{p.name, p.about, p.make()}, nil
		}
	}
	return nil, fmt.Errorf("synth: unknown profile %q; profiles are %s", name, strings.Join(Profiles(), ", "))
}

// Generate makes a workload of the named profile. An error names the profile or the parameter that is wrong.
func Generate(name string, o Options) (*trace.Capture, error) {
	p, err := Find(name)
	if err != nil {
		return nil, err
	}
	return p.Generate(o)
}

// Generate makes a workload, and keeps what Options.Set says. An error names the parameter that is wrong.
func (p *Profile) Generate(o Options) (*trace.Capture, error) {
	if o.Programs < 1 || o.Programs > maxPrograms {
		return nil, fmt.Errorf("synth: %d programs: the number must lie between 1 and %d", o.Programs, maxPrograms)
	}
	if err := override(p.profile.params(), o.Set); err != nil {
		return nil, fmt.Errorf("synth: profile %s: %w", p.Name, err)
	}
	if err := p.profile.check(o.Programs); err != nil {
		return nil, fmt.Errorf("synth: profile %s: %w", p.Name, err)
	}
	return p.profile.generate(o.Programs, o.Seed), nil
}

// newCapture returns a capture of sessions whose times are invented, and so exact and on one clock.
func newCapture(blockSize int, sessions []*trace.Session) *trace.Capture {
	c := &trace.Capture{Format: "synth", BlockSize: blockSize, Resolution: time.Nanosecond, SharedClock: true, Sessions: sessions}
	for _, s := range sessions {
		c.Read.Calls += len(s.Turns)
		c.Read.Tools += len(s.Tools)
	}
	return c
}

// parallel calls work for 0 ≤ i < n from as many goroutines as may run. Each goroutine gets its own scratch value.
func parallel[S any](n int, work func(scratch *S, i int)) {
	workers := min(runtime.GOMAXPROCS(0), n)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			var scratch S
			for i := w; i < n; i += workers {
				work(&scratch, i)
			}
		})
	}
	wg.Wait()
}

// Describe returns a page on the named profile, as Profile.Describe does. An unknown name gives the error of Generate as text.
func Describe(name string) string {
	p, err := Find(name)
	if err != nil {
		return err.Error() + "\n"
	}
	return p.Describe()
}

// Describe returns a page on the profile: every parameter with its default, its range, and where the default comes from. It
// ends with a newline.
func (p *Profile) Describe() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s\n", p.Name, p.About)
	for _, q := range p.profile.params() {
		q.describe(&b)
	}
	fmt.Fprintf(&b, "\nRecorded times are those of a server with TTFT = %v + %v per new prompt token, then %v per output token.\n",
		overhead, perNewToken, perOutput)
	if a, ok := p.profile.(*agent); ok && len(a.sources) > 0 {
		b.WriteString("Characters are converted at 4.1 to a token: AgentCgroup's 983 answers have 4.13, its tool results 4.10 (median).\n")
	}
	return b.String()
}
