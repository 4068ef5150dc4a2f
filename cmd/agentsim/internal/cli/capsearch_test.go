package cli

import (
	"slices"
	"testing"
)

// TestGaps: the search halves the gaps beside the best cap until they are a sixteenth of it, or 1.
func TestGaps(t *testing.T) {
	for _, c := range []struct {
		caps []int
		best int // index
		want []int
	}{
		{[]int{24, 16, 8, 4, 2, 1}, 2, []int{12, 6}},
		{[]int{24, 16, 12, 8, 6, 4, 2, 1}, 3, []int{10, 7}},
		{[]int{10, 9, 8, 7, 6}, 2, nil},
		{[]int{24, 16, 8}, 0, []int{20}},
		{[]int{3, 2, 1}, 2, nil},
		{[]int{1024, 512, 256}, 1, []int{768, 384}},
		{[]int{544, 512, 480}, 1, nil},
		{[]int{1}, 0, nil},
	} {
		if got := gaps(c.caps, c.best); !slices.Equal(got, c.want) {
			t.Errorf("between %v, best %d: %v, want %v", c.caps, c.caps[c.best], got, c.want)
		}
	}
}
