"""The built-in tool `time`: the current time in a time zone."""

from __future__ import annotations

from datetime import UTC, datetime, tzinfo
from difflib import get_close_matches
from typing import Annotated
from zoneinfo import ZoneInfo, available_timezones

from pydantic import AfterValidator, Field

from lango.core.values import JsonObject
from lango.errors import ToolError
from lango.tools.base import Tool
from lango.tools.function import tool
from lango.tools.options import Options


def _known(zone: str) -> str:
    try:
        zone_of(zone)
    except ToolError as error:
        raise ValueError(str(error)) from None
    return zone


class TimeOptions(Options):
    """The tool's options."""

    zone: Annotated[str, AfterValidator(_known)] = "UTC"
    """The default time zone."""


def time_tools(options: TimeOptions) -> list[Tool]:
    """The tool `current_time`."""

    @tool(idempotent=True)
    def current_time(
        zone: Annotated[
            str, Field(max_length=64, description="An IANA time zone such as Europe/Berlin.")
        ] = options.zone,
    ) -> JsonObject:
        """The current date and time in a time zone."""
        now = datetime.now(zone_of(zone))
        return {
            "time": now.isoformat(timespec="seconds"),
            "weekday": now.strftime("%A"),
            "zone": zone,
        }

    return [current_time]


def zone_of(name: str) -> tzinfo:
    """The zone of that name; if there is none, ToolError suggests similar names."""
    if name == "UTC":  # works without time zone data
        return UTC
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        near = get_close_matches(name, available_timezones(), 3)
        hint = f" Did you mean {', '.join(near)}?" if near else " Take a name like Europe/Berlin."
        raise ToolError(f"There is no time zone {name[:64]!r}.{hint}") from None
