"""Calibrations of the token estimate, per model and conversation.

A conversation is a session, if the caller names one. Otherwise its last three messages identify
it: they appear in sequence in the next request of the same conversation. A mix-up does little
harm: a low ratio applies only to messages that were counted with it, and a high one leaves out
more messages than necessary.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from lango.core.context.budget import Calibration
from lango.core.messages.messages import Message

_MAX_CALIBRATIONS: Final = 1_024
_END: Final = 3

Key = tuple[Hashable, ...]


@dataclass(frozen=True, slots=True)
class ModelConversation:
    """A conversation with one model, whose requests share a calibration."""

    provider: str
    model: str
    session: tuple[str, ...] = ()  # empty: not known
    talk: Sequence[Message] = ()

    def names(self) -> Iterator[Key]:
        """The possible keys, the likeliest first; the first is the one to store under."""
        if self.session:
            yield (self.provider, self.model, self.session)
            return
        for end in range(len(self.talk), 0, -1):
            last = self.talk[max(0, end - _END) : end]
            yield (self.provider, self.model, *map(hash, last))


@dataclass(slots=True)
class Calibrations:
    """Keeps the `most` calibrations that were learned last."""

    most: int = _MAX_CALIBRATIONS
    _by_name: OrderedDict[Key, Calibration] = field(default_factory=OrderedDict[Key, Calibration])

    def of(self, conversation: ModelConversation) -> Calibration:
        """The conversation's calibration; an empty one if it is new."""
        calibrations = (self._by_name.get(name) for name in conversation.names())
        return next(filter(None, calibrations), Calibration())

    def learn(self, conversation: ModelConversation, calibration: Calibration) -> None:
        """Replace the conversation's calibration."""
        names = list(conversation.names())
        if not names:
            return
        old = next((name for name in names if name in self._by_name), None)
        if old is not None:
            self._by_name.pop(old, None)
        self._by_name[names[0]] = calibration
        while len(self._by_name) > self.most:
            self._by_name.popitem(last=False)

    def __len__(self) -> int:
        return len(self._by_name)
