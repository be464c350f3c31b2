"""Open WebUI's prompts for tasks beside a chat, as far as lango recognises them.

Only the literals that matter, as in Open WebUI 0.12.4: `make clients` compares them with the
prompts of the newest release.
"""

from __future__ import annotations

from typing import Final

TASK: Final = "### Task:\n"
HISTORY: Final = "<chat_history>\n"
END_OF_HISTORY: Final = "\n</chat_history>"
FORMATS: Final = {
    "title": 'JSON format: { "title": ',
    "tags": 'JSON format: { "tags": [',
    "follow_ups": 'JSON format: { "follow_ups": [',
    "queries": 'JSON format: \n{\n  "queries": [',
}
TEMPLATES: Final = {
    "title": "DEFAULT_TITLE_GENERATION_PROMPT_TEMPLATE",
    "tags": "DEFAULT_TAGS_GENERATION_PROMPT_TEMPLATE",
    "follow_ups": "DEFAULT_FOLLOW_UP_GENERATION_PROMPT_TEMPLATE",
    "queries": "DEFAULT_QUERY_GENERATION_PROMPT_TEMPLATE",
}
"""The names of the prompts in `open_webui/config.py`."""


def prompt(field: str, chat: str) -> str:
    """The shortest prompt that has all literals."""
    return f"{TASK}{FORMATS[field]}{HISTORY}{chat}{END_OF_HISTORY}"


def has_literals(field: str, text: str) -> bool:
    """Whether a prompt has the literals, in their order."""
    indexes = [text.find(literal) for literal in (TASK, FORMATS[field], HISTORY, END_OF_HISTORY)]
    return indexes[0] == 0 and -1 not in indexes and indexes == sorted(indexes)
