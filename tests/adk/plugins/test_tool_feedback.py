"""Tools that fail, under a real Runner."""

import asyncio
import logging
from typing import Any

import pytest
from google.adk.models.base_llm import BaseLlm

from lango.adk.plugins.tool_feedback import ToolFeedbackPlugin
from lango.errors import ToolError
from tests.adk.plugins.plugin_talk import (
    PluginConversation,
    agent,
    answers,
    called,
    calling,
    other,
    ours,
    said,
    unanswered,
)

SECRET = "postgresql://ann:s3cret@db"


async def breaks(number: int = 0) -> dict[str, Any]:
    """Break."""
    raise RuntimeError(f"no connection to {SECRET} for {number}")


async def refuses() -> dict[str, Any]:
    """Refuse."""
    raise ToolError("The file is locked; try the copy.")


async def works() -> dict[str, Any]:
    """Work."""
    return {"done": True}


def both(*names: str) -> list[BaseLlm]:
    theirs = [called(name, f"c{n}") for n, name in enumerate(names)]
    our = [calling(name, f"c{n}") for n, name in enumerate(names)]
    return [other(*theirs), ours(*our, "ok")]


@pytest.mark.parametrize("kind", [0, 1], ids=["other", "ours"])
async def test_the_model_receives_the_error_and_the_turn_continues(
    kind: int, caplog: pytest.LogCaptureFixture
) -> None:
    talk = PluginConversation(
        agent(both("breaks", "works")[kind], breaks, works), [ToolFeedbackPlugin()]
    )
    with caplog.at_level(logging.ERROR, "lango"):
        assert said(await talk.say("go")) == "ok"
    [broken, worked] = answers(talk.events)
    assert worked == {"done": True}
    assert set(broken) == {"error", "error_id"}
    assert SECRET not in str(broken)
    assert broken["error_id"].startswith("err_")
    [record] = [one for one in caplog.records if broken["error_id"] in one.getMessage()]
    assert record.exc_info is not None
    assert SECRET in str(record.exc_info[1])
    assert unanswered((await talk.session()).events) == set()


async def test_without_the_plugin_the_turn_would_end() -> None:
    with pytest.raises(RuntimeError, match="no connection"):
        await PluginConversation(agent(other(called("breaks")), breaks)).say("go")


async def test_the_model_receives_a_tool_error_unchanged() -> None:
    talk = PluginConversation(agent(other(called("refuses")), refuses), [ToolFeedbackPlugin()])
    await talk.say("go")
    [answer] = answers(talk.events)
    assert answer["error"] == "The file is locked; try the copy."


@pytest.mark.parametrize("kind", [0, 1], ids=["other", "ours"])
async def test_a_tool_that_was_never_declared(kind: int, caplog: pytest.LogCaptureFixture) -> None:
    model = both("breka", "works")[kind]
    talk = PluginConversation(agent(model, breaks, works), [ToolFeedbackPlugin()])
    with caplog.at_level(logging.ERROR, "lango"):
        assert said(await talk.say("go")) == "ok"
    [unknown, worked] = answers(talk.events)
    assert "breka" in unknown["error"]
    assert "breaks, works" in unknown["error"]
    assert worked == {"done": True}
    assert caplog.records == []  # a model's slip is no error of ours


async def test_of_parallel_calls_the_others_keep_their_results() -> None:
    calls = [called("works", "a"), called("breaks", "b"), called("works", "c")]
    talk = PluginConversation(agent(other(calls), breaks, works), [ToolFeedbackPlugin()])
    await talk.say("go")
    assert ["error" in answer for answer in answers(talk.events)] == [False, True, False]


async def test_a_cancelled_tool_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    begun = asyncio.Event()

    async def waits() -> dict[str, Any]:
        """Wait."""
        begun.set()
        await asyncio.Event().wait()
        return {}

    talk = PluginConversation(agent(other(called("waits")), waits), [ToolFeedbackPlugin()])
    turn = asyncio.create_task(talk.say("go"))
    await begun.wait()
    turn.cancel()
    with caplog.at_level(logging.INFO, "lango"), pytest.raises(asyncio.CancelledError):
        await turn
    assert [one for one in caplog.records if one.name.startswith("lango")] == []
