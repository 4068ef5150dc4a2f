#!/usr/bin/env bash
# Fits every shipped cost profile again from the published measurements: profiles.sh AGENTSIM TRUTH OUT [NAME...].
# What comes out is written to OUT/NAME.yaml, one file a profile; without names, all are fitted.
set -euo pipefail
agentsim=$1 truth=$2 out=$3
shift 3
aic=$truth/aic-silicon-serving/calibrate
only=" $* "

# fit NAME DATA... FLAGS...
fit() {
	local name=$1
	shift
	if [[ $only != "  " && $only != *" $name "* ]]; then return; fi
	echo "== $name"
	"$agentsim" calibrate serving --name "$name" -o "$out/$name.yaml" --hold prompt_token_us=0.35 \
		--source "ai-dynamo/aiconfigurator silicon_sample.csv" --commit 095f58a51c4ca8e61b66ec108d86f223f8d559ce --licence Apache-2.0 \
		--date 2026-11-29 "$@"
}

profiles() {
	# TTFT has little weight where the client's arrivals are not published; admission_us and communication are held where a
	# lockstep of clients does not tell them.
	local vllm=("$aic/h100_vllm_sglang_agg.csv" "$truth/blis-h100-vllm/calibrate" --engine vllm --leave-out model,tensor,source
		--fit linear,compute,decode_attention,communication,layer_us,admission_us
		--hold request_us=15,admission_us=7500,sync_step_us=777.6,sync_request_us=10.33
		--source "ai-dynamo/aiconfigurator silicon_sample.csv; inference-sim H100 runs" --licence "Apache-2.0; partly not stated")
	fit h100-vllm "${vllm[@]}" --models dense \
		--about "fitted to mean TTFT and TPOT of vLLM 0.11-0.18 on H100, dense models: closed loops of aiconfigurator and open loops of inference-sim" \
		--comment "left out: rows with a mean TTFT above 8 s, which hang on the KV capacity; sync_step_us and sync_request_us are of a fit that had them free"
	fit h100-vllm-moe "${vllm[@]}" --models moe \
		--about "fitted to mean TTFT and TPOT of vLLM 0.11-0.18 on H100, models with experts: closed loops of aiconfigurator and open loops of inference-sim" \
		--comment "left out: rows with a mean TTFT above 8 s, and gpt-oss-120b at 512 clients; sync_step_us and sync_request_us are those of dense models"
	fit h100-trtllm "$aic/h100_other.csv" --engine trtllm --models dense --leave-out model,tensor --ttft-weight 0.1 \
		--fit linear,decode_attention,communication,layer_us,request_us,prefill_token_us --hold admission_us=4000 \
		--about "fitted to mean TPOT and TTFT of TensorRT-LLM 1.0 on H100 with two dense models" \
		--comment "TTFT weighs a tenth: how clients sent is not published; admission_us is held"
	fit h100-trtllm-moe "$aic/h100_other.csv" --engine trtllm --models moe --ttft-weight 0.1 \
		--fit linear,layer_us,request_us,prefill_token_us --hold admission_us=4000 \
		--about "fitted to mean TPOT and TTFT of TensorRT-LLM 1.0 on H100 with one model with experts, Qwen3-235B in FP8 at TP4 with experts on four GPUs; the low factor on products tells that its kernels have smaller floors than those of vLLM, which the rates are of" \
		--comment "TTFT weighs a tenth: how clients sent is not published; the rows of gpt-oss-120b are of Dynamo with several workers and left out"
	fit h100-sglang "$aic/h100_vllm_sglang_agg.csv" --engine sglang --models dense --leave-out tensor \
		--fit linear,compute,decode_attention,layer_us,request_us --hold admission_us=8000,layer_us=13 \
		--about "fitted to mean TPOT and TTFT of SGLang 0.5.1 on H100 with one dense model" \
		--comment "left out: rows with a mean TTFT above 8 s; admission_us and communication are held, since TTFT in lockstep does not tell them"
	fit h100-sglang-moe "$aic/h200.csv" --engine sglang --models moe --leave-out model --ttft-weight 0.1 \
		--fit linear,decode_attention,layer_us,prefill_token_us,admission_us --hold request_us=15 \
		--about "fitted to mean TPOT and TTFT of SGLang 0.5.6 to 0.5.9 on H200, whose GPU differs from the H100's in memory alone: no model with experts was measured on H100; DeepSeek-R1 comes out a third too slow" \
		--comment "left out: rows with a mean TTFT above 8 s; request_us is held"
}

profiles # read to the end before it runs for long
