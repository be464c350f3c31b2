"""Record a worker that is killed in mid-answer: `make recording` writes docs/images/recording.svg.

The run is real: `lango serve` and two `lango worker` processes on a new SQLite file, and one
client that reads the stream of one turn. Each event is shown by its name and its main field.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import httpx

from scripts.svg import document, text

IMAGE: Final = Path(__file__).resolve().parent.parent / "docs/images/recording.svg"
SHOWN_ADDRESS: Final = "127.0.0.1:8000"
SLOW: Final = "LANGO_APPS__ASSISTANT__AGENT__MODEL"
QUESTION: Final = "roll dice with 20 sides"
WORDS_BEFORE_THE_KILL: Final = 6
PATIENCE: Final = 180.0  # seconds until a process must have started
LONGEST_PAUSE: Final = 2.0  # seconds; the recording shortens longer ones
POSTER: Final = 2.0  # seconds of its end before it starts: some viewers show nothing else
READING: Final = 5.0  # seconds at the end, before it starts again
WIDTH: Final = 760
TOP: Final = 58
LINE: Final = 20
LETTER: Final = 7.85  # the width of one, at 13 px
COLUMNS: Final = 90
INDENT: Final = 19
_STYLE: Final = """
  .page { fill: #fbfdfc; stroke: #c9d6d2; }
  .bar { fill: #e6efec; }
  .dot { fill: #b7c7c2; }
  text { fill: #1f2d2a; font: 13px ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
    white-space: pre; }
  text.bar { font-size: 12px; fill: #52635f; }
  .command { fill: #0b6b61; font-weight: 600; }
  .kill { fill: #b3261e; font-weight: 600; }
  .process { fill: #5c6d69; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #10181a; stroke: #2c3b38; }
    .bar { fill: #1d2a28; }
    .dot { fill: #45605a; }
    text { fill: #e3ecea; }
    text.bar { fill: #a9bdb8; }
    .command { fill: #8fe3d5; }
    .kill { fill: #ff9d94; }
    .process { fill: #9fb3ae; }
  }
"""


@dataclass(slots=True)
class Recording:
    """What came when: pieces of text, of which the first of a line has its class."""

    pieces: list[tuple[float, str, str]] = field(default_factory=list[tuple[float, str, str]])

    def line(self, words: str, kind: str = "event") -> None:
        """Begin a line."""
        self.pieces.append((time.monotonic(), kind, words))

    def add(self, words: str) -> None:
        """Continue the last line."""
        self.pieces.append((time.monotonic(), "", words))

    @property
    def shows_deltas(self) -> bool:
        """Whether the last line is text that is still coming."""
        kinds = [kind for _, kind, _ in self.pieces if kind]
        return kinds[-1:] == ["delta"]

    def moments(self) -> list[float]:
        """Seconds from the beginning for each piece, long pauses shortened."""
        times = [when for when, _, _ in self.pieces]
        gaps = [min(later - earlier, LONGEST_PAUSE) for earlier, later in pairwise(times)]
        return [sum(gaps[:count], 0.4) for count in range(len(times))]


class Process:
    """A `lango` command in the background."""

    def __init__(self, folder: Path, environment: Mapping[str, str], *arguments: str) -> None:
        self._process = subprocess.Popen(
            [Path(sys.executable).parent / "lango", *arguments],
            cwd=folder,
            env=os.environ | dict(environment),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._watchdog = threading.Timer(PATIENCE, self._process.kill)
        self._watchdog.start()

    def ready(self) -> str:
        """Its first line, which says that it is ready."""
        assert self._process.stdout  # noqa: S101 - a pipe was asked for
        first = self._process.stdout.readline().strip()
        self._watchdog.cancel()
        if not first:
            sys.exit(f"{self._process.args} printed nothing")
        return first

    def kill(self) -> None:
        """End it with SIGKILL."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def end(self) -> None:
        """End it as an operator does."""
        self._watchdog.cancel()
        self._process.terminate()
        self._process.wait()


@contextmanager
def started(folder: Path, environment: Mapping[str, str], *arguments: str) -> Generator[Process]:
    """A `lango` process that is ended with the block, if it has not ended before."""
    process = Process(folder, environment, *arguments)
    try:
        yield process
    finally:
        process.end()


def events_of(client: httpx.Client, session: str) -> Iterator[Mapping[str, Any]]:
    """Submit the question, and yield the events of its turn."""
    with client.stream(
        "POST",
        f"/v1/sessions/{session}/turns",
        json={"message": QUESTION},
        headers={"Accept": "text/event-stream"},
    ) as response:
        for line in response.iter_lines():
            if line.startswith("data:"):
                yield json.loads(line.removeprefix("data:"))


def show(recording: Recording, event: Mapping[str, Any]) -> None:
    """Show an event: its name, and what matters in it."""
    name = event["type"]
    match name:
        case "started":
            recording.line(f"{name:<{INDENT}}attempt {event['attempt']}")
        case "tool.finished":
            recording.line(f"{name:<{INDENT}}{event['name']} gave {event['result']['result']}")
        case "message.completed":
            recording.line(f"{name:<{INDENT}}{event['text']}")
        case "message.delta" if recording.shows_deltas:
            recording.add(event["text"])
        case "message.delta":
            recording.line(f"{name:<{INDENT}}{event['text']}", "delta")
        case _:
            recording.line(name)


def free_port() -> int:
    """A port of this machine that no process uses."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def record(folder: Path) -> Recording:
    """Run it all, and note what comes when."""
    port = free_port()
    environment = {"LANGO_SERVER__PORT": str(port), "COLUMNS": "200", "NO_COLOR": "1"}
    slow = environment | {SLOW: "scripted:slow"}
    recording = Recording()
    with ExitStack() as stack:

        def start(shown: str, variables: Mapping[str, str], *arguments: str) -> Process:
            recording.line(f"$ {shown}", "command")
            process = stack.enter_context(started(folder, variables, *arguments))
            said = process.ready().replace(f"127.0.0.1:{port}", SHOWN_ADDRESS)
            recording.line(said, "process")
            return process

        serve = ("serve", "--no-worker", "--insecure-no-auth")
        start(f"lango {' '.join(serve)} &", environment, *serve)
        first = start(f"{SLOW}=scripted:slow lango worker & worker=$!", slow, "worker")
        client = stack.enter_context(
            httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE)
        )
        session = client.post("/v1/sessions", json={"app": "assistant"}).json()["id"]
        message = json.dumps({"message": QUESTION})
        recording.line(f"POST http://{SHOWN_ADDRESS}/v1/sessions/…/turns {message}", "command")
        follow(
            recording,
            events_of(client, session),
            first,
            lambda: start("lango worker &", environment, "worker"),
        )
    return recording


def follow(
    recording: Recording,
    events: Iterator[Mapping[str, Any]],
    first: Process,
    start_another: Callable[[], object],
) -> None:
    """Show all events; in the middle of the answer kill the worker, and start another one."""
    words = 0
    for event in events:
        show(recording, event)
        words += event["type"] == "message.delta"
        if words == WORDS_BEFORE_THE_KILL:
            words += 1  # once is enough
            time.sleep(0.5)
            recording.line("$ kill -9 $worker", "kill")
            first.kill()
            time.sleep(2)
            start_another()


@dataclass(frozen=True, slots=True)
class Glyphs:
    """A run of text on the screen: when it appears, where, and as what."""

    moment: float
    row: int
    column: int
    kind: str
    words: str


def laid_out(recording: Recording) -> list[Glyphs]:
    """The pieces on rows of the screen, long lines wrapped below their text."""
    screen: list[Glyphs] = []
    row, column, kind = -1, 0, ""
    for moment, (_, begins, words) in zip(recording.moments(), recording.pieces, strict=True):
        if begins:
            row, column, kind = row + 1, 0, begins
        for word in re.findall(r"\s*\S+\s*", words):
            if column + len(word.rstrip()) > COLUMNS:
                row, column = row + 1, INDENT
            screen.append(Glyphs(moment, row, column, kind, word))
            column += len(word)
    return screen


def draw(recording: Recording) -> str:
    """The recording as a picture that repeats itself; without animations it shows its end."""
    screen = laid_out(recording)
    length = screen[-1].moment + READING
    moments = sorted({each.moment for each in screen})
    frames = [
        f"@keyframes m{number} {{ 0% {{ opacity: 0 }} "
        f"{100 * moment / length:.2f}% {{ opacity: 1 }} }} "
        f".m{number} {{ animation: m{number} {length:.1f}s step-end {POSTER:g}s infinite }}"
        for number, moment in enumerate(moments)
    ]
    still = "@media (prefers-reduced-motion: reduce) { text { animation: none !important } }"
    height = TOP + LINE * (screen[-1].row + 1)
    body = [
        f'<path class="bar" d="M1 9a8 8 0 0 1 8-8h{WIDTH - 18}a8 8 0 0 1 8 8v23H1z"/>',
        *(f'<circle class="dot" cx="{20 + 18 * number}" cy="17" r="5"/>' for number in range(3)),
        text(
            WIDTH / 2, 21, "a worker is killed in mid-answer (pauses over 2 s are shortened)", "bar"
        ),
        *(
            text(
                16 + LETTER * each.column,
                TOP + LINE * each.row,
                each.words,
                f"{each.kind} m{moments.index(each.moment)}",
                "start",
            )
            for each in screen
        ),
    ]
    style = "\n  ".join([_STYLE.rstrip(), *frames, still, ""])
    return document(
        WIDTH, height, "A worker is killed in mid-answer; another one resumes", body, style
    )


def main() -> None:
    """Make a project, record in it, and write the picture."""
    with tempfile.TemporaryDirectory(prefix="lango-") as made:
        lango = Path(sys.executable).parent / "lango"
        subprocess.run([lango, "init", "demo"], cwd=made, check=True, capture_output=True)
        recording = record(Path(made) / "demo")
    IMAGE.write_text(draw(recording), "utf-8")
    print("docs/images/recording.svg")


if __name__ == "__main__":
    main()
