"""A turn as a person sees it: text as it comes, tool calls as they happen."""

from __future__ import annotations

import json
import sys
from typing import Protocol, TextIO

from rich.console import Console
from rich.markup import escape

from lango.cli.printable import one_line, printable
from lango.core.turns import (
    AgentChanged,
    Cancelled,
    Failed,
    MessageCompleted,
    MessageDelta,
    MessageReset,
    Retrying,
    ThoughtDelta,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    error_data,
)

_MARGIN = 4


class Screen(Protocol):
    """Whatever shows a turn."""

    def show(self, event: TurnEvent) -> None:
        """Show one event."""
        ...


class JsonScreen:
    """One JSON object a line, for scripts."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout

    def show(self, event: TurnEvent) -> None:
        """Print the event."""
        line = json.dumps({"type": event.type, **event.data()}, ensure_ascii=False)
        print(line, file=self._out, flush=True)


class TextScreen:
    """For people: the answer on standard output, what goes on around it dimmed beside it."""

    def __init__(self, *, thoughts: bool = False, notes: Console | None = None) -> None:
        self._thoughts = thoughts
        self._out = sys.stdout
        self._notes = notes or Console(stderr=True, highlight=False)
        self._streamed: set[str] = set()
        self._in_line = False

    def show(self, event: TurnEvent) -> None:
        """Show what a person wants to know of an event; of most ends that is nothing."""
        match event:
            case MessageDelta():
                self._streamed.add(event.message)
                self._write(event.text)
            case MessageCompleted() if event.message not in self._streamed:
                self._write(event.text)
                self._end_line()
            case ThoughtDelta():
                self._think(event.text)
            case Failed():
                self._note(str(error_data(event.error)["message"]), style="red", whole=True)
            case ToolFinished() if event.error is not None:
                self._note(f"← {event.name} failed: {event.error}", style="yellow")
            case _:
                self._note(_remark(event))

    def _think(self, text: str) -> None:
        if self._thoughts:
            self._notes.print(f"[dim]{escape(printable(text))}[/]", end="")
            self._in_line = True

    def _write(self, text: str) -> None:
        if not text:
            return
        self._out.write(printable(text))
        self._out.flush()
        self._in_line = not text.endswith("\n")

    def _end_line(self) -> None:
        if self._in_line:
            self._out.write("\n")
            self._out.flush()
        self._in_line = False

    def _note(self, text: str, *, style: str = "dim", whole: bool = False) -> None:
        self._end_line()
        if not text:
            return
        shown = printable(text) if whole else one_line(text, self._notes.width - _MARGIN)
        self._notes.print(f"[{style}]{escape(shown)}[/]", soft_wrap=whole)


def _remark(event: TurnEvent) -> str:
    """What is said of an event in passing; nothing, if it ends a line and no more."""
    match event:
        case ToolStarted():
            given = ", ".join(f"{name}={_json(value)}" for name, value in event.arguments.items())
            return f"→ {event.name}({given})"
        case ToolFinished():
            return f"← {event.name}: {_json(event.result)}"
        case AgentChanged():
            return f"{event.agent} goes on"
        case Retrying():
            return f"once more: {event.why}"
        case MessageReset():
            return "once more, from the beginning of the message"
        case Cancelled():
            return "stopped; what was said so far is kept"
        case _:
            return ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
