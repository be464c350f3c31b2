"""Tasks of chat front ends beside the conversation: titles, tags, follow-up questions.

Open WebUI sends such a task as one user message, which quotes the chat so far. As a turn it would
cost a model call, could run the agent's tools, and would become part of a session. So the server
answers it without the agent: the title is the beginning of the chat, and other lists are empty.
"""

from __future__ import annotations

import re
from typing import Final

from lango.core.values import JsonObject, json_text
from lango.server.openai.sessions import SentConversation

_MAX_TITLE: Final = 60
_TASK: Final = "### Task:\n"
_FIELD: Final = re.compile(r'JSON format:\s*\{\s*"(title|tags|follow_ups|queries)"')
_HISTORY: Final = re.compile(r"<chat_history>\s*(.*)</chat_history>", re.DOTALL)
_FIRST_MESSAGE: Final = re.compile(r"USER: (.*?)(?:\nASSISTANT: |\Z)", re.DOTALL)
_UNTITLED: Final = "New chat"


def task_answer(conversation: SentConversation) -> str | None:
    """The answer to a task; None if the message is not one."""
    text = conversation.text.lstrip()
    if conversation.earlier or len(conversation.new) > 1 or not text.startswith(_TASK):
        return None
    field_match, history_match = _FIELD.search(text), _HISTORY.search(text)
    if field_match is None or history_match is None:
        return None
    answer: JsonObject = {
        field_match[1]: _title(history_match[1]) if field_match[1] == "title" else []
    }
    return json_text(answer)


def _title(history: str) -> str:
    first = _FIRST_MESSAGE.match(history)
    words = " ".join(first[1].split()) if first else ""
    short = words if len(words) <= _MAX_TITLE else f"{words[:_MAX_TITLE]}…"
    return short or _UNTITLED
