package sim

import (
	"testing"
	"time"
)

// Steps of at most 256 tokens take 10 ms each. Of a prompt of 1040 tokens, 1024 take four steps and the rest a fifth.
func TestWorthFetching(t *testing.T) {
	d := fixed()
	d.Engine.MaxNumBatchedTokens = 256
	p, err := d.Resolve()
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		from, to, prompt int32
		spares           time.Duration
	}{
		{0, 1024, 1040, 40 * ms},
		{512, 1024, 1040, 20 * ms},
		{0, 16, 1040, 10 * ms},   // 1024 are left: four steps and not five
		{0, 1008, 1040, 40 * ms}, // 32 are left
		{0, 1040, 1040, 50 * ms}, // for a session that has no request yet
		{0, 1000, 900, 40 * ms},  // the prompt is no longer than what is brought
	} {
		if got := p.prefillTime(test.from, test.prompt) - p.prefillTime(test.to, test.prompt); got != test.spares {
			t.Errorf("[%d, %d) of %d tokens spare %v, want %v", test.from, test.to, test.prompt, got, test.spares)
		}
		for took, want := range map[time.Duration]bool{test.spares - 1: true, test.spares: false} {
			if got := p.worthFetching(test.from, test.to, test.prompt, took); got != want {
				t.Errorf("[%d, %d) of %d tokens in %v are worth it: %v, want %v", test.from, test.to, test.prompt, took, got, want)
			}
		}
	}
}
