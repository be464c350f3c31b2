"""The tool that knows the time."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lango.errors import InvalidToolError, ToolError
from lango.tools.base import CallInfo
from lango.tools.registry import load_tools

INFO = CallInfo("call-1", "turn-1/call-1", "app", "user", "session")


def now(arguments: dict[str, Any], **options: Any) -> dict[str, Any]:
    (tool,) = load_tools("builtin:time", options)
    return tool.run(tool.checked(arguments), INFO)


def test_the_time_in_a_zone() -> None:
    text = now({"zone": "Asia/Kathmandu"})
    result = datetime.fromisoformat(text["time"])
    assert result.utcoffset() == timedelta(hours=5, minutes=45)
    assert abs(result - datetime.now(UTC)) < timedelta(minutes=1)
    assert (text["weekday"], text["zone"]) == (result.strftime("%A"), "Asia/Kathmandu")


def test_the_zone_of_the_settings() -> None:
    assert now({})["time"].endswith("+00:00")
    assert now({}, zone="Asia/Kathmandu")["zone"] == "Asia/Kathmandu"


def test_a_zone_that_is_near() -> None:
    with pytest.raises(ToolError, match="Did you mean Europe/Berlin"):
        now({"zone": "Europe/Berln"})
    with pytest.raises(InvalidToolError, match="Did you mean Europe/Berlin"):
        load_tools("builtin:time", {"zone": "Europe/Berln"})


@pytest.mark.parametrize("zone", ["../../etc/passwd", "/etc/passwd", "", "\x00", "Europe", "."])
def test_what_is_no_zone(zone: str) -> None:
    with pytest.raises(ToolError, match="There is no time zone"):
        now({"zone": zone})
