package cli

import "testing"

// Paragraphs are broken anew, what is indented stays as it is.
func TestFlow(t *testing.T) {
	got := flow("One two three\nfour five.\n\n  an example that is long\n\nSix.", 10)
	if want := "One two\nthree four\nfive.\n\n  an example that is long\n\nSix."; got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
