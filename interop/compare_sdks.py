"""Lets agents that use the official SDKs of OpenAI and Anthropic work through `agentsim record`.

What the SDKs say must be what they say without the proxy, event by event. The trace must have what the clients counted,
pass `agentsim validate` without a warning and go into `agentsim predict`; aisimulate must read the same from it.

    compare_sdks.py --agentsim BINARY --aisimulate BINARY [--dir DIR]

Exit code: 0 all agree, 1 some do not, 2 one of the programs failed.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import responses
from agents import MODEL, SECRET, STALLS, Agents, Call
from compare_aisimulate import BLOCK, Scenario, deployment, run_agentsim, run_aisimulate
from programs import ProgramError, serving
from traces import Trace

KV_BLOCKS = 60_000

Json = dict[str, Any]


def calls_at(url: str, work: Callable[[Agents], None]) -> list[Call]:
    """Lets agents work with a server."""
    agents = Agents(url)
    try:
        work(agents)
    finally:
        agents.close()
    return agents.calls


def through_proxy(agentsim: str, folder: Path, upstream: str, work: Callable[[Agents], None]) -> list[Call]:
    """Lets agents work through a recorder, which adds to the trace of the folder."""
    command = [agentsim, "record", "--upstream", upstream, "-o", str(folder / "run"), "--block-size", str(BLOCK)]
    with serving(command, folder, strict=True) as url:
        return calls_at(url, work)


def record(agentsim: str, folder: Path) -> tuple[list[Call], list[Call]]:
    """Has all work done twice, against servers that have just started, and returns the calls without and with the proxy."""
    serve = [agentsim, "serve", "--model", MODEL, "--output-tokens", "30", "--time-scale", "10"]
    with serving(serve, folder) as url:
        direct = calls_at(url, Agents.work)
    with serving(serve, folder) as url:
        proxied = through_proxy(agentsim, folder, url, Agents.work)
    with responses.serving() as url:
        direct += calls_at(url, Agents.work_responses)
    with responses.serving() as url:
        proxied += through_proxy(agentsim, folder, url, Agents.work_responses)
    return direct, proxied


def read(folder: Path) -> list[Json]:
    """Reads the rows of the trace in the order of the calls, which never overlap."""
    rows = []
    for segment in sorted(folder.glob("run.*.jsonl.gz")):
        with gzip.open(segment, "rt") as lines:
            rows += [json.loads(line)["event"] for line in lines]
    return sorted(rows, key=lambda r: (r["request"]["request_received_ms"], r["request"]["request_id"]))


def answers_apart(direct: list[Call], proxied: list[Call]) -> list[str]:
    """Says which answers the proxy changed."""
    found = [] if len(direct) == len(proxied) else [f"{len(direct)} calls without the proxy, {len(proxied)} with it"]
    for i, (a, b) in enumerate(zip(direct, proxied)):
        if len(a.seen) != len(b.seen):
            found.append(f"call {i} of {a.session.id}: {len(a.seen)} events without the proxy, {len(b.seen)} with it")
        found += [
            f"call {i} of {a.session.id}: {x} without the proxy, {y} with it" for x, y in zip(a.seen, b.seen) if x != y
        ][:1]
    return found


def rows_apart(calls: list[Call], rows: list[Json]) -> list[str]:
    """Says where rows are not what the clients counted."""
    if len(calls) != len(rows):
        return [f"{len(calls)} calls, {len(rows)} rows"]
    found = []
    names: dict[str, str] = {}  # recorded ids of sessions without headers, by the name here
    for i, (call, row) in enumerate(zip(calls, rows)):
        context, request, about = row["agent_context"], row["request"], row["request"]["agentsim"]
        output = request["output_tokens"]
        inferred = "session" in about.get("inferred", [])
        pairs = {
            "status": ("unfinished" if call.broken else "completed", about["status"]),
            "input tokens": (call.input, request["input_tokens"]),
            "output tokens": (min(max(output, call.output), STALLS if call.broken else call.output), output),
            "parent": (call.session.parent, context.get("parent_session_id", "")),
            "session without headers": (not call.session.headers, inferred),
            "session": (
                names.setdefault(call.session.id, context["session_id"]) if inferred else call.session.id,
                context["session_id"],
            ),
        }
        found += [f"call {i} of {call.session.id}: {what} {a}, row {b}" for what, (a, b) in pairs.items() if a != b]
    if len(set(names.values())) != len(names):
        found.append(f"conversations without headers were joined: {names}")
    return found


def hits_apart(calls: list[Call], rows: list[Json]) -> list[str]:
    """Says where the hashes of a prompt share another prefix with earlier ones than the server found in its KV cache.

    The cache has full blocks, of answers too but for the last token, and never gives a whole prompt.
    """
    found = []
    known: set[int] = set()
    for i, (call, row) in enumerate(zip(calls, rows)):
        request = row["request"]
        hashes, input = request["replay"]["input_sequence_hashes"], request["input_tokens"]
        if call.exact:
            hit = BLOCK * len(list(itertools.takewhile(known.__contains__, hashes[: (input - 1) // BLOCK])))
            if hit != request["cached_tokens"]:
                found.append(
                    f"call {i} of {call.session.id}: {request['cached_tokens']} tokens cached, hashes of {hit}"
                )
        computed = (input + request["output_tokens"] - 1) // BLOCK
        known.update(hashes[: input // BLOCK], request["agentsim"].get("completion_sequence_hashes", [])[:computed])
    return found


def text_in(folder: Path) -> list[str]:
    """Says which files hold text that nobody may read there."""
    found = []
    for file in folder.iterdir():
        text = (
            gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes() if file.is_file() else b""
        )
        found += [f"{file.name} holds {word!r}" for word in (SECRET, "unlikely") if word.encode() in text]
    return found


def validation(agentsim: str, folder: Path) -> list[str]:
    """Says what `agentsim validate` warns of."""
    done = subprocess.run(
        [agentsim, "validate", "--strict", str(folder / "run")], capture_output=True, text=True, check=False
    )
    return [f"validate, exit code {done.returncode}: {done.stdout}{done.stderr}"] if done.returncode else []


def prediction(agentsim: str, folder: Path) -> list[str]:
    """Says how `agentsim predict` fails."""
    command = [agentsim, "predict", str(folder / "run"), "--model", MODEL, "-o", str(folder / "predicted")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return [f"predict, exit code {done.returncode}: {done.stdout}{done.stderr}"] if done.returncode else []


def tree_of(out: Path) -> dict[str, str]:
    """Reads the parent of each session, "" for a root, from what aisimulate wrote: the first request of a child names one of its parent."""
    requests = [json.loads(line)["agentic"] for line in (out / "requests.jsonl").read_text().splitlines()]
    sessions = {r["request_id"]: r["conversation_id"] for r in requests}
    tree = dict.fromkeys(sessions.values(), "")
    return tree | {r["conversation_id"]: sessions[r["parent_id"]] for r in requests if "parent_id" in r}


def peers_apart(args: argparse.Namespace, folder: Path, rows: list[Json]) -> list[str]:
    """Says what agentsim and aisimulate read otherwise than it was recorded. Both take the same deployment."""
    file = folder / "trace.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = deployment(Scenario("sdks", Trace("dynamo", BLOCK, ()), KV_BLOCKS), file)
    ours = run_agentsim(args.agentsim, config, folder / "agentsim")
    theirs = run_aisimulate(args.aisimulate, config, folder / "aisimulate")
    requests = [row["request"] for row in rows]
    want = {r["request_id"]: (r["input_tokens"], r["output_tokens"]) for r in requests}
    found = []
    for name, result in ("agentsim", ours), ("aisimulate", theirs):
        got = {id: (r.input, r.output) for id, r in result.requests.items()}
        if result.completed != len(rows) or got != want:
            found.append(
                f"{name} completes {result.completed} of {len(rows)} requests; {dict(got.items() ^ want.items())} are apart"
            )
    contexts = [row["agent_context"] for row in rows]
    tree = {c["session_id"]: c.get("parent_session_id", "") for c in contexts}
    if (read := tree_of(folder / "aisimulate")) != tree:
        found.append(f"aisimulate reads the sessions {read}, not {tree}")
    return found


def main() -> int:
    """Records, and checks what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agentsim", default="agentsim")
    parser.add_argument("--aisimulate", default="aisimulate")
    parser.add_argument("--dir", type=Path, help="keep the trace and results in this new folder")
    args = parser.parse_args()
    if args.dir and args.dir.exists():
        parser.error(f"--dir {args.dir} exists")
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        folder = (args.dir or Path(scratch)).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        try:
            direct, proxied = record(args.agentsim, folder)
            rows = read(folder)
            events = sum(len(call.seen) for call in proxied)
            for what, found in (
                (
                    f"{len(proxied)} answers in {events} objects of the SDKs are the same with the proxy",
                    answers_apart(direct, proxied),
                ),
                ("requests, lengths and sessions are those that the clients counted", rows_apart(proxied, rows)),
                ("prompts share the blocks that the server found cached", hits_apart(proxied, rows)),
                ("no prompt and no credential is in a file", text_in(folder)),
                ("agentsim validate has nothing to say", validation(args.agentsim, folder)),
                ("agentsim predict takes the trace", prediction(args.agentsim, folder)),
                (
                    "agentsim and aisimulate read the same requests, lengths and sessions",
                    peers_apart(args, folder, rows),
                ),
            ):
                failed += bool(found)
                print(f"{'MISMATCH' if found else 'ok':10}{what}")
                for line in found:
                    print(f"{'':10}{line:.2000}")
        except ProgramError as error:
            print(error, file=sys.stderr)
            return 2
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
