"""Agents that work with the official SDKs of OpenAI and Anthropic: turns with history and tools, subagents, one that breaks off.

They work one after the other, so that against servers that have just started the same work has the same answers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import anthropic
import openai
from openai.types.chat import ChatCompletionChunk

MODEL = "qwen3-14b"
SECRET = "sk-not-to-be-recorded"
WORDS = "please look at the words of this unlikely prompt "
SYSTEM = 40 * WORDS
PARAMETERS = {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]}
TOOLS = [{"type": "function", "function": {"name": "run", "description": "Run it", "parameters": PARAMETERS}}]
BLOCK_TOOLS = [{"name": "run", "description": "Run it", "input_schema": PARAMETERS}]
RESPONSE_TOOLS = [
    {"type": "function", "name": "run", "description": "Run it", "parameters": PARAMETERS, "strict": False}
]
MAX_TOKENS = 400  # more than answers have
BREAKS_OFF, STALLS = 5, 9  # events after which a client has read enough, and those that there are for it

Json = dict[str, Any]


@dataclass(frozen=True)
class Session:
    """A chain of turns. Its headers name it, and its parent, to the server; without any it has a name here alone."""

    id: str
    parent: str = ""
    headers: Json = field(default_factory=dict)

    @staticmethod
    def dynamo(name: str, parent: str = "") -> Session:
        """Names a session as Dynamo's clients do."""
        headers = {"X-Dynamo-Session-ID": name} | ({"X-Dynamo-Parent-Session-ID": parent} if parent else {})
        return Session(name, parent, headers)

    @staticmethod
    def claude_code(root: str, agent: str = "", spawner: str = "") -> Session:
        """Names a session as Claude Code does: the root's, one of its agents, or one that an agent spawned."""
        headers = {"X-Claude-Code-Session-Id": root}
        if agent:
            headers["X-Claude-Code-Agent-Id"] = agent
        if spawner:
            headers["X-Claude-Code-Parent-Agent-Id"] = spawner
        return Session(agent or root, (spawner or root) if agent else "", headers)

    @staticmethod
    def codex(thread: str, parent: str = "") -> Session:
        """Names a session as Codex does."""
        return Session(thread, parent, {"Thread-Id": thread} | ({"X-Codex-Parent-Thread-Id": parent} if parent else {}))


@dataclass(frozen=True)
class Call:
    """One request as its client saw it."""

    session: Session
    input: int  # tokens
    output: int
    seen: list[Json]  # the answer, or its events
    exact: bool  # the recorder knows which blocks of the prompt the server's cache has
    broken: bool  # the client had enough: the server may have sent more


