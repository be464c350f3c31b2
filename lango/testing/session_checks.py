"""Checks of sessions and their state: create, get, list, delete."""

from __future__ import annotations

from typing import Any, Final

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.sessions.base_session_service import GetSessionConfig

from lango.testing.checks import APP, SESSION, USER, Check, Subject, check, equal, raises, true

_VALUES: Final[dict[str, Any]] = {
    "text": "123",
    "number": 123,
    "float": 1.0,
    "large": 1e22,
    "yes": True,
    "nothing": None,
    "empty": {},
    "list": [1, "1", [2.5, None], {"k": "v"}],
    "words": "שלום 👍\n",
    "a.b": {"c.d": 1},
}


@check()
async def create_makes_an_id(subject: Subject) -> None:
    """A session created without an id gets a unique one."""
    first, second = await subject.create(None), await subject.create(None)
    true(first.id and second.id and first.id != second.id, "two sessions share an id")
    equal((await subject.get(first.id)).id, first.id, "the id of the loaded session")


@check()
async def create_keeps_the_id(subject: Subject) -> None:
    """A given id is used, and the new session is empty and has its names."""
    session = await subject.create(SESSION)
    names = (session.id, session.app_name, session.user_id, session.events, session.state)
    equal(names, (SESSION, APP, USER, [], {}), "the new session")
    loaded = await subject.get()
    names = (loaded.id, loaded.app_name, loaded.user_id, loaded.events, loaded.state)
    equal(names, (SESSION, APP, USER, [], {}), "the loaded session")
    true(loaded.last_update_time > 0, "last_update_time is not set")


@check()
async def create_refuses_an_id_in_use(subject: Subject) -> None:
    """An existing id raises AlreadyExistsError, and its session stays unchanged."""
    session = await subject.create(state={"topic": "first"})
    await subject.say(session, "hello")
    doing = subject.create(state={"topic": "second", "user:name": "x"})
    await raises(AlreadyExistsError, doing, "a second session with the same id")
    loaded = await subject.get()
    equal(loaded.state.get("topic"), "first", "the state of the first session")
    equal(await subject.texts(), ["hello"], "the texts of the first session")


@check()
async def ids_belong_to_a_user_and_an_app(subject: Subject) -> None:
    """The same session id under another user or app is another session."""
    for app, user in ((APP, USER), (APP, "other"), ("other", USER)):
        session = await subject.create(app=app, user=user)
        await subject.say(session, f"{app} {user}")
    for app, user in ((APP, USER), (APP, "other"), ("other", USER)):
        equal(await subject.texts(app=app, user=user), [f"{app} {user}"], f"{app}/{user}")


@check()
async def create_splits_the_state(subject: Subject) -> None:
    """Initial state goes to app, user and session by its prefix; temp: is dropped."""
    state = {"topic": "tea", "app:theme": "dark", "user:name": "Ada", "temp:scratch": 1}
    session = await subject.create(state=state)
    stored = {key: value for key, value in state.items() if key != "temp:scratch"}
    equal(session.state, stored, "the state of the new session")
    equal((await subject.get()).state, stored, "the loaded state")
    await subject.create("second")
    shared = {"app:theme": "dark", "user:name": "Ada"}
    equal((await subject.get("second")).state, shared, "a second session of the user")
    await subject.create("third", user="other")
    equal((await subject.get("third", user="other")).state, {"app:theme": "dark"}, "another user's")
    await subject.create("fourth", app="other")
    equal((await subject.get("fourth", app="other")).state, {}, "another app's session")


@check()
async def state_values_keep_their_kind(subject: Subject) -> None:
    """State values keep their types, at creation and by an event, in every scope."""
    scoped = {f"{scope}{k}": v for scope in ("", "app:", "user:") for k, v in _VALUES.items()}
    session = await subject.create(state=scoped)
    equal((await subject.get()).state, scoped, "values given at creation")
    changed = {f"{key}-2": value for key, value in scoped.items()}
    await subject.service.append_event(session, subject.event("hello", state=changed))
    equal((await subject.get()).state, {**scoped, **changed}, "values given by an event")


@check()
async def get_of_a_missing_session(subject: Subject) -> None:
    """Getting a session that does not exist under that app and user returns None."""
    await subject.create()
    true(await subject.find(user="other") is None, "another user's session appeared")
    true(await subject.find(app="other") is None, "another app's session appeared")
    true(await subject.find("other") is None, "a session never made appeared")


