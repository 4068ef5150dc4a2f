package anonymize

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/agentsim/agentsim/trace"
)

// Proof is what Verify found out about an anonymized trace.
type Proof struct {
	// Files and Rows count what was compared, IDs, Hashes and Texts the different values that were replaced.
	Files, Rows, IDs, Hashes, Texts int
	// Counts is the number of token counts and lengths that are as they were.
	Counts int64
	// Strings is the number of strings of the original that were looked for.
	Strings int64
	// Guesses is the number of likely prompts whose hashes were looked for.
	Guesses int
	// Words, Models and Tools are the strings that were kept.
	Words, Models, Tools counts
	// Shifted tells that times were moved.
	Shifted bool
	// Failures say what is wrong, with file and line. At most MaxFailures are kept; Dropped counts the rest.
	Failures []string
	Dropped  int
}

// MaxFailures bounds Proof.Failures.
const MaxFailures = 20

func (p *Proof) fail(format string, args ...any) {
	if len(p.Failures) >= MaxFailures {
		p.Dropped++
		return
	}
	p.Failures = append(p.Failures, fmt.Sprintf(format, args...))
}

// Verify compares anonymized files with their originals and tells what is wrong with them. It does not know the key, and
// but for the list of what may stay it shares no code with Run:
//
//   - Each row has only what the list allows, and each string is a word of a format, a name that Proof lists, a time, a
//     pseudonym, or filler.
//   - No string of the original, values and keys, is there, but for the words and names that were kept, and no canary.
//   - No block hash of the original is there, and none that likely prompts have without the key.
//   - Row by row, the token counts are the same, and one id, one hash, one text has one replacement in all files, and no two
//     the same: so sessions, their tree and what they share are as they were.
//
// Memory grows with the number of different ids, hashes and texts.
func Verify(ctx context.Context, original, result []File, canaries []string) (*Proof, error) {
	v := &verifier{ctx: ctx, proof: &Proof{Words: counts{}, Models: counts{}, Tools: counts{}},
		strings: map[uint64]bool{}, canaries: canaries, planted: make([]bool, len(canaries)),
		ids: newBijection(), hashes: newBijection(), texts: newBijection(), formats: newFormats()}
	results, err := v.readAll(result, v.readResult)
	if err != nil {
		return nil, err
	}
	originals, err := v.readAll(original, v.readOriginal)
	if err != nil {
		return nil, err
	}
	for i, canary := range canaries {
		if !v.planted[i] {
			v.proof.fail("canary %q is not in the original: it proves nothing", canary)
		}
	}
	if err := v.pairFiles(originals, results); err != nil {
		return nil, err
	}
	for h := range v.hashes.to {
		if _, same := v.hashes.from[h]; same {
			v.proof.fail("block hash %d of the original is in the result: it was not keyed", h)
		}
	}
	v.guess()
	v.proof.IDs, v.proof.Hashes, v.proof.Texts = len(v.ids.to), len(v.hashes.to), len(v.texts.to)
	return v.proof, nil
}

// verifier is one run of Verify.
type verifier struct {
	ctx     context.Context
	proof   *Proof
	formats map[string]*format
	// strings are the fingerprints of the strings of the result that may not be in the original.
	strings  map[uint64]bool
	canaries []string
	planted  []bool

	ids, hashes, texts bijection
	shift              *int64 // milliseconds
}

// row is a decoded line: a tree of map[string]any, []any, string, json.Number, bool and nil.
type row struct {
	file string
	line int
	tree any
}

// rows calls each with the rows of a file that are JSON, in order, until it returns false.
func (v *verifier) rows(f File, each func(row) bool) error {
	stop := errors.New("enough")
	err := trace.MapLines(v.ctx, []trace.Segment{f.Segment}, nil, func(c trace.Chunk) ([]row, error) {
		var rows []row
		for number, line := range c.Lines {
			tree, err := decode(line)
			if at := trace.Resume(line); err != nil && at > 0 {
				tree, err = decode(line[at:])
			}
			if err == nil {
				rows = append(rows, row{c.File, number, tree})
			}
		}
		return rows, nil
	}, func(rows []row) error {
		for _, r := range rows {
			if !each(r) {
				return stop
			}
		}
		return nil
	})
	if err == stop {
		return nil
	}
	return err
}

func decode(line []byte) (tree any, err error) {
	d := json.NewDecoder(bytes.NewReader(line))
	d.UseNumber()
	if err = d.Decode(&tree); err == nil && len(line) > int(d.InputOffset()) {
		err = errors.New("more than one value")
	}
	return tree, err
}

