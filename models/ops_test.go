package models

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestKernelsByHand: rates that make the arithmetic easy.
func TestKernelsByHand(t *testing.T) {
	gemm := GEMM{FloorUs: 3, TBs: 2, TFLOPS: 500, Outputs: 1e5, Sharpness: 2}
	moe := MoEKernel{FloorUs: 20, TBs: 2, TFLOPS: 400, PadRows: 30, Sharpness: 1}
	prefill := PrefillKernel{FloorUs: 10, TokenNs: 0.25, TFLOPS: 512, PairPs: 0.5, TailNs: 2}
	reduce := Collective{FloorUs: 4, OneShotTBs: 0.05, TwoShotUs: 6, TBs: 0.2}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		// Weights 2·4000·1000 bytes, inputs 2·10·1000, outputs 2·10·4000: 8.1e6 / 2e6 = 4.05 µs.
		// compute: 2·1000·(10·4000 + 1e5) / 500e6 = 0.56 µs
		{"a product", gemm.Us(10, 4000, 1000, 2, false), 3 + math.Sqrt(4.05*4.05+0.56*0.56)},
		// The same in fp8: 4e6 + 1e4 + 8e4 bytes = 2.045 µs, and 3·10·1000 bytes to quantise = 0.015.
		{"a product in fp8", gemm.Us(10, 4000, 1000, 1, true), 3 + 0.015 + math.Sqrt(2.045*2.045+0.56*0.56)},
		// 8 rows, half of them on this GPU, 4 experts of 3·1000·500 numbers touched.
		// passes: 8·2·(2000 + 1500) = 56,000 bytes = 0.028 µs; weights 4·1.5e6·2 = 12e6 bytes = 6 µs
		// compute: 2·(4 + 4·30)·1.5e6 / 400e6 = 0.93 µs; sharpness 1 adds them
		{"experts", moe.Us(8, 0.5, 4, 1000, 500, 2), 20 + 0.028 + 6 + 0.93},
		// 16 heads · (1000 tokens · 0.25 ns + 5e5 pairs · (4·128/512e6 + 0.5e-6) µs) = 16 · (0.25 + 0.75)
		// tail √1e6 · 2 ns = 2 µs
		{"a prompt", prefill.Us(16, 128, 1000, 5e5), 10 + 16 + 2},
		{"a small all-reduce", reduce.Us(100_000), 4 + 2},        // 0.1e6 / 0.05e6
		{"a large all-reduce", reduce.Us(2_000_000), 4 + 6 + 10}, // not 40
	} {
		if math.Abs(c.got-c.want) > 1e-9*c.want {
			t.Errorf("%s takes %.6f µs, want %.6f", c.name, c.got, c.want)
		}
	}
}

func TestOverlap(t *testing.T) {
	for _, c := range []struct{ a, b, s, want float64 }{
		{3, 4, 1, 7}, {3, 4, 2, 5}, {4, 3, 2, 5}, {3, 4, 100, 4}, {0, 4, 2, 4}, {0, 0, 2, 0},
	} {
		if got := overlap(c.a, c.b, c.s); math.Abs(got-c.want) > 1e-6 {
			t.Errorf("overlap(%g, %g, %g) = %g, want %g", c.a, c.b, c.s, got, c.want)
		}
	}
}

// TestScaledOps: another GPU's rates are the H100's times the ratios of the data sheets; its floors are the H100's.
func TestScaledOps(t *testing.T) {
	h := h100Ops(t)
	b200, err := gpu(t, "b200-sxm").Ops()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"bandwidth", b200.DecodeBF16.TBs, h.DecodeBF16.TBs * 7.7 / 3.35},
		{"bf16 products", b200.GEMMBF16.TFLOPS, h.GEMMBF16.TFLOPS * 2250 / 989.5 * 0.872},
		{"fp8 products", b200.GEMMFP8.TFLOPS, h.GEMMFP8.TFLOPS * 4500 / 1979 * 0.915},
		{"set-up of tiles", b200.PrefillBF16.TokenNs, h.PrefillBF16.TokenNs / (2250 / 989.5 * 0.87)},
		{"links", b200.AllReduce.Four.TBs, h.AllReduce.Four.TBs * 2},
		{"floors", b200.GEMMBF16.FloorUs, h.GEMMBF16.FloorUs},
	} {
		if math.Abs(c.got/c.want-1) > 1e-9 {
			t.Errorf("%s: %g, want %g", c.name, c.got, c.want)
		}
	}
	// No FP8 on the A100: weights are read at one byte each and multiplied in bf16.
	a100 := gpu(t, "a100-sxm-80g")
	o, err := a100.Ops()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := o.productUs(a100, FP8, 4096, 4096, 4096), o.GEMMBF16.Us(4096, 4096, 4096, 1, false); got != want {
		t.Errorf("an fp8 product on A100 takes %g µs, want %g", got, want)
	}
}

func TestOpsValidate(t *testing.T) {
	o := *h100Ops(t)
	o.MoEFP8.TBs = math.NaN()
	if err := o.Validate(); err == nil || !strings.Contains(err.Error(), "rates of h100-sxm: moe_fp8.tbs is NaN") {
		t.Errorf("got %v", err)
	}
}

// TestCurve: exact where it has points, on the chord between them, monotone, and constant beyond its end.
func TestCurve(t *testing.T) {
	square := newCurve(func(n float64) float64 { return n * n / 1e6 })
	for n, want := range map[int64]float64{0: 0, 1: 1e-6, 511: 511 * 511 / 1e6, 512: 512 * 512 / 1e6, 520: 520 * 520 / 1e6,
		516:     (512*512 + 520*520) / 2e6, // half way between two points
		1 << 20: 1 << 20 * (1 << 20) / 1e6} {
		wantUs(t, "a square", square.duration(pointAt(n)), want)
	}
	if square.duration(pointAt(math.MaxInt64)) != square.duration(pointAt(1<<curveBits-1)) || square.duration(pointAt(-5)) != 0 {
		t.Error("a curve goes on beyond its ends")
	}
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Int64Range(0, 1<<curveBits-2).Draw(t, "n")
		here, next := square.duration(pointAt(n)), square.duration(pointAt(n+1))
		if next < here {
			t.Fatalf("%d: %d, and %d at the next", n, here, next)
		}
		// A chord over 1/64 of an octave is at most (1/64)²/4 above the square.
		if exact := float64(n) * float64(n) / 1e6; us(here) < exact-1e-4 || us(here) > exact*(1+1.0/(4*64*64))+1e-4 {
			t.Fatalf("%d: %g µs, want %g", n, us(here), exact)
		}
	})
}
