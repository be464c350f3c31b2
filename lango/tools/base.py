"""The interface of a tool, and the information about a call that it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from lango.core.values import JsonObject
from lango.errors import InvalidToolError
from lango.tools import schema
from lango.tools.names import NAME_RULE, TOOL_NAME

DEFAULT_TIMEOUT: Final = 60.0


@dataclass(frozen=True, slots=True)
class CallInfo:
    """The call that a tool runs for."""

    call_id: str
    key: str
    """An idempotency key: the same for every attempt of the same call."""
    app_name: str
    user_id: str
    session_id: str


Run = Callable[[JsonObject, CallInfo], Any]
"""Gets the checked arguments; sync or async. A sync one runs in a thread."""


@dataclass(frozen=True, slots=True, eq=False)
class Tool:
    """Something that a model can call."""

    name: str
    description: str
    parameters: JsonObject
    """JSON Schema of an object."""
    run: Run
    idempotent: bool = False
    """Running it twice has the same effect as running it once."""
    require_confirmation: bool = False
    """Each call needs a person's approval."""
    timeout: float | None = DEFAULT_TIMEOUT
    """Seconds that a call may take; None for no limit."""

    def __post_init__(self) -> None:
        """Raise InvalidToolError now for what would otherwise fail within a conversation."""
        if not TOOL_NAME.fullmatch(self.name):
            raise InvalidToolError(f"{self.name[:80]!r} cannot be a tool's name: take {NAME_RULE}.")
        if self.timeout is not None and not self.timeout > 0:
            raise InvalidToolError(
                f"The timeout of {self.name} is {self.timeout}: give seconds above 0, or None."
            )
        schema.check_parameters(self.name, self.parameters)

    def checked(self, arguments: Mapping[str, Any]) -> JsonObject:
        """The arguments as `run` takes them; ToolArgumentsError says what is wrong."""
        return schema.check_arguments(self.parameters, arguments)
