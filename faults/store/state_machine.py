"""G12: a hypothesis state machine of the session service against the model in plain Python."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, ClassVar, Final, TypeVar, cast

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.session import Session
from google.genai import types
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from faults.harness import Guarantee, Outcome, Run, new_tenant, whole
from faults.machines import on_both_databases, run_machine
from faults.store.session_model import Model, ModelSession
from faults.store.windows import window_problem
from lango.adk.sessions.normalise import normalise
from lango.adk.sessions.service import SessionServiceAdapter
from lango.errors import InvalidIdError
from lango.testing.events import adk_events, ordinary_events
from lango.testing.same import differences
from lango.testing.values import plain_json, weighted

T = TypeVar("T")

STEPS: Final = 50
BUDGET: Final = 150
APPS: Final = st.sampled_from(["app", "other"])
USERS: Final = st.sampled_from(["ada", "bob"])
IDS: Final = st.sampled_from(["one", "two", "three"])
STATES: Final = st.dictionaries(
    st.sampled_from(["topic", "count", "user:name", "app:theme", "temp:scratch"]),
    plain_json(),
    max_size=3,
)
EVENTS: Final = weighted((9, ordinary_events()), (1, adk_events()))
CONFIGS: Final = st.builds(
    GetSessionConfig,
    num_recent_events=st.sampled_from([None, 0, 1, 3, 100]),
    after_timestamp=st.sampled_from([None, 0.0, 1.75e9, 2e9]),
)


def same(expected: object, actual: object) -> None:
    """Raise with what differs."""
    found = differences(expected, actual)
    assert not found, "; ".join(found[:5])


def _is_refused(event: Event) -> bool:
    """Whether an append must raise InvalidIdError, even if the session is deleted."""
    if event.partial:
        return False
    try:
        normalise(event)
    except InvalidIdError:
        return True
    return False


@dataclass
class HeldSession:
    """A session object in use, perhaps stale after another append."""

    session: Session
    model: ModelSession

    def __repr__(self) -> str:
        return f"{self.model} held with {len(self.session.events)} events"


class Sessions(RuleBasedStateMachine):
    """Every operation on two services of one tenant, each step compared with the model."""

    url: ClassVar[str] = ""
    runner: ClassVar[asyncio.Runner]
    services: ClassVar[list[SessionServiceAdapter]] = []

    def __init__(self) -> None:
        super().__init__()
        self.model = Model()
        self.held: list[HeldSession] = []
        self.turn = 0
        self.sent: list[tuple[HeldSession, Event]] = []
        tenant = new_tenant()
        for service in self.services:
            service.tenant = tenant

    def run(self, doing: Coroutine[Any, Any, T]) -> T:
        return self.runner.run(doing)

    def pick(self, data: st.DataObject) -> HeldSession:
        return self.held[data.draw(st.integers(0, len(self.held) - 1), label="session")]

    def service(self, data: st.DataObject) -> SessionServiceAdapter:
        return self.services[data.draw(st.integers(0, 1), label="service")]

    # --- sessions ---------------------------------------------------------------------------

    @rule(app=APPS, user=USERS, session_id=IDS, state=STATES, data=st.data())
    def create(self, app: str, user: str, session_id: str, state: Any, data: st.DataObject) -> None:
        try:
            session = self.run(
                self.service(data).create_session(
                    app_name=app, user_id=user, session_id=session_id, state=state
                )
            )
        except AlreadyExistsError:
            assert (app, user, session_id) in self.model.sessions
            return
        assert (app, user, session_id) not in self.model.sessions
        model = self.model.create(app, user, session_id, state)
        model.updated = session.last_update_time
        same(self.model.state(model), session.state)
        self.held.append(HeldSession(session, model))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        # One in four: sessions must live long enough to have history.
        if data.draw(st.integers(0, 3)):
            return
        held = self.pick(data)
        key = (held.model.app, held.model.user, held.model.id)
        names = dict(zip(("app_name", "user_id", "session_id"), key, strict=True))
        self.run(self.service(data).delete_session(**names))
        if self.model.sessions.get(key) is held.model:
            del self.model.sessions[key]
        else:  # the object's session was deleted before; another of the same name may exist
            self.model.sessions.pop(key, None)
        assert self._load(held.model, self.services[1]) is None

    # --- events -----------------------------------------------------------------------------

    @precondition(lambda self: self.held)
    @rule(event=EVENTS, new_turn=st.integers(0, 2), data=st.data())
    def append(self, event: Event, new_turn: int, data: st.DataObject) -> None:
        self.turn += not new_turn
        event.invocation_id = f"turn-{self.turn}"
        self._append(self.pick(data), event, self.service(data))

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def append_again(self, data: st.DataObject) -> None:
        """The same event once more, or another one with its id."""
        number = data.draw(st.integers(0, len(self.sent) - 1), label="sent before")
        held, event = self.sent[number]
        repeated = event.model_copy(deep=True)
        if data.draw(st.booleans()):
            repeated.content = types.Content(role="user", parts=[types.Part(text="changed")])
        self._append(held, repeated, self.service(data))

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        held = self.pick(data)
        fresh = self._load(held.model, self.services[0])
        if fresh is None:
            return
        turns = sorted({event.invocation_id for event in held.model.events} - {""})
        if not turns:
            return
        self.turn += 1
        actions = EventActions(rewind_before_invocation_id=data.draw(st.sampled_from(turns)))
        event = Event(invocation_id=f"turn-{self.turn}", author="user", actions=actions)
        self._append(HeldSession(fresh, held.model), event, self.service(data))

    def _append(self, held: HeldSession, event: Event, service: SessionServiceAdapter) -> None:
        key = (held.model.app, held.model.user, held.model.id)
        alive = self.model.sessions.get(key) is held.model
        sent = event.model_copy()
        before = [event.id for event in held.session.events]
        refused = _is_refused(sent)
        changed = alive and not refused and self.model.append(held.model, sent)
        try:
            self.run(service.append_event(held.session, event))
        except InvalidIdError:
            assert refused
        except SessionNotFoundError:
            assert not alive
        else:
            assert not refused
            self._check_object(held, sent, before, changed=changed)
            self.sent = [*self.sent[-5:], (held, sent)]

    def _check_object(
        self, held: HeldSession, event: Event, before: list[str], *, changed: bool
    ) -> None:
        """The session object shows the appended event immediately."""
        shown = [event.id for event in held.session.events]
        kept = changed and held.model.rows[-1].is_event
        if kept:
            assert shown == [*before, event.id]
        elif changed:
            assert shown == before
        else:  # a repeated event, which this object may not have known
            assert shown in (before, [*before, event.id])

    # --- reading ----------------------------------------------------------------------------

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def get_whole(self, data: st.DataObject) -> None:
        held = self.pick(data)
        loaded = self._load(held.model, self.service(data))
        if loaded is not None:
            same(held.model.events, loaded.events)
            self.held = [*self.held[-8:], HeldSession(loaded, held.model)]

    @precondition(lambda self: self.held)
    @rule(config=CONFIGS, data=st.data())
    def get_configured(self, config: GetSessionConfig, data: st.DataObject) -> None:
        held = self.pick(data)
        loaded = self._load(held.model, self.service(data), config)
        if loaded is not None and config != GetSessionConfig():
            same(held.model.configured(config), loaded.events)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def get_windowed(self, data: st.DataObject) -> None:
        held = self.pick(data)
        loaded = self._load(held.model, self.services[2])
        if loaded is not None:
            problem = window_problem(held.model, loaded.events, BUDGET)
            assert not problem, problem

    def _load(
        self,
        model: ModelSession,
        service: SessionServiceAdapter,
        config: GetSessionConfig | None = None,
    ) -> Session | None:
        """The session; None, as it must be, if the model's is deleted. State is always whole."""
        key = (model.app, model.user, model.id)
        loaded = self.run(
            service.get_session(
                app_name=model.app, user_id=model.user, session_id=model.id, config=config
            )
        )
        there = self.model.sessions.get(key)
        assert (loaded is None) == (there is None)
        if loaded is None or there is not model:
            return None
        same(self.model.state(model), loaded.state)
        return loaded

    @rule(app=APPS, user=st.none() | USERS, data=st.data())
    def listing(self, app: str, user: str | None, data: st.DataObject) -> None:
        listed = self.run(self.service(data).list_sessions(app_name=app, user_id=user)).sessions
        expected = self.model.listed(app, user)
        assert [(s.user_id, s.id) for s in listed] == [(s.user, s.id) for s in expected]
        for session, model in zip(listed, expected, strict=True):
            assert session.events == []
            same(self.model.state(model), session.state)

    @rule(app=APPS, user=USERS, data=st.data())
    def paging(self, app: str, user: str, data: st.DataObject) -> None:
        """The paged listing shows every session once, with the right counts."""
        service, cursor = self.service(data), cast("str | None", None)
        seen: dict[str, int] = {}
        while True:
            names: dict[str, Any] = {"app_name": app, "user_id": user, "cursor": cursor, "limit": 1}
            page = self.run(service.sessions(**names))
            for summary in page.items:
                assert summary.id not in seen
                seen[summary.id] = summary.message_count
            if (cursor := page.next_cursor) is None:
                break
        expected = self.model.listed(app, user)
        assert seen == {s.id: sum(row.is_message for row in s.live) for s in expected}

    @rule(app=APPS, user=USERS, data=st.data())
    def user_state(self, app: str, user: str, data: st.DataObject) -> None:
        state = self.run(self.service(data).get_user_state(app_name=app, user_id=user))
        same(self.model.user_states.get((app, user), {}), state)


