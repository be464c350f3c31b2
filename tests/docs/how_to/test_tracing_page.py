"""The page docs/how-to/tracing.md: its hook, and the names of its spans and variables."""

from __future__ import annotations

from typing import Any

from lango.telemetry.tracing import names, start
from tests.docs.pages import DOCS, blocks

PAGE = DOCS / "how-to/tracing.md"


def test_the_hook_of_the_page_redacts() -> None:
    [shown] = blocks(PAGE, "python")
    module: dict[str, Any] = {}
    exec(shown.text, module)  # noqa: S102 - our own page
    redact = module["redact"]
    assert redact("gen_ai.input.messages", "pay 4111 1111 1111 1111") == "pay [card]"
    assert redact("gen_ai.tool.call.result", "anything") is None


def test_the_page_names_what_there_is() -> None:
    page = PAGE.read_text("utf-8")
    spans = (names.TURN, names.ATTEMPT, names.SUBMIT, names.CLAIM, names.CLOSE)
    shown = (*spans, names.ERROR_ID, names.CALL_ATTEMPTS, names.REQUEST_ID, names.WORKER)
    for name in (*shown, *start.ENDPOINT_VARIABLES):
        assert f"`{name}`" in page
    assert names.SCHEMA.rpartition("/")[2] in page
