"""The same steps on our store and on ADK's in-memory service, compared after each."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.adk.runner.parity.features import FEATURES
from tests.adk.runner.parity.processes import in_new_process
from tests.adk.runner.parity.same import (
    Names,
    Plain,
    difference,
    plain,
    plain_request,
    state_only,
    visible,
)
from tests.adk.runner.parity.services import InMemory, Snapshot, Stored, create, take, take_alone
from tests.adk.runner.parity.steps import Answer, Resume, Step
from tests.adk.runner.scripted import unpaired

if TYPE_CHECKING:
    from google.adk.events.event import Event


@dataclass
class Lockstep:
    """A feature running on both, at the same step."""

    feature: str
    stored: Stored
    memory: InMemory
    ours: Snapshot
    theirs: Snapshot
    our_names: Names = field(default_factory=dict[str, str])
    their_names: Names = field(default_factory=dict[str, str])
    most_tokens: int = 0
    most_cut: int = 0

    @classmethod
    async def begin(cls, feature: str, stored: Stored) -> Lockstep:
        """Both with a new session."""
        memory = InMemory()
        for services in (stored, memory):
            await create(services)
        return cls(feature, stored, memory, Snapshot(), Snapshot())

    async def take(self, *steps: Step) -> None:
        """Steps on both: on ours by a new process, which knows only the notes so far."""
        self.theirs, self.ours = await asyncio.gather(
            take(self.memory, FEATURES[self.feature], self.theirs.notes, *steps),
            in_new_process(take_alone, self.stored, self.feature, self.ours.notes, *steps),
        )
        self.most_tokens = max(self.most_tokens, self.ours.tokens)
        self.most_cut = max(self.most_cut, len(self.ours.whole) - len(self.ours.window))

    def same_session(self) -> None:
        """Every event, the state in all its scopes, every artifact version."""
        self.our_names, self.their_names = {}, {}
        ours = plain(_loaded(self.ours.whole), self.our_names)
        theirs = plain(visible(self.theirs.whole), self.their_names)
        assert not difference(ours, theirs), difference(ours, theirs)
        assert self.ours.state == self.theirs.state
        assert self.ours.user_state == self.theirs.user_state
        assert self.ours.artifacts == self.theirs.artifacts

    def same_requests(self) -> None:
        """The model saw the same, however often the session was loaded in between."""
        ours, theirs = (sorted(requests, key=str) for requests in self._requests())
        assert not difference(ours, theirs), difference(ours, theirs)

    def same_last_prompts(self) -> None:
        """Older turns are cut, what the model is asked is not, and no call is torn apart."""
        ours, theirs = self._requests()
        assert sorted(str(r[-1]) for r in ours) == sorted(str(r[-1]) for r in theirs)
        torn = {self.our_names[call] for call in _unpaired(self.ours)}
        assert torn <= {self.their_names[call] for call in _unpaired(self.theirs)}

    def _requests(self) -> tuple[list[list[Plain]], list[list[Plain]]]:
        ours, theirs = self.ours.notes.requests, self.theirs.notes.requests
        return (
            [plain_request(request, self.our_names) for request in ours],
            [plain_request(request, self.their_names) for request in theirs],
        )

    def loads_the_end(self) -> None:
        """A windowed load is a part of the whole, in order, ending where it ends."""
        whole, window = self.ours.whole, self.ours.window
        kept = {event.id for event in window}
        assert window == [event for event in whole if event.id in kept]
        assert window[-1:] == whole[-1:]
        gap = max((index for index, event in enumerate(whole) if event.id not in kept), default=0)
        last = {event.invocation_id for event in whole[-1:]}
        pinned = last.union(self.ours.notes.call_invocations.values())
        for event in whole[:gap]:
            assert event.id not in kept or event.actions.compaction or event.invocation_id in pinned

    def loads_what_answers(self, step: Step) -> None:
        """Before an answer or a resumption: all of its invocation is in the windowed load."""
        notes = self.ours.notes
        match step:
            case Answer(call, _):
                invocation = notes.call_invocations[call]
            case Resume(label, whole=False):
                invocation = notes.invocations[label]
            case _:
                return
        loaded = {event.id for event in self.ours.window}
        needed = [event for event in self.ours.whole if event.invocation_id == invocation]
        left_out = [index for index, event in enumerate(needed) if event.id not in loaded]
        assert needed
        assert not left_out, f"of the {len(needed)} events that {step} needs"


def _unpaired(snapshot: Snapshot) -> set[str]:
    """Calls the model saw open: ADK shows it some that still wait for their answer."""
    return {call for request in snapshot.notes.requests for call in unpaired(request)}


def _loaded(events: list[Event]) -> list[Event]:
    """Ours as loaded, but for the marks of a rewind and of a node's end.

    What a rewind undid must be gone already.
    """
    return [
        event
        for event in events
        if not event.actions.rewind_before_invocation_id and not state_only(event)
    ]
