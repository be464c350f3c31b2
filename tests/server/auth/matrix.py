"""The tenant matrix: every operation, called in every way, on what exists and on what does not."""

from dataclasses import dataclass
from typing import Any, Literal

import httpx
import sqlalchemy as sa

from lango.core.ids import new_id
from lango.server.auth.identity import USER_HEADER, Credentials, Keys
from lango.store.credentials.store import Owner
from lango.store.keys import KeyStore
from lango.store.memory.store import NewMemory, SqlMemoryStore
from lango.store.schema.tables import credentials
from lango.store.sessions.entries import SessionRef
from tests.server.routes.operations import FILE, OPERATIONS, Ids, Operation, credential_of
from tests.server.served_apps import ServedApp
from tests.support.credential_agents import with_keys

BODIES: dict[str, dict[str, Any]] = {
    "create_session": {"title": "theirs"},
    "rename_session": {"title": "new"},
    "upload_file": {"is": "a file of JSON"},
    "submit_turn": {"message": "hi"},
    "answer_approval": {"call": "call_1", "approved": False},
    "deliver_result": {"call": "call_1", "result": "done"},
    "create_chat_completion": {"messages": [{"role": "user", "content": "hi"}]},
}
"""What each operation with a body is sent; one that is not here fails the matrix."""
APP_FIELDS = {"create_session": "app", "create_chat_completion": "model"}
FOR_ALL_CALLERS = {"get_me", "get_model", "list_agents", "list_models"}
"""Operations open to every credential, with or without a user."""
FOR_ADMINS = {"delete_user", "get_workload", "list_approvals", "list_failures", "list_workers"}
FOR_USERS = {
    *("delete_all_memory", "list_memory"),
    *("answer_approval", "create_chat_completion", "create_session", "deliver_result"),
    *("submit_turn", "upload_file", "list_credentials", "delete_credential"),
}
"""Operations that act as a user; an admin without a user gets 403."""
CONFLICTS = {"deliver_result", "retry_turn"}
"""What cannot be done with a turn that waits for an approval."""
SECURED = [operation for operation in OPERATIONS if operation.is_secured]
CREDENTIAL = '{"authScheme": {"type": "apiKey", "in": "header", "name": "X"}, "credentialKey": "k"}'
MISSING = Ids(
    "ses_00000000000000000000000000000000",
    "turn_00000000000000000000000000000000",
    "4611686018427387904",
    "missing",
)
TITLE = "ann's own"

Standing = Literal["unknown", "forbidden", "no user", "stranger", "owner", "admin", "foreign admin"]


@dataclass(frozen=True)
class Way:
    """A way to call: a key, the user it acts for, and the caller's standing that follows."""

    key: str | None
    acts_for: str | None
    standing: Standing

    @property
    def may_change(self) -> bool:
        """Whether what exists may be another thing afterwards."""
        return self.standing in ("owner", "admin")

    def status(self, operation: Operation, *, exists: bool) -> int:
        """What an operation answers, as 200 for any success."""
        named = operation.names_something
        if self.standing in ("unknown", "forbidden"):
            return 401 if self.standing == "unknown" else 403
        if operation.id in FOR_ALL_CALLERS:
            return 200
        is_admin = self.standing in ("admin", "foreign admin")
        if self.standing == "no user" or (is_admin and operation.id in FOR_USERS):
            return 403
        if operation.id in FOR_ADMINS and not is_admin:
            return 403
        is_foreign = self.standing in ("stranger", "foreign admin")
        if named and (is_foreign or not exists):
            return 404
        return 409 if operation.id in CONFLICTS else 200


WAYS = {
    "no key": Way(None, None, "unknown"),
    "wrong key": Way("wrong", None, "unknown"),
    "other tenant": Way("other ann", None, "stranger"),
    "other user": Way("bob", None, "stranger"),
    "acting for another user": Way("act_as", "bob", "stranger"),
    "acting in another tenant": Way("other act_as", "ann", "stranger"),
    "acting for no user": Way("act_as", None, "no user"),
    "the header without the scope": Way("ann", "ann", "forbidden"),
    "admin of another tenant": Way("other admin", None, "foreign admin"),
    "admin": Way("admin", None, "admin"),
    "acting for the user": Way("act_as", "ann", "owner"),
    "right": Way("ann", None, "owner"),
}


async def existing(served: ServedApp) -> Ids:
    """A session of ann's with a file, a turn of it that waits for a person, and a memory of hers.

    A worker runs.
    """
    session = await served.session(title=TITLE)
    await served.file(session, FILE, b"[1]", "application/json")
    await _credential(served, credential_of(session))
    turn = await served.turn(session, 'call pay {"amount": 1}')
    await served.turns().wait(turn)
    return Ids(session, turn, await remembered(served), "ann")


