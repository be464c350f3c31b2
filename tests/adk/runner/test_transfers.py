"""Agents that their model made up: guarded inside the run, or corrected by a second one."""

import re
from collections.abc import Callable
from contextlib import aclosing
from typing import Any

import pytest
import sqlalchemy as sa
from google.adk.agents import BaseAgent
from google.adk.apps.app import App, ResumabilityConfig
from google.adk.flows.llm_flows.extensions import _agent_transfer
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.tools.tool_context import ToolContext
from google.genai import types

from lango.adk.errors import UNKNOWN_AGENT, unknown_agent
from lango.adk.plugins.transfer import TransferGuardPlugin
from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.transfers import agents_of, transfer_targets
from lango.agent.run import correction, run_and_collect
from lango.core.turns.events import AgentChanged, Completed, Failed, Retrying
from lango.errors import AgentNotFoundError
from lango.store.schema import tables
from tests.adk.runner.turns import (
    SESSION,
    USER,
    Script,
    agent,
    call,
    corrected,
    kinds,
    once,
    runner_of,
    said,
    sequence,
    transfer,
)

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow")

Root = BaseAgent
INVENTED = ["ghost", "", "Helper", " helper ", "helper two", "root", "deep", "it's 'quoted'"]


# --- what ADK says ---------------------------------------------------------------------------


def _not_found() -> Root:
    return agent("root", transfer("ghost"), sub_agents=[agent("helper")])


def _unrelated() -> Root:
    helper = agent("helper", sub_agents=[agent("ghost")])
    return agent("root", transfer("ghost"), sub_agents=[helper])


def _itself() -> Root:
    return agent("ghost", transfer("ghost"), sub_agents=[agent("helper")])


def _parent() -> Root:
    helper = agent("helper", transfer("ghost"), disallow_transfer_to_parent=True)
    return agent("ghost", transfer("helper"), sub_agents=[helper, agent("peer")])


def _peer() -> Root:
    helper = agent("helper", transfer("ghost"), disallow_transfer_to_peers=True)
    return agent("root", transfer("helper"), sub_agents=[helper, agent("ghost")])


def _not_in_the_tree() -> Root:
    return sequence(agent("first", transfer("ghost"), sub_agents=[agent("helper")]))


def _not_allowed() -> Root:
    return sequence(agent("first", transfer("ghost"), sub_agents=[agent("helper")]), agent("ghost"))


PROVOKED: dict[str, Callable[[], Root]] = {
    "not found": _not_found,
    "unrelated": _unrelated,
    "itself": _itself,
    "parent": _parent,
    "peer": _peer,
    "not in the tree": _not_in_the_tree,
    "not allowed": _not_allowed,
}


async def _raised(runner: Runner, **run: Any) -> Exception:
    try:
        async with aclosing(runner.run_async(user_id=USER, session_id=SESSION, **run)) as events:
            async for _ in events:
                pass
    except Exception as error:  # noqa: BLE001 - which one is what the tests ask
        return error
    pytest.fail("ADK raised nothing.")


@pytest.mark.parametrize("case", PROVOKED)
async def test_the_words_of_adk_for_an_unknown_agent(case: str) -> None:
    """A canary: ADK has no type for these errors, and an upgrade may change the words."""
    runner = Runner(
        app=App(name="app", root_agent=PROVOKED[case]()),
        session_service=InMemorySessionService(),
        auto_create_session=True,
    )
    error = await _raised(runner, new_message=types.UserContent("hi"))
    assert re.fullmatch(UNKNOWN_AGENT[case], str(error), re.DOTALL), str(error)
    assert unknown_agent(error) == "ghost"


