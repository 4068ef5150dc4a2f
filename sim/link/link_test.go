package link

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// order is a transfer to be started.
type order struct {
	at      time.Duration
	bytes   int64
	latency time.Duration
	over    []ID
}

// network returns links of the given rates in bytes/ns.
func network(t testing.TB, rates ...float64) *Network {
	t.Helper()
	n := &Network{}
	for i, r := range rates {
		if _, err := n.Add(fmt.Sprint("l", i), r*1e9); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// goOn goes from one event to the next before a time, and notes when each transfer ended.
func goOn(n *Network, before time.Duration, ended map[Transfer]time.Duration) {
	for at := n.Next(); at < before; at = n.Next() {
		for _, t := range n.Advance(at) {
			ended[t] = at
		}
	}
}

// TestByHand: links in bytes/ns, so that all can be worked out in the head.
func TestByHand(t *testing.T) {
	for _, test := range []struct {
		name   string
		rates  []float64
		orders []order
		want   []time.Duration
	}{
		{"alone", []float64{3}, []order{{5, 100, 7, []ID{0}}}, []time.Duration{5 + 7 + 34}},
		{"nothing to move", []float64{3}, []order{{5, 0, 7, []ID{0}}, {5, 0, 0, []ID{0}}}, []time.Duration{12, 5}},
		{"no links", nil, []order{{5, 100, 7, nil}}, []time.Duration{12}},
		{"a link named twice counts once", []float64{10}, []order{{0, 100, 0, []ID{0, 0}}}, []time.Duration{10}},
		{"two equal", []float64{10}, []order{{0, 100, 0, []ID{0}}, {0, 100, 0, []ID{0}}}, []time.Duration{20, 20}},
		{"three on a rate that they do not divide", []float64{10},
			[]order{{0, 10, 0, []ID{0}}, {0, 10, 0, []ID{0}}, {0, 11, 0, []ID{0}}}, []time.Duration{3, 3, 4}}, // 3.1
		{"one joins half way", []float64{10},
			[]order{{0, 100, 0, []ID{0}}, {5, 100, 0, []ID{0}}}, []time.Duration{15, 20}}, // 50 + 10·5, 10·5 + 5·10
		{"a latency takes no share", []float64{10},
			[]order{{0, 100, 0, []ID{0}}, {0, 100, 5, []ID{0}}}, []time.Duration{15, 20}},
		{"links apart", []float64{10, 2}, []order{{0, 100, 0, []ID{0}}, {0, 100, 0, []ID{1}}}, []time.Duration{10, 50}},
		{"a slow drive behind a fast bus", []float64{10, 2},
			[]order{{0, 20, 0, []ID{0, 1}}, {0, 100, 0, []ID{0}}}, []time.Duration{10, 12}}, // 2 and 8, then 10 for 20 bytes
		{"chain of three links", []float64{10, 6, 12}, []order{
			{0, 30, 0, []ID{0, 1, 2}}, // 3
			{0, 140, 0, []ID{0}},      // 7, from 10 on 10
			{0, 60, 0, []ID{1}},       // 3, from 10 on 6
			{0, 210, 0, []ID{2}},      // 9, from 10 on 12
		}, []time.Duration{10, 17, 15, 20}},
	} {
		t.Run(test.name, func(t *testing.T) {
			n := network(t, test.rates...)
			ended := map[Transfer]time.Duration{}
			var started []Transfer
			for _, o := range test.orders {
				goOn(n, o.at, ended)
				started = append(started, n.Start(o.at, o.bytes, o.latency, o.over...))
			}
			now := test.orders[len(test.orders)-1].at
			var eta []time.Duration
			for _, s := range started {
				eta = append(eta, n.Eta(now, s))
			}
			goOn(n, Never, ended)
			var when []time.Duration
			for _, s := range started {
				when = append(when, ended[s])
			}
			if !slices.Equal(when, test.want) {
				t.Errorf("they end at %v, want %v", when, test.want)
			}
			if !slices.Equal(eta, test.want) {
				t.Errorf("they were expected at %v, want %v", eta, test.want)
			}
		})
	}
}

// TestAdvanceOrder: by end, and at one time by start, however the time is passed; what ends while something else is
// started or cancelled is told too.
func TestAdvanceOrder(t *testing.T) {
	n := network(t, 1, 1, 1)
	a := n.Start(0, 20, 0, 0)
	b := n.Start(0, 10, 0, 1)
	c := n.Start(0, 20, 0, 2)
	d := n.Start(15, 0, 5) // b has ended
	if n.Next() != 10 {
		t.Errorf("next is %d, want 10: there is a transfer to tell of", n.Next())
	}
	if got := n.Advance(30); !slices.Equal(got, []Transfer{b, a, c, d}) {
		t.Errorf("%v ended, want %v", got, []Transfer{b, a, c, d})
	}
	if got := n.Advance(40); len(got) > 0 || n.Next() != Never {
		t.Errorf("%v ended and next is %v, want none and never", got, n.Next())
	}
	for _, gone := range []Transfer{a, {}} {
		if n.Cancel(40, gone) != 0 || n.Eta(40, gone) != 40 {
			t.Errorf("cancelled %v, which has ended", gone)
		}
	}
}

// TestCancel: what had moved counts for the links, and the others get the share.
func TestCancel(t *testing.T) {
	n := network(t, 10, 3)
	a := n.Start(0, 100, 0, 0)
	b := n.Start(0, 100, 0, 0, 1) // 3 of 10
	late := n.Start(0, 100, 50, 0)
	if moved := n.Cancel(4, late); moved != 0 {
		t.Errorf("%d bytes of one that had not begun, want 0", moved)
	}
	if moved := n.Cancel(5, b); moved != 15 {
		t.Errorf("%d bytes had moved, want 5·3", moved)
	}
	if eta := n.Eta(5, a); eta != 12 { // 5·7, and 65 at 10
		t.Errorf("the other ends at %d, want 12", eta)
	}
	if got := n.Advance(20); !slices.Equal(got, []Transfer{a}) {
		t.Errorf("%v ended, want %v", got, a)
	}
	for id, want := range []Stats{{"l0", 10e9, 115, 12}, {"l1", 3e9, 15, 5}} {
		if got := n.Link(ID(id)); got != want {
			t.Errorf("link %d: %+v, want %+v", id, got, want)
		}
	}
}

// TestBusy: latencies and gaps are not busy; transfers side by side count once.
func TestBusy(t *testing.T) {
	n := network(t, 10)
	n.Start(0, 100, 3, 0) // 3 to 13
	n.Advance(5)
	if busy := n.Link(0).Busy; busy != 2 {
		t.Errorf("busy for %d by 5, want 2", busy)
	}
	if busy := n.Busy(9, 0); busy != 6 {
		t.Errorf("busy for %d by 9, want 6", busy)
	}
	n.Start(20, 50, 0, 0)
	n.Start(20, 50, 0, 0) // both to 30
	n.Advance(100)
	if got, want := n.Link(0), (Stats{"l0", 10e9, 200, 20}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// TestRates: what cannot be a rate is refused.
func TestRates(t *testing.T) {
	nan := 0.0
	nan /= nan
	for _, rate := range []float64{0, -1, nan, 1 / nan, 1e15, 1} {
		if _, err := (&Network{}).Add("nvme", rate); err == nil || !strings.Contains(err.Error(), "nvme") {
			t.Errorf("rate %v: error %v, want one that names the link", rate, err)
		}
	}
}

// TestExtremes: amounts and times at the ends of their ranges neither overflow nor stop the rest.
func TestExtremes(t *testing.T) {
	n := network(t, MinRate/1e9, MaxRate/1e9)
	huge := n.Start(0, 1<<62, 0, 0) // 146 million years
	far := n.Start(5, 1, Never, 0)
	quick := n.Start(5, 1<<62, 0, 1) // 4.6e18 bytes at 1e5 bytes/ns: half a day
	if eta := n.Eta(5, huge); eta != Never {
		t.Errorf("the slow one ends at %v, want never", eta)
	}
	if got := n.Advance(Never); !slices.Equal(got, []Transfer{quick}) {
		t.Errorf("%v ended, want only %v", got, quick)
	}
	if n.Next() != Never {
		t.Errorf("next is %v, want never", n.Next())
	}
	if moved := n.Cancel(Never, far); moved != 0 {
		t.Errorf("%d bytes moved of one that never began", moved)
	}
	// 2^63 ns at 1000 bytes/s are 9.2e12 bytes.
	if moved := n.Cancel(Never, huge); moved != 9223372036854 {
		t.Errorf("%d bytes moved, want 9223372036854", moved)
	}
}
