#!/bin/bash
# Records a small fleet of agents that works against the stand-in server, and predicts from the recording how the same work
# would go elsewhere: see make demo-record. The argument is the binary.
set -euo pipefail
bin=$1
dir=$(mktemp -d)
pids=()
trap 'for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; wait; rm -rf "$dir"' EXIT

url() { # waits for a server's URL
	for _ in $(seq 100); do
		[ -s "$1" ] && break
		sleep 0.1
	done
	cat "$1"
}

"$bin" serve --model qwen3-14b --time-scale 10 --listen 127.0.0.1:0 --url-file "$dir/upstream" 2>"$dir/serve.log" &
pids+=($!)
upstream=$(url "$dir/upstream")
"$bin" record --upstream "$upstream" -o "$dir/run" --listen 127.0.0.1:0 --url-file "$dir/proxy" --block-size 16 2>"$dir/record.log" &
recorder=$!
pids+=("$recorder")
proxy=$(url "$dir/proxy")

echo "== agents work at $proxy, a recording proxy in front of $upstream"
"$bin" synth --profile mini-swe-agent --programs 6 --profile-set turns=8 -o "$dir/work" >"$dir/synth.log"
"$bin" replay "$dir/work" --url "$proxy" --timing asap -o "$dir/replayed" >"$dir/replay.log" 2>&1 || true
echo "== a chat without any header that names its session"
ask() { curl -sS "$proxy/v1/chat/completions" -d '{"model":"qwen3-14b","max_tokens":4,"ignore_eos":true,"messages":['"$1"']}' | grep -o '"content":"[^"]*"' | head -n 1; }
first='{"role":"user","content":"look at the tests"}'
answer=$(ask "$first")
ask "$first"',{"role":"assistant",'"$answer"'},{"role":"user","content":"and fix them"}' >"$dir/second"

kill -TERM "$recorder"
wait "$recorder"
tail -n 1 "$dir/record.log"
echo "== two rows of the recording"
gzip -dc "$dir"/run.*.jsonl.gz | tail -n 2 | cut -c -700
echo "== what the same work would see on other deployments"
"$bin" predict "$dir/run" --model qwen3-14b --gpu h100-sxm,l40s --router round-robin,kv --workers 2