async def test_the_words_of_adk_when_it_resumes() -> None:
    """The same when the run that failed so is taken up again."""
    app = App(
        name="app",
        root_agent=_not_in_the_tree(),
        resumability_config=ResumabilityConfig(is_resumable=True),
    )
    service = InMemorySessionService()
    runner = Runner(app=app, session_service=service, auto_create_session=True)
    await _raised(runner, new_message=types.UserContent("hi"))
    session = await service.get_session(app_name="app", user_id=USER, session_id=SESSION)
    assert session
    error = await _raised(runner, invocation_id=session.events[-1].invocation_id)
    assert re.fullmatch(UNKNOWN_AGENT["resumed"], str(error), re.DOTALL), str(error)
    assert unknown_agent(error) == "ghost"


def test_every_wording_is_provoked() -> None:
    assert UNKNOWN_AGENT.keys() == PROVOKED.keys() | {"resumed"}


@pytest.mark.parametrize("name", [*INVENTED, "two\nlines", "a' not found."])
@pytest.mark.parametrize(
    "wording", ["Transfer target agent '{}' not found.", "Agent {} not found in the agent tree."]
)
def test_any_name_is_read_from_the_words(name: str, wording: str) -> None:
    assert unknown_agent(ValueError(wording.format(name))) == name


@pytest.mark.parametrize("text", ["", "not found", "Tool 'x' not found.", "Agent x not found."])
def test_other_errors_are_not_mistaken(text: str) -> None:
    assert unknown_agent(ValueError(text)) is None


def _shy_and_proud() -> Root:
    shy = agent("shy", disallow_transfer_to_parent=True)
    proud = agent("proud", disallow_transfer_to_peers=True, sub_agents=[agent("below")])
    task = agent("task", mode="task", description="a task")
    quick = agent("quick", mode="single_turn", description="quick")
    return agent("root", sub_agents=[shy, proud, task, quick, agent("plain")])


TREES: dict[str, Callable[[], Root]] = {
    "alone": lambda: agent("alone"),
    "all kinds": _shy_and_proud,
    "sequence": lambda: sequence(agent("first", sub_agents=[agent("under")]), agent("second")),
    "sequence below": lambda: agent(
        "boss", sub_agents=[sequence(agent("one"), agent("two")), agent("other")]
    ),
}


@pytest.mark.parametrize("tree", TREES)
def test_valid_names_are_those_adk_offers(tree: str) -> None:
    theirs = _agent_transfer._get_transfer_targets  # pyright: ignore[reportPrivateUsage]
    agents = list(agents_of(TREES[tree]()))
    assert agents
    for one in agents:
        assert transfer_targets(one) == [target.name for target in theirs(one)], one.name


# --- the guard -------------------------------------------------------------------------------


async def _rows(service: SessionServiceAdapter) -> list[sa.Row[Any]]:
    statement = (
        sa.select(tables.messages)
        .join(tables.sessions, tables.sessions.c.pk == tables.messages.c.session_pk)
        .where(tables.sessions.c.tenant == service.tenant)
        .order_by(tables.messages.c.seq)
    )
    async with service.store.database.snapshot() as connection:
        return list((await connection.execute(statement)).all())


async def _transfers(service: SessionServiceAdapter) -> list[str]:
    """The transfers that are stored, read from the rows."""
    stored: list[dict[str, Any]] = [row.event or {} for row in await _rows(service)]
    targets = [one.get("actions", {}).get("transfer_to_agent") for one in stored]
    return [target for target in targets if target is not None]


def _by_the_root(*names: object) -> tuple[Root, str, list[str]]:
    helper = agent("helper", "Here I am.", sub_agents=[agent("deep")])
    root = agent("root", *map(transfer, names), transfer("helper"), sub_agents=[helper])
    return root, "helper", ["helper"]


def _by_a_sub_agent(*names: object) -> tuple[Root, str, list[str]]:
    helper = agent("helper", *map(transfer, names), transfer("other"))
    subs = [helper, agent("other", "Here I am.")]
    return agent("root", transfer("helper"), sub_agents=subs), "other", ["helper", "other"]


