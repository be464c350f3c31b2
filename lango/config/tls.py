"""TLS to PostgreSQL: the settings as the parameters of a store's URL that libpq reads."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qs, urlencode, urlsplit

TlsMode = Literal["disable", "require", "verify-ca", "verify-full"]

_MODE: Final = "sslmode"
_CA: Final = "sslrootcert"
_USES_CA: Final = ("require", "verify-ca", "verify-full")


def with_tls(url: str, mode: TlsMode | None, ca: str | None) -> str:
    """The URL with these settings as parameters; ValueError if the URL contradicts them.

    A URL of SQLite stays as it is: no network leads to it.
    """
    if not url.startswith("postgres"):
        return url
    in_url = parse_qs(urlsplit(url).query)
    parameters = {
        name: value for name, value in ((_MODE, mode), (_CA, ca)) if value and name not in in_url
    }
    for name, key, value in ((_MODE, "tls", mode), (_CA, "tls_ca", ca)):
        if value and in_url.get(name, [value]) != [value]:
            raise ValueError(f"`{key}` is {value}, but the URL has another {name}: remove one")
    if ca is not None:
        _check_ca(ca, mode or in_url.get(_MODE, [""])[0])
    return f"{url}{'&' if '?' in url else '?'}{urlencode(parameters)}" if parameters else url


def _check_ca(ca: str, mode: str) -> None:
    if mode not in _USES_CA:
        raise ValueError("`tls_ca` has no effect without `tls: verify-full` (or verify-ca)")
    if not Path(ca).is_file():
        raise ValueError(f"`tls_ca`: there is no file {ca}")
