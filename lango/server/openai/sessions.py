"""Finds the session that continues a conversation which a client sends whole.

Only the client's newest user messages are submitted. The server looks up the earlier ones; unknown
ones reach the agent as a quotation, never as history.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from lango.core.ids import new_id
from lango.core.messages.conversations import VisibleMessage, conversation_hash, normalised
from lango.core.turns.events import MessageReset
from lango.core.turns.inputs import title_of
from lango.core.values import json_text
from lango.errors import (
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
    TurnConflictError,
    UnsupportedRequestError,
)
from lango.server.auth.limits import Admission
from lango.server.backend import EndpointServices
from lango.server.openai.answers import DeltaReader
from lango.server.openai.schemas import ChatMessage, ChatRequest, ContentPart
from lango.store.sessions.conversations import ConversationPoint, ConversationStore
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.fork import fork
from lango.store.turns.rows import Turn

_SYSTEM: Final = ("system", "developer")
_TRIES: Final = 3
_BROKEN_OFF: Final = VisibleMessage("broken off", "")
"""Stands for an answer of which the client has an unknown part."""
_TRIED_POINTS: Final = 5  # conversations that begin alike, of which the client has one
_FIND_TIMEOUT: Final = 2.0  # seconds to find the client's part of an answer in its turn
_QUOTED: Final = (
    "[The client sent these earlier messages. They are not part of this session, and are quoted "
    "for your information only.]\n{lines}\n[End of the quoted messages.]\n\n{text}"
)


@dataclass(frozen=True, slots=True)
class SentConversation:
    """The messages that a client sent: the new ones, and those before them."""

    earlier: tuple[VisibleMessage, ...]
    new: tuple[VisibleMessage, ...]
    ignored: tuple[str, ...] = ()  # of the request, by name

    @classmethod
    def of(cls, request: ChatRequest) -> SentConversation:
        """The conversation of a request; UnsupportedRequestError if an agent cannot fulfil it."""
        _check(request)
        messages = [
            (message.role, _text(number, message))
            for number, message in enumerate(request.messages)
        ]
        visible = [VisibleMessage(role, text) for role, text in messages if role not in _SYSTEM]
        first = len(visible)
        while first and visible[first - 1].role == "user":
            first -= 1
        new = tuple(visible[first:])
        if not any(message.text.strip() for message in new):
            message = "The last message must be the user's, with some text."
            raise UnsupportedRequestError(message, param="messages")
        system = ("system",) if len(visible) < len(messages) else ()
        return cls(tuple(visible[:first]), new, (*system, *request.ignored))

    @property
    def text(self) -> str:
        """The new messages, as one."""
        return "\n\n".join(message.text for message in self.new)

    @property
    def quoted(self) -> str:
        """The new messages, after a quotation of the earlier ones."""
        if not self.earlier:
            return self.text
        lines = "\n".join(json_text({message.role: message.text}) for message in self.earlier)
        return _QUOTED.format(lines=lines, text=self.text)

    def known_by(self, answer: str | None) -> str:
        """The hash of the conversation with this answer; None: with an unknown part of one."""
        answer_message = _BROKEN_OFF if answer is None else VisibleMessage("assistant", answer)
        return conversation_hash([*self.earlier, *self.new, answer_message])


class ConversationSubmitter:
    """Submits conversations with one app, for one caller."""

    def __init__(
        self, served: EndpointServices, admission: Admission, app: str, idempotency_key: str | None
    ) -> None:
        self._store = served.store
        self._conversations = ConversationStore(served.store.database)
        self._turns = served.backend.turns_for(admission.user.tenant)
        self._admission = admission
        self._user = admission.user
        self._app = app
        self._key = idempotency_key

    async def submit(
        self, conversation: SentConversation, session_id: str | None
    ) -> tuple[Turn, str]:
        """Submit the new messages to the session they belong to; the turn and the session's id."""
        if session_id is not None:
            return await self._in_named(conversation, session_id)
        if not conversation.earlier:
            return await self._in_new(conversation)
        try:
            return await self._in_known(conversation)
        except SessionNotFoundError:  # or just deleted
            return await self._in_new(conversation)

    async def remember(
        self, turn: Turn, conversation: SentConversation, answer: str | None
    ) -> None:
        """Record the conversation's hash, with the answer that the client has, or a part of it."""
        await self._conversations.add(turn, conversation.known_by(answer))

    async def _in_named(self, conversation: SentConversation, session_id: str) -> tuple[Turn, str]:
        """Submit to the session that the client names, by id or alias; create a new alias."""
        key = SessionKey(self._user.tenant, self._app, self._user.user, session_id)
        with suppress(SessionNotFoundError):
            named_session = await self._store.find(key.tenant, key.user_id, session_id)
            key = named_session.key if named_session.app_name == self._app else key
        try:
            session = await self._store.summary(key)
        except SessionNotFoundError:
            await self._admission.take()
            with suppress(SessionExistsError):
                await self._store.create(key, title=title_of(conversation.text))
            session = await self._store.summary(key)
        text = conversation.text if session.message_count else conversation.quoted
        try:
            return await self._submit(key, text), session.public_id
        except TurnConflictError:  # a repeated request, which was first submitted with a quotation
            return await self._submit(key, conversation.quoted), session.public_id

    async def _in_known(self, conversation: SentConversation) -> tuple[Turn, str]:
        """Submit to the session that the earlier messages lead to, or to a fork of it.

        On a concurrent continuation: retry, then fork. If the change was the answer to an
        approval, the conversation continues in the same session.
        """
        point = await self._point(conversation)
        for _ in range(_TRIES):
            if not (point.is_end or point.has_key):
                break
            with suppress(SessionBusyError):
                turn = await self._submit(point.session, conversation.text, after=point.last)
                return turn, point.public_id
            point = await self._point(conversation)
        forked, public_id = self._new_session()
        await self._admit(forked)
        await fork(self._store.database, point, forked, public_id)
        return await self._submit(forked, conversation.text), public_id

    async def _point(self, conversation: SentConversation) -> ConversationPoint:
        if points := await self._known(conversation.earlier):
            return points[0]
        point = await self._interrupted_point(conversation.earlier)
        if point is None:
            raise SessionNotFoundError
        return point

    async def _known(self, messages: Sequence[VisibleMessage]) -> list[ConversationPoint]:
        owner = self._user.tenant, self._user.user, self._app
        known_by = conversation_hash(messages)
        return await self._conversations.find(*owner, known_by, idempotency_key=self._key)

    async def _interrupted_point(
        self, messages: Sequence[VisibleMessage]
    ) -> ConversationPoint | None:
        """The point of a conversation whose client has only the beginning of the last answer.

        The session has the whole answer. If the client's text is not its beginning, the client has
        edited it: the conversation is unknown. Every streamed answer has such a point, as the
        server does not learn what arrived: conversations that begin alike are tried in turn.
        """
        *before, answer = messages
        if answer.role != "assistant":
            return None
        for point in (await self._known([*before, _BROKEN_OFF]))[:_TRIED_POINTS]:
            turn = await self._turns.get(point.turn_id)
            can_follow = point.is_end or turn.ended is not None  # no fork of a turn that runs
            if can_follow and await self._begins_with(turn, answer.text):
                return point
        return None

    async def _begins_with(self, turn: Turn, text: str) -> bool:
        """Whether a turn's answer, as sent to clients, begins with this text.

        Clients get text of a message before it is logged. A worker that dies leaves the rest out
        of the log, and the next one resets the message: then the logged part is compared.
        """
        beginning, reading = normalised(text), DeltaReader(turn)
        with suppress(TimeoutError):
            async with asyncio.timeout(_FIND_TIMEOUT), aclosing(self._turns.events(turn)) as events:
                async for event in events:
                    if event.type == MessageReset.type and _is_part(reading.text, beginning):
                        return True
                    deque(reading.read(event), 0)
                    if len(reading.text) < len(text):
                        continue
                    answer = normalised(reading.text)
                    if answer.startswith(beginning) or not beginning.startswith(answer):
                        return answer.startswith(beginning)
        return False

    async def _in_new(self, conversation: SentConversation) -> tuple[Turn, str]:
        key, public_id = self._new_session()
        await self._admit(key)
        with suppress(SessionExistsError):
            await self._store.create(key, public_id=public_id, title=title_of(conversation.text))
        return await self._submit(key, conversation.quoted), public_id

    def _new_session(self) -> tuple[SessionKey, str]:
        """The key and id of a new session; the same ones for the same idempotency key."""
        user = self._user
        public_id = new_id("ses")
        if self._key is not None:
            seed = json_text(["openai", user.tenant, user.user, self._app, self._key])
            public_id = f"ses_{sha256(seed.encode()).hexdigest()[:32]}"
        return SessionKey(user.tenant, self._app, user.user, public_id), public_id

    async def _admit(self, session: SessionKey) -> None:
        """Admit the turn before its session is created, unless an earlier request created both."""
        if not await self._turns.is_accepted(session, self._key):
            await self._admission.take()

    async def _submit(self, session: SessionKey, text: str, *, after: int | None = None) -> Turn:
        return await self._turns.submit(
            self._app,
            text,
            user=session.user_id,
            session=session.session_id,
            idempotency_key=self._key,
            create=False,
            after=after,
            key_id=self._user.key_id,
            cost_limit=self._user.limits.cost,
            turn_limit=self._user.limits.turns,
            admit=self._admission.take,
        )


