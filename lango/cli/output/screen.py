"""Shows a turn at the terminal: text as it comes, tool calls as they happen."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from textwrap import indent
from typing import Protocol, TextIO

from rich.console import Console
from rich.markup import escape

from lango.cli.options import StoreOptions, command_of
from lango.cli.output.printable import one_line, printable
from lango.core.causes import cause_of
from lango.core.turns.events import (
    AgentChanged,
    Cancelled,
    Completed,
    Failed,
    InputRequired,
    MessageCompleted,
    MessageDelta,
    MessagePart,
    MessageReset,
    ReasoningDelta,
    Retrying,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    TurnEvent,
)
from lango.errors import LangoError

_MARGIN = 4
_CLEAR_LINE = "\r\x1b[K"
_ELSEWHERE = "The turn failed in another process."


class Screen(Protocol):
    """Shows the events of a turn."""

    speaker: str
    """The agent whose messages need no name: the root agent, or the one that took over."""

    def show(self, event: TurnEvent) -> None:
        """Show one event."""
        ...


class JsonScreen:
    """Prints one JSON object per line, for scripts."""

    def __init__(self, out: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self.speaker = ""

    def show(self, event: TurnEvent) -> None:
        """Print the event, with the cause of a failure: the terminal is the developer's own."""
        data = event.data()
        if isinstance(event, Failed) and _is_foreign(event):
            data["error"]["cause"] = asdict(cause_of(event.error))
        elif isinstance(event, ToolFinished) and event.cause is not None:
            data["cause"] = asdict(event.cause)
        line = json.dumps({"type": event.type, **data}, ensure_ascii=False)
        print(line, file=self._out, flush=True)


