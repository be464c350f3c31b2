"""Values that a plugin keeps for each running turn."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from google.adk.agents.invocation_context import InvocationContext
from google.adk.plugins.base_plugin import BasePlugin

T = TypeVar("T")

MAX_TURNS: Final = 10_000
"""An interrupted turn never reports its end, so the oldest values are dropped."""


class PerTurn(Generic[T]):
    """One value for each turn, created at first access."""

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
        while len(self._things) > MAX_TURNS:
            self._things.popitem(last=False)

    def __len__(self) -> int:
        return len(self._things)

    def end(self, turn: str) -> None:
        """Forget a turn; unknown turns are ignored."""
        self._things.pop(turn, None)


class TurnPlugin(BasePlugin, Generic[T]):
    """A plugin that keeps a value for each turn, by id, until the turn ends."""

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