def _is_part(text: str, of_text: str) -> bool:
    """Whether there is some text, and another begins with it."""
    return bool(text) and of_text.startswith(normalised(text))


def _check(request: ChatRequest) -> None:
    """Refuse options that an agent would silently ignore."""
    answer_format = request.response_format
    features = {
        "tool_choice": (" that wants a tool: it has its own", _wants_tool(request.tool_choice)),
        "function_call": (" that wants a tool: it has its own", _wants_tool(request.function_call)),
        "n": (" above 1", request.n is not None and request.n != 1),
        "response_format": (
            " other than text",
            answer_format and answer_format.get("type") != "text",
        ),
        "modalities": (" other than text", request.modalities and request.modalities != ["text"]),
        "logprobs": ("", request.logprobs),
    }
    for param, (kind, is_there) in features.items():
        if is_there:
            message = f"An agent takes no `{param}`{kind}. Leave it out."
            raise UnsupportedRequestError(message, param=param)


def _wants_tool(choice: Any) -> bool:
    return choice not in (None, "auto", "none")


def _text(number: int, message: ChatMessage) -> str:
    content = message.content
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(_part(number, part) for part in content)


def _part(number: int, part: ContentPart) -> str:
    text = part.text if part.type == "text" else part.refusal if part.type == "refusal" else None
    if text is None:
        param = f"messages.{number}.content"
        message = f"{param} has a part that is no text. Send text alone."
        raise UnsupportedRequestError(message, param=param)
    return text
