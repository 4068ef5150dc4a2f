package synth

import "github.com/agentsim/agentsim/trace"

// plain makes independent requests. Nothing is shared between them, so they carry no hashes.
type plain struct {
	input, output dist
	rate          float64
}

func newPlain() profile {
	return &plain{input: between(1024, 1024), output: between(128, 128), rate: 1}
}

func (p *plain) params() []param {
	return []param{
		{key: "input", dist: &p.input, low: 1, high: maxContext / 2, unit: "tokens", about: "length of the prompt"},
		{key: "output", dist: &p.output, low: 1, high: maxContext / 2, unit: "tokens", about: "length of the answer"},
		{key: "rate", number: &p.rate, low: 0, high: 1e6, unit: "requests/s", about: "Poisson arrivals; 0: all at time 0"},
	}
}

func (p *plain) check(programs int) error {
	if err := checkArrivals(programs, p.rate, &dist{}); err != nil {
		return err
	}
	return checkBytes(programs, float64(sessionBytes+callBytes))
}

func (p *plain) generate(programs int, seed uint64) *trace.Capture {
	var text []byte
	ends := make([]int, programs) // of request i's id in text
	for i := range programs {
		text = appendTurnID(appendSessionID(text, i, 0), 0)
		ends[i] = len(text)
	}
	var (
		ids      = string(text)
		at       = starts(programs, p.rate, &dist{}, seed)
		turns    = make([]trace.Turn, programs)
		chain    = make([]*trace.Turn, programs)
		sessions = make([]trace.Session, programs)
		list     = make([]*trace.Session, programs)
		r        = newStream()
		begin    = 0
	)
	for i := range programs {
		r.reset(seed, i, 0)
		id := ids[begin:ends[i]]
		begin = ends[i]
		t := &turns[i]
		t.ID, t.Start = id, at[i]
		t.Input, t.Output = p.input.count(r.Rand), p.output.count(r.Rand)
		t.Cached, t.Reasoning = trace.Unknown, trace.Unknown
		t.Trigger, t.Final = "user_message", true
		t.TTFT, t.End = service(t.Start, t.Input, t.Output)

		chain[i], list[i] = t, &sessions[i]
		sessions[i] = trace.Session{ID: id[:len(id)-len("-t000")], Final: true, Turns: chain[i : i+1 : i+1]}
	}
	return newCapture(0, list)
}
