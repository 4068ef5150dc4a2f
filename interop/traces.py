"""Small traces that agentsim and aisimulate must agree on.

Every trace is made from a fixed seed, so each run of the comparison reads the same bytes. Prompts share prefixes as
agents' prompts do: a system prompt common to many sessions, then a history that grows from turn to turn.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

Row = dict[str, object]


@dataclass(frozen=True)
class Trace:
    """Rows of a trace file and how their hashes are to be read."""

    format: str  # aisimulate's name of the format
    block: int  # tokens per hash id
    rows: tuple[Row, ...]


class Ids:
    """Hash ids, none of which is given out twice."""

    def __init__(self) -> None:
        self.next = 1

    def take(self, n: int) -> list[int]:
        """Returns n new ids."""
        self.next += n
        return list(range(self.next - n, self.next))


class Prompt:
    """A prompt that grows: its tokens, and one hash id per block of them. The last block may be partial."""

    def __init__(self, ids: Ids, block: int, system: list[int]) -> None:
        self.ids, self.block = ids, block
        self.hashes, self.tokens = system, len(system) * block

    def grow(self, tokens: int) -> None:
        """Appends tokens that no other prompt has. A partial last block turns into another block."""
        whole = self.hashes[: self.tokens // self.block]
        self.tokens += tokens
        self.hashes = whole + self.ids.take(-(-self.tokens // self.block) - len(whole))


def delay_ms(rng: random.Random) -> float:
    """Draws 100 to 3000 ms, in microseconds so that no two requests are sent at the same instant, in some order."""
    return rng.randrange(100_000, 3_000_000) / 1000


def requests(count: int, gap_ms: int) -> Trace:
    """Single requests in Mooncake's format, each behind one of four system prompts; gap_ms is the mean between them."""
    rng, ids = random.Random(1), Ids()
    systems = [ids.take(n) for n in (1, 2, 3, 4)]

    def rows() -> Iterator[Row]:
        at = 0
        for i in range(count):
            prompt = Prompt(ids, 512, rng.choice(systems))
            prompt.grow(rng.randrange(1, 2500))
            yield {
                "request_id": f"single-{i}/0",
                "session_id": f"single-{i}",
                "timestamp": at,
                "input_length": prompt.tokens,
                "output_length": rng.randrange(1, 150),
                "hash_ids": prompt.hashes,
            }
            at += rng.randrange(1, 2 * gap_ms)

    return Trace("mooncake", 512, tuple(rows()))


def sessions(count: int, turns: int, gap_ms: int, companions: int = 0) -> Trace:
    """Sessions in Mooncake's format: every turn begins a delay after the one before it ended.

    Prompts end at the end of a block, see compare_aisimulate.py. The first companions rows are single requests that generate for
    the whole run.
    """
    rng, ids = random.Random(2), Ids()
    systems = [ids.take(n) for n in (2, 3)]

    def rows() -> Iterator[Row]:
        for i in range(companions):
            yield {
                "request_id": f"companion-{i}/0",
                "session_id": f"companion-{i}",
                "timestamp": 0,
                "input_length": 512,
                "output_length": 5000,
                "hash_ids": ids.take(1),
            }
        at = 1 if companions else 0
        for i in range(count):
            prompt = Prompt(ids, 512, rng.choice(systems))
            for turn in range(turns):
                prompt.grow(512 * rng.randrange(1, 4))
                yield {
                    "request_id": f"session-{i}/{turn}",
                    "session_id": f"session-{i}",
                    **({"delay": delay_ms(rng)} if turn else {"timestamp": at}),
                    "input_length": prompt.tokens,
                    "output_length": rng.randrange(1, 120),
                    "hash_ids": prompt.hashes,
                }
            at += rng.randrange(1, 2 * gap_ms)

    return Trace("mooncake", 512, tuple(rows()))


