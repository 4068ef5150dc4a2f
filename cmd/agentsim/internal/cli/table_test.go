package cli

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

func TestTableWithin(t *testing.T) {
	var b strings.Builder
	err := tableWithin(&b, 42, func(w io.Writer) {
		fmt.Fprintln(w, "key\tdefault\tmeaning")
		fmt.Fprintln(w, "workers\t1\tengine replicas, each with the GPUs of its own")
		fmt.Fprintln(w, "seed\t\t")
	})
	want := `key      default  meaning
workers  1        engine replicas, each
                  with the GPUs of its own
seed              
`
	if err != nil || b.String() != want {
		t.Errorf("got %v:\n%swant:\n%s", err, b.String(), want)
	}
}
