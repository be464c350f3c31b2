"""The message that a model receives about a failure."""

import logging

import pytest

from lango.adk.tools.feedback import MAX_TEXT, feedback
from lango.errors import ToolArgumentsError, ToolError


def raised(error: Exception) -> Exception:
    """The error with a traceback, as a tool leaves it."""
    try:
        raise error
    except Exception as caught:  # noqa: BLE001 - that is the point
        return caught


def test_an_error_keeps_its_inside_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    result = feedback(raised(KeyError("sk-secret")), "search")
    assert result["error"] == "The tool search failed unexpectedly."
    assert result["error_id"].startswith("err_")
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert result["error_id"] in record.getMessage()
    assert "sk-secret" in caplog.text
    assert "def raised" not in record.getMessage()


@pytest.mark.parametrize("kind", [ToolError, ToolArgumentsError])
def test_a_tools_own_words_are_passed_on(kind: type[ToolError]) -> None:
    assert feedback(raised(kind("Take another.")), "search")["error"] == "Take another."


def test_each_failure_has_an_id_of_its_own() -> None:
    error = ToolError("x")
    assert feedback(error, "a")["error_id"] != feedback(error, "a")["error_id"]


def test_feedback_is_short_and_can_be_stored() -> None:
    result = feedback(ToolError("\x00\ud800" + "x" * 10_000), "search")["error"]
    assert len(result) == MAX_TEXT
    assert result.startswith("\ufffd\ufffdx")