class TextScreen:
    """For people: prints the answer on standard output, and dimmed notes on standard error."""

    def __init__(
        self,
        *,
        thoughts: bool = False,
        notes: Console | None = None,
        store_options: StoreOptions = (None, None, None),
    ) -> None:
        self.speaker = ""
        self._thoughts = thoughts
        self._store_options = store_options
        self._out = sys.stdout
        self._notes = notes or Console(stderr=True, highlight=False)
        self._streamed: set[str] = set()
        self._in_line = False
        self._shows_progress = False  # in a line of the terminal that the next output replaces
        self._open: str | None = None  # the message being written
        self._waiting_texts: dict[str, str] = {}  # texts of concurrent messages, in order
        self._authors: dict[str, str] = {}  # of those of them that are complete
        self._texts: dict[str, list[str]] = {}  # deltas of messages, until their turn ends
        self._with_code: set[str] = set()  # messages whose code has been shown

    def show(self, event: TurnEvent) -> None:
        """Show an event, as text of the answer or as a note."""
        match event:
            case MessageDelta():
                self._add(event.message, event.text)
            case MessageCompleted():
                self._complete(event.message, event.author, event.text)
            case MessageReset() if event.message in self._waiting_texts:
                del self._waiting_texts[event.message]
            case MessageReset():
                self._note("" if event.message in self._with_code else _remark(event))
                self._close(event.message)
            case ReasoningDelta():
                self._think(event.text)
            case AgentChanged():
                self.speaker = event.agent
                self._note(_remark(event))
            case Completed() | Cancelled() | InputRequired():
                self._show_waiting()
                self._note(_remark(event))
            case Failed():
                self._show_waiting()
                self._note(_reason(event, self._store_options), style="red", full=True)
            case ToolFinished() if event.error is not None:
                cause = event.cause or event.error
                self._note(f"← {event.name} failed: {cause}", style="yellow", full=True)
            case _:
                self._show_step(event)

    def _add(self, message: str, text: str) -> None:
        """Add text to a message; messages of concurrent agents are shown one after the other."""
        self._streamed.add(message)
        self._texts.setdefault(message, []).append(text)
        if self._open is None:
            self._open = message
        if message == self._open:
            self._write(text)
        else:
            self._waiting_texts[message] = self._waiting_texts.get(message, "") + text

    def _complete(self, message: str, author: str, text: str) -> None:
        if message == self._open:
            self._name(author)
            self._close(message)
        elif message in self._waiting_texts:
            self._authors[message] = author
        elif message not in self._streamed and self._open is None:
            self._write(text)
            self._name(author)
        elif message not in self._streamed:
            self._waiting_texts[message] = text
            self._authors[message] = author

    def _show_part(self, event: MessagePart) -> None:
        """Show code and its output; code that the model wrote into its text is there already."""
        streamed = "".join(self._texts.get(event.message, ()))
        self._with_code.add(event.message)
        is_shown = event.message not in self._waiting_texts and event.text.strip() in streamed
        if event.kind == "code_result" or not is_shown:
            self._note(f"{_remark(event)}\n{indent(event.text.rstrip(), '  ')}", full=True)

    def _name(self, author: str) -> None:
        """End a message; if another agent than the speaker wrote it, name that agent below it."""
        self._note("" if author in ("", self.speaker) else f"— {author}")

    def _close(self, message: str) -> None:
        """Close the open message, then write those that came while it was open."""
        if message != self._open:
            return
        self._open = None
        while self._waiting_texts and self._open is None:
            following = next(iter(self._waiting_texts))
            self._write(self._waiting_texts.pop(following))
            if following in self._authors:
                self._name(self._authors.pop(following))
            else:
                self._open = following

    def _show_waiting(self) -> None:
        """Show the rest of all messages, at the end of the turn."""
        while self._open is not None:
            self._end_line()
            self._close(self._open)
        self._texts.clear()
        self._with_code.clear()

    def _think(self, text: str) -> None:
        if self._thoughts:
            self._clear_progress()
            self._notes.print(f"[dim]{escape(printable(text))}[/]", end="")
            self._in_line = True

    def _show_step(self, event: TurnEvent) -> None:
        """Show a step of a turn; progress at a terminal in place of the progress before it."""
        if isinstance(event, MessagePart):
            self._show_part(event)
            return
        text = _remark(event)
        if not (isinstance(event, ToolProgress) and self._notes.is_terminal):
            self._note(text)
            return
        self._end_line()
        line = one_line(text, self._notes.width - _MARGIN)
        self._notes.print(f"[dim]{escape(line)}[/]", end="")
        self._shows_progress = True

    def _clear_progress(self) -> None:
        if self._shows_progress:
            self._notes.file.write(_CLEAR_LINE)
            self._notes.file.flush()
        self._shows_progress = False

    def _write(self, text: str) -> None:
        if not text:
            return
        self._clear_progress()
        self._out.write(printable(text))
        self._out.flush()
        self._in_line = not text.endswith("\n")

    def _end_line(self) -> None:
        self._clear_progress()
        if self._in_line:
            self._out.write("\n")
            self._out.flush()
        self._in_line = False

    def _note(self, text: str, *, style: str = "dim", full: bool = False) -> None:
        self._end_line()
        if not text:
            return
        line = printable(text) if full else one_line(text, self._notes.width - _MARGIN)
        self._notes.print(f"[{style}]{escape(line)}[/]", soft_wrap=full)


def _is_foreign(event: Failed) -> bool:
    """Whether the turn failed by an exception of other code, which only this process has."""
    return not isinstance(event.error, LangoError)


def _reason(event: Failed, store_options: StoreOptions) -> str:
    """Why the turn failed; if another process ran it, the command that shows the cause."""
    if _is_foreign(event):
        return str(cause_of(event.error))
    if event.error_id:
        show = command_of(store_options, "turns", "show", event.error_id)
        return f"{_ELSEWHERE} `{show}` shows the cause."
    return str(event.error)


def _remark(event: TurnEvent) -> str:
    """The dimmed note for an event; empty if the event only ends a line."""
    match event:
        case ToolStarted():
            arguments = ", ".join(
                f"{name}={_json(value)}" for name, value in event.arguments.items()
            )
            return f"→ {event.name}({arguments})"
        case ToolProgress():
            total = "" if event.total is None else f" of {event.total:g}"
            text = f" · {event.text}" if event.text else ""
            return f"… {event.name}: {event.current:g}{total}{text}"
        case ToolFinished():
            return f"← {event.name}: {_json(event.result)}"
        case MessagePart(kind="code"):
            return f"→ code{f' ({event.language})' if event.language else ''}"
        case MessagePart():
            failure = "" if event.outcome in (None, "ok") else f" ({event.outcome})"
            return f"← output of the code{failure}"
        case AgentChanged():
            return f"{event.agent} continues"
        case Retrying():
            return f"retrying: {event.why}"
        case MessageReset():
            return "the message starts again"
        case Cancelled():
            return "stopped; the text so far is kept"
        case _:
            return ""


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
