"""The page docs/how-to/tracing.md: its hook, and the names of its spans and variables."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from lango.telemetry.tracing import names, start
from tests.cli.processes import PATIENCE
from tests.docs.pages import DOCS, blocks
from tests.support.otlp import receiver

PAGE = DOCS / "how-to/tracing.md"
RECEIVER = "http://127.0.0.1:4318"


def test_the_hook_of_the_page_redacts() -> None:
    _, shown = blocks(PAGE, "python")
    module: dict[str, Any] = {}
    exec(shown.text, module)  # noqa: S102 - our own page
    redact = module["redact"]
    assert redact("gen_ai.input.messages", "pay 4111 1111 1111 1111") == "pay [card]"
    assert redact("gen_ai.tool.call.result", "anything") is None


def test_the_process_of_the_page_sends_its_turn(tmp_path: Path) -> None:
    shown, _ = blocks(PAGE, "python")
    with receiver() as traces:
        assert RECEIVER in shown.text
        code = shown.text.replace(RECEIVER, traces.url)
        ran = subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert ran.stdout == "You said: Hello\n", ran.stderr
        spans = traces.wait_for(lambda spans: any(span.name == names.TURN for span in spans))
    assert {span.service for span in spans} == {"support"}
    assert len({span.trace for span in spans}) == 1


def test_the_page_names_what_there_is() -> None:
    page = PAGE.read_text("utf-8")
    spans = (names.TURN, names.ATTEMPT, names.SUBMIT, names.CLAIM, names.CLOSE)
    shown = (*spans, names.ERROR_ID, names.CALL_ATTEMPTS, names.REQUEST_ID, names.WORKER)
    for name in (*shown, *start.ENDPOINT_VARIABLES):
        assert f"`{name}`" in page
    assert names.SCHEMA.rpartition("/")[2] in page
