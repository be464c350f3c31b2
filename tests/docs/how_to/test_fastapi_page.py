"""The page on FastAPI: its app, called as a browser would that loses its connection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.testclient import TestClient, WebSocketTestSession

from tests.docs.pages import DOCS, blocks

ENDS = {"completed", "failed", "cancelled", "input_required"}


def made(folder: Path) -> FastAPI:
    """The app of the page `fastapi`, on a database of this test's own."""
    [shown] = blocks(DOCS / "how-to/fastapi.md", "python")
    names: dict[str, Any] = {}
    exec(shown.text.replace("turns.db", str(folder / "turns.db")), names)  # noqa: S102 - our own page
    return names["app"]


def heard(socket: WebSocketTestSession, most: int = 1_000) -> list[dict[str, Any]]:
    """Events up to the end of the turn, or so many."""
    events: list[dict[str, Any]] = []
    while len(events) < most and not (events and events[-1]["type"] in ENDS):
        events.append(socket.receive_json())
    return events


def test_a_lost_connection_loses_no_word(tmp_path: Path) -> None:
    with TestClient(made(tmp_path)) as client:
        with client.websocket_connect("/chat/ann/one") as socket:
            socket.send_json({"say": "hello", "key": "k1"})
            first = heard(socket, most=2)
        last = first[-1]
        with client.websocket_connect("/chat/ann/one") as socket:
            socket.send_json({"turn": last["turn"], "after": last["number"]})
            rest = heard(socket)
            socket.send_json({"say": "hello", "key": "k1"})  # it may have been lost
            again = heard(socket)
    events = [*first, *rest]
    assert [event["number"] for event in events] == list(range(1, len(events) + 1))
    assert events[-1]["type"] == "completed"
    assert again == events


def test_a_restart_loses_no_word(tmp_path: Path) -> None:
    with TestClient(made(tmp_path)) as client, client.websocket_connect("/chat/ann/one") as socket:
        socket.send_json({"say": "hello", "key": "k1"})
        first = heard(socket, most=1)
    with TestClient(made(tmp_path)) as client, client.websocket_connect("/chat/ann/one") as socket:
        socket.send_json({"turn": first[0]["turn"], "after": 1})
        assert heard(socket)[-1]["type"] == "completed"
