"""An agent whose model says as many words as it is asked for, one every 20 ms.

It knows nothing of any server, nor of this package: `adk api_server` imports it by its folder.
"""

import asyncio
from collections.abc import AsyncGenerator

from google.adk.agents.llm_agent import LlmAgent
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.genai import types

WORD_EVERY = 0.02  # seconds


class Dripping(BaseLlm):
    """Says the words one by one, then all of them at once, as ADK wants a streamed answer."""

    async def generate_content_async(
        self, llm_request: LlmRequest, stream: bool = False
    ) -> AsyncGenerator[LlmResponse, None]:
        """Words; when the user says "0", none before the whole answer."""
        del stream
        words = [f"word{number} " for number in range(_asked_for(llm_request))]
        for word in words:
            await asyncio.sleep(WORD_EVERY)
            yield LlmResponse(content=_said(word), partial=True)
        yield LlmResponse(
            content=_said("".join(words) + "over."),
            model_version=self.model,
            finish_reason=types.FinishReason.STOP,
            usage_metadata=types.GenerateContentResponseUsageMetadata(
                prompt_token_count=100, candidates_token_count=30, total_token_count=130
            ),
        )


def _asked_for(request: LlmRequest) -> int:
    parts = request.contents[-1].parts or []
    return int(parts[0].text or 0)


def _said(text: str) -> types.Content:
    return types.Content(role="model", parts=[types.Part(text=text)])


root_agent = LlmAgent(name="server_agent", model=Dripping(model="dripping"))