def _in_a_sequence(*names: object) -> tuple[Root, str, list[str]]:
    below = agent("below", "Here I am.")
    first = agent("first", *map(transfer, names), transfer("below"), sub_agents=[below])
    return sequence(first, agent("last", "And I.")), "below", ["below"]


MADE = {"root": _by_the_root, "sub-agent": _by_a_sub_agent, "sequence": _in_a_sequence}
NAMES: list[tuple[object, ...]] = [
    ("ghost",),
    ("ghost", "another ghost"),
    (" helper ",),
    ("HELPER", ""),
    ("first", "root"),
    (None, 5, ["below"]),
]


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "whole"])
@pytest.mark.parametrize("names", NAMES, ids=str)
@pytest.mark.parametrize("made_by", MADE)
async def test_the_guard_corrects_inside_the_run(
    made_by: str, names: tuple[object, ...], streaming: bool, sessions: SessionServiceAdapter
) -> None:
    bad = tuple(name for name in names if not (made_by == "sub-agent" and name == "root"))
    root, answers, stored = MADE[made_by](*bad)
    events = await once(
        runner_of(root, TransferGuardPlugin(), sessions=sessions), streaming=streaming
    )
    assert isinstance(events[-1], Completed)
    assert said(events)[0] == (answers, "Here I am.")
    assert [event.agent for event in events if isinstance(event, AgentChanged)] == stored
    assert await _transfers(sessions) == stored


async def test_the_guard_says_whom_the_model_may_name(sessions: SessionServiceAdapter) -> None:
    script = Script(transfer("ghost"), "Then I answer.")
    root = script.agent("root", sub_agents=[agent("helper"), agent("other")])
    events = await once(runner_of(root, TransferGuardPlugin(), sessions=sessions))
    assert said(events) == [("root", "Then I answer.")]
    result = script.requests[-1].messages[-1].content
    assert '"ghost"' in result.replace("\\", "")
    assert "helper, other" in result
    assert [row.role for row in await _rows(sessions)] == ["user", "assistant", "tool", "assistant"]


async def test_a_tool_of_the_same_name_is_left_alone() -> None:
    went: list[str] = []

    def transfer_to_agent(agent_name: str) -> str:
        """Call a person by phone."""
        went.append(agent_name)
        return "ringing"

    root = agent("root", transfer("Bob"), "He answers.", tools=[transfer_to_agent])
    await once(runner_of(root, TransferGuardPlugin()))
    assert went == ["Bob"]


# --- without the guard -----------------------------------------------------------------------


def _slips(made_by: str, name: str) -> tuple[Root, str]:
    """A tree in which one agent names `name` first and is right when it is asked again."""
    helper = agent("helper", "Here I am.", sub_agents=[agent("deep")])
    if made_by == "root":
        return agent("root", transfer(name), transfer("helper"), sub_agents=[helper]), "helper"
    if made_by == "sub-agent":
        asking = agent("asking", transfer(name), transfer("helper"))
        return agent("root", transfer("asking"), sub_agents=[asking, helper]), "helper, root"
    first = agent("first", transfer(name), transfer("helper"), sub_agents=[helper])
    return sequence(first, agent("last", "And I.")), "helper"


@pytest.mark.parametrize("name", ["ghost", "a ghost with spaces", " helper "])
@pytest.mark.parametrize("made_by", MADE)
async def test_the_second_try_corrects_without_the_guard(
    made_by: str, name: str, sessions: SessionServiceAdapter
) -> None:
    root, _ = _slips(made_by, name)
    events = await corrected(runner_of(root, sessions=sessions))
    assert kinds(events).count("started") == 2
    assert [e.why for e in events if isinstance(e, Retrying)] == [f"failed to find agent: {name}"]
    assert isinstance(events[-1], Completed)
    assert ("helper", "Here I am.") in said(events)
    users = [row.content for row in await _rows(sessions) if row.role == "user"]
    assert users[0] == "hi"
    assert users[1].startswith(f'[System: Agent "{name}" does not exist. Valid agents: ')


