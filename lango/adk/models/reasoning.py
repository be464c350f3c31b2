"""Keeps reasoning in ADK's thought parts; the signature names its provider and model.

ADK keeps a thought with a signature through sessions, requests and copies, but drops the part's
metadata in some of them. So the tag is inside the signature, with the data that it describes
(docs/adr/0007-reasoning-in-the-signature.md).
"""

from __future__ import annotations

import json
from typing import Any, Final, cast

from google.genai import types

from lango.adk.sessions.fast_model import build
from lango.core.messages.messages import Reasoning
from lango.core.values import json_text

_HEAD: Final = b'{"lango":1,'
"""The beginning of every signature of lango's, and of no provider's own."""


def thought_part(reasoning: Reasoning) -> types.Part:
    """The part that keeps a piece of reasoning in a session."""
    if not (reasoning.opaque or reasoning.provider or reasoning.model):
        return build(types.Part, text=reasoning.text, thought=True)
    return build(
        types.Part, text=reasoning.text, thought=True, thought_signature=_signature(reasoning)
    )


def reasoning_of(part: types.Part) -> Reasoning:
    """The reasoning in a thought part, without the signatures of other ADK models."""
    tag = _tag(part.thought_signature)
    return Reasoning(
        text=part.text or "",
        provider=str(tag.get("provider", "")),
        model=str(tag.get("model", "")),
        opaque=str(tag.get("opaque", "")),
    )


def _signature(reasoning: Reasoning) -> bytes:
    tag = {
        "lango": 1,
        "provider": reasoning.provider,
        "model": reasoning.model,
        "opaque": reasoning.opaque,
    }
    return json_text(tag).encode("utf-8", "surrogatepass")


def _tag(signature: bytes | None) -> dict[str, Any]:
    if not signature or not signature.startswith(_HEAD):
        return {}
    try:
        tag = json.loads(signature.decode("utf-8", "surrogatepass"))
    except (ValueError, RecursionError):
        return {}
    return cast("dict[str, Any]", tag)
