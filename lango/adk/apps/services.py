"""lango's services in ADK's service registry: `--session_service_uri=lango+postgresql://…`.

ADK creates the classes that a `services.yaml` beside the agents names, with the given URI.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

import yaml

from lango.adk.artifacts import SqlArtifactService
from lango.adk.memory import SqlMemoryService
from lango.adk.sessions.service import SessionServiceAdapter
from lango.errors import LangoError
from lango.store.sessions.store import SqlSessionStore

SCHEMES: Final = ("lango+postgresql", "lango+sqlite")
SERVICES_FILE: Final = "services.yaml"


class RegisteredSessionService(SessionServiceAdapter):
    """A session service that ADK's registry creates."""

    def __init__(self, uri: str, **_: Any) -> None:
        store, tenant = _store_and_tenant(uri)
        super().__init__(store, tenant=tenant)
        self._owns_store = True


class RegisteredArtifactService(SqlArtifactService):
    """An artifact service that ADK's registry creates."""

    def __init__(self, uri: str, **_: Any) -> None:
        store, tenant = _store_and_tenant(uri)
        super().__init__(store, tenant=tenant)
        self._owns_store = True


class RegisteredMemoryService(SqlMemoryService):
    """A memory service that ADK's registry creates."""

    def __init__(self, uri: str, **_: Any) -> None:
        store, tenant = _store_and_tenant(uri)
        super().__init__(store, tenant=tenant)
        self._owns_store = True


def parse_uri(uri: str) -> tuple[str, str | None, str, str | None]:
    """The store's URL, the schema, the tenant and the object store's URL from a registry URI.

    They are its parameters: `?schema=…&tenant=…&objects=…`.
    """
    url, _, query = uri.removeprefix("lango+").partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    schema, tenant = options.pop("schema", None), options.pop("tenant", "")
    objects = options.pop("objects", None)
    return (f"{url}?{urlencode(options)}" if options else url), schema, tenant, objects


def _store_and_tenant(uri: str) -> tuple[SqlSessionStore, str]:
    url, schema, tenant, objects = parse_uri(uri)
    return SqlSessionStore(url, schema=schema, objects=objects), tenant


def _entries() -> list[dict[str, str]]:
    services = {
        "session": RegisteredSessionService,
        "artifact": RegisteredArtifactService,
        "memory": RegisteredMemoryService,
    }
    return [
        {"scheme": scheme, "type": kind, "class": f"{service.__module__}.{service.__qualname__}"}
        for scheme in SCHEMES
        for kind, service in services.items()
    ]


def services_yaml() -> str:
    """The file that registers lango's services with ADK."""
    heading = "# Written by `lango adk services`: lets `adk web` and `adk api_server` use lango.\n"
    return heading + yaml.safe_dump({"services": _entries()}, sort_keys=False)


def write_services_yaml(folder: Path) -> Path:
    """Write the file beside the agents; an existing file with other services is refused."""
    path = folder / SERVICES_FILE
    if not folder.is_dir():
        raise LangoError(f"There is no folder {folder}.")
    if not path.exists():
        path.write_text(services_yaml(), encoding="utf-8")
    elif not _has_ours(path):
        raise LangoError(
            f"{path} exists and registers other services: it stays as it is. "
            "Add the lines that `lango adk services --print` shows."
        )
    return path


def _has_ours(path: Path) -> bool:
    try:
        document: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError):
        return False
    services: Any = document.get("services") if isinstance(document, dict) else None  # pyright: ignore[reportUnknownVariableType,reportUnknownMemberType]
    return isinstance(services, list) and all(entry in services for entry in _entries())
