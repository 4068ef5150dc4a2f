package cli

import (
	"cmp"
	"fmt"
	"io"
	"math/bits"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/accuracy"
	"github.com/agentsim/agentsim/accuracy/steplog"
)

// stepFit is the flags of calibrate steps.
type stepFit struct {
	profileFit
	deploymentFlags
	folds int
}

func newCalibrateSteps(g *Global) *cobra.Command {
	s := &stepFit{}
	cmd := &cobra.Command{
		Use:   "steps LOG...",
		Short: "Fit a cost profile to an engine's log of its steps",
		Long: `Fit the coefficients of a cost profile to measured steps, without the simulator: a step's time is linear in them, so
non-negative least squares of relative errors find them. Steps that are alike share their weight. Factors on physical
terms stay at 1 unless --fit names them; they are pulled to 1 and stay within 0.5 to 2.

LOG is a file, a folder or a glob, plain or gzip; the format is detected:

  plain         CSV with a header, or JSON lines: prefill_tokens, prefills, decodes, step_us, and
                where known prefill_context (prompt tokens and what lies before them, all chunks),
                prefill_pairs (Σ n·past + n²/2 of chunks of n tokens), decode_context (tokens in
                the KV cache, all decodes)
  vLLM          its log with --enable-logging-iteration-details (from 0.14). It does not tell
                contexts; versions that print the KV cache's use tell those of steps without
                prompts. Log with --no-async-scheduling: else the times miss what the engine did
                before it waited
  SGLang        "Decode batch" lines: means over the steps since the last such line, where no
                prompt came between. Times of prompts are not told. --decode-log-interval 1 gives
                single steps
  TensorRT-LLM  print_iter_log, or iteration stats as JSON lines (jq -c .[]):
                prev_device_step_time, else the host's
  Dynamo        forward-pass metrics (FPM): dynamo.fpm.trace.v1, or bare objects

Where contexts are not told, the coefficients of the attention that reads them cannot be fitted, nor what grows with them
(request_us with decodes, prefill_token_us with prompts): these are refused by name. The same goes for any coefficient of
the host that the steps do not tell from others: a log of one model cannot tell layer_us from step_us.

Printed are the terms' shares of the time, each coefficient's share, how much of its effect no other coefficient can stand
in for, the condition number, and the errors by batch size: of the fit, and of each file, or stretch of a single file,
predicted by a fit to the others.`,
		Example: `  agentsim calibrate steps fpm.*.jsonl.gz -c prod.yaml --name prod -o prod-profile.yaml
  agentsim calibrate steps steps.csv -c prod.yaml --fit linear,decode_attention,layer_us,request_us --pull 0.01
  agentsim calibrate steps vllm.log -c prod.yaml --fit linear,layer_us
  agentsim predict day2.jsonl.gz -c prod.yaml --set cost.profile=prod-profile.yaml`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usagef("calibrate steps wants logs of a deployment's steps, and the deployment: -c FILE")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			fitter, err := s.fitter(cmd, g, args)
			if err != nil {
				return err
			}
			return s.run(g, fitter, args)
		},
	}
	s.deploymentFlags.addFlags(cmd)
	s.profileFit.addFlags(cmd, "layer_us", "request_us", "prefill_token_us")
	cmd.Flags().IntVar(&s.folds, "folds", 5, "stretches of a single file, each of which is also predicted by a fit to the others")
	return cmd
}

// fitter reads logs and flags.
func (s *stepFit) fitter(cmd *cobra.Command, g *Global, args []string) (*accuracy.StepFitter, error) {
	if err := checkFolds(s.folds); err != nil {
		return nil, err
	}
	start, err := s.begin("fitted by agentsim calibrate steps to the times of the steps below")
	if err != nil {
		return nil, err
	}
	measured, err := s.deployment()
	if err != nil {
		return nil, err
	}
	plan, err := measured.Resolve()
	if err != nil {
		return nil, usagef("%w", err)
	}
	log, err := steplog.Read(cmd.Context(), args, g.Stdin)
	if err != nil {
		return nil, usagef("%w", err)
	}
	printWarnings(g, &log.Read)
	fmt.Fprintf(g.Stderr, "read %d lines: %s%s\n", log.Read.Lines, formats(log.Steps), left(log))
	if want := 5 * max(2, len(s.fit)); len(log.Steps) < want {
		return nil, usagef("%d steps with a time in %s, want at least %d to fit %d coefficients", len(log.Steps), strings.Join(args, ", "), want, len(s.fit))
	}
	return &accuracy.StepFitter{Steps: log.Steps, Plan: plan, Start: start, Free: s.fit, Pull: s.pull}, nil
}

// left tells what of a log is no step to fit.
func left(log *steplog.Log) string {
	var text string
	for _, part := range []struct {
		n    int
		what string
	}{
		{int(log.Read.SkippedRows), "other lines"}, {int(log.Read.LostRows), "damaged lines"}, {log.Untimed, "steps without a time"}, {log.Idle, "steps without a token"},
	} {
		if part.n > 0 {
			text += fmt.Sprintf("; %s: %d", part.what, part.n)
		}
	}
	return text
}

