"""Runs agentsim and aisimulate on the same small traces and configs, and compares what they say.

Both read aisimulate's config and simulate round-robin workers with a fixed number of KV blocks and fixed step times: a step takes PREFILL_MS if it
computes prompt tokens, plus DECODE_MS if it generates for requests that had a token before. Everything that both tell
of a request must be equal: its prompt and output tokens, its reused tokens (found in the prefix cache when it was first
admitted) and its times to the first and to the last token. So must the numbers of completed requests and preemptions.

What sets the two apart, found by experiment with the version in aisimulate.txt, is configured away or kept out of the
traces:

  - vLLM keeps one KV block as the null block; aisimulate has none. agentsim adds one to a config of aisimulate.
  - aisimulate takes freed blocks without a hash before cached ones, as vLLM does after 0.23, not before.
  - aisimulate invents generated tokens, so that no later prompt matches them. agentsim infers them from later prompts.
  - When a prompt ends inside a trace block, the next turn's prompt has another id for that block. aisimulate shares
    nothing of it, agentsim the tokens up to the end of the earlier prompt.
  - A request that was preempted counts as a decode of the step that admits it again in aisimulate, and as a prefill
    only if computed tokens were lost. In agentsim it is a prefill. So other requests must decode in such steps (the
    companions of traces.sessions), and no preempted request may find all its blocks again.
  - Requests sent at the same instant may be routed in another order, unless they are rows of one timestamp.

    compare_aisimulate.py --agentsim BINARY --aisimulate BINARY [--dir DIR] [SCENARIO...]

Exit code: 0 all agree, 1 some do not, 2 one of the programs failed.
"""

from __future__ import annotations

import argparse
import gzip
import json
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import traces
from programs import ProgramError

BLOCK = 16  # tokens per KV block
PREFILL_MS, DECODE_MS = 10, 5
SAME_MS = 0.01  # times closer than this are the same


@dataclass(frozen=True)
class Scenario:
    """One trace and the deployment that both programs simulate on it."""

    name: str
    trace: traces.Trace
    kv_blocks: int  # usable KV blocks per worker
    workers: int = 2
    batched_tokens: int = 8192
    # What must happen for the scenario to test what it is for.
    evicts: bool = False
    preempts: bool = False


SINGLE = traces.requests(count=200, gap_ms=60)
SESSIONS = traces.sessions(count=40, turns=6, gap_ms=200)
BUSY = traces.sessions(count=80, turns=6, gap_ms=60, companions=2)
RECORDED = traces.recorded(count=40, turns=6, gap_ms=200)
LOST = traces.recorded(count=40, turns=6, gap_ms=200, losses=2)
PROGRAMS = traces.programs(count=40, gap_ms=200)

SCENARIOS = (
    Scenario("single", SINGLE, 60_000),
    Scenario("single, chunked prefill", SINGLE, 60_000, batched_tokens=512),
    Scenario("single, few blocks", SINGLE, 1_500, evicts=True),
    Scenario("single, many", traces.requests(count=5000, gap_ms=15), 4_000, workers=8, evicts=True),
    Scenario("sessions", SESSIONS, 60_000),
    Scenario("sessions, few blocks", SESSIONS, 2_500, evicts=True),
    Scenario("sessions, preempted", BUSY, 1_200, evicts=True, preempts=True),
    Scenario("recorded", RECORDED, 60_000),
    Scenario("recorded, rows lost", LOST, 60_000),
    Scenario("recorded, few blocks", RECORDED, 1_500, evicts=True),
    Scenario("programs", PROGRAMS, 60_000, workers=3),
    Scenario("programs, few blocks", PROGRAMS, 900, workers=3, evicts=True),
)


@dataclass(frozen=True)
class Request:
    """What became of one completed request."""

    input: int  # tokens
    output: int
    reused: int
    ttft: float  # ms
    e2e: float

    def equals(self, other: Request) -> bool:
        """Compares all but differences of rounding in times."""
        tokens = (self.input, self.output, self.reused) == (other.input, other.output, other.reused)
        return tokens and abs(self.ttft - other.ttft) < SAME_MS and abs(self.e2e - other.e2e) < SAME_MS


