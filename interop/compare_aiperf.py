"""Profiles `agentsim serve` with AIPerf and with `agentsim replay`, and compares what the two clients measured.

Both send the same Mooncake trace on its own schedule and stream the answers, of completions and of chats. They take turns,
several times each, and every run meets a server that has just started, so that all find the same empty KV cache. Shown
are the medians of the runs of each client; the median of the differences between neighbours is what must be small. What
both count (requests, tokens, cached tokens) must be equal.

AIPerf needs a tokenizer to make prompts of given lengths: here a token is a word, as it is for the server. It adds the
tokens of the chat template to the recorded length, which has them already: the prompts of its trace of chats are shorter
by them.

    compare_aiperf.py --agentsim BINARY --aiperf BINARY [--dir DIR] [--pairs N] [ENDPOINT...]

Exit code: 0 all agree, 1 some do not, 2 one of the programs failed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import tokenizers
import traces
from programs import ProgramError, serving

MODEL = "llama-3.3-70b"  # slow enough that what a client adds is a small share
DEPLOYMENT = ["--model", MODEL, "--tp", "4", "--workers", "1"]
ENDPOINTS = ("completions", "chat")
TRACE = traces.requests(count=24, gap_ms=150)
# Metrics under AIPerf's names, which agentsim's reports have too. Latencies are means over the requests.
LATENCIES = ("time_to_first_token", "inter_token_latency", "request_latency")
RATES = ("request_throughput", "output_token_throughput")
COUNTED = ("request_count", "prompt tokens", "output tokens", "cached tokens")
SHARE, MS = 0.05, 3  # a difference is small below this share of agentsim's figure, or below so many ms
RUN_LIMIT = 90  # seconds for one run of a client, which takes 7 to 20
ENDPOINT_LIMIT = 100  # seconds after which no further pair of runs begins, if there are FEWEST
FEWEST = 3

Figures = dict[str, float]  # by name of the metric


def run(command: list[str], folder: Path, **env: str) -> None:
    """Runs a command to its end, or ends it with all its children when it takes too long."""
    log = folder / "log.txt"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=os.environ | env, start_new_session=True
        )
        try:
            code = process.wait(RUN_LIMIT)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
    # Exit code 3 of agentsim says that the client was late: here what it measured is judged.
    if code not in (0, 3):
        raise ProgramError(f"{' '.join(command)}\nexit code {code}: {log.read_text(errors='replace')[-3000:]}")


def server(agentsim: str, folder: Path) -> contextlib.AbstractContextManager[str]:
    """Serves the deployment."""
    return serving([agentsim, "serve", *DEPLOYMENT], folder)


def template_tokens(agentsim: str, folder: Path) -> int:
    """Asks a server how many tokens its chat template adds to a prompt of one message."""
    with server(agentsim, folder) as url:
        body = json.dumps({"messages": [{"role": "user", "content": ""}]}).encode()
        with urllib.request.urlopen(f"{url}/tokenize", body, timeout=10) as answer:
            return json.load(answer)["count"]


def write_trace(file: Path, without: int) -> None:
    """Writes the trace with so many tokens less in each prompt."""
    with file.open("w") as out:
        for row in TRACE.rows:
            length = row["input_length"] - without
            changed = row | {"input_length": length, "hash_ids": row["hash_ids"][: -(-length // TRACE.block)]}
            print(json.dumps(changed), file=out)


def write_tokenizer(cache: Path) -> str:
    """Writes a tokenizer as an entry of Hugging Face's cache and returns its name.

    A token is a space and the first two letters of a word. AIPerf's offline processes take no path of a tokenizer.
    """
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = [" " + "".join(pair) for n in (1, 2) for pair in itertools.product(letters, repeat=n)]
    t = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token=" a"))
    t.normalizer = tokenizers.normalizers.Sequence(
        [
            tokenizers.normalizers.Lowercase(),
            tokenizers.normalizers.Prepend(" "),
            tokenizers.normalizers.Replace(tokenizers.Regex("[^a-z]+"), " "),
        ]
    )
    t.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(" [a-z]{1,2}"), "removed", invert=True)
    t.decoder = tokenizers.decoders.Fuse()
    revision = "0" * 40
    repository = cache / "models--agentsim--words"
    snapshot = repository / "snapshots" / revision
    snapshot.mkdir(parents=True)
    t.save(str(snapshot / "tokenizer.json"))
    (snapshot / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(revision)
    return "agentsim/words"


def run_aiperf(binary: str, url: str, endpoint: str, trace: Path, folder: Path) -> Figures:
    """Profiles a server with AIPerf."""
    cache = folder / "hub"
    tokenizer = write_tokenizer(cache)
    command = [binary, "profile", "--model", MODEL, "--url", url, "--endpoint-type", endpoint, "--streaming"]
    command += ["--input-file", str(trace), "--custom-dataset-type", "mooncake_trace", "--fixed-schedule"]
    command += ["--tokenizer", tokenizer, "--extra-inputs", "ignore_eos:true", "--random-seed", "1"]
    command += ["--workers-max", "1", "--ui", "none", "--no-gpu-telemetry", "--artifact-dir", str(folder)]
    env = {"HOME": str(folder), "TMPDIR": str(folder)}  # its caches and temporary files go with the folder
    env |= {"HF_HUB_CACHE": str(cache), "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    env |= {"AIPERF_SERVER_METRICS_COLLECTION_FLUSH_PERIOD": "0"}  # else it waits for 2 s
    run(command, folder, **env)

    export = json.loads((folder / "profile_export_aiperf.json").read_text())
    if export["error_summary"] or export["was_cancelled"]:
        raise ProgramError(f"AIPerf met errors: {export['error_summary']}")
    figures = {name: export[name]["avg"] for name in LATENCIES + RATES}
    figures["request_count"] = export["request_count"]["avg"]
    for name, total in (("prompt", "prompt"), ("output", "completion"), ("cached", "prompt_cache_read")):
        figures[f"{name} tokens"] = export[f"total_usage_{total}_tokens"]["avg"]
    return figures


def run_replay(binary: str, url: str, endpoint: str, trace: Path, folder: Path) -> Figures:
    """Replays the trace against a server with agentsim."""
    prompts = "text" if endpoint == "chat" else "token-ids"
    command = [binary, "replay", str(trace), "--url", url, "--endpoint", endpoint, "--prompts", prompts]
    run(command + ["--salt", "1", "-o", str(folder / "out")], folder)

    report = json.loads((folder / "out" / "report.json").read_text())["runs"][0]
    names = report["aliases"]["aiperf"]
    figures = {name: names[name]["avg"] for name in LATENCIES + RATES}
    figures["request_count"] = names["request_count"]["avg"]
    figures["prompt tokens"] = report["replay"]["prompt_tokens"]["reported"]
    figures["output tokens"] = report["replay"]["output_tokens"]["reported"]
    figures["cached tokens"] = report["kv"]["hit_tokens"]
    return figures


def compare(endpoint: str, pairs: list[tuple[Figures, Figures]]) -> bool:
    """Prints the figures of an endpoint and tells whether they agree. A pair is AIPerf's figures, and agentsim's."""
    agree = True
    for name in COUNTED:
        values = {figures[name] for pair in pairs for figures in pair}
        agree &= len(values) == 1
        said = f"{values.pop():>11.0f} in all runs" if len(values) == 1 else f"MISMATCH {sorted(values)}"
        print(f"{endpoint:13}{name:25}{said}")
    for name in LATENCIES + RATES:
        theirs, ours = (statistics.median(figures[name] for figures in side) for side in zip(*pairs))
        apart = statistics.median(a[name] - b[name] for a, b in pairs)
        shares = [a[name] / b[name] - 1 for a, b in pairs]
        share = statistics.median(shares)
        small = abs(share) <= SHARE or name in LATENCIES and abs(apart) <= MS
        agree &= small
        each = " ".join(f"{100 * one:+.1f}" for one in shares)
        print(
            f"{endpoint:13}{name:25}{theirs:>11.2f}{ours:>11.2f}{apart:>+9.2f}{100 * share:>+7.1f}%  ({each})"
            + ("" if small else "  MISMATCH")
        )
    return agree


def main() -> int:
    """Compares all endpoints, or those that are named."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agentsim", default="agentsim")
    parser.add_argument("--aiperf", default="aiperf")
    parser.add_argument("--dir", type=Path, help="keep traces and results in this new folder")
    parser.add_argument("--pairs", type=int, default=5, help="most runs of each client")
    parser.add_argument("endpoint", nargs="*", help=f"{' or '.join(ENDPOINTS)} (default: both)")
    args = parser.parse_args()
    if args.dir and args.dir.exists():
        parser.error(f"--dir {args.dir} exists")
    if args.pairs < 1 or set(args.endpoint) - set(ENDPOINTS):
        parser.error(f"want at least one pair, and endpoints among {', '.join(ENDPOINTS)}")
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # rows appear as they are made
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended

    print(f"{'endpoint':13}{'metric':25}{'aiperf':>11}{'agentsim':>11}{'apart':>9}{'':8}  (each pair, %)")
    agree = True
    with tempfile.TemporaryDirectory() as scratch:
        root = (args.dir or Path(scratch)).resolve()
        try:
            for endpoint in args.endpoint or ENDPOINTS:
                pairs = measure(args, endpoint, root / endpoint)
                agree &= compare(endpoint, pairs)
        except (ProgramError, subprocess.TimeoutExpired) as error:
            print(error, file=sys.stderr)
            return 2
    print("\nthe clients agree" if agree else "\nthe clients do not agree")
    return 0 if agree else 1


def measure(args: argparse.Namespace, endpoint: str, root: Path) -> list[tuple[Figures, Figures]]:
    """Runs the clients in turns and returns the figures of each pair."""
    root.mkdir(parents=True)
    full, bare = root / "trace.jsonl", root / "trace-without-template.jsonl"
    write_trace(full, 0)
    write_trace(bare, template_tokens(args.agentsim, root) if endpoint == "chat" else 0)
    clients = ((run_aiperf, args.aiperf, bare), (run_replay, args.agentsim, full))
    pairs: list[tuple[Figures, Figures]] = []
    start = time.monotonic()
    for i in range(args.pairs):
        if i >= FEWEST and time.monotonic() - start > ENDPOINT_LIMIT:
            break
        pair = {}
        for client, binary, trace in clients if i % 2 == 0 else clients[::-1]:
            folder = root / f"{i}-{client.__name__}"
            folder.mkdir()
            with server(args.agentsim, folder) as url:
                pair[client] = client(binary, url, endpoint, trace, folder)
        pairs.append((pair[run_aiperf], pair[run_replay]))
    return pairs


if __name__ == "__main__":
    sys.exit(main())
