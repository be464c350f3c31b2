"""A model on loopback that speaks OpenAI's Chat Completions, and keeps a log of its own.

Its answer is a function of the agent, of the last user message and of how often the agent
has spoken since. Every answer begins with a head that names these and a number used once.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from faults.blackbox.logs import Log

MARK: Final = re.compile(r"BOX:(\w+):(U[0-9a-f]+)")
Call = tuple[str, dict[str, str]]
_PACE: Final = 0.02


@dataclass(frozen=True)
class Answer:
    """One answer: tool calls, or a number of words."""

    words: int = 1
    calls: tuple[Call, ...] = ()


def _call(*names: str) -> Any:
    return names


_SCRIPTS: Final[dict[str, tuple[Any, ...]]] = {
    "solo": (_call("count", "put"), _call("slow"), 10),
    "stream": (30,),
    "seq_a": (_call("count"), 6),
    "seq_b": (6,),
    "seq_c": (_call("put"), 6),
    "par_a": (_call("count"), 6),
    "par_b": (_call("slow"), 6),
    "par_c": (10,),
    "loop_a": (_call("count"), 6),
    "loop_b": (6, 6, _call("exit_loop")),
    "xfer": (_call("transfer_to_agent"), 6),
    "xfer_to": (_call("count"), _call("put"), 8),
    "atool": (_call("helper"), _call("count"), 6),
    "helper": (_call("count"), _call("slow"), 6),
    "appr": (_call("put", "pay"), _call("count"), 8),
    "lrun": (_call("count"), _call("ask"), 8),
    "wf_side": (6,),
    "line_a": (_call("count"), 6),
    "payer": (_call("aide"), 6),
    "aide": (_call("count"), 6),
}


def answer_of(agent: str, step: int, uid: str) -> Answer:
    """The answer to an agent at a step of its turn."""
    script = _SCRIPTS[agent]
    what = script[min(step, len(script) - 1)]
    if isinstance(what, int):
        return Answer(words=what)
    special = {
        "transfer_to_agent": {"agent_name": "xfer_to"},
        "helper": {"request": f"BOX:helper:{uid}"},
        "aide": {"request": f"BOX:aide:{uid}"},
        "exit_loop": {},
    }
    usual = {"uid": uid, "k": f"{agent}{step}"}
    return Answer(calls=tuple((name, special.get(name, usual)) for name in what))


def text_of(message: dict[str, Any]) -> str:
    """The text of a message, which may come in parts."""
    content: str | list[dict[str, Any]] = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(str(part.get("text", "")) for part in content)


def unpaired(messages: list[dict[str, Any]]) -> list[str]:
    """The calls without exactly one result, and the results without a call."""
    calls = [call["id"] for message in messages for call in message.get("tool_calls") or ()]
    answers = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    each = {*calls, *answers}
    return sorted(id for id in each if not calls.count(id) == answers.count(id) == 1)


class ModelServer:
    """Serves all agents; `log` gets a line for each request, and one after its answer is sent."""

    def __init__(self, log: Log, run: str) -> None:
        self._log, self._run, self._numbers = log, run, count(1)
        self._server: asyncio.Server | None = None
        self._busy: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Start to serve; return the address for clients."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/v1"

    async def stop(self) -> None:
        """Close every connection."""
        if self._server is not None:
            self._server.close()
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._busy.add(task)
        task.add_done_callback(self._busy.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with (
            closing(writer),
            suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError),
        ):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
                length = re.search(r"content-length: *(\d+)", head)
                body = await reader.readexactly(int(length[1]) if length else 0)
                await self._answer(json.loads(body), writer)

    async def _answer(self, body: dict[str, Any], writer: asyncio.StreamWriter) -> None:
        agent, messages = str(body["model"]), list(body["messages"])
        start, uid = 0, ""
        for number, message in enumerate(messages):
            marks = MARK.findall(text_of(message)) if message["role"] == "user" else []
            if marks:
                start, uid = number, marks[-1][1]
        step = sum(message["role"] == "assistant" for message in messages[start:])
        number = next(self._numbers)
        nonce = f"N{self._run}x{number}"
        everything = json.dumps(messages)
        self._log.add(
            "asked",
            agent=agent,
            uid=uid,
            step=step,
            nonce=nonce,
            uids=sorted({mark[1] for mark in MARK.findall(everything)}),
            unpaired=unpaired(messages),
        )
        answer = answer_of(agent, step, uid)
        tokens, sent = _tokens(number), False
        try:
            head = f"<<{agent}.{step}.{uid}.{nonce}>>"
            await self._send(writer, answer, head, nonce, tokens)
            sent = True
        finally:
            self._log.add("answered", nonce=nonce, whole=sent, tokens=tokens)

    async def _send(
        self,
        writer: asyncio.StreamWriter,
        answer: Answer,
        head: str,
        nonce: str,
        tokens: tuple[int, int],
    ) -> None:
        writer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
            b"transfer-encoding: chunked\r\nx-request-id: " + nonce.encode() + b"\r\n\r\n"
        )

        async def send(data: str) -> None:
            frame = f"data: {data}\n\n".encode()
            writer.write(f"{len(frame):x}\r\n".encode() + frame + b"\r\n")
            await writer.drain()

        async def piece(delta: dict[str, Any], finish: str | None = None) -> None:
            await send(_chunk(nonce, [{"index": 0, "delta": delta, "finish_reason": finish}]))

        await piece({"role": "assistant", "content": ""})
        for word in [head, *(f" w{number}" for number in range(answer.words - 1))]:
            await piece({"content": word})
            await asyncio.sleep(_PACE)
        for number, (name, arguments) in enumerate(answer.calls):
            function = {"name": name, "arguments": json.dumps(arguments)}
            call = {"index": number, "id": f"c_{nonce}_{number}", "type": "function"}
            await piece({"tool_calls": [call | {"function": function}]})
        await piece({}, "tool_calls" if answer.calls else "stop")
        prompt_tokens, completion_tokens = tokens
        used = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        }
        await send(_chunk(nonce, [], used))
        await send("[DONE]")
        writer.write(b"0\r\n\r\n")
        await writer.drain()


def _tokens(number: int) -> tuple[int, int]:
    """The input and output tokens of an answer; two answers rarely have the same."""
    return 100 + number % 89, 10 + number % 31


def _chunk(nonce: str, choices: list[Any], usage: dict[str, int] | None = None) -> str:
    about = {"id": nonce, "object": "chat.completion.chunk", "created": int(time.time())}
    return json.dumps(about | {"model": "box", "choices": choices, "usage": usage})
