#!/bin/sh
# Compares agentsim with a peer from PyPI: run.sh aisimulate|aiperf|tokenizers|pyzmq|sdks [ARGUMENT...]; see compare_PEER.py, which gets the arguments.
# Needs Go, python3 with venv, and PyPI the first time; without them it says so and succeeds.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
peer=${1:-}
if [ ! -f "$here/compare_$peer.py" ]; then
	echo "usage: $0 aisimulate|aiperf|tokenizers|pyzmq|sdks [ARGUMENT...]" >&2
	exit 2
fi
shift
cache=${XDG_CACHE_HOME:-$HOME/.cache}/agentsim-interop

skip() {
	echo "interop: $peer SKIPPED: $1"
	exit 0
}

install() { # makes the venv of a list of packages
	cmp -s "$here/$1.txt" "$cache/$1/installed.txt" && return
	mkdir -p "$cache"
	rm -rf "${cache:?}/$1"
	python3 -m venv "$cache/$1" >"$cache/install.log" 2>&1 || skip "python3 -m venv failed, see $cache/install.log"
	echo "interop: installing $1 from PyPI into $cache/$1, up to 600 MB"
	"$cache/$1/bin/pip" install --no-deps --only-binary=:all: -r "$here/$1.txt" >"$cache/install.log" 2>&1 ||
		skip "pip could not install it, see $cache/install.log: $(tail -n 1 "$cache/install.log")"
	cp "$here/$1.txt" "$cache/$1/installed.txt"
}

python3 -c 'import sys, venv; sys.exit(sys.version_info < (3, 11))' 2>/dev/null ||
	skip "no python3 from 3.11 on with venv"
install "$peer"
program=$peer
if [ "$peer" = sdks ]; then # what they say is recorded for a program in a venv of its own
	program=aisimulate
	install $program
fi

bin=$(mktemp -d)
trap 'rm -rf "$bin"' EXIT
(cd "$here/.." && go build -o "$bin/agentsim" ./cmd/agentsim)
"$cache/$peer/bin/python" -B "$here/compare_$peer.py" --agentsim "$bin/agentsim" "--$program" "$cache/$program/bin/$program" "$@"
