package sim

import (
	"context"
	"fmt"
	"testing"
	"time"
	"github.com/agentsim/agentsim/trace/synth"
	"github.com/agentsim/agentsim/trace"
)

func TestQuick(t *testing.T) {
	for _, n := range []int{2000} {
		t0 := time.Now()
		c, err := synth.Generate("mini-swe-agent", synth.Options{Programs: n, Seed: 1})
		if err != nil { t.Fatal(err) }
		t1 := time.Now()
		if err := c.Link(); err != nil { t.Fatal(err) }
		w, err := c.Compile(trace.OutputsInferred)
		if err != nil { t.Fatal(err) }
		t2 := time.Now()
		d := Default()
		d.Model = "qwen3-14b"
		d.Workers = 64
		d.Engine.KVBlocks = "2000"
		d.Load.Mode = "concurrency"
		d.Load.Concurrency = 256
		p, err := d.Resolve()
		if err != nil { t.Fatal(err) }
		res, err := Run(context.Background(), w, p, Options{Check: n <= 20})
		if err != nil { t.Fatal(err) }
		t3 := time.Now()
		run := res.Report(nil, nil)
		fmt.Println(n, len(w.Calls), "gen", t1.Sub(t0), "compile", t2.Sub(t1), "run", t3.Sub(t2), "report", time.Since(t3), t3.Sub(t2)/time.Duration(len(w.Calls)))
		fmt.Println(run.Requests, run.KV.HitRate, run.KV.ReprefillTimeShare, run.Preemptions, run.DurationS)
	}
}
