"""Two servers and a worker in processes of their own: a client misses no event when one dies."""

import uuid
from contextlib import aclosing
from pathlib import Path

import httpx
import pytest

from faults.server.processes import Server, project, servers
from faults.server.sse import Frame, check_complete_log, frames
from faults.turns.workspace import Workspace

GATES = ("first", "second")
ANSWER = "You said: the end"
STORY = " then ".join([*(f'call hold {{"name": "{gate}"}}' for gate in GATES), "the end"])
"""A turn that goes on when it is let: past each gate once a file of its name is there."""


@pytest.fixture
def workspace(postgres_url: str, tmp_path: Path) -> Workspace:
    return Workspace(postgres_url, f"app_{uuid.uuid4().hex}", tmp_path)


async def submitted(server: Server) -> str:
    """The id of a new turn."""
    async with server.client() as client:
        session = await client.post("/v1/sessions", json={"app": server.project.workspace.app})
        path = f"/v1/sessions/{session.json()['id']}/turns"
        made = await client.post(path, json={"message": STORY})
    assert made.status_code == 202, made.text
    return made.json()["id"]


async def read_on(
    client: httpx.AsyncClient, turn: str, seen: list[Frame], *, until: str = ""
) -> None:
    """Go on with the number of the last event; up to where the turn waits, or to its end."""
    header = {"Last-Event-ID": str(seen[-1].id)} if seen else {}
    path = f"/v1/turns/{turn}/events?thoughts=true"
    async with (
        client.stream("GET", path, headers=header) as response,
        aclosing(frames(response)) as coming,
    ):
        assert response.status_code == 200
        async for frame in coming:
            seen.append(frame)
            if frame.event == "tool.started" and frame.data["arguments"] == {"name": until}:
                return


async def read_and_kill(server: Server, turn: str, seen: list[Frame]) -> None:
    """Read from a server, and kill it while the turn waits; the stream is left open."""
    async with (
        server.client() as client,
        client.stream("GET", f"/v1/turns/{turn}/events?thoughts=true") as response,
        aclosing(frames(response)) as coming,
    ):
        async for frame in coming:
            seen.append(frame)
            if frame.event == "tool.started":
                await server.kill()


async def test_a_turn_survives_the_death_of_each_process(workspace: Workspace, tenant: str) -> None:
    of = await project(workspace, tenant, delay=0.01)
    seen: list[Frame] = []
    async with servers(of, 2, with_worker=False) as (one, other), one.client() as client:
        with await of.worker() as doomed:
            turn = await submitted(one)
            with pytest.raises(httpx.TransportError):
                await read_and_kill(other, turn, seen)
            (workspace.folder / GATES[0]).touch()
            await read_on(client, turn, seen, until=GATES[1])
            await workspace.effects.wait(lambda words: "held second" in words)
            doomed.kill()
        with await of.worker():
            (workspace.folder / GATES[1]).touch()
            await read_on(client, turn, seen)
        body = (await client.get(f"/v1/turns/{turn}")).json()
        whole: list[Frame] = []
        await read_on(client, turn, whole)
    assert seen == whole
    check_complete_log(seen, ANSWER)
    assert [frame.data["attempt"] for frame in seen if frame.event == "started"] == [1, 2]
    assert (body["state"], body["attempts"]) == ("completed", 2)
    words = workspace.effects.words()
    assert words.count("held first") == 1  # it had finished: no worker ran it again
    assert words.count("held second") == 2
