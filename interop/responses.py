"""A server of OpenAI's responses, of which `agentsim serve` has none: scripted answers, streamed or not."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
BLOCK = 16  # tokens per block of its cache, which has the response that a request goes on from
WORDS = ("one ", "two ", "three ", "and four")


class Handler(BaseHTTPRequestHandler):
    """Answers a first turn with the call of a tool, and others with text."""

    def do_POST(self) -> None:
        """Answers POST /v1/responses; the server has no other path."""
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/v1/responses":
            self.send_error(404)
            return
        body = json.loads(raw)
        kept = self.server.kept
        before = kept.get(body.get("previous_response_id"), 0)
        events = list(answer(body, len(kept) + 1, before + len(raw) // 4, max(before - 1, 0) // BLOCK * BLOCK))
        done = events[-1]["response"]
        kept[done["id"]] = done["usage"]["total_tokens"]
        self.send_response(200)
        self.send_header("Connection", "close")
        if body.get("stream"):
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            for number, event in enumerate(events):
                text = json.dumps(event | {"sequence_number": number})
                self.wfile.write(f"event: {event['type']}\ndata: {text}\n\n".encode())
        else:
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(json.dumps(done).encode())

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def answer(body: Json, number: int, input: int, cached: int) -> Iterator[Json]:
    """Makes the events of an answer; the last has all of it."""
    response: Json = {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "model": body["model"],
        "status": "in_progress",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": body["tools"],
    }
    yield {"type": "response.created", "response": response}
    called = any(item.get("type") == "function_call_output" for item in body["input"])
    place = {"item_id": f"item_{number}", "output_index": 0}
    if called or "previous_response_id" in body:
        item: Json = {
            "id": place["item_id"],
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        part = {"type": "output_text", "annotations": [], "text": ""}
        place["content_index"] = 0
        yield {"type": "response.output_item.added", "output_index": 0, "item": item}
        yield {"type": "response.content_part.added", **place, "part": part}
        for word in WORDS:
            yield {"type": "response.output_text.delta", **place, "delta": word, "logprobs": []}
        part = part | {"text": "".join(WORDS)}
        yield {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **place, "part": part}
        item = item | {"status": "completed", "content": [part]}
    else:
        item = {
            "id": place["item_id"],
            "type": "function_call",
            "call_id": f"call_{number}",
            "name": "run",
            "arguments": "",
        }
        arguments = json.dumps({"command": "".join(WORDS)})
        yield {"type": "response.output_item.added", "output_index": 0, "item": item}
        yield {"type": "response.function_call_arguments.delta", **place, "delta": arguments[:9]}
        yield {"type": "response.function_call_arguments.delta", **place, "delta": arguments[9:]}
        yield {"type": "response.function_call_arguments.done", **place, "arguments": arguments, "name": "run"}
        item = item | {"status": "completed", "arguments": arguments}
    yield {"type": "response.output_item.done", "output_index": 0, "item": item}
    usage = {
        "input_tokens": input,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": 7,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input + 7,
    }
    yield {
        "type": "response.completed",
        "response": response | {"status": "completed", "output": [item], "usage": usage},
    }


@contextlib.contextmanager
def serving() -> Iterator[str]:
    """Serves on a free port and yields the URL."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.kept = {}  # tokens of prompt and answer by the id of a response
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
