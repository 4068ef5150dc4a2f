#!/bin/sh
# Compares agentsim with NVIDIA's aisimulate: see compare.py, which gets this script's arguments.
# Needs Go, python3 with venv, and PyPI the first time; without them it says so and succeeds.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/agentsim-interop
venv=$cache/venv

skip() {
	echo "interop: SKIPPED: $1"
	exit 0
}

python3 -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
	skip "no python3 from 3.11 on with venv"

if ! cmp -s "$here/requirements.txt" "$venv/installed.txt"; then
	mkdir -p "$cache"
	rm -rf "$venv"
	python3 -m venv "$venv" >"$cache/install.log" 2>&1 || skip "python3 -m venv failed, see $cache/install.log"
	echo "interop: installing aisimulate from PyPI into $venv (400 MB)"
	"$venv/bin/pip" install --no-deps --only-binary=:all: -r "$here/requirements.txt" >"$cache/install.log" 2>&1 ||
		skip "pip could not install aisimulate, see $cache/install.log: $(tail -n 1 "$cache/install.log")"
	cp "$here/requirements.txt" "$venv/installed.txt"
fi

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(cd "$here/.." && go build -o "$bin/agentsim" ./cmd/agentsim)
"$venv/bin/python" -B "$here/compare.py" --agentsim "$bin/agentsim" --aisimulate "$venv/bin/aisimulate" "$@"
