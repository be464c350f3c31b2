"""The messages every contender stores: texts of a fixed size, and the events a Runner makes."""

from __future__ import annotations

import random
import uuid
from functools import cache
from typing import Final

from google.adk.events.event import Event
from google.genai import types

from lango.core.context.tokens import estimate_tokens

APP: Final = "bench"
USER: Final = "user"
AGENT: Final = "assistant"

APPENDED_BYTES: Final = 400
LOADED_BYTES: Final = 1_600


@cache
def text(size: int) -> str:
    """Words of `size` bytes whose token estimate is a quarter of that.

    Ordinary words weigh more; at this weight a window of 32,000 tokens is the 80 messages of
    1,600 bytes that the bare load reads, so that both return the same rows.
    """
    letters = ((size // 4 - estimate_tokens("")) * 32 - 2 * size) // 10
    draw = random.Random(size)
    characters = draw.choices("etaoinshrdlu", k=letters) + [" "] * (size - letters)
    draw.shuffle(characters)
    made = "".join(characters)
    assert len(made) == size
    assert estimate_tokens(made) == tokens(size)
    return made


def tokens(size: int) -> int:
    """The estimated tokens of `text(size)`."""
    return size // 4


def invocation_id() -> str:
    """A new turn's id, in ADK's form."""
    return f"e-{uuid.uuid4()}"


def user_event(content: str, invocation: str) -> Event:
    """A user's message as a Runner appends it."""
    return Event(
        id=str(uuid.uuid4()),
        invocation_id=invocation,
        author="user",
        content=types.Content(role="user", parts=[types.Part(text=content)]),
    )


def usage() -> types.GenerateContentResponseUsageMetadata:
    """Token counts as a provider reports them."""
    return types.GenerateContentResponseUsageMetadata(
        prompt_token_count=1_200,
        cached_content_token_count=800,
        candidates_token_count=100,
        thoughts_token_count=20,
        total_token_count=1_320,
    )


def model_event(content: str, invocation: str) -> Event:
    """A model's answer with its usage, as a Runner appends it."""
    event = Event(
        id=str(uuid.uuid4()),
        invocation_id=invocation,
        author=AGENT,
        branch=None,
        model_version="instant-1",
        finish_reason=types.FinishReason.STOP,
        usage_metadata=usage(),
        content=types.Content(role="model", parts=[types.Part(text=content)]),
    )
    event.node_info.path = f"{AGENT}@1"
    return event
