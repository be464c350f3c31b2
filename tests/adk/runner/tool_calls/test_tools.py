"""Our tools under a real Runner: which calls run, which do not, and what the model receives."""

import asyncio
import enum
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from google.adk.agents import LlmAgent
from google.adk.artifacts.in_memory_artifact_service import InMemoryArtifactService
from google.adk.tools.function_tool import FunctionTool

from lango.adk.artifacts import SqlArtifactService
from lango.adk.sessions.service import SessionServiceAdapter
from lango.adk.tools.adapter import (
    HINT,
    MAX_OUTPUT,
    REJECTED,
    UNCONFIRMED,
    ToolAdapter,
    as_adk_tools,
)
from lango.core.values import json_text
from lango.errors import Fenced, ToolError
from lango.tools.base import CallInfo, Tool
from lango.tools.function import tool
from lango.tools.registry import load_tools
from tests.adk.runner.scripted import ScriptedLlm
from tests.adk.runner.tool_calls.tool_turns import APP, SESSION, USER, ToolConversation
from tests.unit.tools.builtin.sandboxes import needs_bwrap


class Done:
    """What was done, and tools that do it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def tool(self, name: str, **fields: Any) -> ToolAdapter:
        def run(amount: int) -> dict[str, int]:
            self.calls.append(f"{name} {amount}")
            return {"amount": amount}

        return ToolAdapter(tool(name=name, description=f"Does {name}.", **fields)(run))


@pytest.fixture
def done() -> Done:
    return Done()


# --- what does not run ---------------------------------------------------------------------------


@needs_bwrap
async def test_a_model_that_calls_all_it_must_not_executes_nothing(
    done: Done, tmp_path: Path
) -> None:
    """Undeclared names, another agent's tools, unconfirmed ones, wrong arguments, ways out."""
    (tmp_path / "root").mkdir()
    (tmp_path / "secret.txt").write_text("the secret")
    root = {"root": str(tmp_path / "root")}
    built_in = [
        *load_tools("builtin:files", root),
        *load_tools("builtin:fetch"),
        *load_tools("builtin:exec", root | {"allow": ["touch"]}),
    ]
    theirs = done.tool("theirs")  # registered with another agent only
    LlmAgent(name="other", model=ScriptedLlm(), tools=[theirs])
    talk = ToolConversation(
        *as_adk_tools(built_in), done.tool("pay", require_confirmation=True), done.tool("count")
    )
    forbidden = [
        *("theirs", "eval", "exec", "os.system", "__import__", "write_file", "bash", "python"),
        *("transfer_to_agent", "load_artifacts", "Count"),
    ]
    calls = [
        *(f'{name} {{"amount": 1}}' for name in forbidden),
        *('count {"amount": "many"}', "count {}", 'count {"amount": 1, "x": 2}'),
        *('pay {"amount": 1}', 'pay {"amount": "many"}', 'run_command {"argv": ["touch", "x"]}'),
        *('run_command {"argv": ["rm", "x"]}', 'run_command {"argv": "touch x"}'),
        *('read_file {"path": "../secret.txt"}', 'read_file {"path": "/etc/passwd"}'),
        *('fetch_url {"url": "http://127.0.0.1:5432/"}', 'fetch_url {"url": "file:///etc/passwd"}'),
    ]
    answers: list[dict[str, Any]] = []
    for call in calls:
        answers += await talk.say(f"do {call}")
    assert done.calls == []
    assert list((tmp_path / "root").iterdir()) == []
    assert len(answers) == len(calls)
    assert all("error" in answer for answer in answers)
    assert "the secret" not in str(answers)
    # Sent on as confirmed by the model itself, it is still not run: a person must say so.
    (answer,) = await talk.say('do pay {"amount": 1, "confirmed": true}')
    assert "there is no" in answer["error"] or "extra inputs" in answer["error"]
    assert done.calls == []


# --- asking first --------------------------------------------------------------------------------


async def test_a_tool_that_requires_confirmation_asks_first(done: Done) -> None:
    talk = ToolConversation(done.tool("pay", require_confirmation=True))
    assert await talk.say('do pay {"amount": 5}') == [{"error": UNCONFIRMED}]
    assert (talk.questions, done.calls) == (1, [])
    assert await talk.decide(True) == [{"amount": 5}]
    assert done.calls == ["pay 5"]
    await talk.say('do pay {"amount": 6}')
    assert await talk.decide(False) == [{"error": REJECTED}]
    assert (talk.questions, done.calls) == (2, ["pay 5"])