async def _open(url: str) -> list[SessionServiceAdapter]:
    """Two services that load whole sessions, and one that cuts them."""
    windowed = SessionServiceAdapter(url, token_budget=BUDGET)
    services = [whole(url, ""), whole(url, ""), windowed]
    for service in services:
        await service.store.open()
    return services


async def _close(services: list[SessionServiceAdapter]) -> None:
    for service in services:
        await service.close()


def on_one_database(url: str, runs: int, seed_value: int) -> None:
    """Run the machine; raise the first failure, after printing the steps to it."""
    with asyncio.Runner() as runner:
        services = runner.run(_open(url))
        try:
            attributes: dict[str, Any] = {"url": url, "runner": runner, "services": services}
            run_machine(Sessions, attributes, runs=runs, steps=STEPS, seed_value=seed_value)
        finally:
            runner.run(_close(services))


def same_as_the_model(run: Run) -> Outcome:
    """The machine on both databases."""
    # PostgreSQL gets a twentieth of the runs, 50 at least if there are so many.
    runs = {"sqlite": run.count, "postgresql": max(run.count // 20, min(run.count, 50))}
    return on_both_databases(run, runs, STEPS, on_one_database)


G12: Final = Guarantee(
    "G12",
    "the session service is the model",
    full=10_000,
    ci=500,
    run=same_as_the_model,
)
