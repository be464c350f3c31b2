"""The memory of users: list, search and delete."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Depends, HTTPException, Path, Query

from lango.core.keys import ADMIN
from lango.errors import ForbiddenError
from lango.server.auth.callers import SECURED, AnyCaller, Viewer, named
from lango.server.backend import EndpointServices, Served
from lango.server.http.bodies import JsonRoute
from lango.server.http.problems import responses
from lango.server.routes.schemas import Id, MemoryItem, MemoryPage, Number
from lango.server.routes.sessions import PageSize
from lango.store.memory.store import SqlMemoryStore
from lango.store.sessions.entries import SessionKey

router = APIRouter(
    prefix="/v1/memory",
    tags=["memory"],
    dependencies=SECURED,
    route_class=JsonRoute,
    responses=responses(401, 403, 421, 422, 429, 503),
)

MAX_QUERY: Final = 1_000
_IS_ID: Final = re.compile("[0-9]{1,19}")  # Python refuses to read very long numbers
_MAX_ID: Final = (1 << 63) - 1


async def memory_owner(
    caller: AnyCaller,
    app: Annotated[Id, Query(description="The agent whose memory of the user it is.")],
    user: Annotated[
        Id | None, Query(description="Of this user; another one needs the scope `admin`.")
    ] = None,
) -> SessionKey:
    """The user whose memory a request is about: the caller's own, or for an admin any."""
    if user is None or ADMIN not in caller.scopes:
        if user not in (None, caller.user):
            raise ForbiddenError("Others' memory needs a credential with the scope admin.")
        user = named(caller).user
    return SessionKey(caller.tenant, app, user, "")


Owner = Annotated[SessionKey, Depends(memory_owner)]


@router.get("")
async def list_memory(
    owner: Owner,
    served: Served,
    query: Annotated[str, Query(max_length=MAX_QUERY, description="Words to search for.")] = "",
    after: Annotated[Number | None, Query(description="`next` of a page.")] = None,
    limit: PageSize = 50,
) -> MemoryPage:
    """A page of a user's memory: the newest entries, or the best matches of a query."""
    store = _memories(served)
    if not query:
        entries = await store.page(owner, limit + 1, before=after)
        last = entries[limit - 1].pk if len(entries) > limit else None
    else:
        skipped = after or 0
        entries = await store.search(owner, query, limit + 1, skipped=skipped)
        last = skipped + limit if len(entries) > limit else None
    return MemoryPage(entries=[MemoryItem.of(entry) for entry in entries[:limit]], next=last)


@router.delete("", status_code=HTTPStatus.NO_CONTENT)
async def delete_all_memory(owner: Owner, served: Served) -> None:
    """Delete a user's whole memory of an agent. Sessions keep their messages."""
    await _memories(served).delete_all(owner)


@router.delete("/{memory_id}", status_code=HTTPStatus.NO_CONTENT, responses=responses(404))
async def delete_memory(
    viewer: Viewer,
    served: Served,
    memory_id: Annotated[str, Path(description="The entry's `id`.")],
) -> None:
    """Delete an entry. Its session keeps the message, which does not join the memory again."""
    pk = int(memory_id) if _IS_ID.fullmatch(memory_id) else 0
    is_id = 0 < pk <= _MAX_ID
    if not is_id or not await _memories(served).delete(viewer.tenant, pk, user_id=viewer.user):
        raise HTTPException(HTTPStatus.NOT_FOUND)


def _memories(served: EndpointServices) -> SqlMemoryStore:
    return SqlMemoryStore(served.store.database)
