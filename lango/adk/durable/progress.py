"""Publishes the progress of a turn's running tools: a few events per call, and none after it.

Progress reaches the turn's log and its readers alone. Like every event of a log, the database
refuses it from a worker that has lost the turn.
"""

from __future__ import annotations

import asyncio
import math
from threading import Lock
from typing import Any, Final

from google.adk.tools.tool_context import ToolContext

from lango.adk.credentials.masking import Secrets
from lango.core.turns.events import Publish, ToolProgress
from lango.core.values import storable_text
from lango.errors import Fenced
from lango.tools.progress import reporter

INTERVAL: Final = 0.5
"""Seconds between two events of a call."""
SHARE: Final = 0.01
"""The interval as a part of the call's time so far: a long call does not fill the log."""
MAX_TEXT: Final = 500
"""Characters of a report's text."""
_EXACT: Final = 2**53


class CallProgress:
    """The reports of one call, from any thread: the newest one is published when it is due."""

    def __init__(self, progress: TurnProgress, context: ToolContext, name: str) -> None:
        self.owner = _owner(context)
        self._progress = progress
        self._call = context.function_call_id or ""
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._began = self._due = self._loop.time()
        self._lock = Lock()
        self._newest: tuple[Any, Any, Any] | None = None
        self._is_scheduled = False
        self._timer: asyncio.TimerHandle | None = None
        self.is_open = True

    def report(self, current: float, total: float | None, text: str) -> None:
        """Take a report, for the moment when an event is due."""
        if not self.is_open:
            return
        with self._lock:
            self._newest = (current, total, text)
            if self._is_scheduled:
                return
            self._is_scheduled = True
        try:
            self._loop.call_soon_threadsafe(self._schedule)
        except RuntimeError:
            return  # the loop is closed, and its turns with it

    def _schedule(self) -> None:
        now = self._loop.time()
        if self.is_open and self._due > now:
            self._timer = self._loop.call_at(self._due, self._publish)
        else:
            self._publish()

    def _publish(self) -> None:
        with self._lock:
            report, self._newest = self._newest, None
            self._is_scheduled = False
        event = self._event(*report) if report is not None and self.is_open else None
        if event is None:
            return
        now = self._loop.time()
        self._due = now + max(INTERVAL, SHARE * (now - self._began))
        self._progress.publish(event)

    def _event(self, current: Any, total: Any, text: Any) -> ToolProgress | None:
        """The event of a report; None if its `current` is no finite number."""
        number, message = _number(current), self._progress.shown(text)
        if number is None:
            return None
        return ToolProgress(self._call, self._name, number, _number(total), message)

    def finish(self) -> None:
        """Publish the last report, and take no more."""
        self._publish()
        self.end()

    def end(self) -> None:
        """Drop what is not published, and take no more."""
        self.is_open = False
        if self._timer is not None:
            self._timer.cancel()


class TurnProgress:
    """The progress of the calls that run in one attempt."""

    def __init__(self, publish: Publish | None, secrets: Secrets) -> None:
        self._publish = publish
        self._secrets = secrets
        self._calls: dict[str, CallProgress] = {}

    def begin(self, name: str, context: ToolContext) -> None:
        """Let the tool report in this context, which ends with its call.

        A tool of an agent that a tool runs reports for the outer call, which the readers know.
        """
        outer = reporter.get()
        if self._publish is None or (isinstance(outer, CallProgress) and outer.is_open):
            return
        call = CallProgress(self, context, name)
        self._calls[context.function_call_id or ""] = call
        reporter.set(call)

    def finish(self, context: ToolContext) -> None:
        """Publish the last report of a call whose tool has returned."""
        call = reporter.get()
        if isinstance(call, CallProgress) and call.owner == _owner(context):
            call.finish()

    def end(self, call_id: str) -> None:
        """Publish nothing more of a call: its result is in the log."""
        call = self._calls.pop(call_id, None)
        if call is not None:
            call.end()

    def close(self) -> None:
        """Publish nothing more: the run has ended."""
        for call_id in list(self._calls):
            self.end(call_id)

    def publish(self, event: ToolProgress) -> None:
        """Publish an event; if another worker has the turn, no more."""
        if self._publish is None:
            return
        try:
            self._publish(event)
        except Fenced:  # the call's own next write raises it where it is handled
            self.close()

    def shown(self, text: object) -> str | None:
        """A report's text without the user's credentials; None if it is empty."""
        words = "" if text is None else storable_text(str(text))
        return self._secrets.masked(words)[:MAX_TEXT] or None


def _owner(context: ToolContext) -> tuple[str, str]:
    """What tells a call from one of the same id in the session of an inner agent."""
    return context.session.id, context.function_call_id or ""


def _number(value: Any) -> float | None:
    """A number that JSON has; a whole one without a fraction."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    if not math.isfinite(number):
        return None
    return int(number) if number.is_integer() and abs(number) < _EXACT else number
