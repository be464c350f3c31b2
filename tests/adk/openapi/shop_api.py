"""A real API with an OpenAPI document: FastAPI, served on loopback by uvicorn in a thread."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, HTTPException, Request, Response
from fastapi.responses import RedirectResponse
from fastapi.security import (
    APIKeyHeader,
    HTTPAuthorizationCredentials,
    HTTPBasic,
    HTTPBasicCredentials,
    HTTPBearer,
    OAuth2AuthorizationCodeBearer,
)
from pydantic import BaseModel

TOKEN, KEY, PASSWORD = "hush-token-of-the-shop", "hush-key-of-the-shop", "hush-password"
OAUTH = OAuth2AuthorizationCodeBearer("/authorize", "/token", scopes={"read": "Read."})


class Refund(BaseModel):
    """What is paid back."""

    order: int
    amount: float


@dataclass
class ShopApi:
    """The running API."""

    url: str
    requests: list[str] = field(default_factory=list[str])
    """Method and path of each request that was let in."""

    @property
    def document(self) -> str:
        """Where its document is."""
        return f"{self.url}/openapi.json"


def shop_app(requests: list[str]) -> FastAPI:  # noqa: C901 - one function for each route
    """The API: an operation for each way to authenticate, and some that misbehave."""
    app = FastAPI(title="Shop")

    def note(request: Request) -> None:
        requests.append(f"{request.method} {request.url.path}")

    Noted = Depends(note)

    @app.get("/orders/{order_id}", operation_id="getOrder", dependencies=[Noted])
    def get_order(
        order_id: int,
        who: Annotated[HTTPAuthorizationCredentials, Depends(HTTPBearer())],
        request: Request,
    ) -> dict[str, Any]:
        """Get an order by its number."""
        if who.credentials != TOKEN:
            raise HTTPException(401, "wrong token")
        if order_id == 404:
            raise HTTPException(404, "there is no such order")
        heard = request.headers.get("authorization")
        return {"order": order_id, "status": "delivered", "heard": heard}

    @app.post("/refunds", operation_id="createRefund", dependencies=[Noted])
    def create_refund(
        refund: Refund, key: Annotated[str, Depends(APIKeyHeader(name="X-Key"))]
    ) -> dict[str, Any]:
        """Pay money back."""
        if key != KEY:
            raise HTTPException(401, "wrong key")
        return {"refunded": refund.amount, "order": refund.order}

    @app.get("/stock", operation_id="getStock", dependencies=[Noted])
    def get_stock(
        who: Annotated[HTTPBasicCredentials, Depends(HTTPBasic())], size: int = 3
    ) -> list[str]:
        """List the stock."""
        if (who.username, who.password) != ("clerk", PASSWORD):
            raise HTTPException(401, "wrong password")
        return [f"thing {number}" for number in range(size)]

    @app.get("/account", operation_id="getAccount", dependencies=[Noted])
    def get_account(token: Annotated[str, Depends(OAUTH)]) -> str:
        return token

    @app.get("/elsewhere", operation_id="goElsewhere", dependencies=[Noted])
    def go_elsewhere() -> RedirectResponse:
        return RedirectResponse("http://127.0.0.1:9/secret")

    @app.get("/packed", operation_id="getPacked", dependencies=[Noted])
    def get_packed() -> Response:
        return Response(b"not packed", headers={"Content-Encoding": "gzip"})

    @app.get("/flood", operation_id="getFlood", dependencies=[Noted])
    def get_flood(size: int) -> Response:
        return Response(b"x" * size, media_type="text/plain")

    @app.get("/slow", operation_id="getSlow", dependencies=[Noted])
    def get_slow() -> str:
        time.sleep(30)
        return "late"

    return app


@contextmanager
def shop_api() -> Generator[ShopApi]:
    """Serve the API until the end."""
    listening = socket.create_server(("127.0.0.1", 0))
    api = ShopApi(f"http://127.0.0.1:{listening.getsockname()[1]}")
    config = uvicorn.Config(
        shop_app(api.requests), log_level="warning", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield api
    finally:
        server.should_exit = True
        thread.join(30)
        listening.close()
