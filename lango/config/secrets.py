"""Secrets in the settings: references to them, and the detection of literal ones."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Final, cast
from urllib.parse import parse_qsl, quote, urlsplit

from pydantic import BeforeValidator, PlainSerializer, SecretStr

from lango.core.redaction import MASK
from lango.errors import ConfigError

_NESTED_URL: Final = "direct_url"
"""The parameter of a store's URL that is a URL itself."""
_REFERENCE: Final = re.compile(r"\$(\$|\{(?P<file>file:)?(?P<name>[^{}]*)\})")


class ExternalText(str):
    """A text from the environment or a separate file, not from the settings file."""

    __slots__ = ()


class Secret(SecretStr):
    """A secret that records whether it is a literal in the settings file."""

    def __init__(self, value: str) -> None:
        super().__init__(value)
        self.literal = not isinstance(value, ExternalText)

    def __str__(self) -> str:
        return MASK


def _secret(value: Any) -> Any:
    return Secret(value) if isinstance(value, str) else value


def _shown(value: SecretStr) -> str:
    return str(value)


SecretText = Annotated[
    SecretStr, BeforeValidator(_secret), PlainSerializer(_shown, return_type=str)
]
"""A secret in the settings."""


def _shown_url(value: SecretStr) -> str:
    return masked_url(value.get_secret_value())


def masked_url(url: str) -> str:
    """A URL with its passwords masked."""
    parts = urlsplit(url)
    nested = dict(parse_qsl(parts.query)).get(_NESTED_URL)
    if nested is not None and has_password(nested):
        masked = quote(masked_url(nested), safe="*")
        url = re.sub(rf"(?<={_NESTED_URL}=)[^&]*", lambda _: masked, url, count=1)
    if not parts.password:
        return url
    return url.replace(f":{parts.password}@", f":{MASK}@", 1)


SecretUrl = Annotated[
    SecretStr, BeforeValidator(_secret), PlainSerializer(_shown_url, return_type=str)
]
"""A URL that may have a password in it."""


def has_password(url: str) -> bool:
    """Whether a database URL contains a password, its own or that of a URL in it."""
    try:
        parts = urlsplit(url)
        nested = dict(parse_qsl(parts.query)).get(_NESTED_URL)
        return bool(parts.password) or (nested is not None and has_password(nested))
    except ValueError:
        return False


def expanded(value: Any, setting: str, folder: Path) -> Any:
    """A value of the file with `${NAME}` and `${file:path}` expanded; `$$` becomes `$`."""
    if isinstance(value, str):
        return _expanded_text(value, setting, folder)
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {key: expanded(inner, f"{setting}.{key}", folder) for key, inner in items}
    if isinstance(value, list):
        inners = enumerate(cast("list[Any]", value))
        return [expanded(inner, f"{setting}[{index}]", folder) for index, inner in inners]
    return value


def _expanded_text(text: str, setting: str, folder: Path) -> str:
    references = [match for match in _REFERENCE.finditer(text) if match[0] != "$$"]
    new = _REFERENCE.sub(_replacing(setting.lstrip("."), folder), text)
    return ExternalText(new) if references else new


def _replacing(setting: str, folder: Path) -> Callable[[re.Match[str]], str]:
    def replacement(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        name = match["name"]
        return _file_text(folder / name, setting) if match["file"] else _variable(name, setting)

    return replacement


def _variable(name: str, setting: str) -> str:
    try:
        return os.environ[name]
    except KeyError:
        raise ConfigError(f"{setting}: the environment variable {name} is not set.") from None


def _file_text(path: Path, setting: str) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not UTF-8 text"
        raise ConfigError(f"{setting}: {path} cannot be read: {reason}.") from error