@pytest.mark.parametrize("made_by", MADE)
async def test_collecting_does_the_same(made_by: str, sessions: SessionServiceAdapter) -> None:
    root, _ = _slips(made_by, "ghost")
    answer = await run_and_collect(runner_of(root, sessions=sessions), USER, SESSION, "hi")
    assert answer.startswith("Here I am.")


async def test_two_slips_in_a_row_end_the_turn(sessions: SessionServiceAdapter) -> None:
    root = agent(
        "root", transfer("ghost"), transfer("spook"), "Sorry.", sub_agents=[agent("helper")]
    )
    runner = runner_of(root, sessions=sessions)
    events = await corrected(runner)
    end = events[-1]
    assert isinstance(end, Failed)
    assert isinstance(end.error, AgentNotFoundError)
    assert (end.error.name, end.error.valid) == ("spook", ("helper",))
    assert isinstance(end.error.__cause__, AgentNotFoundError)
    assert end.error.__cause__.name == "ghost"
    assert kinds(events).count("failed") == 1
    assert said(await once(runner, "go on")) == [("root", "Sorry.")]


async def test_the_correction_goes_to_the_agent_that_slipped() -> None:
    """And names those whom that agent may name, not those of the root."""
    script = Script(transfer("ghost"), "I stay.")
    asking = script.agent("asking")
    root = agent("root", transfer("asking"), sub_agents=[asking, agent("helper")])
    events = await corrected(runner_of(root, next_turn="root"))
    assert said(events) == [("asking", "I stay.")]
    assert script.requests[-1].messages[-1].content == correction("ghost", ["root", "helper"])


async def test_the_end_counts_both_tries() -> None:
    alone = await corrected(runner_of(agent("root", "fine")))
    slipping = agent("root", transfer("ghost"), "fine", sub_agents=[agent("helper")])
    both = await corrected(runner_of(slipping))
    assert isinstance(alone[-1], Completed)
    assert isinstance(both[-1], Completed)
    assert both[-1].usage.output > alone[-1].usage.output > 0


@pytest.mark.parametrize("made_by", MADE)
async def test_the_turn_after_a_bad_transfer_works(
    made_by: str, sessions: SessionServiceAdapter
) -> None:
    """What ADK stored of it must not lead the next turn to an agent that is not there."""
    root, _ = _slips(made_by, "ghost")
    runner = runner_of(root, sessions=sessions)
    assert isinstance((await once(runner))[-1], Failed)
    assert await _transfers(sessions) in (["ghost"], ["asking", "ghost"])
    events = await once(runner, "again")
    assert isinstance(events[-1], Completed)
    assert ("helper", "Here I am.") in said(events)


async def test_without_agents_to_transfer_to_there_is_no_second_try() -> None:
    def pass_on(tool_context: ToolContext) -> str:
        """Pass the turn to an agent that does not exist."""
        tool_context.actions.transfer_to_agent = "ghost"
        return "passed"

    events = await corrected(runner_of(agent("root", call("pass_on"), tools=[pass_on])))
    end = events[-1]
    assert isinstance(end, Failed)
    assert isinstance(end.error, AgentNotFoundError)
    assert (str(end.error), end.error.valid) == ("failed to find agent: ghost", ())
    assert kinds(events).count("started") == 1


# --- who answers next ------------------------------------------------------------------------


@pytest.mark.parametrize(("next_turn", "answers"), [("sticky", "helper"), ("root", "root")])
async def test_who_answers_the_next_turn(
    next_turn: Any, answers: str, sessions: SessionServiceAdapter
) -> None:
    helper = agent("helper", "I am here.", "I still am.")
    root = agent("root", transfer("helper"), "I am back.", sub_agents=[helper])
    runner = runner_of(root, sessions=sessions, next_turn=next_turn)
    assert said(await once(runner)) == [("helper", "I am here.")]
    [(author, _)] = said(await once(runner, "again"))
    assert author == answers
