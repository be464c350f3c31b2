"""Draw the pictures of the documentation: `make pictures` writes docs/images/*.svg."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from scripts.svg import arrow, box, document, group, text

IMAGES: Final = Path(__file__).resolve().parent.parent / "docs/images"
WIDTH: Final = 760


def overview() -> str:
    """Two ways to use lango: parts in an ADK app, or servers and workers."""
    body = [
        group((20, 18, 300, 190), "Your ADK app"),
        box((40, 52, 260, 34), "ADK Runner and your agent", kind="final"),
        box((40, 98, 154, 44), "Sessions", ["SessionServiceAdapter"]),
        box((202, 98, 98, 44), "Models", ["ModelAdapter"]),
        box((40, 152, 260, 44), "Plugins", ["budget, limits, tool errors, model calls"]),
        group((350, 18, 390, 190), "or lango as servers and workers"),
        box(
            (370, 52, 170, 64), "lango serve", ["HTTP, SSE, OpenAI API,", "console, keys, tenants"]
        ),
        box((550, 52, 170, 64), "lango worker", ["runs turns; resumes those", "of dead workers"]),
        box(
            (370, 132, 350, 64),
            "Your agents",
            [
                "lango.yaml or Python: ADK agents, tools, MCP,",
                "approvals; the parts on the left are inside",
            ],
            kind="final",
        ),
        arrow([(170, 208), (170, 262)], "append, load", (214, 240), both=True),
        arrow([(455, 208), (455, 262)], "turns, events", (500, 240), both=True),
        arrow([(640, 208), (640, 262)], "requests", (674, 240), both=True),
        box(
            (20, 264, 510, 72),
            "Your database: PostgreSQL or SQLite",
            [
                "sessions, messages, turns, turn_events, tool_ledger, model_calls, artifacts",
                "readable rows: SQL answers questions about them",
            ],
        ),
        box(
            (550, 264, 190, 72),
            "Models",
            ["OpenAI, Anthropic, Gemini,", "OpenAI-compatible"],
            kind="final",
        ),
    ]
    return document(WIDTH, 356, "lango in an ADK app, and lango as servers and workers", body)


def processes() -> str:
    """Which process talks to which."""
    clients = [
        (20, "Browser", "the console"),
        (106, "Your backend", "HTTP, SSE"),
        (192, "OpenAI client", "/openai/v1"),
    ]
    body = [
        *(box((20, y, 120, 56), name, [note], kind="final") for y, name, note in clients),
        *(arrow([(140, y + 28), (176, 134 + (y - 106) / 3)]) for y, _, _ in clients),
        group((178, 40, 144, 184), "Servers"),
        box((190, 72, 120, 62), "lango serve", ["any server shows", "any turn"]),
        box((190, 148, 120, 62), "lango serve", ["checks keys,", "keeps nothing"]),
        arrow([(322, 134), (360, 134)], both=True),
        box(
            (362, 60, 118, 144),
            "PostgreSQL",
            ["sessions", "queue of turns", "event log", "tool ledger"],
        ),
        arrow([(518, 134), (480, 134)], both=True),
        group((518, 40, 144, 184), "Workers"),
        box((530, 72, 120, 62), "lango worker", ["runs many turns", "at a time"]),
        box((530, 148, 120, 62), "lango worker", ["resumes turns of", "dead workers"]),
        arrow([(662, 100), (678, 84)]),
        arrow([(662, 168), (678, 184)]),
        box((680, 50, 64, 60), "Models", kind="final"),
        box((680, 158, 64, 60), "Tools", ["MCP"], kind="final"),
        text(340, 252, "submit, read the event log", "note"),
        text(516, 252, "claim, append, close", "note"),
        text(
            380,
            284,
            "Each event of a session is in PostgreSQL before its agent continues.",
            "note",
        ),
    ]
    return document(WIDTH, 304, "Clients, servers, PostgreSQL, workers and models", body)


# Where each state of a turn stands: x, y and what it means.
STATES: Final[Mapping[str, tuple[float, float, str]]] = {
    "scheduled": (20, 96, "not due yet"),
    "queued": (200, 96, "waits in its session"),
    "running": (380, 96, "a worker holds it"),
    "completed": (600, 24, "final"),
    "failed": (600, 96, "final"),
    "cancelled": (380, 240, "final"),
    "input_required": (600, 168, "waits for an answer"),
    "answered": (600, 260, "by a new turn"),
}
_FINAL: Final = {"completed", "failed", "cancelled"}
_ARROWS: Final[
    Mapping[tuple[str, str], tuple[tuple[tuple[float, float], ...], str, tuple[float, float]]]
] = {
    ("scheduled", "queued"): (((160, 121), (198, 121)), "due", (179, 112)),
    ("queued", "running"): (((340, 121), (378, 121)), "claim", (359, 112)),
    ("running", "completed"): (((520, 112), (598, 56)), "", (0, 0)),
    ("running", "failed"): (((520, 121), (598, 121)), "", (0, 0)),
    ("running", "input_required"): (((520, 132), (598, 186)), "", (0, 0)),
    ("running", "cancelled"): (((450, 146), (450, 238)), "cancel", (474, 196)),
    ("queued", "cancelled"): (((270, 146), (270, 252), (378, 252)), "cancel", (300, 246)),
    ("scheduled", "cancelled"): (((90, 146), (90, 276), (378, 276)), "cancel", (300, 292)),
    ("input_required", "answered"): (((650, 218), (650, 258)), "answer", (622, 242)),
    ("answered", "input_required"): (((690, 260), (690, 220)), "lost", (708, 242)),
}


def turn_states() -> str:
    """The states of a turn and what may follow which."""
    body = [
        *(
            box(
                (x, y, 140, 50), name, [note], "final" if name in _FINAL else "box", {"state": name}
            )
            for name, (x, y, note) in STATES.items()
        ),
        *(
            arrow(points, label, at, data={"from": before, "to": after})
            for (before, after), (points, label, at) in _ARROWS.items()
        ),
        '<path class="line" d="M420 96 C 410 48, 490 48, 480 94" marker-end="url(#head)"/>',
        text(450, 30, "worker lost: another one", "note"),
        text(450, 46, "claims it, next epoch", "note"),
    ]
    return document(WIDTH, 330, "The states of a turn", body)


_LANES: Final = {"Client": 90, "Database": 290, "Worker A": 490, "Worker B": 670}


def takeover() -> str:
    """A worker dies, or is frozen, in the middle of a turn, and another one resumes it."""
    client, database, first, second = _LANES.values()

    def message(y: float, source: float, target: float, label: str) -> str:
        return arrow([(source, y), (target, y)], label, ((source + target) / 2, y - 6))

    lifelines = [
        f'<line class="life" x1="{x}" y1="62" x2="{x}" y2="500"/>' for x in _LANES.values()
    ]
    body = [
        *lifelines,
        f'<line class="life mine" x1="{first}" y1="130" x2="{first}" y2="246"/>',
        f'<line class="life mine" x1="{second}" y1="318" x2="{second}" y2="436"/>',
        *(box((x - 60, 24, 120, 38), name) for name, x in _LANES.items()),
        message(98, client, database, "submit the turn"),
        message(130, first, database, "claim: epoch 1"),
        message(162, first, database, "tool call and its result"),
        message(194, first, database, "half of the answer"),
        message(210, database, client, "stream: tool.finished, deltas"),
        box((first - 76, 234, 152, 28), "kill -9, or frozen", kind="bad"),
        text((first + database) / 2, 292, "no heartbeat for 5 s", "note"),
        message(318, second, database, ""),
        text(580, 312, "claim: epoch 2", "note"),
        message(350, database, second, ""),
        text(580, 344, "events, tool ledger", "note"),
        message(366, database, client, "stream: started, attempt 2"),
        message(398, second, database, ""),
        text(580, 392, "the whole answer", "note"),
        message(414, database, client, "stream: message.completed"),
        message(436, second, database, ""),
        text(580, 430, "close the turn", "note"),
        message(474, first, database, "a late write with epoch 1"),
        text(database - 12, 478, "refused", "note red", "end"),
        text(
            380, 524, "The finished tool does not run again: its result is in the ledger.", "note"
        ),
    ]
    return document(WIDTH, 542, "A worker dies and another one takes its turn over", body)


PICTURES: Final[Mapping[str, Callable[[], str]]] = {
    "overview": overview,
    "processes": processes,
    "turn-states": turn_states,
    "takeover": takeover,
}


def main() -> None:
    """Write all pictures."""
    for name, draw in PICTURES.items():
        (IMAGES / f"{name}.svg").write_text(draw(), "utf-8")
        print(f"docs/images/{name}.svg")


if __name__ == "__main__":
    main()