@check()
async def get_with_num_recent_events(subject: Subject) -> None:
    """num_recent_events gives exactly the newest n, in order; 0 gives none; state is complete."""
    session = await subject.create()
    for number in range(6):
        await subject.say(session, f"text {number}", state={f"key{number}": number})
    everything = [f"text {number}" for number in range(6)]
    for n in (0, 1, 3, 6, 100):
        config = GetSessionConfig(num_recent_events=n)
        expected = everything[max(0, 6 - n) :]
        equal(await subject.texts(config=config), expected, f"the newest {n}")
        state = (await subject.get(config=config)).state
        equal(len(state), 6, f"the number of state keys with the newest {n}")


@check()
async def get_with_after_timestamp(subject: Subject) -> None:
    """after_timestamp gives the events from that time on, alone and with num_recent_events."""
    session = await subject.create()
    for number in range(6):
        await subject.say(session, f"text {number}", timestamp=1000.0 + number)
    for after, expected in ((0.0, 6), (1003.0, 3), (1003.5, 2), (2000.0, 0)):
        config = GetSessionConfig(after_timestamp=after)
        equal(len(await subject.texts(config=config)), expected, f"events after {after}")
    config = GetSessionConfig(after_timestamp=1001.0, num_recent_events=2)
    equal(await subject.texts(config=config), ["text 4", "text 5"], "both limits")


@check()
async def a_loaded_session_is_a_copy(subject: Subject) -> None:
    """Changes to a loaded session without an append affect only that object."""
    session = await subject.create(state={"list": [1]})
    await subject.say(session, "hello")
    loaded = await subject.get()
    loaded.state["list"].append(2)
    loaded.state["extra"] = True
    loaded.events.clear()
    reloaded = await subject.get()
    equal(reloaded.state, {"list": [1]}, "the state loaded again")
    equal(len(reloaded.events), 1, "the number of events loaded again")


@check()
async def list_is_oldest_first(subject: Subject) -> None:
    """Sessions are listed by last update, oldest first, without events."""
    sessions = [await subject.create(name, state={"n": name}) for name in ("one", "two", "three")]
    await subject.say(sessions[0], "hello", timestamp=sessions[2].last_update_time + 5)
    listed = (await subject.service.list_sessions(app_name=APP, user_id=USER)).sessions
    equal([session.id for session in listed], ["two", "three", "one"], "the order")
    equal([session.events for session in listed], [[], [], []], "the events in a list")


@check()
async def list_by_user_and_for_all(subject: Subject) -> None:
    """A list contains the sessions of one user, or of all users of one app."""
    for app, user, name in ((APP, "a", "1"), (APP, "b", "1"), (APP, "b", "2"), ("other", "a", "3")):
        await subject.create(name, app=app, user=user)

    async def listed(app: str, user: str | None) -> set[tuple[str, str]]:
        response = await subject.service.list_sessions(app_name=app, user_id=user)
        return {(session.user_id, session.id) for session in response.sessions}

    equal(await listed(APP, "a"), {("a", "1")}, "one user's sessions")
    equal(await listed(APP, "b"), {("b", "1"), ("b", "2")}, "another's")
    equal(await listed(APP, None), {("a", "1"), ("b", "1"), ("b", "2")}, "all users'")
    equal(await listed("none", None), set(), "an unknown app's")
    equal(await listed(APP, "none"), set(), "an unknown user's")


@check()
async def delete_takes_everything_of_the_session(subject: Subject) -> None:
    """A delete removes the session's events and state; shared state and other sessions stay."""
    session = await subject.create(state={"topic": "tea", "app:theme": "dark", "user:name": "Ada"})
    await subject.say(session, "hello")
    other = await subject.create("other")
    await subject.say(other, "still here")
    await subject.service.delete_session(app_name=APP, user_id=USER, session_id=SESSION)
    true(await subject.find() is None, "the deleted session is still there")
    equal(await subject.texts("other"), ["still here"], "another session's texts")
    await subject.create()
    recreated = await subject.get()
    equal(recreated.events, [], "the events of a new session with the old id")
    shared = {"app:theme": "dark", "user:name": "Ada"}
    equal(recreated.state, shared, "the state of a new session with the old id")


