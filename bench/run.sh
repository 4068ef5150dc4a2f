#!/usr/bin/env bash
# Speed and memory of whole processes. Real traces are taken from ../shared/traces where they are; otherwise those
# rows are skipped. Usage: bench/run.sh path/to/agentsim
set -euo pipefail
bin=$(realpath "$1")
root=$(cd "$(dirname "$0")/.." && pwd)
traces=$root/../shared/traces
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# measure NAME LIMIT_S LIMIT_MB ARGS...: one row of the table.
measure() {
	local name=$1 limit=$2 memory=$3
	shift 3
	if [ -x /usr/bin/time ]; then
		/usr/bin/time -f '%e %M' -o "$out/time" "$bin" predict "$@" -o "$out/run" --force >/dev/null 2>&1 || [ $? -eq 3 ]
		read -r seconds kb < <(tail -n 1 "$out/time")
	else
		local start=$EPOCHREALTIME
		"$bin" predict "$@" -o "$out/run" --force >/dev/null 2>&1 || [ $? -eq 3 ]
		seconds=$(echo "$EPOCHREALTIME $start" | awk '{printf "%.2f", $1-$2}') kb=0
	fi
	printf '%-46s %8.2f s (limit %s)  %7.0f MB (limit %s)\n' "$name" "$seconds" "$limit" "$((kb / 1024))" "$memory"
}

if [ -d "$traces/mooncake" ]; then
	measure "mooncake conversation, 12,031 requests" 0.4 - "$traces/mooncake/conversation_trace.jsonl.gz" --model qwen3-14b \
		--gpu h100-sxm --workers 8 --router round-robin --set engine.block_size=512
	measure "WEKA, 18,771 requests, 34.4 M hashes" 2 400 "$traces/weka" --model llama-3.1-70b --set dtype.weights=fp8 --workers 16 \
		--router kv --max-context reject
else
	echo "mooncake, WEKA: SKIPPED, no $traces"
fi
measure "plain, 20,000 requests of 512+512" 0.3 - --profile plain --programs 20000 --profile-set input=512 \
	--profile-set output=512 --profile-set rate=40 --model qwen3-14b --workers 4 --router round-robin

measure "mini-swe-agent, 1,006,535 turns, 64 workers" 40 3072 --profile mini-swe-agent --programs 20135 --model llama-3.1-8b \
	--workers 64 --router kv --concurrency 1024 --set engine.kv_blocks=4333

# A program's context is about 2,700 tokens here, so 512 programs are 3 times the KV of 64 workers with 450 blocks.
echo
echo "growth with the number of turns (short programs, 512 at a time on 64 workers, working set 3 times the KV):"
for programs in 1000 10000 100000; do
	measure "$((programs * 10)) turns" 40 3072 --profile mini-swe-agent --programs $programs --profile-set turns=10 \
		--profile-set output=40 --profile-set result=100 --model llama-3.1-8b --workers 64 --router kv --concurrency 512 \
		--set engine.kv_blocks=450
	awk -v s="$seconds" -v p="$programs" 'BEGIN {printf "    %.1f µs per turn\n", s*1e6/(p*10)}'
done
