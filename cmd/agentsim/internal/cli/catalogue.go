package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/clipperhouse/displaywidth"
	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/models"
)

func newModels(g *Global) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "models",
		Short: "List the models of the catalogue, or show one on a GPU, or a cost profile",
		Long: `List the models of the catalogue. Any other model is given by the path of its Hugging Face config.json.

Weights are in the model's own number format, KV in bf16; both for the whole model. "models show" tells what a model takes
on a GPU; "models profiles" lists the cost profiles that price its steps, and "models show --profile NAME" shows one: its
coefficients, what it was measured on, and how far it was off.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return listModels(g, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(newModelsShow(g), newModelsProfiles(g), newModelsFromVLLM(g), newModelsFromSGLang(g))
	return cmd
}

// noArgs refuses arguments as wrong usage.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usagef("%s takes no argument %q; see `%s --help`", cmd.CommandPath(), args[0], cmd.CommandPath())
	}
	return nil
}

func listModels(g *Global, asJSON bool) error {
	var list []models.Summary
	for _, name := range models.Models() {
		m, err := models.Lookup(name)
		if err != nil {
			return err
		}
		list = append(list, m.Summary())
	}
	if asJSON {
		return printJSON(g.Stdout, list)
	}
	return table(g.Stdout, func(w io.Writer) {
		fmt.Fprintln(w, "model\tparams\tactive\tattention\tformat\tweights\tKV/token\tcontext")
		for _, s := range list {
			context := "?"
			if s.MaxContext > 0 {
				context = fmt.Sprint(s.MaxContext)
			}
			fmt.Fprintf(w, "%s\t%.1fB\t%.1fB\t%s\t%s\t%s\t%s\t%s\n", s.Name, float64(s.Params)/1e9, float64(s.ActiveParams)/1e9,
				s.Attention, s.DType, bytesText(s.WeightBytes), bytesText(s.KVBytesPerToken), context)
		}
	})
}

func newGPUs(g *Global) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "gpus",
		Short: "List the GPUs of the catalogue",
		Long: `List the GPUs of the catalogue. Rates are dense peaks, bandwidth is the vendor's. Efficiencies are
measured where kernels of the GPU were, and else estimates: scaled from the H100. A GPU without fp8 computes such weights
in bf16.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return listGPUs(g, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return cmd
}

func listGPUs(g *Global, asJSON bool) error {
	var list []*models.GPU
	for _, name := range models.GPUs() {
		gpu, err := models.LookupGPU(name)
		if err != nil {
			return err
		}
		list = append(list, gpu)
	}
	if asJSON {
		return printJSON(g.Stdout, list)
	}
	return table(g.Stdout, func(w io.Writer) {
		fmt.Fprintln(w, "gpu\tmemory\tbandwidth\tbf16\tfp8\tlink\tefficiencies")
		for _, u := range list {
			efficiencies, fp8 := "measured", "-"
			if u.Estimate {
				efficiencies = "estimate"
			}
			if u.TFLOPS.FP8 > 0 {
				fp8 = fmt.Sprintf("%.0f TF", u.TFLOPS.FP8)
			}
			fmt.Fprintf(w, "%s\t%.0f GiB\t%.2f TB/s\t%.0f TF\t%s\t%.0f GB/s\t%s\n", u.Name, u.MemoryGiB, u.BandwidthTBs,
				u.TFLOPS.BF16, fp8, u.LinkGBs, efficiencies)
		}
	})
}

// table aligns tab-separated columns.
func table(w io.Writer, write func(io.Writer)) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	write(t)
	return t.Flush()
}

// tableWithin aligns tab-separated columns, the last of which is broken so that lines stay within width, if there is room
// for it at all.
func tableWithin(w io.Writer, width int, write func(io.Writer)) error {
	var text strings.Builder
	write(&text)
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	last := strings.Count(lines[0], "\t")
	widths := make([]int, last)
	for _, line := range lines {
		for i, cell := range strings.Split(line, "\t")[:last] {
			widths[i] = max(widths[i], displaywidth.String(cell)+2)
		}
	}
	for _, n := range widths {
		width -= n
	}
	return table(w, func(w io.Writer) {
		for _, line := range lines {
			cut := strings.LastIndexByte(line, '\t') + 1
			broken := wrap(line[cut:], max(width, 24))
			fmt.Fprintln(w, line[:cut]+strings.ReplaceAll(broken, "\n", "\n"+strings.Repeat("\t", last)))
		}
	})
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// bytesText prints a size with a binary unit.
func bytesText(n int64) string {
	switch f := float64(n); {
	case n >= 1<<30:
		return fmt.Sprintf("%.2f GiB", f/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", f/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", f/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}
