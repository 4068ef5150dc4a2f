#!/bin/sh
# Compares agentsim with a peer from PyPI: run.sh aisimulate|aiperf|tokenizers|pyzmq [ARGUMENT...]; see compare_PEER.py, which gets the arguments.
# Needs Go, python3 with venv, and PyPI the first time; without them it says so and succeeds.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
peer=${1:-}
if [ ! -f "$here/compare_$peer.py" ]; then
	echo "usage: $0 aisimulate|aiperf|tokenizers|pyzmq [ARGUMENT...]" >&2
	exit 2
fi
shift
cache=${XDG_CACHE_HOME:-$HOME/.cache}/agentsim-interop
venv=$cache/$peer

skip() {
	echo "interop: $peer SKIPPED: $1"
	exit 0
}

python3 -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
	skip "no python3 from 3.11 on with venv"

if ! cmp -s "$here/$peer.txt" "$venv/installed.txt"; then
	mkdir -p "$cache"
	rm -rf "$venv"
	python3 -m venv "$venv" >"$cache/install.log" 2>&1 || skip "python3 -m venv failed, see $cache/install.log"
	echo "interop: installing $peer from PyPI into $venv, up to 600 MB"
	"$venv/bin/pip" install --no-deps --only-binary=:all: -r "$here/$peer.txt" >"$cache/install.log" 2>&1 ||
		skip "pip could not install it, see $cache/install.log: $(tail -n 1 "$cache/install.log")"
	cp "$here/$peer.txt" "$venv/installed.txt"
fi

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(cd "$here/.." && go build -o "$bin/agentsim" ./cmd/agentsim)
"$venv/bin/python" -B "$here/compare_$peer.py" --agentsim "$bin/agentsim" "--$peer" "$venv/bin/$peer" "$@"
