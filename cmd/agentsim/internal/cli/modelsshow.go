package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/agentsim/agentsim/models"
	"github.com/agentsim/agentsim/sim"
)

func newModelsShow(g *Global) *cobra.Command {
	d := sim.Default()
	var sets []string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "show [MODEL] [--profile PROFILE]",
		Short: "Weights, KV capacity and step times of a model on a GPU, or a cost profile",
		Long: `Show what a model takes on a GPU: weights, room for KV, and what the steps of its engine cost and why. With --profile,
steps are priced by that cost profile; without a model, the profile itself is shown: its coefficients, where they come from,
the envelope of steps that were measured, and the errors of predictions.`,
		Example: `  agentsim models show qwen3-14b --gpu h100-sxm --tp 1
  agentsim models show ./config.json --tp 8 --set dtype.weights=fp8
  agentsim models show --profile h100-vllm
  agentsim models show qwen3-14b --profile ./my-h100-vllm.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case len(args) > 1 || len(args) == 0 && d.Cost.Profile == "":
				return usagef("models show wants one model, or --profile; see `agentsim models` and `agentsim models profiles`")
			case len(args) == 1 && asJSON:
				return usagef("models show prints a profile as JSON, not a model; leave out %s or --json", args[0])
			case len(args) == 0:
				for _, name := range []string{"gpu", "tp", "set"} {
					if cmd.Flags().Changed(name) {
						return usagef("--%s goes with a model; --profile alone shows the profile", name)
					}
				}
			}
			return nil
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				p, err := models.LookupProfile(d.Cost.Profile)
				if err != nil {
					return usagef("--profile: %w", err)
				}
				if asJSON {
					return printProfileJSON(g.Stdout, p)
				}
				return showProfile(g.Stdout, p, min(g.Width, 100))
			}
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
			return showModel(g.Stdout, plan, min(g.Width, 100))
		},
	}
	f := cmd.Flags()
	f.StringVar(&d.GPU, "gpu", d.GPU, "`GPU`: a name of 'agentsim gpus'")
	f.IntVar(&d.Parallelism.Tensor, "tp", 0, "tensor parallelism (default: the smallest that fits)")
	f.StringVar(&d.Cost.Profile, "profile", "", "cost `PROFILE`: a name of 'agentsim models profiles', or a file")
	f.BoolVar(&asJSON, "json", false, "print a profile as JSON")
	f.StringArrayVar(&sets, "set", nil, "any config key of a deployment, `path=value`")
	return cmd
}

// showModel prints what a plan's model takes and what is left for KV, and how long steps take.
func showModel(w io.Writer, p *sim.Plan, width int) error {
	m, c := p.Hardware.Model, p.Capacity
	s := m.Summary()
	size := int64(p.Engine.BlockSize)
	err := tableWithin(w, width, func(w io.Writer) {
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
		if profile := p.Cost.Profile(); profile != nil {
			fmt.Fprintf(w, "step times\t%s\t%s\n", profile.Name, measuredText(profile, p))
		}
	})
	if err != nil {
		return err
	}
	fmt.Fprintln(w)
	steps := showSteps(p)
	err = tableWithin(w, width, func(w io.Writer) {
		fmt.Fprintln(w, "step\ttime\twhere it goes, in ms")
		for _, s := range steps {
			s.print(w, p)
		}
	})
	if err == nil && slices.ContainsFunc(steps, func(s shownStep) bool { return s.outside(p) }) {
		_, err = fmt.Fprintf(w, "* unlike the steps that profile %s was measured on\n", p.Cost.Profile().Name)
	}
	return err
}

// measuredText says how far a profile was measured on a plan's deployment.
func measuredText(profile *models.Profile, p *sim.Plan) string {
	var differs []string
	for _, u := range profile.Unmeasured(&p.Hardware) {
		differs = append(differs, u.What)
	}
	switch e := profile.Envelope; {
	case e == nil:
		return "does not say what it was measured on"
	case len(differs) > 0:
		text := "not measured on " + strings.Join(differs, ", ")
		if off := profile.HeldOut("tpot", p.Hardware.Model); off > 0 {
			text += fmt.Sprintf("; TPOT of models left out of the fit was off by %.1f%%", 100*off)
		}
		return text
	default:
		return fmt.Sprintf("measured at %s sequences with contexts of %s tokens", rangeText(e.Batch), rangeText(e.Context))
	}
}

// shownStep is a step whose time is shown; context is the sum of its decodes' contexts in tokens.
type shownStep struct {
	name    string
	batch   models.Batch
	context int64
}

// showSteps are decodes of several batch sizes, a prompt as long as a step takes, and a short one behind a long past.
func showSteps(p *sim.Plan) []shownStep {
	var steps []shownStep
	for _, batch := range []int{1, 8, 32, 128} {
		name := fmt.Sprintf("%d decodes at 8k context", batch)
		if batch == 1 {
			name = "1 decode at 8k context"
		}
		steps = append(steps, shownStep{name, models.Batch{Decodes: batch}, int64(batch) * 8192})
	}
	n := int64(p.Engine.MaxNumBatchedTokens)
	return append(steps,
		shownStep{fmt.Sprintf("prefill of %d tokens", n), models.Batch{Prefills: 1, PrefillTokens: int(n), PrefillPairs: n * n, PrefillContext: n}, 0},
		shownStep{"prefill of 500 behind 60k", models.Batch{Prefills: 1, PrefillTokens: 500, PrefillPairs: 500 * (2*60_000 + 500), PrefillContext: 60_500}, 0})
}

// outside tells whether the profile has an envelope and the step is outside of it.
func (s *shownStep) outside(p *sim.Plan) bool {
	profile := p.Cost.Profile()
	return profile != nil && profile.Envelope != nil && !profile.Envelope.Contains(s.batch, s.context)
}

// print prints the step's time and its terms.
func (s *shownStep) print(w io.Writer, p *sim.Plan) {
	windowed := int64(s.batch.Decodes) * int64(p.Cost.Window())
	var total time.Duration
	var terms []string
	for _, t := range p.Cost.Terms(s.batch, s.context, windowed) {
		total += t.Duration
		terms = append(terms, fmt.Sprintf("%s %.2f", t.Name, t.Duration.Seconds()*1e3))
	}
	mark := ""
	if s.outside(p) {
		mark = " *"
	}
	fmt.Fprintf(w, "%s%s\t%.2f ms\t%s\n", s.name, mark, total.Seconds()*1e3, strings.Join(terms, ", "))
}
