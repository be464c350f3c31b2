"""The features of ADK that lean on the session, each with the steps that exercise it.

`short` stays inside one window. `long` is a session of at least three windows, with state-only
events among them; where something stays open, the window has moved past it before it is
answered.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from google.adk.apps.app import App

from tests.adk.runner.parity import apps
from tests.adk.runner.parity.steps import Answer, Fill, Mark, Resume, Rewind, Say, SmallTalk, Step

CONFIRM = "adk_request_confirmation"
INPUT = "adk_request_input"


@dataclass(frozen=True)
class Feature:
    """An app and what a client does with it, in a short session and in a long one."""

    build: Callable[[], App]
    short: tuple[Step, ...]
    long: tuple[Step, ...]
    artifacts: bool = False


_SET_RED = Say('do remember {"key": "color", "value": "red"}', label="red", state={"given": "x"})
_SET_BLUE = Say(
    'do remember {"key": "color", "value": "blue"} and remember {"key": "shape", "value": "round"}'
    ' and remember {"key": "user:name", "value": "Ada"} then recall {"key": "color"}',
    label="blue",
)
_ASK_COLOR = Say('do recall {"key": "color"} and recall {"key": "shape"}', label="ask")
_LOOKS = " then ".join(f'look {{"number": {number}}}' for number in range(9))
_BIG = Say(f'do remember {{"key": "color", "value": "big"}} then {_LOOKS}', label="big")
_NOTE = 'do save_note {"name": "n.txt", "text": "%s"} then read_note {"name": "n.txt"}'
_YES = Answer(INPUT, {"confirmed": True})
_READ = Say('do read_note {"name": "n.txt"}')

FEATURES: dict[str, Feature] = {
    "rewind": Feature(
        apps.plain,
        (
            _SET_RED,
            Mark({"after": "red"}),
            _SET_BLUE,
            Mark({"after": "blue", "app:seen": 1}),
            Rewind("blue"),
            _ASK_COLOR,
            Rewind("red"),
            _ASK_COLOR,
        ),
        (
            Fill("early"),
            _SET_RED,
            Fill("late"),
            _SET_BLUE,
            Mark({"after": "blue"}),
            Rewind("blue"),
            _ASK_COLOR,
            _BIG,
            Say("after"),
            Rewind("big"),
            Rewind("red", whole=True),
            _ASK_COLOR,
            Rewind("early-004", whole=True),
            _ASK_COLOR,
        ),
    ),
    "compaction": Feature(
        apps.compacting,
        (Say("one"), Mark({"a": 1}), Say("two"), _SET_RED, Say("four"), Say("five"), _ASK_COLOR),
        (SmallTalk(18), _SET_RED, Say("more"), Mark({"a": 1}), _SET_BLUE, _ASK_COLOR, Say("last")),
    ),
    "compaction and rewind": Feature(
        apps.compacting,
        (
            Say("one"),
            Say("two"),
            Say("three", label="three"),
            Say("four"),
            Rewind("three"),
            Say("five"),
            Say("six"),
        ),
        (
            SmallTalk(18),
            Say("one"),
            Say("two"),
            Say("three", label="three"),
            Say("four"),
            Rewind("three"),
            Say("five"),
            Say("six"),
            Say("seven"),
        ),
    ),
    "resumed agent": Feature(
        apps.resumable,
        (Say("hello"), Say(f"do {_LOOKS}", label="cut", stop_after=7), Resume("cut"), Say("bye")),
        (
            Fill("early"),
            Say(f"do {_LOOKS}", label="cut", stop_after=15),
            Mark({"between": 1}),
            Resume("cut"),
            Say(f"do {_LOOKS}", label="old", stop_after=4),
            Fill("late"),
            Resume("old", whole=True),
            Say("bye"),
        ),
    ),
    "resumed after compaction": Feature(
        partial(apps.compacting, resumable=True),
        (
            Say("one"),
            Say(f"do {_LOOKS}", label="cut", stop_after=7),
            Resume("cut"),
            Say("three"),
        ),
        (
            SmallTalk(18),
            Say("one"),
            Say(f"do {_LOOKS}", label="cut", stop_after=15),
            Resume("cut"),
        ),
    ),
    "resumed sequence": Feature(
        apps.sequence,
        (Say("hello", label="cut", stop_after=8), Resume("cut"), Say("again")),
        (
            Fill("early"),
            Say("hello", label="cut", stop_after=9),
            Mark({"between": 1}),
            Resume("cut"),
            Say("again", label="again", stop_after=3),
            Resume("again"),
        ),
    ),
    "confirmation": Feature(
        apps.confirming,
        (
            Say('do pay {"amount": 5}'),
            Answer(CONFIRM, {"confirmed": True}),
            Say('do pay {"amount": 6}'),
            Answer(CONFIRM, {"confirmed": False}),
            Say("bye"),
        ),
        (
            Fill("early"),
            Say('do look {"number": 0} then pay {"amount": 5}'),
            Fill("late"),
            Answer(CONFIRM, {"confirmed": True}),
            Say('do pay {"amount": 6}'),
            Fill("later"),
            Answer(CONFIRM, {"confirmed": False}),
        ),
    ),
    "long-running tool": Feature(
        apps.long_running,
        (
            Say('do ticket {"subject": "a"}'),
            Say("meanwhile"),
            Answer("ticket", {"status": "closed"}),
            Say('do survey {"question": "b"}'),
            Answer("survey", {"answer": 42}),
        ),
        (
            Fill("early"),
            Say('do ticket {"subject": "a"}'),
            Fill("late"),
            Say("meanwhile"),
            Answer("ticket", {"status": "closed"}),
            Say('do survey {"question": "b"} and ticket {"subject": "c"}'),
            Fill("later"),
            Answer("survey", {"answer": 42}),
            Fill("latest"),
            Answer("ticket", {"status": "closed"}),
        ),
    ),
    "rewound answer": Feature(
        apps.long_running,
        (
            Say('do ticket {"subject": "a"}'),
            Say("meanwhile", label="meanwhile"),
            Answer("ticket", {"status": "closed"}),
            Rewind("meanwhile"),
            Answer("ticket", {"status": "open again"}),
        ),
        (
            Fill("early"),
            Say('do ticket {"subject": "a"}'),
            Say("meanwhile", label="meanwhile"),
            Answer("ticket", {"status": "closed"}),
            Say("thanks"),
            Rewind("meanwhile"),
            Fill("late"),
            Answer("ticket", {"status": "open again"}),
        ),
    ),
    "rewound open call": Feature(
        apps.keeping,
        (
            Say(_NOTE % "one"),
            Say('do ticket {"subject": "a"}', label="ticket"),
            Say(_NOTE % "two"),
            Rewind("ticket"),
            _READ,
        ),
        (
            Say(_NOTE % "one"),
            Fill("early"),
            Say('do ticket {"subject": "a"}', label="ticket"),
            Say(_NOTE % "two"),
            Fill("late"),
            Rewind("ticket"),
            _READ,
        ),
        artifacts=True,
    ),
    "parallel agents": Feature(
        apps.parallel,
        (Say("go"), Answer(CONFIRM, {"confirmed": True}), Say("again")),
        (
            Fill("early"),
            Say("go"),
            Fill("late"),
            Answer(CONFIRM, {"confirmed": True}),
            Say("again"),
            Answer(CONFIRM, {"confirmed": False}),
        ),
    ),
    "workflow": Feature(
        apps.workflow,
        (
            Say("go"),
            Answer(INPUT, {"result": "yes"}),
            Say("again"),
            Answer(INPUT, {"result": "no"}),
        ),
        (
            Fill("early"),
            Say("go"),
            Fill("late"),
            Answer(INPUT, {"result": "yes"}),
            Say("again"),
            Answer(INPUT, {"result": "no"}),
        ),
    ),
    "workflow gates": Feature(
        apps.gates,
        (Say("go"), _YES, _YES, Answer(INPUT, {"result": "yes"}), Say("again"), _YES),
        (
            Fill("early"),
            Say("go"),
            Fill("late"),
            _YES,
            _YES,
            Fill("later"),
            Answer(INPUT, {"result": "yes"}),
            Say("again"),
            Fill("latest"),
            _YES,
        ),
    ),
    "task": Feature(
        apps.task,
        (
            Say('do helper {"request": "help me"}'),
            Say("a question"),
            Say('do finish_task {"result": "helped"}'),
            Say("bye"),
        ),
        (
            Fill("early"),
            Say('do ticket {"subject": "a"}'),
            Say('do helper {"request": "help me"}'),
            SmallTalk(9),
            Answer("ticket", {"status": "closed"}),
            Say("still there?"),
            Say('do finish_task {"result": "helped"}'),
            Say("bye"),
        ),
    ),
    "artifacts": Feature(
        apps.keeping,
        (
            Say(_NOTE % "one"),
            Say(_NOTE % "two", label="two"),
            Say('do save_note {"name": "user:u.txt", "text": "mine"}'),
            _READ,
            Rewind("two"),
            _READ,
            Say(_NOTE % "three"),
            _READ,
        ),
        (
            Say(_NOTE % "one", label="one"),
            Fill("early"),
            Say(_NOTE % "two", label="two"),
            _READ,
            Rewind("two"),
            _READ,
            Fill("late"),
            Say(_NOTE % "three", label="three"),
            Rewind("three", whole=True),
            _READ,
            Rewind("one", whole=True),
            _READ,
        ),
        artifacts=True,
    ),
}
