"""What is known of how models count tokens, for each conversation.

A conversation is a session, where somebody says which one. Else it is known by its end: the last
three messages of a request stand together in the request that goes on from there.
Mistaking one for another does little harm: a low ratio holds only for messages that were counted
by it, and a high one leaves out more than it had to.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from lango.core.budget import Calibration
from lango.core.messages import Message

_MOST: Final = 1_024
_END: Final = 3

Key = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """Whose requests to one model are counted together."""

    provider: str
    model: str
    session: tuple[str, ...] = ()  # empty: not known
    talk: Sequence[Message] = ()

    def names(self) -> Iterator[Key]:
        """The names it may be known by, the likeliest first; the first is what it is kept by."""
        if self.session:
            yield (self.provider, self.model, self.session)
            return
        for end in range(len(self.talk), 0, -1):
            last = self.talk[max(0, end - _END) : end]
            yield (self.provider, self.model, *map(hash, last))


@dataclass(slots=True)
class Calibrations:
    """Remembers the conversations that were counted last, so many and no more."""

    most: int = _MOST
    _known: OrderedDict[Key, Calibration] = field(default_factory=OrderedDict[Key, Calibration])

    def of(self, conversation: Conversation) -> Calibration:
        """What is known; nothing of a conversation that is new."""
        found = (self._known.get(name) for name in conversation.names())
        return next(filter(None, found), Calibration())

    def learn(self, conversation: Conversation, calibration: Calibration) -> None:
        """Keep what is known now, in place of what was known before."""
        names = list(conversation.names())
        if not names:
            return
        old = next((name for name in names if name in self._known), None)
        if old is not None:
            self._known.pop(old, None)
        self._known[names[0]] = calibration
        while len(self._known) > self.most:
            self._known.popitem(last=False)

    def __len__(self) -> int:
        return len(self._known)
