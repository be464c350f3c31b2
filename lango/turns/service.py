"""The client side of turns: submit, get, list, answer, cancel, and subscribe to events."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from datetime import datetime
from functools import partial
from typing import Any, Final, cast

from lango.adk.sessions.service import load_session
from lango.adk.tools.approvals import History, answer_content, check_result, question_id
from lango.core.turns.events import Answer, CredentialRequest, CredentialRequired
from lango.core.turns.inputs import FileRef, input_of
from lango.core.turns.positions import Position
from lango.core.turns.states import RETRY_OF, TIME_LIMIT, Busy, NewTurn
from lango.core.values import JsonObject
from lango.errors import (
    CredentialNotFoundError,
    SessionExistsError,
    SessionNotFoundError,
    TurnConflictError,
    UnknownFileError,
)
from lango.store.files.uploads import SqlFileStore
from lango.store.sessions.entries import SessionKey
from lango.store.sessions.listing import Page
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.listing import ListedTurn, TurnFilter, list_turns
from lango.store.turns.log import LogCursor, LoggedEvent, LogPage, TurnLog
from lango.store.turns.rows import Turn, read_last_text
from lango.store.turns.submit import Admit, SqlTurnStore, Submitted
from lango.turns.credentials import CredentialAnswers, asked_with_state, consent_request
from lango.turns.engine.cancel import cancel_turn
from lango.turns.engine.protocol import Engine
from lango.turns.log.replay import stored_turn
from lango.turns.traces import link_answer
from lango.turns.wake import STOP, LogSubscription

_FIRST_POLL: Final = 0.05
_RETRIED: Final = ("failed", "cancelled")
AdmitTurn = Callable[[Turn], Awaitable[None]]
"""Raises if no turn may continue this one now."""


class Turns:
    """The turns of one tenant. Any process may call these methods, wherever the turns run."""

    def __init__(self, store: SqlSessionStore, engine: Engine, *, tenant: str = "") -> None:
        self.tenant = tenant
        self._store = store
        self._engine = engine
        self._wakes = engine.wakes
        self._turns = SqlTurnStore(store.database)
        self._files = SqlFileStore(store.database)
        self.log = TurnLog(store.database)
        self._poller = self._wakes.poller(TurnLog(engine.queue.database))

    async def submit(
        self,
        app: str,
        message: str,
        *,
        files: Sequence[str] = (),
        parts: Sequence[JsonObject] = (),
        user: str = "user",
        session: str = "default",
        idempotency_key: str | None = None,
        busy: Busy = "enqueue",
        run_at: datetime | None = None,
        time_limit: float = TIME_LIMIT,
        options: Mapping[str, Any] | None = None,
        create: bool = True,
        key_id: str | None = None,
        cost_limit: float | None = None,
        turn_limit: int | None = None,
        after: int | None = None,
        public_id: str | None = None,
        admit: Admit | None = None,
    ) -> Turn:
        """Submit a message; the turn is durable when this returns.

        `files` are names of the session's artifacts: the model sees their current versions, and
        UnknownFileError names a missing one. `parts`, of ADK's content as JSON, are what the agent
        gets instead of the message's text. The same idempotency key with the same message returns
        the same turn; with another message it raises TurnConflictError. In a busy session the turn
        waits in order ("enqueue"), is refused with SessionBusyError ("reject"), or stops the
        running turn and goes first ("interrupt"). A missing session is created; without `create`
        it raises SessionNotFoundError. A session whose last turn has another number than `after`
        counts as busy. With `public_id`, a session of the same name but another public id counts
        as missing. `admit` is called before a new turn is accepted, and may refuse it; it is not
        called if the idempotency key already has a turn.
        """
        key = SessionKey(self.tenant, app, user, session)
        turn_options = dict(options or {})
        turn_input = input_of(message, await self._named(key, files) if files else (), parts)
        new = NewTurn(
            turn_input,
            turn_options,
            idempotency_key,
            run_at,
            time_limit,
            key_id,
            cost_limit,
            turn_limit,
        )
        try:
            submitted = await self._turns.submit(
                key, new, busy=busy, after=after, public_id=public_id, admit=admit
            )
        except SessionNotFoundError:
            if not create or public_id is not None:
                raise
            with suppress(SessionExistsError):  # another request created it first
                await self._store.create(key)
            submitted = await self._turns.submit(key, new, busy=busy, after=after)
        return self._dispatched(submitted)

    async def _named(self, key: SessionKey, files: Sequence[str]) -> Sequence[FileRef]:
        """The current versions of the files with these names."""
        versions = await self._files.newest(key, set(files))
        for name in files:
            if name not in versions:
                raise UnknownFileError(f"The session has no file {name!r}; upload it first.")
        return [versions[name] for name in dict.fromkeys(files)]

    async def answer(
        self,
        turn_id: str,
        answer: Answer | Sequence[Answer],
        *,
        state: Mapping[str, Any] | None = None,
        idempotency_key: str | None = None,
        key_id: str | None = None,
        cost_limit: float | None = None,
        turn_limit: int | None = None,
        admit: Admit | None = None,
    ) -> Turn:
        """Answer one or more calls that a turn waits for; a new turn continues the run.

        `state` is session state that is set together with the answers. A second answer to a call
        raises TurnConflictError. An answer that the agent cannot use is refused, and the question
        stays open. A credential is checked, exchanged and stored before the answer is accepted;
        the turn's input only refers to it. The question opens again if the new turn fails or is
        cancelled before it has stored the answer.
        """
        answers = [answer] if isinstance(answer, Answer) else list(answer)
        asking_turn = await self.get(turn_id)
        link_answer(asking_turn)
        events = await self._events_of(asking_turn)
        credential_answers = CredentialAnswers(
            self._store.credentials,
            asking_turn.session,
            await self._by_question(asking_turn, answers, events),
        )
        credential_answers.take(events)
        answers_by_id = credential_answers.answers
        turn_input = input_of(answers_by_id)
        new = _answering(
            asking_turn, turn_input, idempotency_key, key_id, cost_limit, turn_limit, state
        )
        first, *other_calls = (answer_by_id.call_id for answer_by_id in answers_by_id)
        check = partial(answer_content, answers_by_id, events)
        async with credential_answers.releasing():
            submitted = await self._turns.answer(
                self.tenant,
                turn_id,
                first,
                new,
                *other_calls,
                check=check,
                admit=credential_answers.admitting(admit),
                accepting=credential_answers.save,
            )
        return self._dispatched(submitted)

    async def answer_consent(
        self, state: str, response_url: str, *, admit: AdmitTurn | None = None
    ) -> Turn:
        """Answer the call that waits for an OAuth consent, with the address the browser came to.

        `state` names the call: CredentialNotFoundError if no call of this tenant has it. `admit`
        gets the turn that asks, and raises if no turn may continue it now.
        """
        request = await consent_request(self._store.credentials, state)
        if request.owner.tenant != self.tenant:
            raise CredentialNotFoundError
        asking_turn = await self.get(request.turn)
        call_id = asked_with_state(await self._events_of(asking_turn), state)
        return await self.answer(
            asking_turn.id,
            Answer(call_id, approved=True, payload={"response_url": response_url}),
            key_id=asking_turn.key_id,
            cost_limit=asking_turn.cost_limit,
            admit=None if admit is None else partial(admit, asking_turn),
        )

    async def required_credentials(self, turn: Turn) -> Sequence[CredentialRequest]:
        """The credentials that a turn waits for."""
        if not turn.waits_for or turn.state != "input_required":
            return ()
        stored, _ = await stored_turn(self._store, turn, full_history=False)
        requests = (event.request for event in stored if isinstance(event, CredentialRequired))
        return [request for request in requests if request.id in turn.waits_for]

    async def deliver(
        self,
        turn_id: str,
        call_id: str,
        result: Any,
        *,
        idempotency_key: str | None = None,
        key_id: str | None = None,
        cost_limit: float | None = None,
        turn_limit: int | None = None,
        admit: Admit | None = None,
    ) -> Turn:
        """Deliver the result of a long-running call; a new turn continues the run.

        `turn_id` is the turn that made the call, or the invocation that its tool ran in. A call has
        one result: delivering the same result again returns the same turn, another result raises
        TurnConflictError. SessionBusyError while the turn still runs: retry later.
        CallNotFoundError if no such call waits.
        """
        asking_turn = await self.get(turn_id)
        link_answer(asking_turn)
        events = await self._events_of(asking_turn)
        response = cast("JsonObject", result) if isinstance(result, dict) else {"result": result}
        turn_input = input_of([Answer(call_id, approved=True, payload=response)])
        return self._dispatched(
            await self._turns.answer(
                self.tenant,
                turn_id,
                call_id,
                _answering(
                    asking_turn, turn_input, idempotency_key, key_id, cost_limit, turn_limit
                ),
                repeats=True,
                check=partial(check_result, call_id, events),
                admit=admit,
            )
        )

    async def retry(self, turn_id: str, *, admit: Admit | None = None) -> Turn:
        """Submit the message of a failed or cancelled turn again, as a new turn (idempotent).

        The new turn has the time limit of the first one and counts towards the same API key.
        TurnConflictError if the turn has not failed or been cancelled, or if it was an answer.
        """
        turn = await self.get(turn_id)
        if turn.state not in _RETRIED:
            raise TurnConflictError(
                f"Turn {turn.id} is {turn.state}: only a failed or cancelled turn can be retried."
            )
        if turn.answers is not None or "answers" in turn.input:
            raise TurnConflictError(
                f"Turn {turn.id} was an answer, which cannot be retried. If its call still waits, "
                "answer it again; otherwise submit a new message."
            )
        new = NewTurn(
            turn.input,
            turn.options,
            RETRY_OF + turn.id,
            time_limit=turn.time_limit,
            key_id=turn.key_id,
            cost_limit=turn.cost_limit,
        )
        return self._dispatched(
            await self._turns.submit(turn.session, new, pk=turn.session_pk, admit=admit)
        )

    async def cancel(self, turn_id: str) -> Turn:
        """Cancel a turn that has not started, ask a running one to stop; ended turns stay as is."""
        return await cancel_turn(self._turns, self._engine, self.tenant, turn_id)

    async def is_accepted(self, session: SessionKey, idempotency_key: str | None) -> bool:
        """Whether a turn of the session has this idempotency key."""
        return await self._turns.is_accepted(session, idempotency_key)

    async def get(self, turn_id: str) -> Turn:
        """The current state of a turn; TurnNotFoundError if no turn has that id."""
        return await self._turns.get(self.tenant, turn_id)

    async def of_session(
        self,
        app: str,
        *,
        user: str = "user",
        session: str = "default",
        before: int | None = None,
        limit: int = 50,
    ) -> Sequence[Turn]:
        """A page of a session's turns, newest first; `before` is an exclusive upper number."""
        key = SessionKey(self.tenant, app, user, session)
        return await self._turns.of_session(key, before=before, limit=limit)

    async def list(
        self, wanted: TurnFilter | None = None, *, cursor: str | None = None, limit: int = 50
    ) -> Page[ListedTurn]:
        """A page of the tenant's turns, newest first; `cursor` is `next` of the previous page."""
        return await list_turns(
            self._store.database, self.tenant, wanted or TurnFilter(), cursor=cursor, limit=limit
        )

    async def answer_text(self, turn: Turn) -> str | None:
        """The agent's final text; None if it has none, or the turn has not completed.

        None also after the message was undone by a rewind.
        """
        if turn.state != "completed" or turn.session.tenant != self.tenant:
            return None
        return await read_last_text(self._store.database, turn)

    async def wait(self, turn: str | Turn) -> Turn:
        """Wait until the turn has ended or waits for a person, and return it.

        `turn` as for `events`.
        """
        turn_id = _id_of(turn)
        with self._wakes.subscribe_to_log(turn_id) as subscription:
            current = self._unended(turn) or await self.get(turn_id)
            if current.ended is not None:
                return current
            cursor = LogCursor(Position(current.last_event))
            async for _ in self._events(subscription, LogPage(current, ()), cursor):
                pass
        return subscription.closed or await self.get(turn_id)

    async def events(
        self, turn: str | Turn, *, after: int | Position = 0
    ) -> AsyncGenerator[LoggedEvent]:
        """Stream the events of a turn after a number, up to the turn's end.

        `turn` is its id, or the turn as `submit` or `get` returned it, which is not read again.
        A reader that remembers the `position` of its last event can resume there, in any process.
        Where a bus carries text, a delta may come in parts before it is written.
        """
        cursor = LogCursor(after if isinstance(after, Position) else Position(after))
        after_number = cursor.position.number
        with self._wakes.subscribe_to_log(_id_of(turn)) as subscription:
            if (unended := self._unended(turn)) is not None:
                page = await self.log.read_on(unended, after_number)
            else:
                page = await self._page(_id_of(turn), after_number)
            async with aclosing(self._events(subscription, page, cursor)) as events:
                async for event in events:
                    yield event

    async def _events(
        self, subscription: LogSubscription, page: LogPage, cursor: LogCursor
    ) -> AsyncGenerator[LoggedEvent]:
        """The events of a page and those that follow, up to the turn's end.

        Events that arrive directly are not read from the log: then it is polled rarely.
        """
        poll_after = _FIRST_POLL
        while True:
            for event in page.events:
                if (unread := cursor.read(event)) is not None:
                    yield unread
            if page.is_end:
                return
            after = cursor.position.number
            if page.is_full:
                page = await self.log.read_on(page.turn, after)
            elif not await self._is_woken(subscription, page.turn.id, after, poll_after):
                poll_after *= 2
                page = await self._page(page.turn.id, after)
            elif (delivered := subscription.take(after)) is None:
                page = await self.log.read_on(page.turn, after)
            else:
                poll_after = self._wakes.poll_interval
                page = LogPage(page.turn, delivered)

    async def _is_woken(
        self, subscription: LogSubscription, turn_id: str, after: int, poll_after: float
    ) -> bool:
        """Wait for a wake-up; False when the log must be polled.

        A new reader polls for itself, a few times; later, one poll serves all readers.
        """
        if poll_after < self._wakes.poll_interval:
            return await subscription.wait(poll_after)
        return await self._poller.wait(subscription, turn_id, after)

    def _unended(self, turn: str | Turn) -> Turn | None:
        """The turn, if it is known and had not ended when it was read."""
        if isinstance(turn, str) or turn.session.tenant != self.tenant:
            return None
        return turn if turn.ended is None else None

    async def _page(self, turn_id: str, after: int) -> LogPage:
        page = await self.log.read(self.tenant, turn_id, after=after)
        turn = page.turn
        if turn.ended is not None and not page.events and after < turn.last_event:
            return LogPage(turn, await self._from_history(turn, after))
        return page

    async def _from_history(self, turn: Turn, after: int) -> Sequence[LoggedEvent]:
        """Events that replace a trimmed log: fewer, numbered so that the last keeps its number."""
        stored, _ = await stored_turn(self._store, turn, full_history=True)
        first = max(turn.last_event - len(stored), 1)
        ended = turn.ended or turn.created
        events = [
            LoggedEvent(number, event.type, event.data(), 0, ended)
            for number, event in enumerate(stored[: turn.last_event - 1], first)
        ]
        end_type = "input_required" if turn.waits_for else turn.state
        end = LoggedEvent(turn.last_event, end_type, _end_data(turn), 0, ended)
        return [event for event in [*events, end] if event.number > after]

    async def _events_of(self, turn: Turn) -> History:
        """The events of a turn's session, always including those of calls that wait."""
        session = await load_session(self._store, turn.session)
        return session.events if session else []

    async def _by_question(
        self, asking_turn: Turn, answers: Sequence[Answer], events: History
    ) -> list[Answer]:
        """The answers, each with the id of its question."""
        waits = await self._turns.waited_calls(asking_turn)
        calls = [question_id(answer.call_id, waits, events) for answer in answers]
        if not calls or len(set(calls)) < len(calls):
            raise TurnConflictError("Answer at least one call, and each once.")
        return [
            Answer(call, answer.approved, answer.payload)
            for call, answer in zip(calls, answers, strict=True)
        ]

    def _dispatched(self, submitted: Submitted) -> Turn:
        if submitted.wakes or submitted.turn.state == "scheduled":
            self._engine.dispatch([submitted.turn.head])
        if submitted.interrupted is not None:
            self._wakes.notify(STOP)
        return submitted.turn


def _id_of(turn: str | Turn) -> str:
    return turn if isinstance(turn, str) else turn.id


def _answering(
    asking_turn: Turn,
    turn_input: JsonObject,
    idempotency_key: str | None,
    key_id: str | None,
    cost_limit: float | None,
    turn_limit: int | None,
    state: Mapping[str, Any] | None = None,
) -> NewTurn:
    """A turn that answers another one, with that turn's options and time limit.

    The other turn's option `state` is left out: it is already set, and the agent may have changed
    it since.
    """
    options = {name: value for name, value in asking_turn.options.items() if name != "state"}
    if state:
        options["state"] = dict(state)
    return NewTurn(
        turn_input,
        options,
        idempotency_key,
        time_limit=asking_turn.time_limit,
        key_id=key_id,
        cost_limit=cost_limit,
        turn_limit=turn_limit,
    )


def _end_data(turn: Turn) -> dict[str, Any]:
    fields = {"usage": turn.usage, "error": turn.error, "calls": list(turn.waits_for) or None}
    return {name: value for name, value in fields.items() if value is not None}
