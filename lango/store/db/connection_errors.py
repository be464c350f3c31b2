"""Turns the errors of drivers into StoreErrors that say why a database cannot be used.

No message shows a password, a statement or its parameters.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy import exc

from lango.errors import StoreError, StoreUnavailableError, UnsupportedUrlError
from lango.store.db.engines import is_sqlite, store_url
from lango.store.db.retry import is_transient

_STARTUP_REFUSED: Final = "unsupported startup parameter"
"""PgBouncer's answer to settings of a connection, which it does not have in transaction mode."""
_THROUGH_PGBOUNCER: Final = (
    "In transaction mode, set `store.pooled: true` (or `?pooled=true` in the URL), and "
    "`store.direct_url` to the URL of the database itself; in session mode, list the settings in "
    "its `ignore_startup_parameters` (docs/how-to/postgresql.md)."
)
_CLASS_PREFIX: Final = re.compile(r"^<class '[^']*'>: ")


@contextmanager
def in_words(url: str) -> Generator[None]:
    """Inside, a database that is missing or refuses raises a StoreError with a readable message."""
    where = place(store_url(url))
    try:
        yield
    except TimeoutError as error:
        raise StoreUnavailableError(f"No answer in time from {where}.") from error
    except OSError as error:
        why = error.strerror or str(error)
        raise StoreUnavailableError(f"Nothing answers at {where}: {why}.") from error
    except exc.DBAPIError as error:
        if _STARTUP_REFUSED in str(error.orig):
            raise UnsupportedUrlError(f"{where} is PgBouncer. {_THROUGH_PGBOUNCER}") from error
        why = _CLASS_PREFIX.sub("", str(error.orig)).partition("\n")[0]
        kind = StoreUnavailableError if is_transient(error) else StoreError
        raise kind(f"{where}: {why.rstrip('.')}.") from error
    except exc.ArgumentError as error:  # a SQLite URL with too few slashes
        raise UnsupportedUrlError from error


def place(url: sa.URL) -> str:
    """Where a database is, without user and password."""
    if is_sqlite(url):
        return url.database or ":memory:"
    return f"{url.host or 'localhost'}:{url.port or 5432}/{url.database or ''}"


def require_file(url: str, *, may_create: bool = False) -> None:
    """Refuse a SQLite file that does not exist: merely opening it would create it."""
    parsed = store_url(url)
    if not is_sqlite(parsed) or not parsed.database:
        return
    file = Path(parsed.database)
    if may_create and not file.parent.is_dir():
        raise StoreError(f"There is no folder {file.parent} for {file.name}.")
    if not may_create and not file.is_file():
        raise StoreError(f"There is no file {file}.")
