"""Functions in a Workflow: tries that fail, routes, and workers that die in between."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.agents.context import Context
from google.adk.events.event import Event
from google.adk.tools.tool_context import ToolContext
from google.adk.workflow import START, FunctionNode, RetryConfig, Workflow
from google.genai import types

from lango import Agent, ModelAdapter
from lango.adk.apps.load import Root
from lango.store.turns.ledger import bounded_key
from lango.testing.kill_checks import Snapshot
from lango.testing.kill_trials import Sweep
from tests.adk.durable.dying import cut_off, new_key, resumed, sweep_of, undisturbed

DEATHS = [
    *(("node retry", "ledger.finish.after", times) for times in (1, 2, 3, 4)),
    *(("node retry", "append.after", times) for times in (2, 3, 4)),
    ("node retry in vain", "ledger.finish.after", 3),
    *(("node retry in vain", "append.after", times) for times in (2, 4)),
    *(("routes", "append.after", times) for times in (2, 3, 4, 5, 6)),
    *(("routes", "ledger.finish.after", times) for times in (2, 3)),
    *(("cycle", "append.after", times) for times in (2, 3, 4, 5)),
    ("cycle", "ledger.finish.after", 2),
]


@pytest.mark.parametrize(("shape", "point", "times"), DEATHS)
async def test_a_workflow_goes_on_as_if_nothing_had_happened(
    shape: str, point: str, times: int, sqlite_url: str
) -> None:
    sweep, key = sweep_of(shape, sqlite_url), new_key()
    clean = await undisturbed(sweep)
    dead = await cut_off(sweep, key, point, times)
    after = await resumed(sweep, key, dead)
    assert _left(after) == _left(clean)


def _left(shot: Snapshot) -> tuple[Any, ...]:
    return shot.turns, shot.history, shot.state, shot.artifacts, shot.gaps


def _one_node(
    function: Callable[..., Any], name: str = "node", *, output_schema: Any = None, **options: Any
) -> Root:
    """A Workflow of one function, which ADK tries up to ten times."""
    tries = RetryConfig(max_attempts=10, initial_delay=0.001, jitter=0.0)
    node = FunctionNode(func=function, name=name, retry_config=tries, **options)
    node.output_schema = output_schema or node.output_schema
    return Workflow(name="root", edges=[(START, node)])


class Flaky:
    """A function that may not run twice, and fails the first two times."""

    def __init__(self) -> None:
        self.runs = 0

    def make(self) -> Root:
        async def run(node_input: Any) -> str:
            del node_input
            self.runs += 1
            if self.runs < 3:
                raise ValueError(f"run {self.runs}")
            return f"given by run {self.runs}"

        return _one_node(run)


async def test_a_function_that_may_run_once_is_tried_again_after_a_failure(store_url: str) -> None:
    flaky = Flaky()
    after = await undisturbed(Sweep(flaky.make, ["TURN one"], store_url))
    assert (after.turns, flaky.runs) == (("completed",), 3)
    assert [text for _, _, text in after.history[0][1:]] == ["error ValueError"] * 2


async def test_a_later_try_that_gives_nothing_takes_the_failure_back(sqlite_url: str) -> None:
    runs: list[int] = []

    async def run(node_input: Any) -> None:
        del node_input
        runs.append(1)
        if len(runs) < 2:
            raise ValueError("first")

    after = await undisturbed(Sweep(lambda: _one_node(run), ["TURN one"], sqlite_url))
    assert (after.turns, len(runs)) == (("completed",), 2)


@pytest.mark.parametrize(
    ("point", "times"), [("ledger.finish.after", 1), ("append.after", 3), ("append.after", 4)]
)
async def test_a_try_that_failed_does_not_run_again(store_url: str, point: str, times: int) -> None:
    flaky = Flaky()
    sweep, key = Sweep(flaky.make, ["TURN one"], store_url), new_key()
    dead = await cut_off(sweep, key, point, times)
    after = await resumed(sweep, key, dead)
    assert (after.turns, flaky.runs) == (("completed",), 3)
    assert [text for _, _, text in after.history[0][1:]] == ["error ValueError"] * 2


async def test_a_try_that_took_too_long_is_tried_again(sqlite_url: str) -> None:
    runs: list[int] = []

    async def run(node_input: Any) -> str:
        del node_input
        runs.append(1)
        if len(runs) < 3:
            await asyncio.Event().wait()
        return "in time"

    sweep = Sweep(lambda: _one_node(run, timeout=0.3), ["TURN one"], sqlite_url)
    after = await undisturbed(sweep)
    assert after.turns == ("completed",)
    assert len(runs) >= 3


async def test_an_output_that_does_not_fit_its_schema_is_a_failed_try(sqlite_url: str) -> None:
    given: list[Any] = ["three", 3]

    async def run(node_input: Any) -> int:
        del node_input
        return given.pop(0)

    sweep = Sweep(lambda: _one_node(run, output_schema=int), ["TURN one"], sqlite_url)
    after = await undisturbed(sweep)
    assert (after.turns, given) == (("completed",), [])


async def test_a_node_with_a_long_path_has_a_key_that_the_ledger_takes(store_url: str) -> None:
    name = "n" * 250
    flaky = Flaky()

    def make() -> Root:
        async def run(ctx: Context, node_input: Any) -> str:
            del ctx, node_input
            flaky.runs += 1
            if flaky.runs < 2:
                raise ValueError
            return "given"

        return _one_node(run, name)

    sweep, key = Sweep(make, ["TURN one"], store_url), new_key()
    dead = await cut_off(sweep, key, "append.after", 3)
    after = await resumed(sweep, key, dead)
    assert (after.turns, flaky.runs) == (("completed",), 2)
    first = bounded_key(f"node:root@1/{name}@1")
    keys = {entry.split("/", 1)[1] for entry in after.finished}
    assert keys == {first, bounded_key(f"{first}#try2")}


async def watch(tool_context: ToolContext) -> AsyncGenerator[Event | str]:
    """Watch."""
    yield Event(content=types.ModelContent("half"))
    stored = [event.content for event in tool_context.session.events if event.author == "watch"]
    yield f"the session has {[text for content in stored for text in _texts(content)]}"


def _texts(content: types.Content | None) -> list[str | None]:
    return [part.text for part in (content and content.parts) or ()]


async def test_a_message_of_a_streaming_tool_is_stored_while_the_tool_runs(store_url: str) -> None:
    root = LlmAgent(name="root", model=ModelAdapter("scripted:demo"), tools=[watch])
    async with Agent(root, store=store_url) as agent:
        answer = await agent.run_and_collect("call watch {}")
    assert "the session has ['half']" in answer
