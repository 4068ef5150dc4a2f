"""Sends tool events to a ZeroMQ endpoint as Dynamo's harness plugins do: a PUSH socket, three frames, MessagePack.

    tool_events.py ENDPOINT COUNT

Sends COUNT events that are sound and, among them, messages that a receiver must drop. Exits when all are handed over.
"""

from __future__ import annotations

import sys
import time

import msgpack
import zmq

TOPIC = b"agent-tool-events"


def event(i: int) -> dict[str, object]:
    """Makes the end of tool call i, which took 400.5 ms."""
    end = 1_790_000_000_000 + i
    return {
        "schema": "dynamo.request.trace.v1",
        "event_type": "tool_end",
        "event_time_unix_ms": end,
        "event_source": "harness",
        "agent_context": {"session_id": "root" if i % 2 else "kid", "parent_session_id": None if i % 2 else "root"},
        "tool": {
            "tool_call_id": f"call-{i}",
            "tool_class": "grep",
            "ended_at_unix_ms": end,
            "duration_ms": 400.5,
            "status": "succeeded",
            "output_bytes": 2**40 + i,
        },
        # Frames are short up to 255 bytes and long from there on.
        "note": "é" * (i * 7 % 1000),
    }


def send(context: zmq.Context, endpoint: str, events: range, heartbeats: bool) -> bool:
    """Sends events over one connection. With heartbeats, tells whether it held for a second of them."""
    held = True
    with context.socket(zmq.PUSH) as socket:
        socket.setsockopt(zmq.LINGER, 20_000)
        if heartbeats:
            socket.setsockopt(zmq.HEARTBEAT_IVL, 50)
            socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 500)  # libzmq hangs up on a peer that answers no PING
        with socket.get_monitor_socket(zmq.EVENT_DISCONNECTED) as hung_up:
            socket.connect(endpoint)
            for i in events:
                record = msgpack.packb(event(i))
                number = i.to_bytes(8, "big")
                if i % 10 == 0:
                    socket.send_multipart([TOPIC, record])
                    socket.send_multipart([b"another topic", number, record])
                    socket.send_multipart([TOPIC, number, b"\xc1"])
                socket.send_multipart([TOPIC, number, record])
            if heartbeats:
                time.sleep(1)
                held = not hung_up.poll(0)
            socket.disable_monitor()
    return held


def main() -> int:
    """Connects twice, sends and waits until the peer has it all."""
    endpoint, count = sys.argv[1], int(sys.argv[2])
    context = zmq.Context()
    if not send(context, endpoint, range(count // 2), heartbeats=True):
        print("the connection broke: was a PING not answered?", file=sys.stderr)
        return 1
    # Without heartbeats, since a peer that has not read the last answer as it closes resets the connection.
    send(context, endpoint, range(count // 2, count), heartbeats=False)
    context.term()
    return 0


if __name__ == "__main__":
    sys.exit(main())