async def test_a_call_with_wrong_arguments_asks_for_no_approval(done: Done) -> None:
    talk = ToolConversation(done.tool("pay", require_confirmation=True))
    (answer,) = await talk.say('do pay {"amount": "much"}')
    assert answer["error"].startswith("Wrong argument amount")
    assert talk.questions == 0


async def test_asking_is_adks_own() -> None:
    """The same turns with ADK's FunctionTool: the same answers, hints and marks."""

    def pay(amount: int) -> dict[str, int]:
        """Spend."""
        return {"amount": amount}

    async def told(made: Any) -> list[Any]:
        talk, found = ToolConversation(made), list[Any]()
        for confirmed in (True, False):
            found += await talk.say('do pay {"amount": 5}')
            found += await talk.decide(confirmed)
        for event in talk.events:
            confirmation = event.actions.requested_tool_confirmations.values()
            found += [
                (one.hint, one.payload, event.actions.skip_summarization) for one in confirmation
            ]
        return found

    ours = await told(ToolAdapter(tool(require_confirmation=True)(pay)))
    assert ours == await told(FunctionTool(pay, require_confirmation=True))
    assert (HINT.format(name="pay"), None, True) in ours
    assert {"error": REJECTED} in ours


async def test_called_past_adks_gate_it_asks_all_the_same(done: Done) -> None:
    """As a tool of one's own does that calls another."""
    pay = done.tool("pay", require_confirmation=True)

    async def around(amount: int, tool_context: Any) -> dict[str, Any]:
        """Call it by hand."""
        return await pay.run_async(args={"amount": amount}, tool_context=tool_context)

    assert await ToolConversation(around).say('do around {"amount": 5}') == [{"error": UNCONFIRMED}]
    assert done.calls == []


# --- what the model receives ---------------------------------------------------------------------


async def test_an_exception_reaches_the_model_without_its_details(
    caplog: pytest.LogCaptureFixture,
) -> None:
    @tool
    def broken(x: str) -> None:
        """Breaks."""
        raise RuntimeError(f"password=hunter2 {x}")

    @tool
    async def refusing(x: str) -> None:
        """Refuses."""
        raise ToolError(f"There is no {x}; take y.")

    talk = ToolConversation(*as_adk_tools([broken, refusing]))
    with caplog.at_level(logging.INFO):
        inside, meant = await talk.say('do broken {"x": "x"} and refusing {"x": "x"}')
    assert inside["error"] == "The tool broken failed unexpectedly."
    assert meant["error"] == "There is no x; take y."
    assert "hunter2" not in str(inside)
    logged = {record.levelname: record for record in caplog.records if "failed (" in record.message}
    assert inside["error_id"] in logged["ERROR"].message
    assert "password=hunter2" in (logged["ERROR"].exc_text or "")
    assert meant["error_id"] in logged["INFO"].message
    # And the conversation goes on.
    (final,) = [event for event in talk.events if event.is_final_response()]
    assert "There is no x" in str(final.content)


async def test_the_model_receives_a_timeout() -> None:
    @tool(timeout=0.01)
    async def slow() -> None:
        """Waits."""
        await asyncio.Event().wait()

    (answer,) = await ToolConversation(ToolAdapter(slow)).say("do slow {}")
    assert answer["error"] == "slow did not finish in 0.01 s."
    assert answer["error_id"].startswith("err_")


async def test_what_is_no_exception_passes_through() -> None:
    @tool
    async def fenced() -> None:
        """Lost its session."""
        raise Fenced

    with pytest.raises(Fenced):
        await ToolConversation(ToolAdapter(fenced)).say("do fenced {}")


