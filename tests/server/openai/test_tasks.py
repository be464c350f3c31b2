"""Requests that a chat front end makes beside the conversation."""

import json
from typing import Any

import pytest

from faults.turns.workspace import Workspace
from lango.server.openai.sessions import SentConversation, VisibleMessage
from lango.server.openai.tasks import task_answer
from tests.server.openai.webui_prompts import prompt
from tests.server.served_apps import ServedApp, served_app

CHAT = "USER: Where is\nmy   parcel?\nASSISTANT: On its way.\nUSER: Thanks"


def task(field: str, chat: str = CHAT) -> str:
    return prompt(field, chat)


def said(text: str, *earlier: VisibleMessage) -> SentConversation:
    return SentConversation(earlier, (VisibleMessage("user", text),))


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (task("title"), {"title": "Where is my parcel?"}),
        (task("title", "USER: " + "long " * 50), {"title": ("long " * 12) + "…"}),
        (task("title", "USER:   "), {"title": "New chat"}),
        (task("title", ""), {"title": "New chat"}),
        (task("tags"), {"tags": []}),
        (task("follow_ups"), {"follow_ups": []}),
        (task("queries"), {"queries": []}),
        ("\n" + task("tags"), {"tags": []}),
    ],
)
def test_a_task_is_answered(text: str, answer: dict[str, Any]) -> None:
    result = task_answer(said(text))
    assert result is not None
    assert json.loads(result) == answer


@pytest.mark.parametrize(
    "sent",
    [
        said("Write a title for my book."),
        said("What does '" + task("title") + "' mean?"),
        said(task("title").replace('"title"', '"poem"')),
        said("### Task:\nTranslate this."),
        said(task("title").replace("chat_history", "notes")),
        said(task("title"), VisibleMessage("user", "Hi."), VisibleMessage("assistant", "Hello.")),
        SentConversation(
            (), (VisibleMessage("user", "Hi."), VisibleMessage("user", task("title")))
        ),
    ],
)
def test_what_a_person_says_is_not_a_task(sent: SentConversation) -> None:
    assert task_answer(sent) is None


async def ask(served: ServedApp, text: str, **more: Any) -> tuple[dict[str, str], str]:
    body = {"model": served.agent, "messages": [{"role": "user", "content": text}], **more}
    async with served.client(x_openwebui_chat_id="chat") as client:
        answer = await client.post("/openai/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.headers), answer.text


@pytest.mark.parametrize("stream", [False, True])
async def test_a_task_touches_no_session(sqlite_served: ServedApp, stream: bool) -> None:
    headers, text = await ask(sqlite_served, task("title"), stream=stream)
    assert "lango-turn" not in headers
    assert "Where is my parcel?" in text
    assert text.endswith("data: [DONE]\n\n") == stream
    async with sqlite_served.client() as client:
        assert (await client.get("/v1/sessions")).json()["sessions"] == []


async def test_a_task_can_be_a_turn(sqlite_workspace: Workspace, tenant: str) -> None:
    async with served_app(sqlite_workspace, tenant, openai_tasks="turn") as served, served.worker():
        headers, _ = await ask(served, task("title"))
    assert headers["lango-turn"]
