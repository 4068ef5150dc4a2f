package models

import "strings"

// checkpointSuffixes are the ends of names of checkpoints in another number format than the model was released in, as
// their publishers write them.
var checkpointSuffixes = []struct {
	suffix string
	format DType
}{
	{"-fp8", FP8}, {"-fp8-dynamic", FP8}, {"-fp8-block", FP8}, {"-fp8-kv", FP8}, {"-quantized.w8a8", FP8},
	{"-int8", FP8}, {"-gptq-int8", FP8}, // 8 bit take the same room
	{"-awq", INT4}, {"-awq-int4", INT4}, {"-gptq-int4", INT4}, {"-int4", INT4}, {"-quantized.w4a16", INT4},
	{"-nvfp4", NVFP4}, {"-fp4", NVFP4}, {"-mxfp4", MXFP4}, {"-bf16", BF16},
}

// LookupCheckpoint finds the model of a checkpoint, as Lookup does. Where the catalogue lacks the name and its end tells
// a number format ("Qwen/Qwen3-32B-FP8"), it is the model of the name before, with weights in that format. Without such
// an end, weights is "".
func LookupCheckpoint(nameOrPath string) (model *Model, weights DType, err error) {
	model, err = Lookup(nameOrPath)
	if err == nil {
		return model, "", nil
	}
	lower := strings.ToLower(nameOrPath)
	for _, s := range checkpointSuffixes {
		if base, ok := strings.CutSuffix(lower, s.suffix); ok {
			if model, baseErr := Lookup(nameOrPath[:len(base)]); baseErr == nil {
				return model, s.format, nil
			}
		}
	}
	return nil, "", err
}
