package models

import "fmt"

// DType is a number format of weights or of KV entries.
type DType string

// The formats of weights. KV entries are BF16, FP16 or FP8.
const (
	BF16  DType = "bf16"
	FP16  DType = "fp16"
	FP8   DType = "fp8"
	MXFP4 DType = "mxfp4" // 4 bit and one 8-bit scale per 32 numbers
	NVFP4 DType = "nvfp4" // 4 bit and one 8-bit scale per 16 numbers
	INT4  DType = "int4"  // 4 bit, and 20 bit of scale and zero point per 128 numbers
)

// bytesPer256 is the size in bytes of 256 numbers of each format, scales included. Counting by 256 keeps sizes integers.
var bytesPer256 = map[DType]int64{BF16: 512, FP16: 512, FP8: 256, MXFP4: 136, NVFP4: 144, INT4: 133}

// bytes is the size of n numbers, rounded up.
func (t DType) bytes(n int64) int64 { return (n*bytesPer256[t] + 255) / 256 }

func (t DType) checkWeights(key string) error {
	if _, ok := bytesPer256[t]; !ok {
		return fmt.Errorf("%s: unknown format %q (want bf16, fp16, fp8, mxfp4, nvfp4 or int4)", key, t)
	}
	return nil
}

func (t DType) checkKV(key string) error {
	switch t {
	case BF16, FP16, FP8:
		return nil
	}
	return fmt.Errorf("%s: unknown KV format %q (want bf16, fp16 or fp8)", key, t)
}
