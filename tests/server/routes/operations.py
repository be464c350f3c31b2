"""The operations of the server, as its own OpenAPI document lists them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from lango.server.app import create_app
from lango.server.backend import Backend, ServerOptions
from tests.server.places import NamedCallers

FILE = "notes.json"
"""A file that the operations on files are about."""
QUERIES = {"upload_file": f"?name={FILE}"}
"""What must stand in a query."""


@dataclass(frozen=True)
class Operation:
    """One operation."""

    id: str
    method: str
    path: str
    has_body: bool
    is_secured: bool

    def __str__(self) -> str:
        return self.id

    @property
    def names_something(self) -> bool:
        """Whether its path names a session or a turn."""
        return "{" in self.path

    def path_of(self, session: str, turn: str, app: str) -> str:
        path = self.path.format(session_id=session, turn_id=turn, name=FILE, model=app)
        return path + QUERIES.get(self.id, "")


def document() -> dict[str, Any]:
    """The OpenAPI document; nothing behind it is opened."""
    return create_app(cast("Backend", None), NamedCallers(""), ServerOptions()).openapi()


def _operations() -> Iterator[Operation]:
    for path, methods in document()["paths"].items():
        for method, told in methods.items():
            yield Operation(
                told["operationId"], method.upper(), path, "requestBody" in told, "security" in told
            )


OPERATIONS = sorted(_operations(), key=lambda operation: operation.id)
