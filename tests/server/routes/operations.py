"""The operations of the server, as its own OpenAPI document lists them."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

from lango.server.app import create_app
from lango.server.backend import Backend, ServerOptions
from tests.server.served_apps import NamedCallers

FILE = "notes.json"
"""A file that the operations on files are about."""
QUERIES = {
    "upload_file": f"?name={FILE}",
    "list_memory": "?app={app}",
    "delete_all_memory": "?app={app}",
}
"""What must stand in a query."""


@dataclass(frozen=True)
class Ids:
    """What the paths of operations name."""

    session: str
    turn: str
    memory: str
    user: str


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

    def path_of(self, ids: Ids, app: str) -> str:
        path = self.path.format(
            session_id=ids.session,
            turn_id=ids.turn,
            memory_id=ids.memory,
            user_id=ids.user,
            credential_id=credential_of(ids.session),
            name=FILE,
            model=app,
        )
        return path + QUERIES.get(self.id, "").format(app=app)


def credential_of(session: str) -> str:
    """The id of the credential that a test makes together with a session."""
    return session.replace("ses_", "cred_")


def document() -> dict[str, Any]:
    """The OpenAPI document; nothing behind it is opened."""
    return create_app(cast("Backend", None), NamedCallers(""), ServerOptions()).openapi()


def _operations() -> Iterator[Operation]:
    for path, methods in document()["paths"].items():
        for method, result in methods.items():
            yield Operation(
                result["operationId"],
                method.upper(),
                path,
                "requestBody" in result,
                "security" in result,
            )


OPERATIONS = sorted(_operations(), key=lambda operation: operation.id)
