"""Code that a model ran, and its output: parts of a message beside its text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from lango.core.values import JsonObject, json_value

PartKind = Literal["code", "code_result"]
Outcome = Literal["ok", "failed", "timeout"]
MAX_SHOWN: Final = 20_000
"""Characters of a part that clients get; the stored message has all of them."""

_CODE: Final = "executable_code"
_RESULT: Final = "code_execution_result"
_OUTCOMES: Final[dict[str, Outcome]] = {
    "OUTCOME_OK": "ok",
    "OUTCOME_FAILED": "failed",
    "OUTCOME_DEADLINE_EXCEEDED": "timeout",
}


@dataclass(frozen=True, slots=True)
class CodePart:
    """Code, or the output of code."""

    part: int  # its index among the parts of its message
    kind: PartKind
    text: str
    language: str | None = None  # of code, if the model names it
    outcome: Outcome | None = None  # of output, if it is known
    truncated: bool = False


def code_parts(parts: Sequence[JsonObject]) -> Iterator[CodePart]:
    """The code and its outputs among the parts of a message, which are in ADK's form."""
    for number, part in enumerate(parts):
        code: JsonObject | None = part.get(_CODE)
        result: JsonObject | None = part.get(_RESULT)
        if code is not None:
            language = str(code.get("language") or "").lower()
            is_named = language not in ("", "language_unspecified")
            yield _part(number, "code", code.get("code"), language=language if is_named else None)
        if result is not None:
            outcome = _OUTCOMES.get(str(result.get("outcome")))
            yield _part(number, "code_result", result.get("output"), outcome=outcome)


def stored_code_parts(event: str | None) -> list[CodePart]:
    """The same of a stored message, by the JSON of its event."""
    if event is None or not (_CODE in event or _RESULT in event):
        return []
    stored: Any = json_value(event)
    return list(code_parts(stored.get("parts") or ()))


def _part(number: int, kind: PartKind, text: str | None, **fields: Any) -> CodePart:
    text = text or ""
    return CodePart(number, kind, text[:MAX_SHOWN], truncated=len(text) > MAX_SHOWN, **fields)
