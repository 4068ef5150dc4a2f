// Package steplog reads what serving engines log of their steps: how many sequences and tokens each had, how much
// context, and how long it took.
//
// Formats are detected line by line, so that files of several kinds can be read together:
//
//   - Plain: CSV with a header, or JSON lines, with the columns prefill_tokens, prefills, decodes and step_us, and where
//     they are known prefill_context (prompt tokens and what lies before them, over all chunks), prefill_pairs (Σ n·past +
//     n²/2 over the chunks of n tokens) and decode_context (tokens in the KV cache, over all decodes).
//   - vLLM from 0.14 with --enable-logging-iteration-details (vllm-project/vllm pull request 31193; with the use of the KV
//     cache from 46647 on). Contexts are not told; where the use of the cache is, steps of decodes alone have them. Under
//     asynchronous scheduling a step's time may miss what was done before the engine began to wait (pull request 35072).
//   - SGLang: a "Decode batch" line gives the tokens per second since the one before it, which is a step time where the same
//     number of requests decoded all along and no "Prefill batch" line lies between. Prompts' times are not told.
//   - TensorRT-LLM: print_iter_log, and iteration stats as JSON lines. prev_device_step_time, where there is one, is the
//     time of the iteration before; otherwise the host's step time counts.
//   - Dynamo: forward-pass metrics, dynamo.fpm.trace.v1 or the bare objects, as JSON lines (ai-dynamo/dynamo pull request
//     7200; wall_time is from one step's end to the next, 7537).
package steplog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/agentsim/agentsim/trace"
)

// Unknown marks a count that a log does not tell.
const Unknown = -1

// Step is one engine step, or the mean of several alike.
type Step struct {
	// Format is the kind of log: plain, vllm, sglang, trtllm or dynamo.
	Format string
	File   string
	Line   int

	Prefills, PrefillTokens, Decodes int // sequences that compute prompt tokens, those tokens, sequences that generate one
	// PrefillContext is the tokens of the prompt chunks and of what lies before them, DecodeContext those of the decodes;
	// PrefillPairs the query-key pairs of the chunks, doubled to stay whole: Σ n·(2·past + n). Unknown where not told.
	PrefillContext, PrefillPairs, DecodeContext int64
	// CacheUse is the share of the KV cache that running requests hold, 0 to 1; Unknown where not told.
	CacheUse float64
	Time     time.Duration
}

// Log is the steps of some files, in their order.
type Log struct {
	Steps []Step
	// Untimed counts steps without a time of their own, Idle those without a token.
	Untimed, Idle int
	// Read counts lines, those that tell of no step (SkippedRows) and those that are damaged (LostRows).
	Read trace.ReadReport
}

// maxSteps bounds a log.
const maxSteps = 1 << 20

// Read reads logs: files, folders, globs, or "-" for stdin; plain or gzip.
func Read(ctx context.Context, args []string, stdin io.Reader) (*Log, error) {
	segments, err := trace.Find(args, stdin)
	if err != nil {
		return nil, fmt.Errorf("reading step logs: %w", err)
	}
	parsers := make([]lineParser, len(segments))
	for i, s := range segments {
		head, err := s.Head(headSize)
		if err != nil {
			return nil, fmt.Errorf("reading step logs: %w", err)
		}
		parsers[i] = parserOf(head)
	}
	log := &Log{}
	pairs, at := pairing{log: log}, -1
	err = trace.MapLines(ctx, segments, nil, func(c trace.Chunk) (part, error) {
		return parse(c, parsers[c.Segment]), nil
	}, func(p part) error {
		if p.segment != at {
			pairs.end()
			at = p.segment
		}
		log.Read.Add(&p.read)
		for i := range p.entries {
			pairs.add(&p.entries[i])
			if len(log.Steps) > maxSteps {
				return &trace.InputError{File: p.file, Line: p.entries[i].Line, Err: fmt.Errorf("more than %d steps; take fewer files", maxSteps)}
			}
		}
		return nil
	})
	pairs.end()
	if err != nil {
		return nil, fmt.Errorf("reading step logs: %w", err)
	}
	return log, nil
}

// entry is what one line tells.
type entry struct {
	Step
	kind kind
	rank string // of the engine, where a log has several
	iter int64
	// before is the time of the step before this one (lagging).
	before time.Duration
}

// kind is how a line's step gets its time.
type kind uint8

