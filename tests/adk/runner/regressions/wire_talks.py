"""Turns of an agent whose model is a server on loopback; importable by a new process."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from google.adk.agents import LlmAgent

import lango
from lango.adk.models.adapter import ModelAdapter
from lango.adk.sessions.service import SessionServiceAdapter
from lango.core.values import json_text
from lango.store.sessions.store import SqlSessionStore
from lango.testing.wires import provider_of
from lango.testing.wires.rules import obj, objects
from tests.adk.runner.tools import look, recall, remember

APP, USER, SESSION = "app", "user", "session"
INSTRUCTION = "Be brief. The number is {number?}."
MODELS = {
    "openai_chat": "gpt-5",
    "openai_responses": "gpt-5",
    "anthropic": "claude-sonnet-4-5",
    "gemini": "gemini-2.5-pro",
}


@dataclass(frozen=True)
class TalkConfig:
    """All that a process needs to know to go on with the conversation."""

    wire: str
    server: str
    store: str
    tenant: str
    token_budget: int | None = 0
    helper: bool = False
    guarded: bool = True


@dataclass
class TalkResult:
    """What came of some turns."""

    answers: list[str] = field(default_factory=list[str])
    warnings: list[str] = field(default_factory=list[str])
    """What ADK warned of."""
    state: dict[str, Any] = field(default_factory=dict[str, Any])


async def say(config: TalkConfig, *texts: str) -> TalkResult:
    """Turns, by an agent, a model and a store that are made for them."""
    record, name = TalkResult(), MODELS[config.wire]
    with _warnings(record.warnings):
        async with (
            SqlSessionStore(config.store) as store,
            ModelAdapter(
                provider_of(config.wire, config.server), name, token_budget=config.token_budget
            ) as model,
            _agent(config, model, store) as agent,
        ):
            for text in texts:
                words = await agent.run_and_collect(text, user=USER, session=SESSION)
                record.answers.append(words)
            service = SessionServiceAdapter(store, tenant=config.tenant, root_agent_name="root")
            session = await service.get_session(app_name=APP, user_id=USER, session_id=SESSION)
    record.state = dict(session.state) if session else {}
    return record


def say_alone(config: TalkConfig, *texts: str) -> TalkResult:
    """The same as a whole program: what a new process runs."""
    return asyncio.run(say(config, *texts))


def _agent(config: TalkConfig, model: ModelAdapter, store: SqlSessionStore) -> lango.Agent:
    helper = LlmAgent(name="helper", model=model, description="Helps.", instruction="Help.")
    root = LlmAgent(
        name="root",
        model=model,
        instruction=INSTRUCTION,
        tools=[remember, recall, look],
        sub_agents=[helper] if config.helper else [],
    )
    usual = lango.plugins(store, tenant=config.tenant, token_budget=config.token_budget)
    plugins = [one for one in usual if config.guarded or one.name != "lango_transfer_guard"]
    return lango.Agent(root, store=store, tenant=config.tenant, app_name=APP, plugins=plugins)


@contextmanager
def _warnings(received: list[str]) -> Generator[None]:
    class ListHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            received.append(record.getMessage())

    handler, logger = ListHandler(logging.WARNING), logging.getLogger("google_adk")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


# --- what a server was sent ------------------------------------------------------------------

Line = tuple[str, str]
"""Who speaks (system, user, assistant), or that it is a call or a result; and what it says."""


def lines(wire: str, body: dict[str, Any]) -> list[Line]:
    """A request in the same words for every wire."""
    read = {
        "openai_chat": _chat,
        "openai_responses": _responses,
        "anthropic": _anthropic,
        "gemini": _gemini,
    }
    return list(read[wire](body))


def _chat(body: dict[str, Any]) -> Iterator[Line]:
    for message in objects(body["messages"]):
        if message["role"] == "tool":
            yield "result", message["content"]
        elif message.get("content"):
            yield message["role"].replace("developer", "system"), message["content"]
        for call in objects(message.get("tool_calls")):
            yield "call", call["function"]["arguments"]


def _responses(body: dict[str, Any]) -> Iterator[Line]:
    if body.get("instructions"):
        yield "system", body["instructions"]
    for item in objects(body["input"]):
        if item.get("type") == "function_call":
            yield "call", item["arguments"]
        elif item.get("type") == "function_call_output":
            yield "result", item["output"]
        else:
            yield item["role"].replace("developer", "system"), _text(item["content"])


def _anthropic(body: dict[str, Any]) -> Iterator[Line]:
    yield "system", _text(body.get("system", ""))
    for message in objects(body["messages"]):
        if isinstance(message["content"], str):
            yield message["role"], message["content"]
        for block in objects(message["content"]):
            if block["type"] == "tool_use":
                yield "call", json_text(block["input"])
            elif block["type"] == "tool_result":
                yield "result", _text(block["content"])
            else:
                yield message["role"], block["text"]


def _gemini(body: dict[str, Any]) -> Iterator[Line]:
    yield "system", _text(obj(body.get("systemInstruction")).get("parts", ""))
    for content in objects(body["contents"]):
        for part in objects(content["parts"]):
            if "functionCall" in part:
                yield "call", json_text(part["functionCall"].get("args", {}))
            elif "functionResponse" in part:
                yield "result", json_text(part["functionResponse"]["response"])
            else:
                yield content["role"].replace("model", "assistant"), part["text"]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(part["text"] for part in objects(content))
