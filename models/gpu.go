package models

import "fmt"

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
	TFLOPS       Peaks   `yaml:"tflops" json:"tflops"`

	// Scale is how efficient kernels are, as shares of the H100's.
	Scale Scale `yaml:"scale" json:"scale"`

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

// Scale compares the shares of the peaks that kernels reach with those on the H100: 1 is the same share.
type Scale struct {
	Bandwidth float64 `yaml:"bandwidth" json:"bandwidth"`
	GEMMBF16  float64 `yaml:"gemm_bf16" json:"gemm_bf16"`
	GEMMFP8   float64 `yaml:"gemm_fp8" json:"gemm_fp8"` // also for FP4, for want of a measurement
	Attention float64 `yaml:"attention" json:"attention"`
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
		{"tflops.bf16", g.TFLOPS.BF16, tiny, huge},
		{"tflops.fp8", g.TFLOPS.FP8, 0, huge},
		{"tflops.fp4", g.TFLOPS.FP4, 0, huge},
		{"scale.bandwidth", g.Scale.Bandwidth, 0.1, 10},
		{"scale.gemm_bf16", g.Scale.GEMMBF16, 0.1, 10},
		{"scale.gemm_fp8", g.Scale.GEMMFP8, 0.1, 10},
		{"scale.attention", g.Scale.Attention, 0.1, 10},
		{"link_gbs", g.LinkGBs, tiny, huge},
		{"host_link_gbs", g.HostLinkGBs, tiny, huge},
		{"node_link_gbs", g.NodeLinkGBs, tiny, huge},
		{"domain", float64(g.Domain), 1, 1 << 16},
	}
	for _, f := range fields {
		if !(f.value >= f.least && f.value <= f.most) { // also catches NaN
			return fmt.Errorf("gpu %s: %s is %g, want %g to %g", g.Name, f.key, f.value, f.least, f.most)
		}
	}
	return nil
}

// slowestLink is the rate in bytes per ns of the slowest link among n neighbouring GPUs.
func (g *GPU) slowestLink(n int) float64 {
	if n > g.Domain {
		return min(g.LinkGBs, g.NodeLinkGBs)
	}
	return g.LinkGBs
}
