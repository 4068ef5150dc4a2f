package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

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
		fmt.Fprintln(w, "model\tparams\tactive\tattention\tformat\tweights\tKV/token\tcontext\t")
		for _, s := range list {
			context := "?"
			if s.MaxContext > 0 {
				context = fmt.Sprint(s.MaxContext)
			}
			fmt.Fprintf(w, "%s\t%.1fB\t%.1fB\t%s\t%s\t%s\t%s\t%s\t\n", s.Name, float64(s.Params)/1e9, float64(s.ActiveParams)/1e9,
				s.Attention, s.DType, bytesText(s.WeightBytes), bytesText(s.KVBytesPerToken), context)
		}
	})
}

func newGPUs(g *Global) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "gpus",
		Short: "List the GPUs of the catalogue",
		Long: `List the GPUs of the catalogue. Rates are dense peaks, bandwidth is the vendor's. Efficiencies of GPUs marked as
estimates are scaled from the H100, whose kernels were measured.`,
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
		fmt.Fprintln(w, "gpu\tmemory\tbandwidth\tbf16\tfp8\tlink\t\t")
		for _, u := range list {
			mark := ""
			if u.Estimate {
				mark = "estimate"
			}
			fmt.Fprintf(w, "%s\t%.0f GiB\t%.2f TB/s\t%.0f TF\t%.0f TF\t%.0f GB/s\t%s\t\n", u.Name, u.MemoryGiB, u.BandwidthTBs,
				u.TFLOPS.BF16, u.TFLOPS.FP8, u.LinkGBs, mark)
		}
	})
}

// table aligns tab-separated columns.
func table(w io.Writer, write func(io.Writer)) error {
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	write(t)
	return t.Flush()
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
