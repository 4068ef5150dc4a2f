package cli

import (
	"errors"
	"slices"
	"testing"
)

// TestBoundary: whatever the boundary and the most, halving finds what trying every number finds, in at most twice as many
// trials as the boundary has binary digits, and has tried both sides of it.
func TestBoundary(t *testing.T) {
	for most := 1; most <= 70; most++ {
		for want := 0; want <= most; want++ {
			var tried []int
			got, err := boundary(most, func(n int) (bool, error) {
				if n < 1 || n > most || slices.Contains(tried, n) {
					t.Fatalf("boundary %d of %d: tries %d after %v", want, most, n, tried)
				}
				tried = append(tried, n)
				return n <= want, nil
			})
			if got != want || err != nil {
				t.Errorf("boundary %d of %d: got %d, %v", want, most, got, err)
			}
			if want > 0 && !slices.Contains(tried, want) || want < most && !slices.Contains(tried, want+1) {
				t.Errorf("boundary %d of %d: %v leaves a side of it untried", want, most, tried)
			}
			digits := 1
			for n := want; n > 0; n /= 2 {
				digits++
			}
			if len(tried) > 2*digits {
				t.Errorf("boundary %d of %d: %d trials", want, most, len(tried))
			}
		}
	}
}

// TestBoundaryOfNoise: where the answers go up and down the result is still a number that goes well before one that does not.
func TestBoundaryOfNoise(t *testing.T) {
	for _, good := range [][]int{{1, 2, 3, 5, 6, 8}, {1, 2, 4, 7}, {2, 3}, {1, 2, 3, 4, 8, 16}} {
		well := func(n int) (bool, error) { return slices.Contains(good, n), nil }
		got, _ := boundary(16, well)
		here, _ := well(got)
		next, _ := well(got + 1)
		if got > 0 && !here || got < 16 && next {
			t.Errorf("%v: %d is no boundary", good, got)
		}
	}
}

func TestBoundaryStopsAtErrors(t *testing.T) {
	broken := errors.New("broken")
	for at := 1; at <= 6; at++ {
		trials := 0
		_, err := boundary(100, func(n int) (bool, error) {
			if trials++; trials == at {
				return false, broken
			}
			return n <= 40, nil
		})
		if err != broken || trials != at {
			t.Errorf("an error in trial %d: %v after %d trials", at, err, trials)
		}
	}
}

func TestBeside(t *testing.T) {
	for _, c := range []struct {
		low, most int
		want      []int
	}{
		{0, 100, nil},
		{100, 100, nil},
		{1, 100, []int{1, 2, 3}},
		{3, 4, []int{2, 3, 4}},
		{48, 1000, []int{42, 47, 50, 55}},
		{99, 100, []int{87, 98}},
	} {
		if got := beside(c.low, c.most); !slices.Equal(got, c.want) {
			t.Errorf("beside %d of %d: %v, want %v", c.low, c.most, got, c.want)
		}
	}
}
