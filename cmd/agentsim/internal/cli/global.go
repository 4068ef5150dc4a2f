// Package cli is the commands of agentsim, one file each: flags, wiring, printing and exit codes. Nothing else does
// these.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/agentsim/agentsim/sim"
	"github.com/agentsim/agentsim/trace"
)

// The exit codes of all commands.
const (
	exitFailed      = 1   // the run failed
	exitUsage       = 2   // wrong usage, config or input, or a model that does not fit
	exitUntrusted   = 3   // done, but the result should not be trusted
	exitInterrupted = 130 // interrupted; finished parts are kept
)

// Global is what a command sees of its process, so that tests run commands in theirs.
type Global struct {
	Args           []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	// Getenv reads the environment.
	Getenv func(string) string
	// Terminal tells that Stderr is a terminal, Screen that Stdout is one, Width how wide that is, in characters.
	Terminal, Screen bool
	Width            int
}

// FromProcess returns the Global of this process.
func FromProcess() *Global {
	g := &Global{Args: os.Args[1:], Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Getenv: os.Getenv,
		Terminal: term.IsTerminal(int(os.Stderr.Fd())), Width: 100}
	if width, _, err := term.GetSize(int(os.Stdout.Fd())); err == nil && width > 0 {
		g.Width, g.Screen = width, true
	}
	return g
}

// exitError is an error with the exit code that it asks for.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// untrusted is how a command ends that is done with a result not to be trusted, and why; with --strict it has failed.
func untrusted(result string, why []string, strict bool) error {
	code := exitUntrusted
	if strict {
		code = exitFailed
	}
	return &exitError{code, fmt.Errorf("do not trust this %s: %s", result, strings.Join(why, "; "))}
}

// usagef is an error of the command line, the config or the input.
func usagef(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

// Main runs the command that the arguments name and returns the exit code.
func Main(g *Global) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer context.AfterFunc(ctx, exitWhenInterrupted)()
	root := newRoot(g)
	root.SetArgs(g.Args)
	root.SetOut(g.Stdout)
	root.SetErr(g.Stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintf(g.Stderr, "agentsim: %v\n", err)
	return exitCode(err)
}

// exitWhenInterrupted ends the process at the next interrupt: what the first one left to finish takes too long. Signals that a
// shell has set to be ignored, as it does for commands in the background of a script, count too.
func exitWhenInterrupted() {
	again := make(chan os.Signal, 1)
	signal.Notify(again, os.Interrupt, syscall.SIGTERM)
	<-again
	os.Exit(exitInterrupted)
}

// exitCode finds the exit code of an error. What cobra itself refuses is wrong usage.
func exitCode(err error) int {
	var exit *exitError
	var config *sim.ConfigError
	var input *trace.InputError
	switch {
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &config), errors.As(err, &input):
		return exitUsage
	}
	return exitFailed
}

func newRoot(g *Global) *cobra.Command {
	root := &cobra.Command{
		Use:   "agentsim",
		Short: "Predict what an agent fleet would have seen on another deployment",
		Long: `agentsim reads what a fleet of LLM agents really did and tells what another deployment would have done with the
same work: other GPUs, more workers, another router, a different KV cache. Its unit is the program: a root session
with its tool calls and all its subagents.`,
		Example: `  agentsim predict day1.jsonl.gz --model qwen3-14b --workers 4 --router round-robin,sticky,kv
  agentsim predict --profile mini-swe-agent --programs 100 --concurrency 32 --model llama-3.3-70b
  agentsim models show llama-3.3-70b --tp 4`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cobra.EnableCommandSorting = false
	cobra.AddTemplateFunc("flags", func(f *pflag.FlagSet) string { return f.FlagUsagesWrapped(min(g.Width, 100)) })
	root.SetUsageTemplate(strings.NewReplacer(".LocalFlags.FlagUsages", "flags .LocalFlags",
		".InheritedFlags.FlagUsages", "flags .InheritedFlags").Replace(root.UsageTemplate()))
	cobra.AddTemplateFunc("flow", func(text string) string { return flow(text, min(g.Width, 100)) })
	root.SetHelpTemplate(strings.Replace(root.HelpTemplate(), "(or .Long .Short)", "(flow (or .Long .Short))", 1))
	root.SetVersionTemplate("agentsim {{.Version}}\n")
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%v; see `%s --help`", err, cmd.CommandPath())
	})
	root.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usagef("unknown command %q%s; see `agentsim --help`", args[0], suggestion(args[0], commandNames(root)))
		}
		return nil
	}
	root.RunE = func(cmd *cobra.Command, args []string) error { return cmd.Help() }
	root.AddCommand(newPredict(g), newReplay(g), newPerfetto(g), newRecord(g), newAnonymize(g), newValidate(g), newImport(g), newMerge(g), newSynth(g), newInspect(g), newCompare(g), newCalibrate(g), newServe(g), newModels(g), newGPUs(g), newConfig(g))
	return root
}

// version is the module version that the binary was built from.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func commandNames(root *cobra.Command) []string {
	var names []string
	for _, c := range root.Commands() {
		names = append(names, c.Name())
	}
	return names
}

// flow breaks the paragraphs of a help text anew, at width characters, and leaves indented lines as they are.
func flow(text string, width int) string {
	var out, paragraph []string
	end := func() {
		if paragraph != nil {
			out = append(out, wrap(strings.Join(paragraph, " "), width))
			paragraph = nil
		}
	}
	for _, line := range strings.Split(text, "\n") {
		if line == "" || line[0] == ' ' {
			end()
			out = append(out, line)
		} else {
			paragraph = append(paragraph, line)
		}
	}
	end()
	return strings.Join(out, "\n")
}
