"""What a model is shown when a call's result comes after other messages."""

from typing import Any

import pytest
from google.adk.events.event import Event
from google.adk.flows.llm_flows.context import _contents as contents
from google.genai import types

from lango.adk.durable.calls import later_results
from lango.adk.durable.calls.long_running import PENDING, show_pending

Said = tuple[str, ...]


def says(author: str, text: str) -> Event:
    role = "user" if author == "user" else "model"
    return Event(author=author, content=types.Content(role=role, parts=[types.Part(text=text)]))


def calls(*ids: str, text: str = "", waits: bool = False) -> Event:
    parts = [types.Part(text=text)] if text else []
    parts += [
        types.Part(function_call=types.FunctionCall(id=one, name=f"do_{one}", args={}))
        for one in ids
    ]
    marks = set(ids) if waits else None
    made = types.Content(role="model", parts=parts)
    return Event(author="agent", content=made, long_running_tool_ids=marks)


def gives(author: str = "agent", **results: Any) -> Event:
    parts = [
        types.Part(
            function_response=types.FunctionResponse(
                id=one, name=f"do_{one}", response={"result": result}
            )
        )
        for one, result in results.items()
    ]
    return Event(author=author, content=types.Content(role="user", parts=parts))


def _part(part: types.Part) -> str:
    if part.function_call:
        return f"call {part.function_call.id}"
    if part.function_response:
        return f"{part.function_response.id}={(part.function_response.response or {})['result']}"
    return part.text or ""


def shown(*events: Event) -> list[Said]:
    """The contents of a request, each as its parts."""
    later_results.install_patch()
    get: Any = contents._get_contents  # pyright: ignore[reportPrivateUsage]
    made: list[types.Content] = get(None, list(events), "agent", preserve_function_call_ids=True)
    return [tuple(map(_part, content.parts or [])) for content in made]


def test_a_result_at_once_stays_where_it_is() -> None:
    assert shown(says("user", "go"), calls("a"), gives(a=1)) == [("go",), ("call a",), ("a=1",)]


def test_what_came_between_stays_and_the_call_follows_it() -> None:
    assert shown(
        says("user", "go"),
        calls("a", waits=True),
        gives(a="pending"),
        calls("b"),
        gives(b=2),
        says("agent", "Filed and paid."),
        says("user", "thanks"),
        gives("user", a="done"),
    ) == [
        ("go",),
        ("call b",),
        ("b=2",),
        ("Filed and paid.",),
        ("thanks",),
        ("call a",),
        ("a=done",),
    ]


def test_a_call_never_follows_a_text_of_the_model() -> None:
    """Gemini takes a call only behind a user's message or a result."""
    assert shown(
        says("user", "go"),
        calls("a", text="Well.", waits=True),
        gives(a="pending"),
        says("agent", "Filed."),
        gives("user", a="done"),
    ) == [("go",), ("Filed.", "Well.", "call a"), ("a=done",)]


def test_calls_that_were_made_together_stay_together() -> None:
    assert shown(
        says("user", "go"),
        calls("a", "b", waits=True),
        gives(b=2),
        gives(a="pending"),
        says("user", "and?"),
        gives("user", a="done"),
    ) == [("go",), ("and?",), ("call a", "call b"), ("b=2", "a=done")]


def test_results_of_two_calls_at_once_replace_what_came_before() -> None:
    told = shown(
        says("user", "go"),
        calls("a", waits=True),
        calls("b", waits=True),
        gives(a="pending"),
        gives(b="pending"),
        says("user", "and?"),
        gives("user", a="done", b="done"),
    )
    assert told == [("go",), ("call a",), ("a=done",), ("and?",), ("call b",), ("b=done",)]


def test_what_is_said_afterwards_finds_the_result_at_its_call() -> None:
    assert shown(
        says("user", "go"),
        calls("a", waits=True),
        gives(a="pending"),
        says("user", "and?"),
        says("agent", "Soon."),
        gives("user", a="done"),
        says("agent", "Done."),
        says("user", "thanks"),
    ) == [("go",), ("call a",), ("a=done",), ("and?",), ("Soon.",), ("Done.",), ("thanks",)]


def pending_in(*events: Event, ids: bool = True) -> list[Said]:
    made = [event.content.model_copy(deep=True) for event in events if event.content]
    for content in made if not ids else ():
        for part in content.parts or []:
            for named in (part.function_call, part.function_response):
                if named is not None:
                    named.id = None
    show_pending(made, list(events))
    told = {str(PENDING): "pending"}
    return [
        tuple(
            told.get(str(part.function_response.response), "given")
            if part.function_response
            else _part(part)
            for part in content.parts or []
        )
        for content in made
    ]


@pytest.mark.parametrize("ids", [True, False])
def test_a_call_without_a_result_yet_is_pending(ids: bool) -> None:
    call = "call a" if ids else "call None"
    events = [says("user", "go"), calls("a", waits=True), says("user", "and?")]
    assert pending_in(*events, ids=ids) == [("go",), (call,), ("pending",), ("and?",)]


@pytest.mark.parametrize("ids", [True, False])
def test_beside_a_call_that_has_its_result_another_is_pending(ids: bool) -> None:
    made = ("call a", "call b") if ids else ("call None", "call None")
    events = [says("user", "go"), calls("a", "b", waits=True), gives(b=2), says("user", "and?")]
    assert pending_in(*events, ids=ids) == [("go",), made, ("given", "pending"), ("and?",)]


def test_beside_a_call_that_waits_a_call_that_was_cut_off_is_left_alone() -> None:
    events = [
        *(says("user", "go"), calls("a", waits=True), says("user", "and?")),
        *(calls("b"), says("user", "well?")),
    ]
    found = pending_in(*events)
    assert found == [("go",), ("call a",), ("pending",), ("and?",), ("call b",), ("well?",)]


def test_a_call_that_has_a_result_or_waits_for_none_is_left_alone() -> None:
    interim = [says("user", "go"), calls("a", waits=True), gives(a="pending"), says("user", "and?")]
    assert pending_in(*interim) == [("go",), ("call a",), ("given",), ("and?",)]
    cut_off = [says("user", "go"), calls("a"), says("user", "and?")]
    assert pending_in(*cut_off) == [("go",), ("call a",), ("and?",)]
