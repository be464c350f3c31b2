"""An agent whose model lets turns wait until it is told to go on, and knows of its process.

What it is told and asked are turns as well: so a whole `lango serve` can be looked into as it is.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types
from pydantic import PrivateAttr

from bench.events import usage
from bench.turn_process import StallWatch

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from google.adk.models.llm_request import LlmRequest

WAIT: Final = "wait"
OPEN: Final = "open"  # to all in one moment
OPEN_ONE_BY_ONE: Final = "open one by one"
RESET: Final = "reset"
FIGURES: Final = "figures"
ANSWERS_EVERY: Final = 0.001
"""Seconds between answers that come one by one."""


class Gate(BaseLlm):
    """Answers who waits once somebody has said that it opens; anybody else with how it stands."""

    _open: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)
    _watch: StallWatch = PrivateAttr(default_factory=StallWatch)
    _waiting: int = PrivateAttr(default=0)
    _every: float = PrivateAttr(default=0.0)

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """One answer."""
        del stream
        said = (llm_request.contents[-1].parts or [])[0].text
        if said == WAIT:
            self._waiting += 1
            place = self._waiting
            await self._open.wait()
            await asyncio.sleep(place * self._every)
        elif said in (OPEN, OPEN_ONE_BY_ONE):
            self._every = ANSWERS_EVERY if said == OPEN_ONE_BY_ONE else 0.0
            self._open.set()
        elif said == RESET:
            self._watch.worst = 0.0
        figures = {"waiting": self._waiting, "worst_stall": self._watch.worst}
        part = types.Part(text=json.dumps(figures))
        yield LlmResponse(
            content=types.Content(role="model", parts=[part]),
            usage_metadata=usage(),  # without it, ADK warns in every turn
        )


def make() -> LlmAgent:
    """The agent, made where the loop runs that it watches."""
    return LlmAgent(name="gate", model=Gate(model="gate"))