def recorded(count: int, turns: int, gap_ms: int, losses: int = 0) -> Trace:
    """Sessions as Dynamo records them (dynamo.request.trace.v1): the gap to the next turn is the recorded one.

    The first losses rows are those by which agentsim's recorder tells of rows that it lost.
    """
    rng, ids = random.Random(3), Ids()
    systems = [ids.take(n) for n in (40, 64)]

    def rows() -> Iterator[Row]:
        first = 1_700_000_000_000
        for _ in range(losses):
            name = "agentsim.rows_lost"
            yield {
                "schema": "dynamo.request.trace.v1",
                "event_type": "request_payload",
                "event_time_unix_ms": first,
                "payload": {
                    "request_id": name,
                    "endpoint": name,
                    "model": "",
                    "payload_complete": False,
                    "payload_drop_reason": name,
                },
                "agentsim": {"lost_rows": 3, "first_unix_ms": first, "last_unix_ms": first},
            }
        for i in range(count):
            prompt = Prompt(ids, 16, rng.choice(systems))
            start = first
            for turn in range(turns):
                prompt.grow(rng.randrange(50, 1500))
                output, took = rng.randrange(1, 120), rng.randrange(50, 900)
                yield {
                    "schema": "dynamo.request.trace.v1",
                    "event_type": "request_end",
                    "event_time_unix_ms": start + took,
                    "agent_context": {"session_id": f"recorded-{i}"},
                    "request": {
                        "request_id": f"recorded-{i}/{turn}",
                        "model": "model",
                        "input_tokens": prompt.tokens,
                        "output_tokens": output,
                        "request_received_ms": start,
                        "total_time_ms": took,
                        "replay": {
                            "trace_block_size": 16,
                            "input_length": prompt.tokens,
                            "input_sequence_hashes": prompt.hashes,
                        },
                    },
                }
                prompt.grow(output)
                start += took + rng.randrange(100, 3000)
            first += rng.randrange(1, 2 * gap_ms)

    return Trace("dynamo", 16, tuple(rows()))


def programs(count: int, gap_ms: int) -> Trace:
    """Programs in Dynamo's agentic Mooncake format, v2: a parent, two spawned children, and a turn that joins them."""
    rng, ids = random.Random(4), Ids()
    system = ids.take(40)

    def turn(session: str, number: int, prompt: Prompt, after: dict[str, str]) -> Row:
        prompt.grow(rng.randrange(50, 900))
        output = rng.randrange(1, 100)
        row: Row = {
            "request_id": f"{session}/{number}",
            "session_id": session,
            "model": "model",
            "input_length": prompt.tokens,
            "output_length": output,
            "hash_ids": prompt.hashes,
            "dependencies": [
                {"request_id": before, "trigger": "completion", "delay_ms": delay_ms(rng), "relation": relation}
                for before, relation in after.items()
            ],
        }
        prompt.grow(output)
        return row

    def program(root: str, left: str, right: str) -> Iterator[Row]:
        parent = Prompt(ids, 16, system)
        yield turn(root, 0, parent, {})
        yield turn(root, 1, parent, {f"{root}/0": "sequence"})
        for child in (left, right):
            prompt = Prompt(ids, 16, system)
            yield turn(child, 0, prompt, {f"{root}/1": "spawn"})
            yield turn(child, 1, prompt, {f"{child}/0": "sequence"})
        yield turn(root, 2, parent, {f"{root}/1": "sequence", f"{left}/1": "join", f"{right}/1": "join"})

    def rows() -> Iterator[Row]:
        yield {
            "schema": "dynamo.agentic_mooncake",
            "version": 2,
            "block_size": 16,
            "hash_id_scope": "local",
            "source": {"format": "mooncake", "digest": "none"},
        }
        at = 0
        for i in range(count):
            play = {"play_id": f"program-{i}", "source_play_ordinal": i, "not_before_ms": at}
            for row in program(f"root-{i}", f"left-{i}", f"right-{i}"):
                yield row | play
            at += rng.randrange(1, 2 * gap_ms)

    return Trace("agentic_mooncake", 16, tuple(rows()))
