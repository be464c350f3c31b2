"""Users: delete all their data."""

from __future__ import annotations

from dataclasses import asdict
from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Query

from lango.server.auth.callers import SECURED, Admin
from lango.server.backend import Served
from lango.server.http.bodies import JsonRoute
from lango.server.http.problems import responses
from lango.server.routes.schemas import DeletedUser, Id

router = APIRouter(
    prefix="/v1/users",
    tags=["operations"],
    dependencies=SECURED,
    route_class=JsonRoute,
    responses=responses(401, 403, 404, 421, 422, 429, 503),
)


@router.delete("/{user_id:path}")
async def delete_user(
    admin: Admin,
    served: Served,
    user_id: Annotated[Id, Path(description="The user's id.")],
    app: Annotated[Id | None, Query(description="Filter by agent (default: all).")] = None,
) -> DeletedUser:
    """Delete all data of a user of the tenant, and stop the user's turns. Needs the scope `admin`.

    404 if there is none.
    """
    deleted = await served.store.delete_user(admin.tenant, user_id, app)
    if not deleted:
        raise HTTPException(HTTPStatus.NOT_FOUND)
    return DeletedUser(**asdict(deleted))
