"""The OpenAI-compatible API: agents as models, chat completions as turns."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Request, Response

from lango.errors import ServerBusyError, UnknownAppError
from lango.server.auth.callers import SECURED, AnyCaller, recheck
from lango.server.auth.limits import Admitting
from lango.server.backend import EndpointServices, Served
from lango.server.http import problems
from lango.server.http.streams import MEDIA_TYPE, EventStream
from lango.server.http.waiting import answer_while_connected
from lango.server.openai.answers import chunks, completion, interruption_frame, local_answer
from lango.server.openai.errors import (
    TURN_ERROR_STATUS,
    OpenAIRoute,
    interruption,
    responses,
    turn_error,
)
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
    "No model named {name!r} is served here; GET /openai/v1/models lists those that are."
)
_MAX_NAME: Final = 100  # characters of an unknown model's name in the error
_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
}
_NAMED = Header(description="The session to continue, by its id or an alias.")
SessionId = Annotated[Id | None, _NAMED]
ChatId = Annotated[Id | None, Header(alias="X-OpenWebUI-Chat-Id", description="The same.")]


@router.get("/models")
async def list_models(_: AnyCaller, served: Served) -> ModelList:
    """The agents, as models."""
    return ModelList(data=[ModelInfo(id=name) for name in served.options.apps])


@router.get("/models/{model}", responses=responses(404))
async def get_model(_: AnyCaller, served: Served, model: str) -> ModelInfo:
    """An agent, as a model."""
    _check_model(served, model)
    return ModelInfo(id=model)


@router.post(
    "/chat/completions",
    response_model=ChatCompletion,
    responses=_STREAM | responses(404, 409, 413, 415, TURN_ERROR_STATUS, 500),
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
    _check_model(served, chat_request.model)
    conversation = SentConversation.of(chat_request)
    if served.options.openai_tasks == "local" and (text := task_answer(conversation)) is not None:
        return local_answer(chat_request, text)
    user = admission.user
    submitter = ConversationSubmitter(served, admission, chat_request.model, idempotency_key)
    with served.streams.opening(user, partial(recheck, request)) as slot:
        turn, session = await submitter.submit(conversation, x_session_id or chat_id)
        headers = {"Lango-Session": session, "Lango-Turn": turn.id}
        if conversation.ignored:
            headers["Lango-Ignored"] = ", ".join(conversation.ignored)

        async def remember(answer: str | None) -> None:
            await submitter.remember(turn, conversation, answer)

        events = served.backend.turns_for(user.tenant).events(turn)
        if chat_request.stream:
            frames = chunks(turn, events, remember, usage_apart=chat_request.tells_usage_apart)
            return EventStream(slot, frames, headers, when_cut=interruption_frame(turn))
        try:
            answer = await answer_while_connected(request, slot, completion(turn, events, remember))
        except ServerBusyError:  # the server stops: a retry returns this turn only under a key
            if idempotency_key is not None:
                raise
            answer = turn_error(interruption(turn.id))
        answer.headers.update(headers)
        return answer


def _check_model(served: EndpointServices, name: str) -> None:
    if name not in served.options.apps:
        raise UnknownAppError(_NO_MODEL.format(name=name[:_MAX_NAME]))
