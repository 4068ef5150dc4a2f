package accuracy

import (
	"fmt"
	"io"
	"strings"
)

// Measured is everything that Read and Requests found in a folder, with its predictions.
type Measured struct {
	Outcomes []Outcome
	Skipped  []*Case
	Runs     []RequestErrors
}

// scope says in which summaries a section is.
type scope int

const (
	always scope = iota
	brief        // of the short summary alone
	full         // of the full summary alone
)

// section is a table of the summary.
type section struct {
	head, column string
	// key is the group of an outcome; "" leaves it out.
	key func(*Outcome) string
	in  scope
}

func (o *Outcome) gpu() string    { return o.Case.plan.Hardware.GPU.Name }
func (o *Outcome) engine() string { return o.Case.Deployment.Engine.Kind }
func (o *Outcome) model() string  { return o.Case.plan.Hardware.Model.Name }

// ranks names how a worker is spread: "tp8", "tp4 ep4", "dp8 ep8".
func (o *Outcome) ranks() string {
	p := o.Case.Deployment.Parallelism
	var parts []string
	for _, s := range []struct {
		name string
		n    int
	}{{"tp", p.Tensor}, {"dp", p.Data}, {"ep", p.Expert}} {
		if s.n > 1 || s.name == "tp" && p.Data == 1 {
			parts = append(parts, fmt.Sprint(s.name, s.n))
		}
	}
	return strings.Join(parts, " ")
}

// closed tells whether an outcome is of a closed loop that counts; see Case.Apart and Case.Queued.
func (o *Outcome) closed() bool {
	return o.Case.shape != [3]int{} && o.Case.Apart == "" && !o.Case.Queued
}

// joined is the words that are there, or "" when the outcome does not belong.
func joined(belongs bool, words ...string) string {
	if !belongs {
		return ""
	}
	return strings.Join(words, ", ")
}

// sections are the tables of the summary, in order.
var sections = []section{
	{"Closed loops on the H100, for which the profiles are fitted:", "engine, model, source", func(o *Outcome) string {
		return joined(o.closed() && !o.estimate(), o.engine(), o.model(), o.Case.Source)
	}, always},
	{"The same by parallelism:", "engine, parallelism", func(o *Outcome) string {
		return joined(o.closed() && !o.estimate(), o.engine(), o.ranks())
	}, always},
	{estimates, "GPU, engine", func(o *Outcome) string {
		return joined(o.closed() && o.estimate(), o.gpu(), o.engine())
	}, brief},
	{estimates, "GPU, engine, model, source", func(o *Outcome) string {
		return joined(o.closed() && o.estimate(), o.gpu(), o.engine(), o.model(), o.Case.Source)
	}, full},
	{"The same by parallelism:", "GPU, engine, parallelism", func(o *Outcome) string {
		return joined(o.closed() && o.estimate(), o.gpu(), o.engine(), o.ranks())
	}, full},
	{"Requests wait for KV cache (mean TTFT above 8 s): the capacity counts more than the step cost.", "GPU, engine, model", func(o *Outcome) string {
		return joined(o.Case.Queued && o.Case.Apart == "", o.gpu(), o.engine(), o.model())
	}, full},
	{"Open loops (inference-perf, vLLM, H100):", "model, source", func(o *Outcome) string {
		return joined(o.open(), o.model(), o.Case.Source)
	}, full},
	{"Open loops (inference-perf, vLLM, H100):", "all runs", func(o *Outcome) string { return joined(o.open(), o.Case.Source) }, always},
	{"Apart from all these:", "why", func(o *Outcome) string {
		return joined(o.Case.Apart != "" && o.Case.Apart != overload && o.Part.Name == whole, o.Case.Source, o.gpu(), o.model(), o.Case.Apart)
	}, full},
}

const estimates = "Closed loops on other GPUs: estimates, not fitted, but for the experts of SGLang, which only H200 rows tell:"

// estimate tells whether the GPU's rates are scaled from another's.
func (o *Outcome) estimate() bool { return o.Case.plan.Hardware.GPU.Estimate }

// open tells whether an outcome is of a whole open-loop run that counts.
func (o *Outcome) open() bool {
	return o.Case.shape == [3]int{} && o.Case.Apart == "" && o.Part.Name == whole && o.Part.Measured[E2E] > 0
}

// Summary writes what was measured and predicted in Markdown: tables of errors, then, in full, what stands apart and what
// was left out, with the reasons.
func Summary(w io.Writer, m *Measured, inFull bool) error {
	leftOut := full
	if inFull {
		leftOut = brief
	}
	var b strings.Builder
	for _, s := range sections {
		groups := GroupBy(m.Outcomes, s.key)
		if len(groups) == 0 || s.in == leftOut {
			continue
		}
		fmt.Fprintf(&b, "%s\n\n", s.head)
		if err := WriteTable(&b, s.column, groups); err != nil {
			return err
		}
		b.WriteByte('\n')
	}
	writeOverload(&b, m.Outcomes)
	if len(m.Runs) > 0 {
		b.WriteString("| request by request, step times given | requests | e2e | bias | running |\n|---|---:|---:|---:|---:|\n")
		for _, e := range m.Runs {
			fmt.Fprintf(&b, "| %s | %d | %.1f | %+.1f | %.1f |\n", e.Name, e.Requests, 100*e.E2E, 100*e.Bias, 100*e.Running)
		}
		b.WriteByte('\n')
	}
	if inFull {
		writeSkipped(&b, m.Skipped)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeOverload lists the runs in which clients gave up.
func writeOverload(b *strings.Builder, outcomes []Outcome) {
	head := "| overloaded: clients gave up | measured | predicted |\n|---|---:|---:|\n"
	for i := range outcomes {
		if o := &outcomes[i]; o.Case.Apart == overload && o.Part.Name == whole {
			fmt.Fprintf(b, "%s| %s, share of failed requests | %.1f %% | %.1f %% |\n", head, o.Case.Name, 100*o.Part.Measured[Failed], 100*o.Predicted[Failed])
			head = ""
		}
	}
	if head == "" {
		b.WriteByte('\n')
	}
}

// writeSkipped counts what was not simulated.
func writeSkipped(b *strings.Builder, skipped []*Case) {
	outcomes := make([]Outcome, len(skipped))
	for i, c := range skipped {
		outcomes[i] = Outcome{Case: c}
	}
	groups := GroupBy(outcomes, func(o *Outcome) string { return o.Case.Skip + ", " + o.Case.Source })
	if len(groups) == 0 {
		return
	}
	b.WriteString("| not simulated | rows |\n|---|---:|\n")
	for _, g := range groups {
		fmt.Fprintf(b, "| %s | %d |\n", g.Name, len(g.Outcomes))
	}
	b.WriteByte('\n')
}
