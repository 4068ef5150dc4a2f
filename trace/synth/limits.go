package synth

import (
	"fmt"
	"unsafe"

	"github.com/agentsim/agentsim/trace"
)

// Limits keep a slip of the pen an error instead of an exhausted machine.
const (
	maxPrograms = 10_000_000
	maxBytes    = 64 << 30 // of memory that a workload is expected to take
	maxContext  = 1 << 30  // tokens of a prompt and its answer
	maxDays     = 40_000   // of a program; a time.Duration ends after 106,751
	minRate     = 0.01     // arrivals per second, where not 0: all programs begin within 12,000 days
	maxWait     = 864_000  // seconds that a tool or a person takes
	maxGap      = 864_000  // seconds between arrivals
)

// sessionBytes and callBytes are what a session and a call take in memory, names and tool calls included and
// hashes not.
const (
	sessionBytes = int(unsafe.Sizeof(trace.Session{})) + 64
	callBytes    = int(unsafe.Sizeof(trace.Turn{})+unsafe.Sizeof(trace.ToolSpan{})+unsafe.Sizeof(trace.ToolCall{})) + 64
)

func checkArrivals(programs int, rate float64, gap *dist) error {
	if rate > 0 && rate < minRate {
		return fmt.Errorf("parameter rate=%v: must be 0 or at least %v", rate, minRate)
	}
	if days := float64(programs) * gap.mean() / 86400; days > maxDays {
		return fmt.Errorf("the last of %d programs would begin after %.0f days, more than %d; lower gap", programs, days, maxDays)
	}
	return nil
}

// checkBytes refuses a workload that would take too much memory.
func checkBytes(programs int, perProgram float64) error {
	if total := float64(programs) * perProgram; total > maxBytes {
		return fmt.Errorf("%d programs of these sizes would take %.0f GiB of memory, more than %d; ask for fewer or shorter ones",
			programs, total/(1<<30), maxBytes>>30)
	}
	return nil
}
