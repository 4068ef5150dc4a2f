//go:build !unix

package replay

import "time"

// cpuTime is not known here.
func cpuTime() time.Duration { return 0 }

// MaxFiles is how many files and connections this process may have open; 0 when not known.
func MaxFiles() uint64 { return 0 }
