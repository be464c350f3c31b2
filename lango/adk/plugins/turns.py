"""What a plugin remembers of a turn while it runs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from google.adk.agents.invocation_context import InvocationContext
from google.adk.plugins.base_plugin import BasePlugin

T = TypeVar("T")

MOST_TURNS: Final = 10_000
"""A turn that is cut off never says that it ended: the oldest are forgotten."""


class PerTurn(Generic[T]):
    """One thing for each turn, made when it is first asked for."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._things: OrderedDict[str, T] = OrderedDict()

    def __getitem__(self, turn: str) -> T:
        if turn not in self._things:
            self[turn] = self._make()
        return self._things[turn]

    def __setitem__(self, turn: str, thing: T) -> None:
        self.end(turn)
        self._things[turn] = thing
        while len(self._things) > MOST_TURNS:
            self._things.popitem(last=False)

    def __len__(self) -> int:
        return len(self._things)

    def end(self, turn: str) -> None:
        """Forget a turn; ending one that is not known is fine."""
        self._things.pop(turn, None)


class TurnPlugin(BasePlugin, Generic[T]):
    """A plugin that remembers something of each turn, by its id, until the turn ends."""

    def __init__(self, name: str, make: Callable[[], T]) -> None:
        super().__init__(name)
        self.turns = PerTurn(make)

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Forget the turn."""
        self.turns.end(invocation_context.invocation_id)

    async def on_run_error_callback(
        self, *, invocation_context: InvocationContext, error: Exception
    ) -> None:
        """Forget a turn that failed, too."""
        del error
        self.turns.end(invocation_context.invocation_id)