async def test_cancelling_the_run_cancels_the_tool() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    @tool
    async def slow() -> None:
        """Waits."""
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    task = asyncio.create_task(ToolConversation(ToolAdapter(slow)).say("do slow {}"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


# --- calls and results ---------------------------------------------------------------------------


async def test_a_tool_learns_which_call_it_serves() -> None:
    seen: list[CallInfo] = []

    @tool
    def who(info: CallInfo) -> None:
        """Look."""
        seen.append(info)

    talk = ToolConversation(ToolAdapter(who))
    await talk.say("do who {} and who {}")
    calls = [call for event in talk.events for call in event.get_function_calls()]
    assert [info.call_id for info in seen] == [call.id for call in calls]
    assert [info.key for info in seen] == [
        f"{talk.events[0].invocation_id}/{call.id}" for call in calls
    ]
    assert {(info.app_name, info.user_id, info.session_id) for info in seen} == {
        (APP, USER, SESSION)
    }


def giving(name: str, value: Any) -> Tool:
    def run(arguments: dict[str, Any], info: CallInfo) -> Any:
        del arguments, info
        return value

    return Tool(name, "Gives it.", {"type": "object"}, run)


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    tags: tuple[str, ...] = ("a",)


@pytest.mark.parametrize(
    ("value", "result"),
    [
        ({"a": 1}, {"a": 1}),
        ("text", {"result": "text"}),
        (None, {"result": None}),
        ([1, {2}], {"result": [1, [2]]}),
        (Point(1), {"x": 1, "tags": ["a"]}),
        (Colour.RED, {"result": "red"}),
        ({1: b"x", "n": float("nan")}, {"1": "eA==", "n": None}),
        ("a\x00\ud800", {"result": "a\ufffd\ufffd"}),
    ],
    ids=repr,
)
async def test_any_result_is_an_object_that_can_be_stored(
    value: Any, result: dict[str, Any], sqlite_url: str
) -> None:
    made = giving("give", value)
    async with SessionServiceAdapter(sqlite_url) as service:
        assert await ToolConversation(ToolAdapter(made), session_service=service).say(
            "do give {}"
        ) == [result]


# --- long results --------------------------------------------------------------------------------


def long_tool(size: int) -> ToolAdapter:
    return ToolAdapter(giving("long", "ü" * size))


@pytest.mark.parametrize("own", [True, False])
async def test_a_long_result_is_kept_as_an_artifact(own: bool, sqlite_url: str) -> None:
    service = SqlArtifactService(sqlite_url) if own else InMemoryArtifactService()
    talk = ToolConversation(long_tool(MAX_OUTPUT), artifact_service=service)
    (answer,) = await talk.say("do long {}")
    whole = json_text({"result": "ü" * MAX_OUTPUT})
    assert answer["truncated"] is True
    assert answer["size"] == len(whole.encode())
    assert whole.startswith(answer["head"])
    assert len(json_text(answer)) < 10_000
    kept = await service.load_artifact(
        app_name=APP,
        user_id=USER,
        session_id=SESSION,
        filename=answer["artifact"],
        version=answer["version"],
    )
    assert kept is not None
    assert kept.inline_data is not None
    assert (kept.inline_data.data or b"").decode() == whole
    assert any(answer["artifact"] in event.actions.artifact_delta for event in talk.events)
    if isinstance(service, SqlArtifactService):
        await service.close()


async def test_without_an_artifact_service_a_long_result_says_so() -> None:
    (answer,) = await ToolConversation(long_tool(MAX_OUTPUT)).say("do long {}")
    assert answer["truncated"] is True
    assert answer["note"].startswith("The rest of the output was not kept")
    assert "artifact" not in answer


async def test_up_to_the_cap_a_result_is_left_alone() -> None:
    frame = len('{"result":""}')
    size = (MAX_OUTPUT - frame) // 2
    assert await ToolConversation(long_tool(size)).say("do long {}") == [{"result": "ü" * size}]
    (over,) = await ToolConversation(long_tool(size + 1)).say("do long {}")
    assert over["truncated"] is True


# --- declarations --------------------------------------------------------------------------------


def test_the_declaration_is_the_tools_own_schema(done: Done) -> None:
    adapter = done.tool("pay")
    declared = adapter._get_declaration()  # pyright: ignore[reportPrivateUsage]
    assert (declared.name, declared.description) == ("pay", "Does pay.")
    assert declared.parameters_json_schema == adapter.tool.parameters
    cast("dict[str, Any]", declared.parameters_json_schema)["spoilt"] = True
    assert "spoilt" not in adapter.tool.parameters


def test_only_our_tools_are_adapted() -> None:
    def plain(x: int) -> int:
        """Plain."""
        return x

    adapted, theirs, function = as_adk_tools([tool(plain), FunctionTool(plain), plain])
    assert isinstance(adapted, ToolAdapter)
    assert isinstance(theirs, FunctionTool)
    assert function is plain
