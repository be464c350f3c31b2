"""Masks secrets in texts such as exception messages."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Final

MASK: Final = "**********"
_SENSITIVE: Final = re.compile(r"auth|cookie|key|passw|secret|token", re.IGNORECASE)
_MIN_LENGTH: Final = 8
"""Minimum length of a secret: a shorter value may appear in a text by chance."""
_NAMED: Final = re.compile(
    r"(?P<name>(?:api[-_ ]?key|passw(?:or)?d|secret|token|authorization|cookie)\w*[\"']?\s*[=:]\s*"
    r"(?:(?:bearer|basic)\s+)?[\"']?)[^\s\"',;&]{6,}",
    re.IGNORECASE,
)
_BEARER: Final = re.compile(r"(?P<name>\bbearer\s+)[^\s\"',;]{6,}", re.IGNORECASE)
_IN_URL: Final = re.compile(r"(?P<name>://[^\s:/@]*:)[^\s/@]+(?=@)")
_KEYS: Final = re.compile(r"\b(?:sk-|AIza|xox[abp]-|gh[pousr]_|lango_\w+?_)[\w-]{16,}")
"""API keys with a known prefix."""


def is_sensitive(name: str) -> bool:
    """Whether a header or variable of this name is likely to hold a secret."""
    return _SENSITIVE.search(name) is not None


def redacted(text: str, environment: Mapping[str, str] | None = None) -> str:
    """The text with secrets masked: values of sensitive environment variables, and known forms.

    The forms are passwords in URLs, bearer tokens, API keys, and values after names such as
    `password=`.
    """
    variables = os.environ if environment is None else environment
    values = (value for name, value in variables.items() if is_sensitive(name))
    for value in sorted(values, key=len, reverse=True):
        if len(value) >= _MIN_LENGTH:
            text = text.replace(value, MASK)
    for pattern in (_IN_URL, _NAMED, _BEARER):
        text = pattern.sub(rf"\g<name>{MASK}", text)
    return _KEYS.sub(MASK, text)