async def remembered(served: ServedApp) -> str:
    """The id of an entry of ann's memory."""
    store, user = SqlMemoryStore(served.process.store.database), served.user("ann")
    await store.add(SessionRef(user), [NewMemory(new_id("fact"), "", "user", 1.0, TITLE)])
    return str((await store.page(user, 1))[0].pk)


async def _credential(served: ServedApp, wanted: str) -> None:
    """A credential of ann's, with that id."""
    with_keys(served.process)
    store, owner = served.process.store, Owner(served.tenant, served.agent, "ann")
    await store.credentials.save(owner, wanted, CREDENTIAL, "api_key")
    renamed = sa.update(credentials).where(credentials.c.name == wanted).values(id=wanted)
    await store.database.write(lambda connection: connection.execute(renamed))


def told(answer: httpx.Response) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    """Every byte of an answer."""
    return answer.status_code, answer.content, answer.headers.raw


class Matrix:
    """One operation after the other, by API keys."""

    def __init__(self, served: ServedApp, keys: dict[str, str]) -> None:
        self.cells = 0
        self._served = served
        self._keys = keys
        self._by_name = served.app.state.identity
        self._by_key = Credentials(Keys(served.process.store.database))

    async def wrongs(self, operation: Operation) -> list[str]:
        """What an operation answers otherwise than it should."""
        found: list[str] = []
        async with self._served.worker():
            ids = await self._existing()
            before = await self._as_ann_sees(ids)
            for name, way in WAYS.items():
                if way.may_change:
                    ids = await self._existing()
                answers = [await self._call(operation, way, which) for which in (ids, MISSING)]
                self.cells += len(answers)
                wrong = _wrong(operation, way, *answers)
                if wrong is None and not way.may_change and before != await self._as_ann_sees(ids):
                    wrong = "it changed what is ann's"
                found += [] if wrong is None else [f"{operation} by {name}: {wrong}"]
        return found

    async def _existing(self) -> Ids:
        self._served.app.state.identity = self._by_name
        ids = await existing(self._served)
        self._served.app.state.identity = self._by_key
        return ids

    async def _as_ann_sees(self, ids: Ids) -> list[Any]:
        session = f"sessions/{ids.session}"
        memory = f"memory?app={self._served.agent}&limit=1"
        paths = (session, f"{session}/messages", f"turns/{ids.turn}", memory)
        async with self._served.client(self._keys["ann"]) as client:
            return [told(await client.get(f"/v1/{path}")) for path in paths]

    async def _call(self, operation: Operation, way: Way, ids: Ids) -> httpx.Response:
        known = None if way.key is None else self._keys[way.key]
        headers = {} if way.acts_for is None else {USER_HEADER: way.acts_for}
        body = _body(self._served, operation)
        async with self._served.client(known) as client:
            path = operation.path_of(ids, self._served.agent)
            return await client.request(operation.method, path, json=body, headers=headers)


async def matrix(served: ServedApp) -> Matrix:
    """A matrix on a server, with keys for everybody."""
    store, tenant = KeyStore(served.process.store.database), served.tenant
    other = served.callers["other-ann"].tenant
    made = {
        "ann": await store.create(tenant, user="ann"),
        "bob": await store.create(tenant, user="bob"),
        "other ann": await store.create(other, user="ann"),
        "act_as": await store.create(tenant, scopes=("chat", "act_as")),
        "other act_as": await store.create(other, scopes=("chat", "act_as")),
        "admin": await store.create(tenant, scopes=("admin",)),
        "other admin": await store.create(other, scopes=("admin",)),
    }
    wrong = made["ann"].text[:-4] + "AAAA"
    return Matrix(served, {name: key.text for name, key in made.items()} | {"wrong": wrong})


def _body(served: ServedApp, operation: Operation) -> dict[str, Any] | None:
    if not operation.has_body:
        return None
    app = {APP_FIELDS[operation.id]: served.agent} if operation.id in APP_FIELDS else {}
    return {**app, **BODIES[operation.id]}


def _wrong(
    operation: Operation, way: Way, found: httpx.Response, missing: httpx.Response
) -> str | None:
    """What is wrong with the answers to one way; None if nothing is."""
    for answer, exists in ((found, True), (missing, False)):
        status = 200 if answer.is_success else answer.status_code
        right = way.status(operation, exists=exists)
        if status != right:
            what = "what exists" if exists else "what does not"
            return f"{answer.status_code} for {what}, not {right}: {answer.text[:200]}"
    if not way.may_change and TITLE in found.text + missing.text:
        return f"it tells of ann: {found.text[:200]}"
    refused = not (way.may_change or found.is_success or missing.is_success)
    if refused and told(found) != told(missing):
        return f"the response reveals what exists: {told(found)} {told(missing)}"
    return None