// formats counts the steps of each format.
func formats(steps []steplog.Step) string {
	var names []string
	count := map[string]int{}
	for i := range steps {
		if name := steps[i].Format; count[name] == 0 {
			names = append(names, name)
		}
		count[steps[i].Format]++
	}
	for i, name := range names {
		names[i] = fmt.Sprintf("%d steps of %s", count[name], name)
	}
	return cmp.Or(strings.Join(names, ", "), "no steps")
}

func (s *stepFit) run(g *Global, f *accuracy.StepFitter, args []string) error {
	fit, err := f.Run()
	if err != nil {
		return refusal(err)
	}
	times, err := f.Times(&fit.Profile)
	if err != nil {
		return err
	}
	err = table(g.Stdout, func(w io.Writer) {
		fmt.Fprintln(w, "term\tof decode steps\tof steps with prompts\t")
		for _, t := range times {
			fmt.Fprintf(w, "%s\t%.1f%%\t%.1f%%\t\n", t.Name, 100*t.Decode, 100*t.Prompt)
		}
	})
	fmt.Fprintln(g.Stdout)
	if err = cmp.Or(err, printDetermined(g.Stdout, fit.Determined)); err != nil {
		return err
	}
	part, name := s.parts(f.Steps)
	held, err := f.LeaveOut(part)
	if err != nil {
		return err
	}
	heldErrors := make([]float64, len(f.Steps))
	profile := fit.Profile
	for _, h := range held {
		for i, at := range h.Steps {
			heldErrors[at] = h.Errors[i]
		}
		profile.Errors = append(profile.Errors, accuracy.ScoreOf(h.Errors).FitError(name+" "+h.Name, accuracy.MeasureSteps, true))
	}
	if len(held) == 0 {
		heldErrors = nil
	}
	bySize := stepErrors(f.Steps, fit.Errors, heldErrors)
	for _, e := range slices.Backward(bySize) {
		profile.Errors = slices.Insert(profile.Errors, 0, e.fitted.FitError(e.name, accuracy.MeasureSteps, false))
	}
	fmt.Fprintf(g.Stdout, "| steps | rows | error | with its %s left out |\n|---|---:|---:|---:|\n", name)
	for _, e := range bySize {
		fmt.Fprintf(g.Stdout, "| %s | %d | %s | %s |\n", e.name, e.fitted.Rows, percents(e.fitted), percents(e.held))
	}
	profile.Envelope = f.Envelope()
	return s.write(&profile, args, len(f.Steps), f.Plan.Engine.Kind+" "+f.Plan.Engine.Version, f.Plan.GPU)
}

func percents(s accuracy.Score) string {
	if s.Rows == 0 {
		return ""
	}
	return fmt.Sprintf("%.1f / %.1f / %+.1f", 100*s.Mean, 100*s.Median, 100*s.Bias)
}

// parts says what is left out in turn: files, or stretches of the only one.
func (s *stepFit) parts(steps []steplog.Step) (key func(*steplog.Step) string, name string) {
	first, last := &steps[0], &steps[len(steps)-1]
	if first.File != last.File {
		return func(s *steplog.Step) string { return s.File }, "file"
	}
	lines := last.Line - first.Line + 1
	return func(step *steplog.Step) string {
		return fmt.Sprintf("%d of %d", 1+(step.Line-first.Line)*s.folds/lines, s.folds)
	}, "stretch"
}

// sizeErrors are the errors of steps of about one size.
type sizeErrors struct {
	name         string
	fitted, held accuracy.Score
}

// stepErrors groups errors by batch size: steps of decodes alone by their number, steps with prompts by their tokens.
func stepErrors(steps []steplog.Step, fitted, held []float64) []sizeErrors {
	type size struct {
		prompts bool
		power   int
	}
	groups := map[size][2][]float64{}
	for i := range steps {
		at := size{false, bits.Len(uint(steps[i].Decodes))}
		if steps[i].PrefillTokens > 0 {
			at = size{true, bits.Len(uint(steps[i].PrefillTokens))}
		}
		g := groups[at]
		g[0] = append(g[0], fitted[i])
		if held != nil {
			g[1] = append(g[1], held[i])
		}
		groups[at] = g
	}
	list := []sizeErrors{{"all", accuracy.ScoreOf(fitted), accuracy.ScoreOf(held)}}
	for _, prompts := range []bool{false, true} {
		for power := range 64 {
			g, ok := groups[size{prompts, power}]
			if !ok {
				continue
			}
			one, many := "1 decode alone", "decodes alone"
			if prompts {
				one, many = "1 prompt token", "prompt tokens"
			}
			name := fmt.Sprintf("%d to %d %s", 1<<power>>1, 1<<power-1, many)
			if power == 1 {
				name = one
			}
			list = append(list, sizeErrors{name, accuracy.ScoreOf(g[0]), accuracy.ScoreOf(g[1])})
		}
	}
	return list
}
