"""Model errors of SDKs that other code than lango calls, such as the model classes of ADK."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import Final

from lango.errors import ModelError


def _of_gemini(error: Exception) -> ModelError | None:
    from lango.providers.gemini import explain

    return explain(error)


def _of_openai(error: Exception) -> ModelError | None:
    from lango.providers.shared.openai_sdk import explain

    return explain(error)


def _of_anthropic(error: Exception) -> ModelError | None:
    from lango.providers.anthropic import explain

    return explain(error)


_SDKS: Final[Mapping[str, Callable[[Exception], ModelError | None]]] = {
    "google.genai": _of_gemini,
    "openai": _of_openai,  # litellm's errors are subclasses of openai's
    "anthropic": _of_anthropic,
}


def model_error(error: Exception) -> ModelError | None:
    """The lango error for an exception of a vendor's SDK; None for other exceptions."""
    classes = {ancestor.__module__ for ancestor in type(error).__mro__}
    for sdk, explain in _SDKS.items():
        if sdk in sys.modules and any(f"{name}.".startswith(f"{sdk}.") for name in classes):
            return explain(error)
    return None
