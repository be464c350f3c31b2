"""Every ADK route belongs to the user of its credential."""

from typing import Any, cast

import httpx
import pytest
from fastapi.routing import APIRoute

from lango.server.adk import artifacts, runs, sessions
from lango.server.auth.callers import Caller as Known
from tests.server.adk.twins import Caller
from tests.server.served_apps import CHAT, ServedApp, live

OPEN = {"adk_list_apps", "adk_version"}
SHOWS_NOTHING = {
    "adk_create_session",
    "adk_delete_artifact",
    "adk_delete_session",
    "adk_list_artifact_metadata",
    "adk_list_artifact_versions",
    "adk_list_artifacts",
    "adk_list_sessions",
}
"""Routes that, as in ADK, are no 404 for a session that does not exist."""
BODIES: dict[str, dict[str, Any]] = {
    "adk_create_session": {"sessionId": "s2"},
    "adk_update_session": {"stateDelta": {"a": 1}},
    "adk_save_artifact": {"filename": "note.txt", "artifact": {"text": "theirs"}},
}


ROUTES = {
    route.name: route
    for router in (sessions.router, artifacts.router, runs.router)
    for route in router.routes
    if isinstance(route, APIRoute)
}


async def call(web: httpx.AsyncClient, route: APIRoute, app: str) -> httpx.Response:
    """Call a route for ann's session."""
    path = route.path.replace(":path", "").format(
        app_name=app, user_id="ann", session_id="s1", version_id="0", artifact_name="note.txt"
    )
    body = BODIES.get(route.name)
    if route.name in ("adk_run", "adk_run_sse"):
        body = Caller(web, app).body("Hello")
    (method,) = cast("set[str]", route.methods)
    return await web.request(method, f"/adk{path}", json=body)


def test_all_routes_are_known() -> None:
    assert len(ROUTES) == 18


async def begun(web: httpx.AsyncClient, app: str) -> dict[str, Any]:
    """Ann's session, with an artifact."""
    caller = Caller(web, app)
    assert (await caller.create(state={"secret": "ann's"})).status_code == 200
    note = {"filename": "note.txt", "artifact": {"text": "ann's"}}
    saved = await web.post(f"{caller.sessions}/s1/artifacts", json=note)
    assert saved.status_code == 200, saved.text
    return await caller.get()


@pytest.mark.parametrize("stranger", ["bob", "other-ann"])
async def test_strangers_find_nothing(adk_served: ServedApp, stranger: str) -> None:
    app = adk_served.agent
    async with (
        live(adk_served) as served,
        served.client(root="/adk/") as ann,
        served.client(stranger) as other,
    ):
        before = await begun(ann, app)
        for name, route in ROUTES.items():
            is_other_tenant = stranger == "other-ann"
            if is_other_tenant and name == "adk_create_session_with_id":
                continue  # creates a session of that name in the other tenant
            answer = await call(other, route, app)
            finds = 200 if name in OPEN or (is_other_tenant and name in SHOWS_NOTHING) else 404
            assert answer.status_code == finds, (name, answer.text)
            assert "ann's" not in answer.text
            assert finds == 200 or answer.json().keys() == {"detail"}
        assert await Caller(ann, app).get() == before
        loaded = await ann.get(f"apps/{app}/users/ann/sessions/s1/artifacts/note.txt")
        assert loaded.json() == {"text": "ann's"}


async def test_every_route_needs_a_credential(adk_served: ServedApp) -> None:
    async with live(adk_served) as served, served.client("unknown") as other:
        for route in ROUTES.values():
            answer = await call(other, route, adk_served.agent)
            assert answer.status_code == 401, route.name
            assert answer.json().keys() == {"detail"}
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_key_of_a_backend_acts_for_the_user_in_the_path(adk_served: ServedApp) -> None:
    tenant, app = adk_served.tenant, adk_served.agent
    adk_served.callers["desk"] = Known(tenant, None, CHAT | {"act_as"}, "key_desk")
    async with live(adk_served) as served, served.client("desk", root="/adk/") as client:
        await begun(client, app)
        assert (await client.get(f"apps/{app}/users/bob/sessions")).json() == []
        assert (await client.get("apps/nowhere/users/bob/sessions")).status_code == 404
    async with live(adk_served) as served, served.client("ann", root="/adk/") as ann:
        assert (await Caller(ann, app).get())["state"] == {"secret": "ann's"}


async def test_only_an_admin_sees_and_changes_state_of_the_app(adk_served: ServedApp) -> None:
    app = adk_served.agent
    adk_served.callers["boss"] = Known(adk_served.tenant, "ann", CHAT | {"admin"}, "key_boss")
    async with (
        live(adk_served, adk_served.worker()) as served,
        served.client("boss", root="/adk/") as boss,
        served.client("ann", root="/adk/") as ann,
    ):
        shared = {"app:motto": "Hi"}
        made = await Caller(boss, app).create(state=shared | {"own": 1})
        assert made.json()["state"] == shared | {"own": 1}
        caller = Caller(ann, app)
        assert (await caller.get())["state"] == {"own": 1}
        changed = {"stateDelta": {"app:motto": "Bye"}}
        refused = [
            await caller.create(sessionId="s2", state=shared),
            await ann.patch(f"{caller.sessions}/s1", json=changed),
            await caller.run("Hello", **changed),
            await ann.post("run_sse", json=caller.body("Hello", **changed)),
        ]
        assert [answer.status_code for answer in refused] == [403] * 4
        assert (await Caller(boss, app).run("Hello", **changed)).status_code == 200
        own, all_of_it = (await caller.get()), (await Caller(boss, app).get())
        assert all_of_it["state"]["app:motto"] == "Bye"
        deltas = [event["actions"]["stateDelta"] for event in (own, all_of_it)[0]["events"]]
        assert not any(deltas)
        assert all_of_it["events"][0]["actions"]["stateDelta"] == {"app:motto": "Bye"}


async def test_an_admin_that_names_another_user_sees_what_that_user_sees(
    adk_sqlite_served: ServedApp,
) -> None:
    app, scopes = adk_sqlite_served.agent, CHAT | {"admin", "act_as"}
    adk_sqlite_served.callers["desk"] = Known(adk_sqlite_served.tenant, "desk", scopes, "key_desk")
    shared = {"app:motto": "Hi"}
    async with adk_sqlite_served.client("desk") as client:
        client.base_url = "http://localhost/adk/"
        own, other = Caller(client, app, user="desk"), Caller(client, app)
        assert (await own.create(state=shared)).json()["state"] == shared
        assert (await other.create(state=shared)).status_code == 403
        assert (await other.create()).json()["state"] == {}
        change = {"stateDelta": {"app:motto": "Bye"}}
        assert (await client.patch(f"{other.sessions}/s1", json=change)).status_code == 403
        assert (await other.run("Hello", **change)).status_code == 403