// eachString calls each with all strings of a tree, keys too, and whether they are keys.
func eachString(tree any, each func(s string, key bool)) {
	switch t := tree.(type) {
	case string:
		each(t, false)
	case []any:
		for _, e := range t {
			eachString(e, each)
		}
	case map[string]any:
		for k, e := range t {
			each(k, true)
			eachString(e, each)
		}
	}
}

// outlined is a file and what identifies it: its token counts in their order.
type outlined struct {
	File
	print  uint64
	counts int64
}

// readAll calls read for each file with a function that it is to give all rows to.
func (v *verifier) readAll(files []File, read func(File, func(row)) error) ([]outlined, error) {
	var all []outlined
	for _, f := range files {
		o := outlined{File: f}
		h := xxh3.New()
		err := read(f, func(r row) {
			for _, c := range counted(r.tree) {
				h.WriteString(c + "\n")
				o.counts++
			}
		})
		if err != nil {
			return nil, err
		}
		o.print = h.Sum64()
		all = append(all, o)
	}
	return all, nil
}

// readResult holds the rows of an anonymized file against the list of what may be there.
func (v *verifier) readResult(f File, outline func(row)) error {
	head, err := f.Head(headSize)
	if err != nil {
		return err
	}
	format := v.formats[detect(head)]
	if format == nil {
		v.proof.fail("%s: neither a trace nor a transcript: it should not be there", f.Path)
		return nil
	}
	r := newRewriter(Options{})
	v.proof.Files++
	err = v.rows(f, func(row row) bool {
		v.proof.Rows++
		outline(row)
		line, err := json.Marshal(row.tree)
		if r.out = r.out[:0]; err != nil || r.row(line, format.row) != kept {
			v.proof.fail("%s:%d: a row of a kind that is not kept", row.file, row.line)
		}
		for _, name := range r.report.DroppedKeys.Names() {
			v.proof.fail("%s:%d: %q is not on the list of what is kept, or its value is not", row.file, row.line, name)
		}
		r.report.DroppedKeys = counts{}
		eachString(row.tree, func(s string, key bool) { v.resultString(row, s, key, &r.report) })
		return true
	})
	v.proof.Words.merge(r.report.Words)
	v.proof.Models.merge(r.report.Models)
	v.proof.Tools.merge(r.report.Tools)
	return err
}

// resultString checks one string of the result. The report has the words and names of its row already.
func (v *verifier) resultString(at row, s string, key bool, report *Report) {
	for _, canary := range v.canaries {
		if strings.Contains(strings.ToLower(s), strings.ToLower(canary)) {
			v.proof.fail("%s:%d: canary %q is in the result", at.file, at.line, canary)
		}
	}
	if key || report.Words[s]+report.Models[s]+report.Tools[s] > 0 || s == "" || isTime(s) {
		return
	}
	if !isPseudonym(s) && !isFiller(s) {
		v.proof.fail("%s:%d: %.40q is neither a kept word or name nor a time, a pseudonym or filler", at.file, at.line, s)
	}
	if isPseudonym(s) || len(s) >= certain {
		v.strings[xxh3.HashString(s)] = true
	}
}

// certain is the length in bytes from which two equal fillers are no chance.
const certain = 16

// readOriginal looks for the strings of an original file in the result.
func (v *verifier) readOriginal(f File, outline func(row)) error {
	return v.rows(f, func(row row) bool {
		outline(row)
		eachString(row.tree, func(s string, _ bool) {
			v.proof.Strings++
			if v.strings[xxh3.HashString(s)] {
				v.proof.fail("%s:%d: %.40q of the original is in the result", row.file, row.line, s)
			}
			for i, canary := range v.canaries {
				v.planted[i] = v.planted[i] || strings.Contains(s, canary)
			}
		})
		return true
	})
}

var pseudonym = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

func isPseudonym(s string) bool { return len(s) == 36 && pseudonym.MatchString(s) }

// isFiller tells filler, bare or as the arguments of a tool.
func isFiller(s string) bool {
	if inner, ok := strings.CutPrefix(s, `{"text":"`); ok {
		s = strings.TrimSuffix(inner, `"}`)
	}
	return !strings.ContainsFunc(s, func(r rune) bool { return !strings.ContainsRune(fillerLetters, r) })
}

func isTime(s string) bool {
	_, err := time.Parse(time.RFC3339Nano, s)
	return err == nil
}