@check()
async def delete_twice(subject: Subject) -> None:
    """Deleting a missing session raises no error and changes nothing."""
    await subject.create()
    for name in ("missing", SESSION, SESSION):
        await subject.service.delete_session(app_name=APP, user_id=USER, session_id=name)
    for wrong_part in ({"user_id": "other"}, {"app_name": "other"}):
        await subject.create("kept")
        names = {"app_name": APP, "user_id": USER, "session_id": "kept", **wrong_part}
        await subject.service.delete_session(**names)
        true(await subject.find("kept"), f"a delete for {wrong_part} took another's session")
        await subject.service.delete_session(app_name=APP, user_id=USER, session_id="kept")


@check()
async def append_to_a_deleted_session(subject: Subject) -> None:
    """An append to a deleted session raises SessionNotFoundError and changes no state."""
    session = await subject.create()
    await subject.say(session, "hello")
    await subject.service.delete_session(app_name=APP, user_id=USER, session_id=SESSION)
    doing = subject.say(session, "too late", state={"user:name": "refused"})
    await raises(SessionNotFoundError, doing, "an append to a deleted session")
    user_state = await subject.service.get_user_state(app_name=APP, user_id=USER)
    equal(user_state, {}, "the user state after a refused append")


@check()
async def a_deleted_session_is_never_another(subject: Subject) -> None:
    """The object of a deleted session does not write into a session created after it."""
    session = await subject.create()
    await subject.service.delete_session(app_name=APP, user_id=USER, session_id=SESSION)
    await subject.create("new", user="other")
    await raises(
        SessionNotFoundError, subject.say(session, "too late"), "an append to a deleted session"
    )
    equal(await subject.texts("new", user="other"), [], "the texts of another user's session")


@check()
async def user_state_without_a_session(subject: Subject) -> None:
    """get_user_state returns the user's keys without prefix; {} for an unknown user."""
    session = await subject.create(state={"user:name": "Ada", "topic": "tea", "app:theme": "dark"})
    await subject.say(session, "hello", state={"user:level": 3, "user:name": "Grace"})
    state = await subject.service.get_user_state(app_name=APP, user_id=USER)
    equal(state, {"name": "Grace", "level": 3}, "the user's state")
    for app, user in ((APP, "other"), ("other", USER)):
        state = await subject.service.get_user_state(app_name=app, user_id=user)
        equal(state, {}, f"the state of {app}/{user}")


@check("tenants")
async def tenants_share_nothing(subject: Subject) -> None:
    """State, lists and sessions of another tenant with the same names are not visible."""
    state = {"topic": subject.tenant, "app:theme": subject.tenant, "user:name": subject.tenant}
    session = await subject.create(state=state)
    await subject.say(session, "hello")
    equal((await subject.get()).state, state, "the state")
    listed = (await subject.service.list_sessions(app_name=APP)).sessions
    equal([summary.id for summary in listed], [SESSION], "the list")
    session_id = f"only-{subject.tenant}"
    await subject.create(session_id)
    async with subject.factory(f"{subject.tenant}-stranger") as stranger:
        session_of_other = await stranger.get_session(
            app_name=APP, user_id=USER, session_id=session_id
        )
        true(session_of_other is None, "a stranger finds the session")
        equal((await stranger.list_sessions(app_name=APP)).sessions, [], "a stranger's list")
        equal(await stranger.get_user_state(app_name=APP, user_id=USER), {}, "a stranger's state")
        await stranger.delete_session(app_name=APP, user_id=USER, session_id=session_id)
        doing = stranger.append_event(await subject.get(session_id), subject.event("hello"))
        await raises(SessionNotFoundError, doing, "a stranger's append")
    true(await subject.find(session_id), "a stranger deleted the session")


@check("shared")
async def two_instances_see_each_other(subject: Subject) -> None:
    """One instance immediately reads what another wrote, including state and deletions."""
    session = await subject.create(state={"app:theme": "dark"})
    async with subject.another() as second:
        other_subject = Subject(second, subject.tenant, subject.factory)
        await other_subject.say(
            await other_subject.get(), "second", id="second", state={"user:name": "Ada"}
        )
        await subject.say(session, "first")
        equal(await other_subject.texts(), ["second", "first"], "texts of both instances")
        equal((await subject.get()).state, {"app:theme": "dark", "user:name": "Ada"}, "the state")
        await subject.service.delete_session(app_name=APP, user_id=USER, session_id=SESSION)
        true(await other_subject.find() is None, "the second sees a deleted session")


SESSION_CHECKS: Final[tuple[Check, ...]] = tuple(
    value for value in list(globals().values()) if isinstance(value, Check)
)
