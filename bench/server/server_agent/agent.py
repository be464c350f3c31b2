"""An agent whose model answers with the requested number of words, one every 20 ms.

The model is one of lango's, as an agent of any ADK app can have it. The agent knows nothing of any
server, nor of this package: `adk api_server` imports it by its folder.
"""

import asyncio
from collections.abc import AsyncIterator

from google.adk.agents.llm_agent import LlmAgent

from lango.adk.models.adapter import ModelAdapter
from lango.core.messages.streams import Done, StreamEvent, TextDelta, Usage
from lango.providers.base import ModelRequest
from lango.providers.policy.retry import Policy

WORD_EVERY = 0.02  # seconds
_MANY = 10_000  # requests at once: the servers are measured, not a model's limits


class PacedWords:
    """Streams the words one by one, and then "over."."""

    name = "dripping"

    async def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Words; when the user says "0", none before the last one."""
        for number in range(int(request.messages[-1].content)):
            await asyncio.sleep(WORD_EVERY)
            yield TextDelta(f"word{number} ")
        yield TextDelta("over.")
        yield Done("stop", Usage(input=100, output=30), model=request.model)


_model = ModelAdapter(PacedWords(), "dripping", policy=Policy(max_concurrent_requests=_MANY))
root_agent = LlmAgent(name="server_agent", model=_model)