@dataclass(frozen=True)
class Result:
    """What one program says about a scenario."""

    completed: int
    requests: dict[str, Request]  # by request id
    preemptions: int
    evicted: int  # blocks; 0 from aisimulate, which does not tell
    wall: float  # seconds, from start to exit of the program
    simulating: float | None = None  # seconds of it, by the program's own account: without start, loading and writing

    def total(self, field: str) -> int:
        """Sums one field of all requests."""
        return sum(getattr(r, field) for r in self.requests.values())


def run(command: list[str], *, doubts: bool = False) -> float:
    """Runs a command and returns its wall time in seconds. With doubts it may end with agentsim's exit code 3."""
    start = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode and not (doubts and done.returncode == 3):
        raise ProgramError(f"{' '.join(command)}\nexit code {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
    return time.monotonic() - start


def deployment(s: Scenario, file: Path) -> Path:
    """Writes the scenario as a config of aisimulate, which both programs read."""
    config = {
        "traffic": {
            "source": {"type": "trace", "format": s.trace.format, "paths": [str(file)], "block_size": s.trace.block},
            "load": {"type": "trace_timestamps"},
        },
        "engine": {
            "mode": "aggregated",
            "backend": "vllm",
            "model": "Qwen/Qwen3-32B",  # only names a config.json in its wheel: blocks and step times are given
            "hardware": "h100_sxm",
            "workers": {
                "aggregated": {
                    "parallelism": {"replicas": s.workers},
                    "scheduler": {"max_batched_tokens": s.batched_tokens, "max_sequences": 256},
                    "kv_cache": {
                        "block_size": BLOCK,
                        "capacity": {"type": "fixed", "blocks": s.kv_blocks},
                    },
                    "timing": {"type": "fixed", "prefill_ms": PREFILL_MS, "decode_ms": DECODE_MS},
                }
            },
        },
    }
    path = file.with_suffix(".yaml")
    path.write_text(json.dumps(config))  # JSON is YAML
    return path


def run_agentsim(binary: str, config: Path, out: Path) -> Result:
    """Predicts a scenario with agentsim."""
    settings = {
        "engine.version": "0.24",  # freed blocks without a hash are taken before cached ones, as aisimulate does
        "client.timeout": "0s",
        # aisimulate knows no generated tokens and has no history from before the trace.
        "workload.outputs": "none",
        "workload.warm_start": "false",
    }
    command = [binary, "predict", "-c", str(config), "-o", str(out), "--traces"]
    for key, value in settings.items():
        command += ["--set", f"{key}={value}"]
    wall = run(command, doubts=True)  # of a trace that lost rows, say; what it says is compared all the same

    report = json.loads((out / "report.json").read_text())["runs"][0]
    requests = {}
    for segment in sorted(out.glob("*.trace.*.jsonl.gz")):
        with gzip.open(segment, "rt") as lines:
            for line in lines:
                record = json.loads(line)["event"]
                if record["event_type"] == "request_end":
                    r = record["request"]
                    requests[r["request_id"]] = Request(
                        r["input_tokens"], r["output_tokens"], r["cached_tokens"], r["ttft_ms"], r["total_time_ms"]
                    )
    return Result(
        report["requests"]["completed"], requests, report["preemptions"], report["kv"]["evicted_blocks"], wall
    )


def run_aisimulate(binary: str, config: Path, out: Path) -> Result:
    """Predicts a scenario with aisimulate."""
    wall = run(
        [binary, "predict", "--stack", "engine", "-c", str(config), "--output-dir", str(out), "--capture-per-request"]
    )

    report = json.loads((out / "prediction.json").read_text())
    requests, preemptions = {}, 0
    for line in (out / "requests.jsonl").read_text().splitlines():
        r = json.loads(line)
        # Mooncake's request_id is dropped on the way; a session's turns are numbered instead.
        name = r.get("request_id") or f"{r['session_id']}/{r['turn_index']}"
        preemptions += r["readmission_count"]
        if r["terminal_status"] == "completed":
            requests[name] = Request(
                r["input_length"],
                r["output_length"],
                r["first_admission_reused_input_tokens"],
                r["ttft_ms"],
                r["e2e_latency_ms"],
            )
    return Result(report["completed_requests"], requests, preemptions, 0, wall, report["wall_time_ms"] / 1000)


def differences(s: Scenario, ours: Result, theirs: Result) -> list[str]:
    """Says where the two results break the rules of the scenario."""
    pairs = {
        "completed requests": (ours.completed, theirs.completed),
        "names of requests": (sorted(ours.requests), sorted(theirs.requests)),
        "input tokens": (ours.total("input"), theirs.total("input")),
        "output tokens": (ours.total("output"), theirs.total("output")),
        "reused tokens": (ours.total("reused"), theirs.total("reused")),
        "preemptions": (ours.preemptions, theirs.preemptions),
    }
    found = [f"{what}: {str(a):.60} and {str(b):.60}" for what, (a, b) in pairs.items() if a != b]
    apart = [
        name for name, r in ours.requests.items() if name in theirs.requests and not r.equals(theirs.requests[name])
    ]
    if apart:
        first = apart[0]
        found.append(f"{len(apart)} requests, {first} first: {ours.requests[first]} and {theirs.requests[first]}")
    if theirs.total("reused") == 0:
        found.append("nothing was reused, so nothing was tested")
    if s.evicts != (ours.evicted > 0):
        found.append(f"{ours.evicted} blocks were evicted, but the scenario wants {'some' if s.evicts else 'none'}")
    if s.preempts != (ours.preemptions > 0):
        found.append(f"{ours.preemptions} preemptions, but the scenario wants {'some' if s.preempts else 'none'}")
    return found


def print_result(name: str, program: str, r: Result) -> None:
    """Prints one row of the table."""
    print(
        f"{name:25}{program:11}{r.completed:>9}{r.total('input'):>9}{r.total('output'):>8}{r.total('reused'):>9}"
        f"{r.preemptions:>12}{r.wall:>8.2f}s" + (f"{r.simulating:>11.2f}s" if r.simulating is not None else "")
    )


def main() -> int:
    """Compares all scenarios, or those whose names begin with an argument."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agentsim", default="agentsim")
    parser.add_argument("--aisimulate", default="aisimulate")
    parser.add_argument("--dir", type=Path, help="keep traces and results in this new folder")
    parser.add_argument("scenario", nargs="*")
    args = parser.parse_args()
    if args.dir and args.dir.exists():
        parser.error(f"--dir {args.dir} exists")
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # rows appear as they are made
    chosen = [s for s in SCENARIOS if not args.scenario or s.name.startswith(tuple(args.scenario))]
    if not chosen:
        parser.error(f"no such scenario; there are {', '.join(s.name for s in SCENARIOS)}")

    print(f"{'scenario':25}{'program':11}completed    input  output   reused preemptions     wall  simulating")
    failed = 0
    with tempfile.TemporaryDirectory() as scratch:
        for s in chosen:
            folder = (args.dir or Path(scratch)) / s.name.replace(", ", "-").replace(" ", "-")
            folder.mkdir(parents=True)
            file = folder / "trace.jsonl"
            file.write_text("".join(json.dumps(row) + "\n" for row in s.trace.rows))
            try:
                config = deployment(s, file)
                ours = run_agentsim(args.agentsim, config, folder / "agentsim")
                theirs = run_aisimulate(args.aisimulate, config, folder / "aisimulate")
            except ProgramError as error:
                print(f"{s.name}: {error}", file=sys.stderr)
                return 2
            print_result(s.name, "agentsim", ours)
            print_result("", "aisimulate", theirs)
            found = differences(s, ours, theirs)
            failed += bool(found)
            for line in found:
                print(f"{'':25}MISMATCH   {line}")
    print(f"\n{len(chosen) - failed} of {len(chosen)} scenarios agree")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
