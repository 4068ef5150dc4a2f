package cli

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/clipperhouse/displaywidth"
	"github.com/goccy/go-yaml"
	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/models"
)

func newModelsProfiles(g *Global) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "profiles",
		Short: "List the cost profiles that price steps",
		Long: `List the cost profiles of the catalogue, each what an engine adds to the physics of a step, and the batches and contexts
that were measured. "agentsim models show --profile NAME" shows all of one, and "agentsim calibrate serving" makes one from
measurements of yours.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return listProfiles(g.Stdout, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func listProfiles(w io.Writer, asJSON bool) error {
	var list []*models.Profile
	for _, name := range models.Profiles() {
		p, err := models.LookupProfile(name)
		if err != nil {
			return err
		}
		list = append(list, p)
	}
	if asJSON {
		return printProfileJSON(w, list)
	}
	return table(w, func(w io.Writer) {
		fmt.Fprintln(w, "profile\tengine\tgpu\trows\tmodels\tbatch\tcontext")
		for _, p := range list {
			var f models.Provenance
			if len(p.Fitted) > 0 {
				f = p.Fitted[0]
			}
			rows := 0
			for _, part := range p.Fitted {
				rows += part.Rows
			}
			var e models.Envelope
			if p.Envelope != nil {
				e = *p.Envelope
			}
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", p.Name, cmp.Or(f.Engine, "-"), cmp.Or(f.GPU, "-"), rows, len(e.Models),
				rangeText(e.Batch), rangeText(e.Context))
		}
	})
}

// printProfileJSON prints profiles with the keys of their file.
func printProfileJSON(w io.Writer, profiles any) error {
	text, err := yaml.MarshalWithOptions(profiles, yaml.JSON())
	if err != nil {
		return fmt.Errorf("encoding a profile: %w", err)
	}
	return printJSON(w, json.RawMessage(text))
}

// showProfile prints a profile: where it comes from, its numbers, what steps it covers, and its errors.
func showProfile(w io.Writer, p *models.Profile, width int) error {
	const indent = "  "
	paragraph := func(text string) {
		fmt.Fprintln(w, indent+strings.ReplaceAll(wrap(text, width-len(indent)), "\n", "\n"+indent))
	}
	fmt.Fprintln(w, p.Name)
	if p.Source != "" {
		paragraph(p.Source)
	}
	for _, f := range p.Fitted {
		fmt.Fprintf(w, "\nfitted to %d rows\n", f.Rows)
		for _, part := range []struct{ name, value string }{
			{"source", f.Source}, {"commit", f.Commit}, {"licence", f.Licence}, {"date", f.Date}, {"engine", f.Engine}, {"GPU", f.GPU},
			{"comment", f.Comment},
		} {
			if part.value != "" {
				paragraph(part.name + ": " + part.value)
			}
		}
	}
	fmt.Fprintln(w)
	err := table(w, func(w io.Writer) {
		fmt.Fprintln(w, "coefficient\tvalue\tmeaning")
		for _, c := range p.Coefficients() {
			value := fmt.Sprintf("x %.4g", c.Value)
			if c.Unit != "" {
				value = fmt.Sprintf("%.4g %s", c.Value, c.Unit)
			}
			fmt.Fprintf(w, "%s\t%s\t%s\n", c.Key, value, c.Meaning)
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	if e := p.Envelope; e == nil {
		fmt.Fprintln(w, "no envelope: it does not say what it was measured on, so that all its step times are extrapolations")
	} else {
		err = table(w, func(w io.Writer) {
			fmt.Fprintln(w, "envelope\trange")
			fmt.Fprintf(w, "tensor parallelism\t%s\n", rangeText(e.Tensor))
			fmt.Fprintf(w, "batch\t%s sequences in a step\n", rangeText(e.Batch))
			fmt.Fprintf(w, "context\t%s tokens, mean of a step\n", rangeText(e.Context))
			fmt.Fprintf(w, "new tokens\t%s prompt tokens in a step that has any\n", rangeText(e.NewTokens))
		})
		paragraph("models: " + strings.Join(e.Models, ", "))
	}
	if err != nil || len(p.Errors) == 0 {
		return err
	}
	fmt.Fprintln(w, "\nerrors in %: mean of the absolute ones, and bias, the mean of predicted less measured")
	return table(w, func(w io.Writer) {
		printErrors(w, "in the fit", p.Errors, false)
		printErrors(w, "left out of the fit", p.Errors, true)
	})
}

// errorMeasures are the columns of an error table.
var errorMeasures = []string{"ttft", "tpot", "e2e", "throughput"}

// printErrors prints a line for each set of rows that were fitted, or held out, in the order of the file.
func printErrors(w io.Writer, head string, errors []models.FitError, heldOut bool) {
	const longest = 46 // so that lines stay within 100 columns
	type line struct {
		data  string
		rows  int
		cells [4]string
	}
	var lines []*line
	for _, e := range errors {
		column := slices.Index(errorMeasures, e.Measure)
		if e.HeldOut != heldOut || column < 0 {
			continue
		}
		if n := len(lines); n == 0 || lines[n-1].data != e.Data {
			lines = append(lines, &line{data: e.Data, cells: [4]string{"-", "-", "-", "-"}})
		}
		l := lines[len(lines)-1]
		l.rows = max(l.rows, e.Rows)
		l.cells[column] = fmt.Sprintf("%.1f %+.1f", 100*e.Mean, 100*e.Bias)
	}
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(w, "%s\trows\t%s\n", head, strings.Join(errorMeasures, "\t"))
	for _, l := range lines {
		fmt.Fprintf(w, "%s\t%d\t%s\n", displaywidth.TruncateString(l.data, longest, "…"), l.rows, strings.Join(l.cells[:], "\t"))
	}
}

// rangeText prints a range, "-" for an empty one.
func rangeText(r models.Range) string {
	if r == (models.Range{}) {
		return "-"
	}
	return fmt.Sprintf("%d to %d", r.Least, r.Most)
}
