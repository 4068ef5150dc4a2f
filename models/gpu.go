package models

import (
	"fmt"
	"math/bits"
)

// GPU is one accelerator. Rates are what is sustained or what the vendor states, as named; peaks are dense.
type GPU struct {
	Name    string   `yaml:"name" json:"name"`
	Aliases []string `yaml:"aliases" json:"-"`
	// Source tells where the numbers come from.
	Source string `yaml:"source" json:"source"`
	// Estimate tells that efficiencies are scaled from another GPU and not fitted to this one.
	Estimate bool `yaml:"estimate" json:"estimate"`

	MemoryGiB  float64 `yaml:"memory_gib" json:"memory_gib"`   // nominal
	VisibleGiB float64 `yaml:"visible_gib" json:"visible_gib"` // what an engine finds

	BandwidthTBs float64 `yaml:"bandwidth_tbs" json:"bandwidth_tbs"` // memory, vendor's peak, 10^12 bytes per second
	SustainedTBs float64 `yaml:"sustained_tbs" json:"sustained_tbs"` // memory, as kernels reach it
	TFLOPS       Peaks   `yaml:"tflops" json:"tflops"`

	GEMMBF16 Curve `yaml:"gemm_bf16" json:"gemm_bf16"`
	GEMMFP8  Curve `yaml:"gemm_fp8" json:"gemm_fp8"` // also used for FP4, for want of a curve
	// PrefillAttention is the share of the bf16 peak that prefill attention reaches.
	PrefillAttention float64 `yaml:"prefill_attention" json:"prefill_attention"`

	LinkGBs     float64 `yaml:"link_gbs" json:"link_gbs"`           // to other GPUs of the domain, one way, 10^9 bytes per second
	HostLinkGBs float64 `yaml:"host_link_gbs" json:"host_link_gbs"` // to the host, one way
	NodeLinkGBs float64 `yaml:"node_link_gbs" json:"node_link_gbs"` // out of the domain, one way
	Domain      int     `yaml:"domain" json:"domain"`               // GPUs that Link joins
}

// Peaks are dense matrix rates in 10^12 operations per second; 0 where the hardware lacks the format.
type Peaks struct {
	BF16 float64 `yaml:"bf16" json:"bf16"`
	FP8  float64 `yaml:"fp8" json:"fp8,omitempty"`
	FP4  float64 `yaml:"fp4" json:"fp4,omitempty"`
}

// Curve is the share of the peak that a matrix product of T rows reaches: Efficiency · T/(T + Knee).
type Curve struct {
	Efficiency float64 `yaml:"efficiency" json:"efficiency"`
	Knee       float64 `yaml:"knee" json:"knee"` // rows
}

// Validate reports the first number that is missing or out of range, by its key.
func (g *GPU) Validate() error {
	type field struct {
		key         string
		value       float64
		least, most float64
	}
	const tiny, huge = 1e-3, 1e6
	fields := []field{
		{"memory_gib", g.MemoryGiB, 1, huge},
		{"visible_gib", g.VisibleGiB, 1, g.MemoryGiB},
		{"bandwidth_tbs", g.BandwidthTBs, tiny, huge},
		{"sustained_tbs", g.SustainedTBs, tiny, g.BandwidthTBs},
		{"tflops.bf16", g.TFLOPS.BF16, tiny, huge},
		{"tflops.fp8", g.TFLOPS.FP8, 0, huge},
		{"tflops.fp4", g.TFLOPS.FP4, 0, huge},
		{"gemm_bf16.efficiency", g.GEMMBF16.Efficiency, tiny, 1},
		{"gemm_bf16.knee", g.GEMMBF16.Knee, 0, huge},
		{"prefill_attention", g.PrefillAttention, tiny, 1},
		{"link_gbs", g.LinkGBs, tiny, huge},
		{"host_link_gbs", g.HostLinkGBs, tiny, huge},
		{"node_link_gbs", g.NodeLinkGBs, tiny, huge},
		{"domain", float64(g.Domain), 1, 1 << 16},
	}
	if g.TFLOPS.FP8 > 0 || g.TFLOPS.FP4 > 0 {
		fields = append(fields,
			field{"gemm_fp8.efficiency", g.GEMMFP8.Efficiency, tiny, 1},
			field{"gemm_fp8.knee", g.GEMMFP8.Knee, 0, huge})
	}
	for _, f := range fields {
		if !(f.value >= f.least && f.value <= f.most) { // also catches NaN
			return fmt.Errorf("gpu %s: %s is %g, want %g to %g", g.Name, f.key, f.value, f.least, f.most)
		}
	}
	return nil
}

// gemm is the rate of matrix products with weights in a format: peak operations per second, and the curve that says
// which share is reached. Formats that the hardware cannot multiply are expanded to bf16 first.
func (g *GPU) gemm(weights DType) (peak float64, curve Curve) {
	switch {
	case weights == FP8 && g.TFLOPS.FP8 > 0:
		return g.TFLOPS.FP8 * 1e12, g.GEMMFP8
	case weights == NVFP4 && g.TFLOPS.FP4 > 0:
		return g.TFLOPS.FP4 * 1e12, g.GEMMFP8
	}
	return g.TFLOPS.BF16 * 1e12, g.GEMMBF16
}

// allReduce is the cost of adding up a buffer over n GPUs: a floor in ns, and ns per byte.
//
// Up to 8 ranks: vLLM 0.19's custom all-reduce in a CUDA graph on H100, its rate scaled by the link. Beyond: the floor
// of NCCL grown with the logarithm of n, and a ring at the speed of the slowest link.
func (g *GPU) allReduce(n int) (floorNs, nsPerByte float64) {
	const h100LinkGBs = 450
	measured := func(floorUs, tbs float64) (float64, float64) {
		return floorUs * 1e3, 1 / (tbs * 1e3 * g.slowestLink(n) / h100LinkGBs)
	}
	switch {
	case n <= 1:
		return 0, 0
	case n == 2:
		return measured(4.3, 0.32)
	case n <= 4:
		return measured(4.7, 0.23)
	case n <= 8:
		return measured(4.9, 0.25)
	}
	const ncclFloorUs = 15.5 // at 8 ranks
	ring := 2 * float64(n-1) / float64(n)
	return ncclFloorUs * 1e3 * float64(bits.Len(uint(n-1))) / 3, ring / g.slowestLink(n)
}

// slowestLink is the rate in bytes per ns of the slowest link among n neighbouring GPUs.
func (g *GPU) slowestLink(n int) float64 {
	if n > g.Domain {
		return min(g.LinkGBs, g.NodeLinkGBs)
	}
	return g.LinkGBs
}
