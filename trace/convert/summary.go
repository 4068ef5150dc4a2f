package convert

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agentsim/agentsim/trace"
)

// Summary is what reading a trace met, for a person.
type Summary struct {
	Format string `json:"format"`
	// Files, Rows, Calls, Sessions with a call and Tools are what was read, Lost the rows that could not be, Duplicates the
	// calls that were told more than once.
	Files      int `json:"files"`
	Rows       int `json:"rows"`
	Calls      int `json:"calls"`
	Sessions   int `json:"sessions"`
	Tools      int `json:"tools"`
	Lost       int `json:"lost_rows"`
	Duplicates int `json:"duplicates"`
	// Skipped are the rows that are neither calls nor tools, by the reason, Inferred the calls with a filled field, by the
	// field. Both are in the order of their names.
	Skipped  []Count `json:"skipped"`
	Inferred []Count `json:"inferred"`
	// Sharing counts the calls by where it is known from what their prompts share with others.
	Sharing []Count `json:"sharing"`
}

// Count is how often something was met.
type Count struct {
	Name string `json:"name"`
	N    int    `json:"count"`
}

// Summarize sums up what reading a capture met.
func Summarize(c *trace.Capture) Summary {
	s := Summary{Format: c.Format, Files: c.Read.Files, Rows: c.Read.Lines, Calls: c.Read.Calls,
		Tools: c.Read.Tools, Lost: c.Read.LostRows, Duplicates: c.Read.Duplicates}
	inferred, sharing := map[string]int{}, map[string]int{}
	for _, session := range c.Sessions {
		if len(session.Turns) > 0 {
			s.Sessions++
		}
		for _, t := range session.Turns {
			for _, name := range t.Inferred.Names() {
				inferred[name]++
			}
			sharing[sharingOf(t)]++
		}
	}
	skipped, rest := map[string]int{}, c.Read.SkippedRows
	for why, n := range c.Read.Skipped {
		skipped[why] = n
		rest -= n
	}
	if rest > 0 {
		skipped["neither calls nor tools"] += rest
	}
	s.Skipped, s.Inferred, s.Sharing = counts(skipped), counts(inferred), counts(sharing)
	return s
}

// sharingOf says from what it is known which blocks a prompt shares with others.
func sharingOf(t *trace.Turn) string {
	switch {
	case t.Inferred&trace.FieldTextHashes != 0:
		return "text"
	case t.Inferred&trace.FieldCachedHashes != 0:
		return "cached tokens"
	case t.Shared == 0 && len(t.Hashes) == 0:
		return "nothing"
	}
	return "recorded hashes"
}

// counts lists what a map counts, by name.
func counts(m map[string]int) []Count {
	list := make([]Count, 0, len(m))
	for name, n := range m {
		list = append(list, Count{name, n})
	}
	slices.SortFunc(list, func(a, b Count) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// refuseFills is an error if a field of a call was filled by rule: it names the first such call.
func refuseFills(c *trace.Capture) error {
	for _, s := range c.Sessions {
		for _, t := range s.Turns {
			if t.Inferred != 0 {
				return &trace.InputError{File: t.File, Line: int(t.Line), Err: fmt.Errorf("strict: the source does not tell %s of call %q, and a rule would fill it",
					strings.Join(t.Inferred.Names(), ", "), t.ID)}
			}
		}
	}
	return nil
}
