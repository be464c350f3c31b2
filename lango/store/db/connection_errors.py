"""Turns the errors of drivers into StoreErrors that say why a database cannot be used.

No message shows a password, a statement or its parameters.
"""

from __future__ import annotations

import re
import sqlite3
import ssl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from sqlalchemy import exc

from lango.errors import StoreError, StoreUnavailableError, UnsupportedUrlError
from lango.store.db.engines import is_sqlite, store_url
from lango.store.db.retry import is_transient
from lango.store.db.sqlite.engine import is_in_memory

_STARTUP_REFUSED: Final = "unsupported startup parameter"
"""PgBouncer's answer to settings of a connection, which it does not have in transaction mode."""
_THROUGH_PGBOUNCER: Final = (
    "In transaction mode, set `store.pooled: true` (or `?pooled=true` in the URL), and "
    "`store.direct_url` to the URL of the database itself; in session mode, list the settings in "
    "its `ignore_startup_parameters`."
)
_TLS_REFUSED: Final = "rejected SSL upgrade"
"""asyncpg's error for a server without TLS."""
_TLS: Final = (
    "`store.tls_ca` (or `sslrootcert` in the URL) must be the CA that signed it, and with "
    "`store.tls: verify-full` it must be valid for the host in the URL."
)
_NO_TLS: Final = "`store.tls` (or `sslmode` in the URL) requires it: set `ssl = on` on the server."
WRONG_FOLDER: Final = " Run the command in the folder of your lango.yaml, or correct the URL."
"""What to do if a command that only reads finds no SQLite file."""
_CLASS_PREFIX: Final = re.compile(r"^<class '[^']*'>: ")


@contextmanager
def in_words(url: str) -> Generator[None]:
    """Inside, a database that is missing or refuses raises a StoreError with a readable message."""
    address = database_address(store_url(url))
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        reason = error.verify_message.rstrip(".")
        raise StoreError(f"The certificate of {address} is refused: {reason}. {_TLS}") from error
    except TimeoutError as error:
        raise StoreUnavailableError(f"No answer in time from {address}.") from error
    except OSError as error:
        reason = error.strerror or str(error)
        if _TLS_REFUSED in reason:
            raise StoreError(f"{address} does not offer TLS. {_NO_TLS}") from error
        raise StoreUnavailableError(f"Nothing answers at {address}: {reason}.") from error
    except (exc.DBAPIError, sqlite3.Error) as error:  # the second, of a prepared statement
        reason = str(getattr(error, "orig", error))
        if _STARTUP_REFUSED in reason:
            raise UnsupportedUrlError(f"{address} is PgBouncer. {_THROUGH_PGBOUNCER}") from error
        require_file(url, may_create=True)  # SQLite itself does not say that the folder is missing
        reason = _CLASS_PREFIX.sub("", reason).partition("\n")[0]
        kind = StoreUnavailableError if is_transient(error) else StoreError
        raise kind(f"{address}: {reason.rstrip('.')}.") from error
    except exc.ArgumentError as error:  # a SQLite URL with too few slashes
        raise UnsupportedUrlError from error


def database_address(url: sa.URL) -> str:
    """A SQLite file, or a server's host, port and database; without user and password."""
    if is_sqlite(url):
        return url.database or ":memory:"
    return f"{url.host or 'localhost'}:{url.port or 5432}/{url.database or ''}"


def require_file(url: str, *, may_create: bool = False, advice: str = "") -> None:
    """Refuse a SQLite file that does not exist: merely opening it would create it."""
    file = _sqlite_file(url)
    if file is None:
        return
    if may_create and not file.parent.is_dir():
        raise StoreError(f"There is no folder {file.parent} for {file.name}.")
    if not may_create and not file.is_file():
        raise StoreError(f"There is no file {file}.{advice}")


def is_missing_file(url: str) -> bool:
    """Whether the store is a SQLite file that does not exist yet."""
    file = _sqlite_file(url)
    return file is not None and not file.is_file()


def _sqlite_file(url: str) -> Path | None:
    """The file of a SQLite URL; None of a database in memory, or of a URI, which SQLite reads."""
    parsed = store_url(url)
    if not is_sqlite(parsed) or is_in_memory(parsed):
        return None
    name = str(parsed.database)
    return None if name.startswith("file:") else Path(name)
