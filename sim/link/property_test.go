package link

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// randomOrders returns transfers over links 0 to links-1, in order of their starts.
func randomOrders(r *rand.Rand, links, count int) []order {
	var orders []order
	at := time.Duration(0)
	for range count {
		at += time.Duration(r.IntN(2_000_000))
		o := order{at: at, bytes: r.Int64N(50_000_000), latency: time.Duration(r.IntN(100_000))}
		for id := range links {
			if r.IntN(3) > 0 {
				o.over = append(o.over, ID(id))
			}
		}
		orders = append(orders, o)
	}
	return orders
}

// run starts the transfers and returns when each ended. In between it looks at random times, when r is not nil.
func run(n *Network, orders []order, r *rand.Rand) []time.Duration {
	ended := map[Transfer]time.Duration{}
	var started []Transfer
	for _, o := range orders {
		goOn(n, o.at, ended)
		if r != nil && len(started) > 0 {
			n.Eta(n.now+(o.at-n.now)/2, started[r.IntN(len(started))])
		}
		started = append(started, n.Start(o.at, o.bytes, o.latency, o.over...))
	}
	for r != nil && n.Next() < Never {
		at := min(n.Next(), n.now+time.Duration(r.IntN(1_000_000)))
		for _, t := range n.Advance(at) {
			ended[t] = at
		}
	}
	goOn(n, Never, ended)
	ends := make([]time.Duration, len(started))
	for i, t := range started {
		ends[i] = ended[t]
	}
	return ends
}

// TestLooking: how often and when somebody looks makes no difference, not by a nanosecond.
func TestLooking(t *testing.T) {
	for seed := range uint64(200) {
		orders := randomOrders(rand.New(rand.NewPCG(seed, 0)), 3, 40)
		rates := []float64{50.1, 7.77, 23.456}
		want := run(network(t, rates...), orders, nil)
		if got := run(network(t, rates...), orders, rand.New(rand.NewPCG(seed, 1))); !slices.Equal(got, want) {
			t.Fatalf("seed %d: they end at %v, and looked at at %v", seed, want, got)
		}
	}
}

// TestMonotone: on one link, one more transfer makes no other end earlier, and a faster link makes none end later. Over several
// links neither need hold: what slows one transfer leaves more for another.
func TestMonotone(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 2))
		orders := randomOrders(r, 1, 30)
		for i := range orders {
			orders[i].over = []ID{0}
		}
		base := run(network(t, 20), orders, nil)
		i := r.IntN(len(orders))
		fewer := run(network(t, 20), slices.Delete(slices.Clone(orders), i, i+1), nil)
		for k, end := range slices.Delete(slices.Clone(base), i, i+1) {
			if end < fewer[k] {
				t.Fatalf("seed %d: with transfer %d, transfer %d ends at %v and not at %v", seed, i, k, end, fewer[k])
			}
		}
		for k, end := range run(network(t, 21.5), orders, nil) {
			if end > base[k] {
				t.Fatalf("seed %d: on a faster link transfer %d ends at %v and not at %v", seed, k, end, base[k])
			}
		}
	}
}

// TestBusyLinkIsFull: a link that always has something to move moves all its bytes in the time that its rate takes, but for
// a nanosecond at each end of a transfer.
func TestBusyLinkIsFull(t *testing.T) {
	const count, rate = 100, 13.0
	r := rand.New(rand.NewPCG(5, 5))
	n := network(t, rate)
	total := int64(0)
	for range count {
		bytes := 1 + r.Int64N(1_000_000)
		n.Start(0, bytes, 0, 0)
		total += bytes
	}
	n.Advance(time.Hour)
	got := n.Link(0)
	ideal := time.Duration(float64(total) / rate)
	if got.Bytes != total || got.Busy < ideal || got.Busy > ideal+count {
		t.Errorf("%d of %d bytes in %d, want %d", got.Bytes, total, got.Busy, ideal)
	}
}
