"""The tenant matrix once more, by API keys: acting for others, with and without the right to."""

from dataclasses import dataclass

import httpx
import pytest

from lango.server.identity import USER_HEADER, Credentials, Keys
from lango.store.keys import KeyStore
from tests.server.operations import Operation
from tests.server.places import House
from tests.server.test_tenants import (
    AGENT_LISTS,
    MISSING,
    SECURED,
    Ids,
    body_of,
    existing,
    told,
)


@dataclass(frozen=True)
class Way:
    """A way to call, and what comes of it."""

    key: str | None
    acts_for: str | None
    status: int | None  # None: as good as missing

    @property
    def is_right(self) -> bool:
        return self.status == 200


WAYS = {
    "no key": Way(None, None, 401),
    "wrong key": Way("wrong", None, 401),
    "other tenant": Way("other-ann", None, None),
    "other user": Way("bob", None, None),
    "acting for another user": Way("act_as", "bob", None),
    "acting in another tenant": Way("other act_as", "ann", None),
    "acting for nobody": Way("act_as", None, 403),
    "the header without the scope": Way("ann", "ann", 403),
    "acting for the user": Way("act_as", "ann", 200),
    "right": Way("ann", None, 200),
}


async def keys_of(served: House) -> dict[str, str]:
    """Keys for everybody; from here on they are what the server knows callers by."""
    database, tenant = served.here.store.database, served.tenant
    store, other = KeyStore(database), served.callers["other-ann"].tenant
    made = {
        "ann": await store.create(tenant, user="ann"),
        "bob": await store.create(tenant, user="bob"),
        "other-ann": await store.create(other, user="ann"),
        "act_as": await store.create(tenant, scopes=("chat", "act_as")),
        "other act_as": await store.create(other, scopes=("chat", "act_as")),
    }
    wrong = made["ann"].text[:-4] + "AAAA"
    served.app.state.identity = Credentials(Keys(database))
    return {name: key.text for name, key in made.items()} | {"wrong": wrong}


async def call(
    served: House, operation: Operation, way: Way, keys: dict[str, str], ids: Ids
) -> httpx.Response:
    known = None if way.key is None else keys[way.key]
    headers = {} if way.acts_for is None else {USER_HEADER: way.acts_for}
    async with served.client(known) as client:
        return await client.request(
            operation.method,
            operation.path_of(*ids),
            json=body_of(served, operation),
            headers=headers,
        )


@pytest.mark.parametrize("operation", SECURED, ids=str)
async def test_what_comes_of_every_way_to_call(operation: Operation, small: House) -> None:
    by_name = small.app.state.identity
    ids = await existing(small)
    keys = await keys_of(small)
    by_key = small.app.state.identity
    for name, way in WAYS.items():
        if way.is_right:  # which may change or delete what there is
            small.app.state.identity = by_name
            ids = await existing(small)
            small.app.state.identity = by_key
        async with small.worker():  # whoever asks for a completion waits for it
            missing = await call(small, operation, way, keys, MISSING)
            found = await call(small, operation, way, keys, ids)
        assert _is_as_it_should(operation, way, found, missing), (name, found.text, missing.text)


def _is_as_it_should(
    operation: Operation, way: Way, found: httpx.Response, missing: httpx.Response
) -> bool:
    if not way.is_right and "ann's" in found.text:
        return False
    if operation.id in AGENT_LISTS and way.key == "act_as":
        return found.is_success
    if way.status in (401, 403):
        return found.status_code == way.status and told(found) == told(missing)
    if not operation.names_something:
        return found.is_success
    if way.is_right:
        return found.is_success and missing.status_code == 404
    return found.status_code == 404 and told(found) == told(missing)
