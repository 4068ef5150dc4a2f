package synth

import "time"

// starts returns the start times of n programs that follow each other at gaps of a distribution, in seconds; without one as
// a Poisson process, rate programs per second; all zero when rate is 0 too.
func starts(n int, rate float64, gap *dist, seed uint64) []time.Duration {
	at := make([]time.Duration, n)
	if rate == 0 && gap.none() {
		return at
	}
	r := newStream()
	r.reset(seed, arrivals, 0)
	var t time.Duration
	for i := range at {
		if gap.none() {
			t += seconds(r.ExpFloat64() / rate)
		} else {
			t = min(t+seconds(gap.draw(r.Rand)), maxDays*24*time.Hour) // by a chance that checkArrivals leaves
		}
		at[i] = t
	}
	return at
}

// seconds converts to a duration of whole microseconds, which hides the last bit of a floating-point result: it may
// differ between processors.
func seconds(s float64) time.Duration { return time.Duration(s*1e6+0.5) * time.Microsecond }

// The speed of the server that the recorded times are invented for: a large model on a GPU node under light load.
const (
	overhead    = 50 * time.Millisecond  // of a call, before its first token
	perNewToken = 100 * time.Microsecond // of prompt that the server had not seen: 10,000 tokens/s
	perOutput   = 20 * time.Millisecond  // between output tokens
)

// service returns the time from start to the first token, and the end, of a call with fresh new prompt tokens.
func service(start time.Duration, fresh, output int32) (ttft, end time.Duration) {
	ttft = overhead + time.Duration(fresh)*perNewToken
	return ttft, start + ttft + time.Duration(output-1)*perOutput
}
