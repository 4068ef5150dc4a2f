package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
)

func newModels(g *Global) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "models",
		Short: "List the models of the catalogue, or show one on a GPU",
		Long: `List the models of the catalogue. Any other model is given by the path of its Hugging Face config.json.

Weights are in the model's own number format, KV in bf16; both for the whole model.`,
		Args: noArgs,
		RunE: func(*cobra.Command, []string) error { return listModels(g, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	cmd.AddCommand(newModelsShow(g), newModelsFromVLLM(g), newModelsFromSGLang(g))
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

func newModelsShow(g *Global) *cobra.Command {
	d := sim.Default()
	var sets []string
	cmd := &cobra.Command{
		Use:   "show MODEL",
		Short: "Weights, KV capacity and step times of a model on a GPU",
		Example: `  agentsim models show qwen3-14b --gpu h100-sxm --tp 1
  agentsim models show ./config.json --tp 8 --set dtype.weights=fp8`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usagef("models show wants one model; see `agentsim models`")
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			d.Model = args[0]
			for _, s := range sets {
				if err := set(&d, s); err != nil {
					return err
				}
			}
			plan, err := d.Resolve()
			if err != nil {
				return usagef("%w", err)
			}
			return showModel(g.Stdout, plan)
		},
	}
	f := cmd.Flags()
	f.StringVar(&d.GPU, "gpu", d.GPU, "GPU: a name of `agentsim gpus`")
	f.IntVar(&d.Parallelism.Tensor, "tp", 0, "tensor parallelism (default: the smallest that fits)")
	f.StringArrayVar(&sets, "set", nil, "any config key of a deployment, `path=value`")
	return cmd
}

// showModel prints what a plan's model takes and what is left for KV, and how long steps take.
func showModel(w io.Writer, p *sim.Plan) error {
	m, c := p.Hardware.Model, p.Capacity
	s := m.Summary()
	size := int64(p.Engine.BlockSize)
	err := table(w, func(w io.Writer) {
		fmt.Fprintf(w, "model\t%s\t%.1fB parameters, %.1fB active, %s attention\n", s.Name, float64(s.Params)/1e9, float64(s.ActiveParams)/1e9, s.Attention)
		fmt.Fprintf(w, "worker\t%d x %s\ttensor %d, pipeline %d, data %d\n", p.Hardware.Parallelism.GPUs(), p.Hardware.GPU.Name,
			p.Parallelism.Tensor, p.Parallelism.Pipeline, p.Parallelism.Data)
		fmt.Fprintf(w, "weights\t%s per GPU\t%s in %s in all\n", bytesText(c.Memory.Weights), bytesText(m.WeightBytes(p.Hardware.WithDefaults().Weights)), p.Hardware.WithDefaults().Weights)
		fmt.Fprintf(w, "other memory\t%s per GPU\tactivations, buffers, contexts\n", bytesText(c.Memory.Residual))
		fmt.Fprintf(w, "KV per token\t%s per GPU\t%s in %s in the whole model\n", bytesText(c.KVBytesPerToken), bytesText(m.KVBytesPerToken(p.Hardware.WithDefaults().KV)), p.Hardware.WithDefaults().KV)
		if c.StateBytesPerSequence > 0 {
			fmt.Fprintf(w, "KV per sequence\t%s per GPU\twindows and states that do not grow: %d blocks\n", bytesText(c.StateBytesPerSequence), c.BlocksPerSequence)
		}
		fmt.Fprintf(w, "KV room\t%s per GPU\tof %s at utilization %.2f\n", bytesText(c.Memory.KV), bytesText(c.Memory.Total), float64(c.Memory.Budget)/float64(c.Memory.Total))
		known := float64(int64(c.HighBlocks-c.LowBlocks)*size*c.KVBytesPerToken) / 2 / (1 << 30)
		fmt.Fprintf(w, "KV tokens\t%d\tin %d blocks of %d; between %d and %d tokens, as the other memory is known to %.1f GiB\n",
			c.Tokens, c.UsableBlocks, size, int64(c.LowBlocks)*size, int64(c.HighBlocks)*size, known)
		fmt.Fprintf(w, "longest request\t%d tokens\t\n", p.MaxModelLen)
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	return table(w, func(w io.Writer) {
		fmt.Fprintln(w, "step\ttime\twhere it goes\t")
		for _, batch := range []int{1, 8, 32, 128} {
			printStep(w, p, fmt.Sprintf("%d decodes at 8k context", batch), models.Batch{Decodes: batch}, int64(batch)*8192)
		}
		n := int64(p.Engine.MaxNumBatchedTokens)
		printStep(w, p, fmt.Sprintf("prefill of %d tokens", n), models.Batch{Prefills: 1, PrefillTokens: int(n), PrefillPairs: n * n, PrefillContext: n}, 0)
		printStep(w, p, "prefill of 500 behind 60k", models.Batch{Prefills: 1, PrefillTokens: 500, PrefillPairs: 500 * (2*60_000 + 500), PrefillContext: 60_500}, 0)
	})
}

// printStep prints a step's time and its largest terms.
func printStep(w io.Writer, p *sim.Plan, name string, b models.Batch, context int64) {
	windowed := int64(b.Decodes) * int64(p.Cost.Window())
	var total time.Duration
	var terms []string
	for _, t := range p.Cost.Terms(b, context, windowed) {
		total += t.Duration
		terms = append(terms, fmt.Sprintf("%s %.2f", t.Name, t.Duration.Seconds()*1e3))
	}
	fmt.Fprintf(w, "%s\t%.2f ms\t%s\t\n", name, total.Seconds()*1e3, strings.Join(terms, ", "))
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
