package validate

import (
	"math"
	"slices"

	"github.com/agentsim/agentsim/trace"
)

// isWall tells a plausible Unix time in milliseconds, of the years 2010 to 2096, or a time since the start of a made-up
// trace, of at most some days. Between them lie times in seconds.
func isWall(ms int64) bool { return ms >= 0 && ms < 1e9 || ms >= 1262304000000 && ms <= 4e12 }

// slackMs is how far sums of recorded times may be off: they are rounded to milliseconds.
const slackMs = 1.5

// record checks one record, alone and against those before it.
func (c *checker) record(at Place, r *trace.Record) {
	if r.Lost != nil && r.Lost.Rows > 0 {
		c.note(lostRule, at, "%d rows", r.Lost.Rows)
		c.sum.LostRows += r.Lost.Rows
		return
	}
	if r.Schema != trace.Schema {
		c.once(schemaRule, r.Schema, at, "schema %q", r.Schema)
	}
	if a := r.AgentContext; a != nil && (a.TrajectoryID != "" || a.ProgramID != "") {
		c.once(legacyRule, "", at, "from here on")
	}
	if t := r.EventTimeMs; t != nil && !isWall(*t) {
		c.once(wallRule, "event", at, "event_time_unix_ms is %d", *t)
	}
	switch r.EventType {
	case trace.EventRequestEnd:
		c.sum.Requests++
		if r.Request == nil || r.Request.RequestID == "" {
			c.note(shapeRule, at, "request_end without a request and a request_id")
			return
		}
		c.request(at, r)
	case trace.EventToolStart, trace.EventToolEnd, trace.EventToolError:
		c.sum.Tools++
		if r.Tool == nil || r.Tool.ToolCallID == "" {
			c.note(shapeRule, at, "%s without a tool and a tool_call_id", r.EventType)
			return
		}
		c.tool(at, r)
	case trace.EventRequestPayload:
		c.sum.Payloads++
		if r.Payload == nil || r.Payload.RequestID == "" {
			c.note(shapeRule, at, "request_payload without a payload and a request_id")
			return
		}
		c.payloads = append(c.payloads, located{r.Payload.RequestID, at})
	default:
		c.once(eventTypeRule, r.EventType, at, "event_type %q", r.EventType)
	}
}

func (c *checker) request(at Place, rec *trace.Record) {
	r := rec.Request
	id := r.RequestID
	if first, there := c.requests[id]; there {
		c.note(duplicateRule, at, "request %q is at %v too", id, first)
		return
	}
	c.requests[id] = at
	c.agreeOnContext(at, rec)
	if rec.AgentContext != nil {
		if s := rec.EventSource; s != "dynamo" && s != "" {
			c.once(sourceRule, "request "+s, at, "request %q: event_source %q", id, s)
		}
		if t := rec.AgentContext.InputTrigger; t != "" && !slices.Contains([]string{"user_message", "tool_result", "other"}, t) {
			c.once(triggerRule, t, at, "request %q: input_trigger %q", id, t)
		}
	}
	if r.OutputTokens == nil {
		c.note(outputRule, at, "request %q", id)
	} else if *r.OutputTokens <= 0 {
		c.note(noTokensRule, at, "request %q: output_tokens %d", id, *r.OutputTokens)
	}
	start, end := c.requestTimes(at, rec)
	c.requestTokens(at, r)
	c.requestHashes(at, r)
	c.session(at, rec, start, end)
}

// agreeOnContext holds the rule that all requests have a context or none.
func (c *checker) agreeOnContext(at Place, rec *trace.Record) {
	with := rec.AgentContext != nil
	switch {
	case c.context == nil:
		c.context, c.contextAt = &with, at
	case *c.context != with:
		c.note(contextRule, at, "request %q has %s, that at %v has %s", rec.Request.RequestID, contextName(with), c.contextAt, contextName(!with))
	}
}

func contextName(with bool) string {
	if with {
		return "an agent_context"
	}
	return "no agent_context"
}

