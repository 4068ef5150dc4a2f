package convert

import (
	"time"

	"github.com/agentsim/agentsim/trace"
)

// output is the call's answer in tokens: told, or as long as what the model wrote.
func (c *call) output() int32 {
	if c.Output != trace.Unknown {
		return c.Output
	}
	return int32(min((c.written+bytesPerToken-1)/bytesPerToken, maxTokens))
}

// fillTimes fills a start or an end that is not told by the time that the answer takes at the default speed, and marks both:
// logs tell when something was written down, not when the call was sent.
func (c *call) fillTimes() {
	c.Inferred |= trace.FieldStart | trace.FieldEnd
	took := decodeTime(c.output())
	switch {
	case c.Start == trace.NoTime:
		c.Start = max(c.End-took, 0)
	case c.End == trace.NoTime:
		c.End = c.Start + took
	}
	c.End = max(c.End, c.Start)
}

// unaskedStart is when a call began that no message or result of a tool comes before: as long before its end as its answer
// takes at the default speed, but not before the call that it goes on from had ended. People may have paused between the two.
func (c *call) unaskedStart(before time.Duration) time.Duration {
	return max(before, c.End-decodeTime(c.output()), 0)
}

// decodeTime is how long an answer takes at the default speed.
func decodeTime(output int32) time.Duration {
	return time.Duration(output) * (time.Second / defaultSpeed)
}
