package synth

import (
	"bytes"
	"strings"
	"testing"
)

// TestFiles writes the profiles of agents, reads them, and gets the same file and the same programs.
func TestFiles(t *testing.T) {
	for _, name := range Profiles() {
		p, err := Find(name)
		if err != nil {
			t.Fatal(err)
		}
		text, err := p.YAML()
		if name == "plain" {
			if err == nil {
				t.Error("profile plain was written")
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		again, err := Read("p.yaml", text)
		if err != nil {
			t.Fatalf("%v of\n%s", err, text)
		}
		if second, err := again.YAML(); err != nil || !bytes.Equal(second, text) {
			t.Errorf("%s becomes\n%swant\n%s", name, second, text)
		}
		o := Options{Programs: 3, Seed: 5}
		c, err := again.Generate(o)
		if err != nil {
			t.Fatal(err)
		}
		if dump(c.Sessions) != dump(generate(t, name, o).Sessions) {
			t.Errorf("%s: read from its file, it makes other programs", name)
		}
	}
}

func TestFileErrors(t *testing.T) {
	const head = "schema: agentsim.synth.v1\nname: x\n"
	for _, test := range []struct{ text, want string }{
		{"", "schema"},
		{"schema: other", `profile p.yaml: schema is "other", want "agentsim.synth.v1"`},
		{"schema: [", "profile p.yaml:1: "},
		{head + "seed: 3", `profile p.yaml:3: unknown field "seed"`},
		{"schema: agentsim.synth.v1", `name ""`},
		{"schema: agentsim.synth.v1\nname: \"a\\nb\"", `name "a\nb"`},
		{head + "parameters: {turn: 3}", `unknown parameter "turn"`},
		{head + "parameters: {turns: 0}", "parameter turns: reaches from 0 to 0: must lie within 1 to 10000"},
		{head + "parameters: {turns: {min: 5, max: 3}}", "parameter turns: min 5, max 3"},
		{head + "parameters: {turns: .nan}", "parameter turns: min NaN"},
		{head + "parameters: {turns: {median: 0, min: 1, max: 2}}", "parameter turns: median 0"},
		{head + "parameters: {turns: {median: 5, sigma: 11, min: 1, max: 9}}", "sigma 11"},
		{head + "parameters: {turns: {median: 5, tail: 2, min: 1, max: 9}}", "tail 2"},
		{head + "parameters: {turns: {median: 5, tail: 0.5, min: 1, max: 9}}", "tail_median 0"},
		{head + "parameters: {turns: {mean: 5}}", "mean"},
		{head + "parameters: {turns: {quantiles: [[0, 1]]}}", "quantiles: 1, want 2 to 256"},
		{head + "parameters: {turns: {quantiles: [[0, 1], [1]]}}", "want pairs"},
		{head + "parameters: {turns: {quantiles: [[0, 4], [1, 3]]}}", "values that do not fall"},
		{head + "parameters: {turns: {quantiles: [[0, 4], [0.9, 5]]}}", "shares from 0 to 1"},
		{head + "parameters: {turns: {quantiles: [[0, 4], [1, 5]], min: 3}}", "without other keys"},
		{head + "parameters: {human: {min: 0, max: 1}}", "parameter human: want a number"},
		{head + "parameters: {human: 2}", "parameter human: 2: must lie within 0 to 1"},
		{head + "parameters: {block: 64.5}", "a whole number"},
		{head + "tools: [{name: a, share: 0, time: 1}]", `tool "a": share 0`},
		{head + "tools: [{name: a, share: 0.5, time: 1}, {name: a, share: 0.5, time: 1}]", `tool "a": given twice`},
		{head + "tools: [{name: a, share: 1, time: 0}]", "parameter tool.a: reaches from 0 to 0"},
		{head + "tools: [{name: \"\\a\", share: 1, time: 1}]", "can be printed"},
		{head + "about: " + strings.Repeat("x", MaxFile), "larger than"},
	} {
		if _, err := Read("p.yaml", []byte(test.text)); err == nil {
			t.Errorf("%.80q: no error, want %q", test.text, test.want)
		} else if !strings.Contains(err.Error(), test.want) {
			t.Errorf("%.80q: error %q, want %q", test.text, err, test.want)
		}
	}
}

// FuzzRead looks for files that are read, and then break the generator, or are not written as they were read.
func FuzzRead(f *testing.F) {
	for _, name := range []string{"claude-code", "deep-research", "chat"} {
		p, err := Find(name)
		if err != nil {
			f.Fatal(err)
		}
		text, err := p.YAML()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Add([]byte("schema: agentsim.synth.v1\nname: x\nparameters: {turns: {quantiles: [[0, 1], [0.5, 3], [1, 9]]}, gap: {quantiles: [[0, 0], [1, 9]]}}"))
	f.Add([]byte("schema: agentsim.synth.v1\nname: x\nparameters: &a {turns: *a}"))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := Read("p.yaml", text)
		if err != nil {
			return
		}
		written, err := p.YAML()
		if err != nil {
			t.Fatal(err)
		}
		again, err := Read("p.yaml", written)
		if err != nil {
			t.Fatalf("%v of\n%s", err, written)
		}
		if second, _ := again.YAML(); !bytes.Equal(second, written) {
			t.Fatalf("%s\nbecomes\n%s", written, second)
		}
		a := p.profile.(*agent)
		calls := a.turns.max * (1 + a.childTurns.max*max(1, a.fanout.max))
		if a.check(1) != nil || calls > 1e4 || calls*a.longest()/a.block > 1e6 {
			return // refused; or right, but slow
		}
		for _, s := range a.generate(1, 1).Sessions {
			for _, u := range s.Turns {
				if u.Input < 1 || u.Output < 1 || u.End < u.Start || len(u.Chain()) != int(blocksOf(u.Input, int32(a.block))) {
					t.Fatalf("%s has input %d, output %d, %v..%v", u.ID, u.Input, u.Output, u.Start, u.End)
				}
			}
		}
	})
}