// requestTimes checks a request's times and returns its start and end in Unix milliseconds; NaN where not told.
func (c *checker) requestTimes(at Place, rec *trace.Record) (start, end float64) {
	r := rec.Request
	id := r.RequestID
	start, end = math.NaN(), math.NaN()
	if r.ReceivedMs == nil {
		c.note(startRule, at, "request %q", id)
	} else {
		start = float64(*r.ReceivedMs)
		if !isWall(*r.ReceivedMs) {
			c.once(wallRule, "received", at, "request %q: request_received_ms is %d", id, *r.ReceivedMs)
		}
	}
	if r.TotalTimeMs == nil {
		c.note(noEndRule, at, "request %q", id)
		if rec.EventTimeMs != nil {
			end = float64(*rec.EventTimeMs)
		}
	} else {
		end = start + *r.TotalTimeMs
		if rec.EventTimeMs != nil && math.Abs(end-float64(*rec.EventTimeMs)) > slackMs {
			c.note(endRule, at, "request %q ended at %.0f, event_time_unix_ms is %d", id, end, *rec.EventTimeMs)
		}
	}
	for _, d := range []struct {
		name string
		ms   *float64
	}{{"prefill_wait_time_ms", r.PrefillWaitTimeMs}, {"prefill_time_ms", r.PrefillTimeMs}, {"ttft_ms", r.TTFTMs},
		{"total_time_ms", r.TotalTimeMs}, {"avg_itl_ms", r.AvgITLMs}} {
		if d.ms != nil && *d.ms < 0 {
			c.note(durationRule, at, "request %q: %s is %g", id, d.name, *d.ms)
		}
	}
	if r.TTFTMs != nil && r.TotalTimeMs != nil && *r.TTFTMs > *r.TotalTimeMs+slackMs {
		c.note(durationRule, at, "request %q: ttft_ms %g is above total_time_ms %g", id, *r.TTFTMs, *r.TotalTimeMs)
	}
	if w, p, f := r.PrefillWaitTimeMs, r.PrefillTimeMs, r.TTFTMs; w != nil && p != nil && f != nil && math.Abs(*w+*p-*f) > slackMs {
		c.note(durationRule, at, "request %q: ttft_ms is %g, wait and prefill are %g", id, *f, *w+*p)
	}
	return start, end
}

func (c *checker) requestTokens(at Place, r *trace.RequestEnd) {
	id := r.RequestID
	input := r.InputTokens
	if r.Replay != nil && r.Replay.InputLength != nil {
		if input != nil && *input != *r.Replay.InputLength {
			c.note(lengthRule, at, "request %q: input_tokens %d, replay.input_length %d", id, *input, *r.Replay.InputLength)
		}
		input = r.Replay.InputLength
	}
	if input == nil || *input <= 0 {
		c.note(inputRule, at, "request %q", id)
	} else if r.CachedTokens != nil && (*r.CachedTokens > *input || *r.CachedTokens < 0) {
		c.note(cachedRule, at, "request %q: %d cached tokens of a prompt of %d", id, *r.CachedTokens, *input)
	}
	if h := r.KVHitRate; h != nil && (*h < 0 || *h > 1) {
		c.note(cachedRule, at, "request %q: kv_hit_rate %g", id, *h)
	}
}

func (c *checker) requestHashes(at Place, r *trace.RequestEnd) {
	id, p := r.RequestID, r.Replay
	if p == nil {
		c.note(replayRule, at, "request %q", id)
		return
	}
	if p.BlockSize <= 0 {
		c.note(blockSizeRule, at, "request %q: trace_block_size %d", id, p.BlockSize)
		return
	}
	switch {
	case c.blockSize == 0:
		c.blockSize, c.blockSizeAt = p.BlockSize, at
	case c.blockSize != p.BlockSize:
		c.note(mixedBlocksRule, at, "request %q: trace_block_size %d, but %d at %v", id, p.BlockSize, c.blockSize, c.blockSizeAt)
	}
	if p.InputLength == nil || *p.InputLength < 0 {
		c.note(hashCountRule, at, "request %q: no replay.input_length", id)
		return
	}
	if want := *p.InputLength/p.BlockSize + min(*p.InputLength%p.BlockSize, 1); int64(len(p.Hashes)) != want {
		c.note(hashCountRule, at, "request %q: %d hashes for %d tokens in blocks of %d, want %d", id, len(p.Hashes), *p.InputLength, p.BlockSize, want)
		return
	}
	c.chain(at, id, p)
}

// maxHashes bounds the hashes whose places are remembered.
const maxHashes = 1 << 22

// chained is where a hash stands in prompts: behind which hash, at which index.
type chained struct {
	previous uint64
	index    int32
}

// chain checks that hashes are cumulative, and that they are what was written.
func (c *checker) chain(at Place, id string, p *trace.Replay) {
	previous := uint64(0)
	for i, h := range p.Hashes {
		if h >= 1<<53 {
			c.large++
			if h&(1<<8-1) == 0 { // a float64 has 53 bits of 64; one number in 256 has these zeros by itself
				c.rounded++
			}
		}
		here := chained{previous, int32(i)}
		if known, there := c.places[h]; there && known != here {
			c.note(cumulativeRule, at, "request %q: hash %d is block %d here and block %d elsewhere, or has another block before it", id, h, i, known.index)
			return
		} else if !there && len(c.places) < maxHashes {
			c.places[h] = here
		}
		previous = h
	}
}
