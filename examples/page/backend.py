"""The page's own server: it knows who is logged in, has the key, and asks lango for the rest."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import FileResponse, StreamingResponse
from starlette.routing import Route

PAGE = Path(__file__).with_name("index.html")
PASSED = ("accept", "content-type", "idempotency-key", "last-event-id")
lango = httpx.AsyncClient(
    base_url=os.environ["LANGO_URL"],
    headers={"Authorization": f"Bearer {os.environ['LANGO_KEY']}"},
    timeout=60,  # a silent stream sends a comment every 15 seconds
)


def user_of(_request: Request) -> str:
    """Who is logged in: here your own sessions, cookies or single sign-on come in."""
    return "ann"


async def page(_: Request) -> FileResponse:
    """The page."""
    return FileResponse(PAGE)


async def passed_on(request: Request) -> StreamingResponse:
    """The same request with the key, for the user who is logged in; the answer as it comes."""
    headers = {name: request.headers[name] for name in PASSED if name in request.headers}
    asked = lango.build_request(
        request.method,
        httpx.URL(path=request.url.path, query=request.url.query.encode()),
        headers=headers | {"Lango-User": user_of(request)},
        content=await request.body(),
    )
    answer = await lango.send(asked, stream=True)

    async def body() -> AsyncGenerator[bytes]:
        try:
            async for chunk in answer.aiter_raw():
                yield chunk
        finally:
            await answer.aclose()

    kept = {name: answer.headers[name] for name in ("content-type",) if name in answer.headers}
    return StreamingResponse(body(), answer.status_code, kept)


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncGenerator[None]:
    """Close the connections at the end."""
    async with lango:
        yield


app = Starlette(
    routes=[
        Route("/", page),
        Route("/v1/{path:path}", passed_on, methods=["GET", "POST", "PATCH", "DELETE"]),
    ],
    lifespan=lifespan,
)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8080")))
