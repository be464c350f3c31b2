"""The OpenAI-compatible API: agents as models, chat completions as turns."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Request, Response

from lango.errors import ServerBusyError, UnknownAppError
from lango.server.auth.callers import SECURED, AnyCaller, recheck
from lango.server.auth.limits import Admitting
from lango.server.backend import Served
from lango.server.http import problems
from lango.server.http.request_slots import release_slot
from lango.server.http.streams import MEDIA_TYPE, EventStream, StreamSlot
from lango.server.openai.answers import chunks, completion, local_answer
from lango.server.openai.errors import OpenAIRoute, responses
from lango.server.openai.schemas import ChatCompletion, ChatRequest, ModelInfo, ModelList
from lango.server.openai.sessions import ConversationSubmitter, SentConversation
from lango.server.openai.tasks import task_answer
from lango.server.routes.schemas import Id, IdempotencyKey

router = APIRouter(
    prefix="/openai/v1",
    tags=["openai"],
    dependencies=SECURED,
    route_class=OpenAIRoute,
    responses=responses(400, 401, 403, 429, 503) | problems.responses(421),
)

_NO_MODEL: Final = (
    "No model of that name is served here; GET /openai/v1/models lists those that are."
)
_GONE: Final = 499  # only for the access log: the client has disconnected
_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
}
_NAMED = Header(description="The session to go on in, by its id or an alias.")
SessionId = Annotated[Id | None, _NAMED]
ChatId = Annotated[Id | None, Header(alias="X-OpenWebUI-Chat-Id", description="The same.")]


@router.get("/models")
async def list_models(_: AnyCaller, served: Served) -> ModelList:
    """The agents, as models."""
    return ModelList(data=[ModelInfo(id=name) for name in served.options.apps])


@router.get("/models/{model}", responses=responses(404))
async def get_model(_: AnyCaller, served: Served, model: str) -> ModelInfo:
    """An agent, as a model."""
    if model not in served.options.apps:
        raise UnknownAppError(_NO_MODEL)
    return ModelInfo(id=model)


@router.post(
    "/chat/completions",
    response_model=ChatCompletion,
    responses=_STREAM | responses(404, 409, 413, 415, 500),
)
async def create_chat_completion(
    chat_request: ChatRequest,
    request: Request,
    admission: Admitting,
    served: Served,
    idempotency_key: IdempotencyKey = None,
    x_session_id: SessionId = None,
    chat_id: ChatId = None,
) -> Response:
    """Submit the new messages of a conversation. Disconnecting does not stop the turn."""
    if chat_request.model not in served.options.apps:
        raise UnknownAppError(_NO_MODEL)
    sent = SentConversation.of(chat_request)
    if served.options.openai_tasks == "local" and (text := task_answer(sent)) is not None:
        return local_answer(chat_request, text)
    user = admission.user
    submitter = ConversationSubmitter(served, admission, chat_request.model, idempotency_key)
    with served.streams.opening(user, partial(recheck, request)) as slot:
        turn, session = await submitter.submit(sent, x_session_id or chat_id)
        headers = {"Lango-Session": session, "Lango-Turn": turn.id}
        if sent.ignored:
            headers["Lango-Ignored"] = ", ".join(sent.ignored)

        async def remember(answer: str | None) -> None:
            await submitter.remember(turn, sent, answer)

        events = served.backend.turns_for(user.tenant).events(turn)
        if chat_request.stream:
            frames = chunks(turn, events, remember, usage_apart=chat_request.tells_usage_apart)
            return EventStream(slot, frames, headers)
        answer = await _wait_for_answer(request, slot, completion(turn, events, remember))
        answer.headers.update(headers)
        return answer


async def _wait_for_answer(
    request: Request, slot: StreamSlot, work: Coroutine[Any, Any, Response]
) -> Response:
    """Wait for an answer, until the client disconnects or the server stops."""
    release_slot(request)
    waiting, gone = asyncio.create_task(work), asyncio.create_task(_disconnected(request))
    slot.run(waiting)
    try:
        await asyncio.wait({waiting, gone}, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            return Response(status_code=_GONE)
        if waiting.cancelled():
            raise ServerBusyError
        return waiting.result()
    finally:
        slot.leave()
        for task in (waiting, gone):
            task.cancel()
        await asyncio.wait({waiting, gone})


async def _disconnected(request: Request) -> None:
    """Wait until the client disconnects."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