const (
	timed    kind = iota // it has one
	untimed              // it has none
	lagging              // the next iteration's line has it
	interval             // it is that of the steps since the last such line, where nothing came between
	between              // not a step with a time, but something that comes between
)

// part is the entries of one chunk.
type part struct {
	file    string
	segment int
	entries []entry
	read    trace.ReadReport
}

// errNoStep tells a line that is sound but tells of no step.
var errNoStep = errors.New("not a step")

// lineParser reads one line.
type lineParser func(line []byte) (entry, error)

func parse(c trace.Chunk, parser lineParser) part {
	p := part{file: c.File, segment: c.Segment, read: c.Read}
	for number, line := range c.Lines {
		p.read.Lines++
		e, err := parser(line)
		if err == nil {
			err = e.check()
		}
		switch {
		case err == nil:
			e.File, e.Line = c.File, number
			p.entries = append(p.entries, e)
		case errors.Is(err, errNoStep):
			p.read.SkippedRows++
		default:
			p.read.Lose(c.File, number, line, err)
		}
	}
	return p
}

// check refuses counts that no step has.
func (s *Step) check() error {
	const mostTokens, mostContext, mostPairs, mostSequences = 10_000_000, 1e10, 1e14, 1 << 20
	for _, n := range []struct {
		name        string
		value       int64
		least, most int64
	}{
		{"prompt tokens", int64(s.PrefillTokens), 0, mostTokens},
		{"sequences with prompt tokens", int64(s.Prefills), 0, min(mostSequences, int64(s.PrefillTokens))},
		{"decodes", int64(s.Decodes), 0, mostSequences},
		{"context of prompts", s.PrefillContext, Unknown, mostContext},
		{"pairs of prompts", s.PrefillPairs, Unknown, mostPairs},
		{"context of decodes", s.DecodeContext, Unknown, mostContext},
		{"time in ns", int64(s.Time), 0, int64(time.Hour)},
	} {
		if n.value < n.least || n.value > n.most {
			return fmt.Errorf("%d %s, want %d to %d", n.value, n.name, max(0, n.least), n.most)
		}
	}
	switch {
	case s.PrefillTokens > 0 && s.Prefills == 0:
		return fmt.Errorf("%d prompt tokens of no sequence", s.PrefillTokens)
	case s.CacheUse > 1:
		return fmt.Errorf("%g of the KV cache in use", s.CacheUse)
	case s.PrefillContext >= 0 && s.PrefillContext < int64(s.PrefillTokens):
		return fmt.Errorf("a context of prompts of %d tokens, less than the %d that are computed", s.PrefillContext, s.PrefillTokens)
	}
	return nil
}

// pairing turns the entries of one file after another into steps: those of which two lines tell are put together.
type pairing struct {
	log  *Log
	last map[string]*entry // by rank: a step that waits for its time, or the line that an interval begins with
}

func (p *pairing) add(e *entry) {
	last := p.last[e.rank]
	if p.last == nil {
		p.last = map[string]*entry{}
	}
	delete(p.last, e.rank)
	switch e.kind {
	case timed:
		p.emit(e.Step)
	case untimed:
		p.log.Untimed++
	case lagging:
		if last != nil && last.iter+1 == e.iter {
			last.Time = e.before
			p.emit(last.Step)
		} else if last != nil {
			p.log.Untimed++
		}
		if e.Decodes+e.PrefillTokens > 0 {
			p.last[e.rank] = e
		} else {
			p.log.Idle++
		}
	case interval:
		p.last[e.rank] = e
		if last == nil || last.Decodes != e.Decodes {
			p.log.Untimed++
			return
		}
		mean := e.Step
		if last.DecodeContext >= 0 && mean.DecodeContext >= 0 {
			mean.DecodeContext = (last.DecodeContext + mean.DecodeContext) / 2
		}
		p.emit(mean)
	}
}

// emit takes a step, unless it has nothing to tell.
func (p *pairing) emit(s Step) {
	if s.Decodes > 0 && s.DecodeContext == 0 { // nothing decodes without a context: the field is not filled
		s.DecodeContext = Unknown
	}
	switch {
	case s.Decodes+s.PrefillTokens == 0:
		p.log.Idle++
	case s.Time <= 0:
		p.log.Untimed++
	default:
		p.log.Steps = append(p.log.Steps, s)
	}
}

// end ends a file.
func (p *pairing) end() {
	for _, e := range p.last {
		if e.kind == lagging {
			p.log.Untimed++
		}
	}
	p.last = nil
}
