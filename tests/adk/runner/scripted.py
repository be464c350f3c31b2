"""A model without a network: its answer follows from the request alone, in any process.

A user text "do a {…} and b {…} then c {…}" is a script: the first round calls the tools a and
b at once, the second c, and the text that ends it reports what the last round gave. Any other
text is echoed.
"""

import json
from contextvars import ContextVar
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.genai import types

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from google.adk.models.llm_request import LlmRequest

Request = list[types.Content]

# Every request of the current run, as the model saw it.
REQUESTS: ContextVar[list[Request]] = ContextVar("REQUESTS")


class ScriptedLlm(BaseLlm):
    """Follows `script` when it has one, else the script in the user's text."""

    model: str = "scripted"
    script: str = ""

    async def generate_content_async(
        self, llm_request: "LlmRequest", stream: bool = False
    ) -> "AsyncGenerator[LlmResponse, None]":
        """Answer at once, in one response."""
        del stream
        contents = llm_request.contents
        REQUESTS.get([]).append([content.model_copy(deep=True) for content in contents])
        parts = reply(contents, self.script)
        yield LlmResponse(
            content=types.Content(role="model", parts=parts),
            usage_metadata=types.GenerateContentResponseUsageMetadata(
                candidates_token_count=len(parts)
            ),
        )


class SummaryLlm(ScriptedLlm):
    """Summarises in one line that differs whenever what is summarised does."""

    async def generate_content_async(
        self, llm_request: "LlmRequest", stream: bool = False
    ) -> "AsyncGenerator[LlmResponse, None]":
        """Answer with a fingerprint of the request."""
        del stream
        prompt = "\n".join(_text(content) for content in llm_request.contents)
        digest = sha256(prompt.encode()).hexdigest()[:12]
        part = types.Part(text=f"summary {digest}")
        yield LlmResponse(content=types.Content(role="model", parts=[part]))


def reply(contents: Request, script: str = "") -> list[types.Part]:
    """The parts the model answers `contents` with."""
    start = _tool_rounds_start(contents)
    prompt = _text(contents[start - 1]) if start else ""
    if not script and not prompt.startswith("do "):
        return [types.Part(text=f"you said: {prompt}")]
    rounds = (script or prompt).removeprefix("do ").split(" then ")
    done = sum(1 for content in contents[start:] if _calls(content))
    if done < len(rounds):
        return [_call(text) for text in rounds[done].split(" and ")]
    results = [response.response for response in _responses(contents[-1])]
    return [types.Part(text=f"done: {json.dumps(results, sort_keys=True)}")]


def _tool_rounds_start(contents: Request) -> int:
    """Where the run of tool calls and results at the end of the request begins."""
    start = len(contents)
    while start and (_calls(contents[start - 1]) or _responses(contents[start - 1])):
        start -= 1
    return start


def _call(text: str) -> types.Part:
    name, _, arguments = text.partition(" ")
    args: dict[str, Any] = json.loads(arguments or "{}")
    call = types.FunctionCall(id=f"call_{uuid4().hex[:12]}", name=name, args=args)
    return types.Part(function_call=call)


def _text(content: types.Content) -> str:
    return "\n".join(part.text for part in content.parts or [] if part.text)


def _calls(content: types.Content) -> list[types.FunctionCall]:
    return [part.function_call for part in content.parts or [] if part.function_call]


def _responses(content: types.Content) -> list[types.FunctionResponse]:
    return [part.function_response for part in content.parts or [] if part.function_response]


def unpaired(request: Request) -> set[str]:
    """Ids of calls without a result and of results without a call."""
    calls = {call.id or "" for content in request for call in _calls(content)}
    results = {response.id or "" for content in request for response in _responses(content)}
    return calls ^ results