class Agents:
    """Works with a server and counts what it does there."""

    def __init__(self, url: str) -> None:
        """Makes the clients of a server."""
        self.url = url
        self.calls: list[Call] = []
        self.openai = openai.OpenAI(base_url=f"{url}/v1", api_key=SECRET, max_retries=0, timeout=60)
        self.anthropic = anthropic.Anthropic(base_url=url, api_key=SECRET, max_retries=0, timeout=60)

    def close(self) -> None:
        """Closes the connections."""
        self.openai.close()
        self.anthropic.close()

    def note(
        self,
        session: Session,
        counts: tuple[int, int],
        seen: Iterable[Any],
        *,
        exact: bool = False,
        broken: bool = False,
    ) -> None:
        """Counts a call."""
        self.calls.append(Call(session, *counts, [plain(one.model_dump()) for one in seen], exact, broken))

    def tokens(self, **prompt: Any) -> int:
        """Asks the server how many tokens a prompt has."""
        answer: Any = self.openai.post(f"{self.url}/tokenize", cast_to=object, body=prompt)
        return answer["count"]

    def chat(
        self,
        session: Session,
        history: list[Json],
        *,
        stream: bool = False,
        usage: bool = False,
        tool: bool = False,
        **more: Any,
    ) -> None:
        """Takes a turn of a chat of OpenAI, adds it to the history, and runs the tool that it calls."""
        options = {"model": MODEL, "messages": history, "tools": TOOLS, "max_tokens": MAX_TOKENS, "seed": 7}
        options["extra_headers"] = headers(session, tool) | more
        if not stream:
            answer = self.openai.chat.completions.create(**options)
            self.note(session, (answer.usage.prompt_tokens, answer.usage.completion_tokens), [answer], exact=True)
        else:
            if usage:
                options["stream_options"] = {"include_usage": True}
            with self.openai.chat.completions.stream(**options) as events:
                seen = list(events)
            answer = events.get_final_completion()
            if told := answer.usage:
                counts = told.prompt_tokens, told.completion_tokens
            else:
                generated = sum(e.type == "chunk" and generates(e.chunk) for e in seen)
                counts = self.tokens(messages=history, tools=TOOLS), generated
            self.note(session, counts, seen, exact=True)
        message = answer.choices[0].message
        history.append(message.model_dump(include={"role", "content", "tool_calls"}, exclude_none=True))
        for call in message.tool_calls or []:
            history.append({"role": "tool", "tool_call_id": call.id, "content": 5 * WORDS})

    def complete(self, session: Session, prompt: str | list[int], *, stream: bool = False, usage: bool = False) -> str:
        """Completes a prompt and returns the text."""
        options: Json = {
            "model": MODEL,
            "prompt": prompt,
            "max_tokens": MAX_TOKENS,
            "seed": 7,
            "extra_headers": headers(session),
        }
        if not stream:
            answer = self.openai.completions.create(**options)
            self.note(session, (answer.usage.prompt_tokens, answer.usage.completion_tokens), [answer], exact=True)
            return answer.choices[0].text
        if usage:
            options["stream_options"] = {"include_usage": True}
        seen = list(self.openai.completions.create(**options, stream=True))
        texts = [choice.text for e in seen for choice in e.choices]
        if told := seen[-1].usage:
            counts = told.prompt_tokens, told.completion_tokens
        else:
            counts = len(prompt) if isinstance(prompt, list) else self.tokens(prompt=prompt), sum(map(bool, texts))
        self.note(session, counts, seen, exact=True)
        return "".join(texts)

    def message(self, session: Session, history: list[Json], *, stream: bool = False, tool: bool = False) -> None:
        """Takes a turn with messages of Anthropic, as chat does."""
        options: Json = {
            "model": MODEL,
            "system": SYSTEM,
            "messages": history,
            "tools": BLOCK_TOOLS,
            "max_tokens": MAX_TOKENS,
        }
        options |= {"extra_headers": headers(session, tool), "extra_body": {"seed": 7}}
        if stream:
            with self.anthropic.messages.stream(**options) as events:
                seen: list[Any] = list(events)
            answer = events.get_final_message()
        else:
            answer = self.anthropic.messages.create(**options)
            seen = [answer]
        u = answer.usage
        input = u.input_tokens + (u.cache_read_input_tokens or 0) + (u.cache_creation_input_tokens or 0)
        self.note(session, (input, u.output_tokens), seen)
        blocks = [block.model_dump(include={"type", "text", "id", "name", "input"}) for block in answer.content]
        history.append({"role": "assistant", "content": blocks})
        results = [
            {"type": "tool_result", "tool_use_id": b["id"], "content": 5 * WORDS}
            for b in blocks
            if b["type"] == "tool_use"
        ]
        if results:
            history.append({"role": "user", "content": results})

    def break_off(self, session: Session) -> None:
        """Reads the first events of an answer that comes to no end, and goes."""
        prompt = 10 * WORDS
        options: Json = {
            "model": MODEL,
            "prompt": prompt,
            "max_tokens": MAX_TOKENS,
            "seed": 7,
            "extra_body": {"ignore_eos": True},
        }
        fault = {"X-Agentsim-Fault": f"stall:{STALLS}"}
        answer = self.openai.completions.create(**options, extra_headers=session.headers | fault, stream=True)
        seen = [event for _, event in zip(range(BREAKS_OFF), answer)]
        answer.close()
        self.note(session, (self.tokens(prompt=prompt), len(seen)), seen, broken=True)

    def respond(self, session: Session, input: list[Json], previous: str = "", *, stream: bool = False) -> Any:
        """Takes a turn with responses of OpenAI, and returns the response."""
        options: Json = {
            "model": MODEL,
            "instructions": SYSTEM,
            "input": input,
            "tools": RESPONSE_TOOLS,
            "extra_headers": headers(session),
        }
        if previous:
            options["previous_response_id"] = previous
        if stream:
            seen: list[Any] = list(self.openai.responses.create(**options, stream=True))
            answer = seen[-1].response
        else:
            answer = self.openai.responses.create(**options)
            seen = [answer]
        self.note(session, (answer.usage.input_tokens, answer.usage.output_tokens), seen, exact=previous != "")
        return answer

    def work(self) -> None:
        """Does all that a server of chats, completions and messages can do."""
        root, kid = Session.dynamo("job:root"), Session.dynamo("job:kid", "job:root")
        history: list[Json] = [{"role": "system", "content": SYSTEM}, user("begin")]
        self.chat(root, history, tool=True)
        errand: list[Json] = [{"role": "system", "content": SYSTEM}, user("an errand")]
        self.chat(kid, errand, stream=True, usage=True, tool=True)
        self.chat(kid, errand, stream=True)
        self.chat(root, history, stream=True, tool=True)
        self.chat(root, history, stream=True, usage=True)
        history.append(user("and the rest"))
        self.chat(root, history, **{"X-Dynamo-Session-Final": "true"})

        claude, agent = Session.claude_code("claude"), Session.claude_code("claude", "agent")
        nested = Session.claude_code("claude", "nested", "agent")
        history = [user("begin")]
        self.message(claude, history, stream=True, tool=True)
        for session in agent, nested:
            errand = [user(f"an errand of {session.parent}")]
            self.message(session, errand, tool=True)
            self.message(session, errand, stream=True)
        self.message(claude, history)
        history.append(user("and the rest"))
        self.message(claude, history, stream=True)

        plain = Session.dynamo("completions")
        text = 10 * WORDS
        for how in ({}, {"stream": True}, {"stream": True, "usage": True}):
            text += self.complete(plain, text, **how) + WORDS
        self.complete(Session.dynamo("tokens"), list(range(5000, 5200)), stream=True)

        self.break_off(Session.dynamo("broken"))

        for turn in self.chat, self.message:
            unnamed, history = Session(turn.__name__), [user("a talk without headers")]
            turn(unnamed, history, stream=True)
            history.append(user("and on"))
            turn(unnamed, history, tool=True)
            turn(unnamed, history, stream=True)

    def work_responses(self) -> None:
        """Does what a server of responses can do."""
        root, kid = Session.codex("thread"), Session.codex("spawned", "thread")
        history: list[Json] = [user("begin")]
        for stream in (False, True):
            answer = self.respond(root, history, stream=stream)
            for item in answer.output:
                history.append(item.model_dump(exclude_none=True))
                if item.type == "function_call":
                    history.append({"type": "function_call_output", "call_id": item.call_id, "output": 5 * WORDS})
        self.respond(kid, [user("an errand")], stream=True)
        previous = ""
        for say in "a talk without headers", "and on", "and on":
            previous = self.respond(Session("responses"), [user(say)], previous, stream=previous == "").id


def user(text: str) -> Json:
    """Makes a message of a user."""
    return {"role": "user", "content": text}


def headers(session: Session, tool: bool = False) -> Json:
    """Makes the headers of a request. `agentsim serve` calls a tool where it is asked to."""
    return session.headers | ({"X-Agentsim-Fault": "tool-calls"} if tool else {})


def generates(chunk: ChatCompletionChunk) -> bool:
    """Tells whether an event has something that the model generated."""
    return any(choice.delta.content or choice.delta.tool_calls for choice in chunk.choices)


def plain(answer: Any) -> Any:
    """Takes out of an answer when it was given."""
    if isinstance(answer, dict):
        return {key: plain(value) for key, value in answer.items() if key not in ("created", "created_at")}
    return [plain(one) for one in answer] if isinstance(answer, list) else answer
