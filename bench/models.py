"""CPU per streamed chunk: our model adapter beside the vendor SDK's own loop, same bytes."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from statistics import median
from typing import Any, Final

from google.adk.models.llm_request import LlmRequest
from google.genai import types

from bench.report import Table, summary, verdicts
from bench.rounds import MIN_ROUNDS, Sample, Stopwatch, cpu, divide, estimate, interleave
from bench.targets import Finding, Result, Target, exit_code, settle
from faults.models.canned import (
    Canned,
    anthropic_client,
    canned_provider,
    gemini_client,
    openai_client,
)
from lango.adk.models.adapter import ModelAdapter
from lango.providers.policy.retry import Policy, PolicyProvider
from lango.testing.wires import WIRES, Call, ScriptedAnswer

MODELS: Final = {
    "openai_chat": "gpt-5",
    "openai_responses": "gpt-5",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-pro",
}
_WORDS: Final = 1_000
_STREAMS: Final = 2  # a round
_LIMITS: Final = {"openai_chat": 0.3, "openai_responses": 0.3, "anthropic": 0.8, "gemini": 1.5}
_PIECE: Final = 1_400  # bytes, as they come over a network

Loop = Callable[[], Awaitable[int]]


def recorded(wire: str) -> bytes:
    """A long answer and a tool call, as the vendor streams them."""
    answer = ScriptedAnswer("word " * _WORDS, (Call("add", '{"a": 2, "b": 3}'),), delta=5)
    return b"".join(frame.data for frame in WIRES[wire].frames(answer, MODELS[wire]))


def _sdk(wire: str, canned: Canned) -> Callable[[], Awaitable[AsyncIterator[Any]]]:
    """The calls of a program that uses the vendor's SDK directly."""
    model = MODELS[wire]
    if wire == "anthropic":
        messages: Any = anthropic_client(canned).messages
        messages_sent = [{"role": "user", "content": "hello"}]
        return partial(
            messages.create, model=model, max_tokens=99, messages=messages_sent, stream=True
        )
    if wire == "gemini":
        google = gemini_client(canned)

        def call() -> Any:  # keeps a reference: the SDK closes an unreferenced client
            models: Any = google.aio.models
            return models.generate_content_stream(model=model, contents="hello")

        return call
    client: Any = openai_client(canned)
    if wire == "openai_responses":
        return partial(client.responses.create, model=model, input="hello", stream=True)
    messages_sent = [{"role": "user", "content": "hello"}]
    return partial(client.chat.completions.create, model=model, messages=messages_sent, stream=True)


def _sdk_loop(wire: str, canned: Canned) -> Loop:
    call = _sdk(wire, canned)

    async def loop() -> int:
        chunks = 0
        async for _ in await call():
            chunks += 1
        return chunks

    return loop


def _our_loop(wire: str, canned: Canned) -> Loop:
    provider = PolicyProvider(canned_provider(wire, canned), Policy())
    model = ModelAdapter(provider, MODELS[wire])
    contents = [types.Content(role="user", parts=[types.Part(text="hello")])]

    async def loop() -> int:
        responses = 0
        async for _ in model.generate_content_async(LlmRequest(contents=contents), stream=True):
            responses += 1
        return responses

    return loop


def _rounder(loop: Loop, chunks: int) -> Callable[[], Awaitable[Sample]]:
    async def run() -> Sample:
        watch = Stopwatch(_STREAMS * chunks)
        with watch:
            for _ in range(_STREAMS):
                await loop()
        return watch.sample

    return run


async def per_chunk(rounds: int) -> Result:
    """Both loops on every wire."""
    rounders: dict[tuple[str, str], Callable[[], Awaitable[Sample]]] = {}
    counted: dict[str, int] = {}
    for wire in WIRES:
        canned = Canned(recorded(wire), (_PIECE,))
        sdk, ours = _sdk_loop(wire, canned), _our_loop(wire, canned)
        counted[wire] = await sdk()
        rounders[wire, "sdk"] = _rounder(sdk, counted[wire])
        rounders[wire, "ours"] = _rounder(ours, counted[wire])
    samples = {key: cpu(series) for key, series in (await interleave(rounders, rounds)).items()}
    table = Table(
        f"One streamed chunk, client CPU µs (median of {rounds} rounds)",
        ("wire", "chunks", "the SDK alone", "SDK and lango", "×"),
    )
    findings: list[Finding] = []
    for wire, chunks in counted.items():
        sdk_cpu, our_cpu = samples[wire, "sdk"], samples[wire, "ours"]
        ratio = estimate(divide(our_cpu, sdk_cpu))
        shown = [f"{median(series) * 1e6:.0f}" for series in (sdk_cpu, our_cpu)]
        table.add(wire, chunks, *shown, ratio)
        findings.append(Finding(Target(f"{wire}, CPU per chunk", _LIMITS[wire]), ratio))
    return Result([table], findings)


async def main(*, quick: bool) -> int:
    """Run it; the exit code. Being CPU alone, it is short enough to be the same when quick."""
    del quick
    began = time.monotonic()
    result = await settle(per_chunk, MIN_ROUNDS)
    for table in result.tables:
        print(table, flush=True)
    print(verdicts(result.findings))
    print(summary("models", result.findings, time.monotonic() - began))
    return exit_code(result.findings)
