package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/trace/anonymize"
)

// anonymizeCommand is the flags of `agentsim anonymize`.
type anonymizeCommand struct {
	out     string
	keyFile string
	// verify compares instead, looking for canaries too.
	verify, strict bool
	canaries       []string
	options        anonymize.Options
}

func newAnonymize(g *Global) *cobra.Command {
	c := &anonymizeCommand{}
	cmd := &cobra.Command{
		Use:   "anonymize TRACE... -o DIR | --verify ORIGINAL... ANONYMIZED",
		Short: "Make traces and transcripts safe to share: no text, no names, the same work",
		Long: `Make traces and transcripts safe to share: no text, no names, the same work. TRACE is a file, a folder with all folders in
it, a glob, a segment prefix or "-": Dynamo request traces, with payload rows or without, Mooncake and WEKA traces, and
transcripts of Claude Code and Codex.

What is kept is a list: token counts, durations, times, words of the format, names of models and of tools. Ids become
pseudonyms, block hashes keyed hashes, text filler of the same length that shares what the text shares, in steps of 64
bytes. All else is dropped, whatever it is. Sessions, their tree and the blocks they share hold together across all files of
a run, and across runs with one --key-file.

--verify ORIGINAL... ANONYMIZED compares them, without the key: no string of the original is in the result but for words and
names that it lists, no canary that you planted in a prompt, no block hash that the original or a likely prompt has; token
counts, sessions and what they share are as they were. Memory grows with the number of ids, hashes and texts.

What stays can still tell one run from another by its timing and its lengths.

Exit codes: 0 done; 1 failed; 2 wrong usage or input; 3 done, but rows of the original are lost, or --verify found that the
result is not safe or not the same work, and why; 130 interrupted.`,
		Example: `  agentsim anonymize traces/day1 -o shared
  agentsim anonymize ~/.claude/projects -o shared --shift-time --drop-tool-names
  agentsim anonymize --verify traces/day1 shared --canary "my secret project"`,
		RunE: func(cmd *cobra.Command, args []string) error { return c.run(cmd.Context(), g, args) },
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVarP(&c.out, "output", "o", "", "write to the new folder `DIR`")
	f.BoolVar(&c.options.ShiftTime, "shift-time", false, "move all times by one to ten years, by how much only the key tells")
	f.BoolVar(&c.options.DropToolNames, "drop-tool-names", false, "replace names of tools by pseudonyms")
	f.BoolVar(&c.options.DropModel, "drop-model", false, "replace names of models by pseudonyms")
	f.StringVar(&c.keyFile, "key-file", "", secretUsage)
	f.BoolVar(&c.verify, "verify", false, "compare originals with their anonymized form, the last argument, instead")
	f.StringArrayVar(&c.canaries, "canary", nil, "with --verify: `TEXT` that you planted in the original and that must be gone (repeatable)")
	f.BoolVar(&c.strict, "strict", false, "exit 1 instead of 3")
	return cmd
}

func (c *anonymizeCommand) run(ctx context.Context, g *Global, args []string) error {
	if c.verify {
		return c.runVerify(ctx, g, args)
	}
	if len(c.canaries) > 0 {
		return usagef("--canary goes with --verify")
	}
	if len(args) == 0 {
		return usagef("no trace given; name files, folders or a segment prefix")
	}
	if c.out == "" {
		return usagef("-o is missing: name a new folder for the anonymized files")
	}
	files, err := anonymize.Find(args, g.Stdin)
	if err != nil {
		return err
	}
	secret, err := readSecret(c.keyFile)
	if err != nil {
		return err
	}
	c.options.Key = anonymize.NewKey(secret)
	report, err := anonymize.Run(ctx, files, c.out, c.options, nil)
	if errors.Is(err, fs.ErrExist) {
		return usagef("%w", err)
	}
	if err != nil {
		return err
	}
	printAnonymized(g, report)
	if read := &report.Read; read.LostRows > 0 || read.LostBytes > 0 {
		return untrusted("anonymized trace", []string{fmt.Sprintf("%d rows of the original are lost (%d bytes)", read.LostRows, read.LostBytes)}, c.strict)
	}
	return nil
}

// How many of the dropped keys and files are named.
const (
	shownKeys  = 12
	shownFiles = 3
)

func andMore(n int) string {
	if n <= 0 {
		return ""
	}
	return fmt.Sprintf(" and %d more", n)
}

// printAnonymized says on stderr what was written, kept and dropped.
func printAnonymized(g *Global, r *anonymize.Report) {
	printWarnings(g, &r.Read)
	if n := len(r.DroppedFiles); n > 0 {
		fmt.Fprintf(g.Stderr, "left out: %d files that are empty, or no trace and no transcript: %s%s\n", n,
			strings.Join(r.DroppedFiles[:min(n, shownFiles)], ", "), andMore(n-shownFiles))
	}
	fmt.Fprintf(g.Stderr, "wrote %d rows to %d files; %d block hashes keyed, %d bytes of text replaced\n", r.Rows, r.Files, r.Hashes, r.TextBytes)
	if r.Read.SkippedRows > 0 {
		fmt.Fprintf(g.Stderr, "left out: %d rows of unknown kinds\n", r.Read.SkippedRows)
	}
	if names := r.DroppedKeys.Names(); len(names) > 0 {
		var shown []string
		for _, name := range names[:min(len(names), shownKeys)] {
			shown = append(shown, fmt.Sprintf("%.60q %d", name, r.DroppedKeys[name]))
		}
		fmt.Fprintf(g.Stderr, "dropped values by key: %s%s\n", strings.Join(shown, ", "), andMore(len(names)-shownKeys))
	}
	if names := append(r.Models.Names(), r.Tools.Names()...); len(names) > 0 {
		fmt.Fprintf(g.Stderr, "kept names of models and tools: %.60q\n", names)
	}
}

// minCanary is the fewest bytes of a canary: a shorter one may be in filler by chance.
const minCanary = 8

func (c *anonymizeCommand) runVerify(ctx context.Context, g *Global, args []string) error {
	if len(args) < 2 {
		return usagef("--verify wants the originals and, last, their anonymized form; %d given", len(args))
	}
	for _, canary := range c.canaries {
		if len(canary) < minCanary {
			return usagef("--canary %q has less than %d bytes", canary, minCanary)
		}
	}
	original, err := anonymize.Find(args[:len(args)-1], nil)
	if err != nil {
		return err
	}
	result, err := anonymize.Find(args[len(args)-1:], nil)
	if err != nil {
		return err
	}
	proof, err := anonymize.Verify(ctx, original, result, c.canaries)
	if err != nil {
		return err
	}
	printProof(g, proof)
	if len(proof.Failures) == 0 {
		return nil
	}
	return untrusted("anonymized trace", []string{fmt.Sprintf("%d faults, the first: %s", len(proof.Failures)+proof.Dropped, proof.Failures[0])}, c.strict)
}

// printProof says on stdout what was compared, what was kept, and what cannot be hidden.
func printProof(g *Global, p *anonymize.Proof) {
	for _, failure := range p.Failures {
		fmt.Fprintln(g.Stdout, "fault:", failure)
	}
	if p.Dropped > 0 {
		fmt.Fprintf(g.Stdout, "fault: %d more\n", p.Dropped)
	}
	fmt.Fprintf(g.Stdout, "compared: %d rows of %d files; %d strings of the original looked for; hashes of %d likely prompts tried\n",
		p.Rows, p.Files, p.Strings, p.Guesses)
	fmt.Fprintf(g.Stdout, "replaced, one for one in all files: %d ids, %d block hashes, %d texts of 16 bytes and more\n", p.IDs, p.Hashes, p.Texts)
	fmt.Fprintf(g.Stdout, "token counts and lengths as they were: %d\n", p.Counts)
	times := "as they were"
	if p.Shifted {
		times = "all moved by the same span"
	}
	fmt.Fprintf(g.Stdout, "times: %s\n", times)
	fmt.Fprintf(g.Stdout, "kept words: %s\nkept names of models: %.60q\nkept names of tools: %.60q\n",
		strings.Join(p.Words.Names(), " "), p.Models.Names(), p.Tools.Names())
	fmt.Fprintln(g.Stdout, "warning: timing, token counts and lengths of texts are as they were: who has seen the run can recognize it")
}
