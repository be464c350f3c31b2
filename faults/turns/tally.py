"""Checks that a history holds every part of the submitted turns once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from google.adk.events.event import Event

from faults.turns.agents import THEN
from lango.adk.durable.ledger import INTERRUPTED

_NAME: Final = re.compile(r'"name": "([^"]+)\.\d+\.\d+"')


@dataclass(frozen=True, slots=True)
class Shape:
    """A turn of some rounds of tool calls, and a final answer."""

    rounds: int = 1
    calls: int = 1
    seconds: float | None = None  # seconds that each of its tools takes, if not the default

    def marks(self, name: str) -> list[str]:
        """The marks of its tools, each once."""
        return [f"{name}.{r}.{c}" for r in range(self.rounds) for c in range(self.calls)]

    def message(self, name: str) -> str:
        """The user's message for this shape."""
        lasting = "" if self.seconds is None else f', "seconds": {self.seconds}'
        marks = [f'call mark {{"name": "{mark}"{lasting}}}' for mark in self.marks(name)]
        rounds = [marks[n : n + self.calls] for n in range(0, len(marks), self.calls)]
        return THEN.join(" and ".join(each) for each in rounds)

    def story(self, name: str) -> Counter[str]:
        """The words of its history."""
        marks = self.marks(name)
        calls = [f"{word} {mark}" for mark in marks for word in ("call", "result")]
        return Counter([f"user {name}", *calls, f"answer {name}"])


@dataclass(slots=True)
class Tally:
    """The counted errors of some turns."""

    turns: int = 0
    duplicates: int = 0  # repeated messages, calls and results
    repeated: int = 0  # runs of a tool beyond its first
    unpaired: int = 0  # calls without a result
    lost: int = 0  # turns without an answer

    def __str__(self) -> str:
        return (
            f"{self.turns} turns: {self.duplicates} duplicate messages, "
            f"{self.repeated} repeated tools, {self.unpaired} unpaired calls, {self.lost} lost"
        )


def name_in(message: str) -> str | None:
    """The name of the turn that a user's message of some shape asks for."""
    found = _NAME.search(message)
    return found[1] if found else None


def story_of(events: Iterable[Event], unknown: set[str] | None = None) -> list[str]:
    """A session's history as words; adds the marks with an unknown outcome to `unknown`."""
    words: list[str] = []
    name, marks = "", dict[str, str]()
    for event in events:
        texts = [part.text for part in (event.content and event.content.parts) or () if part.text]
        calls, results = event.get_function_calls(), event.get_function_responses()
        if event.author == "user" and texts:
            name = name_in(texts[0]) or texts[0]
            words.append(f"user {name}")
        for call in calls:
            marks[call.id or ""] = str((call.args or {}).get("name"))
            words.append(f"call {marks[call.id or '']}")
        for result in results:
            mark = marks.get(result.id or "", "?")
            words.append(f"result {mark}")
            if unknown is not None and INTERRUPTED in str(result.response):
                unknown.add(mark)
        if event.author != "user" and texts and not calls and not results:
            words.append(f"answer {name}")
    return words


def count(
    shape: Shape, names: Sequence[str], histories: Iterable[list[str]], effects: Iterable[str]
) -> Tally:
    """Count the errors of the named turns, by all histories and all tool marks."""
    got = Counter(word for history in histories for word in history)
    wanted = sum((shape.story(name) for name in names), Counter[str]())
    missing = wanted - got
    marks = [mark for name in names for mark in shape.marks(name)]
    ran = Counter(effects)
    return Tally(
        turns=len(names),
        duplicates=(got - wanted).total(),
        repeated=sum(max(ran[f"mark {mark}"] - 1, 0) for mark in marks),
        unpaired=sum(max(got[f"call {m}"] - got[f"result {m}"], 0) for m in marks),
        lost=sum(missing[f"answer {name}"] for name in names),
    )


def order_of(history: Iterable[str]) -> list[str]:
    """The names of a session's turns in the order of its history; a mixed one shows names twice."""
    names: list[str] = []
    for word in history:
        kind, _, rest = word.partition(" ")
        name = rest if kind in ("user", "answer") else rest.rsplit(".", 2)[0]
        if not names or names[-1] != name:
            names.append(name)
    return names


def differences(shape: Shape, names: Sequence[str], history: Sequence[str]) -> list[str]:
    """The extra, missing and misplaced parts of a session's history."""
    wanted = sum((shape.story(name) for name in names), Counter[str]())
    got = Counter(history)
    wrong = [f"{times} too many: {word}" for word, times in (got - wanted).items()]
    wrong += [f"missing: {word}" for word in wanted - got]
    if not wrong and order_of(history) != list(names):
        wrong.append(f"the turns stand in the order {order_of(history)}, not {list(names)}")
    return wrong


def by_session(turns: Mapping[str, str]) -> dict[str, list[str]]:
    """The names of turns by their session, given the session of each."""
    found: dict[str, list[str]] = {}
    for name, session in turns.items():
        found.setdefault(session, []).append(name)
    return found
