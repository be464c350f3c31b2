"""The heart of G17: readers that lose their connection while workers die miss nothing."""

import random
from contextlib import aclosing

import httpx

from faults.turn_place import Place
from faults.turn_processes import Crew
from tests.server.places import Frame, House, frames, house, live

CUTS = 30
KILLS = 2
WORDS = " ".join(f"w{number}" for number in range(90))


async def _read_some(client: httpx.AsyncClient, turn: str, seen: list[Frame], count: int) -> None:
    """Read on from where the reader is, and hang up after so many events."""
    header = {"Last-Event-ID": str(seen[-1].id)} if seen else {}
    path = f"/v1/turns/{turn}/events?thoughts=true"
    async with client.stream("GET", path, headers=header) as response:
        assert response.status_code == 200
        async with aclosing(frames(response)) as coming:
            async for frame in coming:
                seen.append(frame)
                count -= 1
                if count == 0:
                    return


def _check(seen: list[Frame]) -> None:
    assert [frame.id for frame in seen] == list(range(1, len(seen) + 1))
    assert [frame.event for frame in seen].count("completed") == 1
    assert seen[-1].event == "completed"
    drafts: dict[str, str] = {}
    for frame in seen:
        message = frame.data.get("message", "")
        if frame.event == "message.delta":
            drafts[message] = drafts.get(message, "") + frame.data["text"]
        elif frame.event == "message.reset":
            drafts.pop(message)
        elif frame.event == "message.completed":
            assert drafts.pop(message, frame.data["text"]) == frame.data["text"]
            assert frame.data["text"] == f"You said: {WORDS}"
    assert drafts == {}


async def test_readers_that_reconnect_have_no_gap_and_no_repeat(
    served: House, place: Place, tenant: str
) -> None:
    drawn = random.Random(17)
    cuts = kills = 0
    async with (
        house(place, tenant) as second,
        live(served) as one,
        live(second) as other,
        one.client() as first_client,
        other.client() as second_client,
        Crew(place, 1, delay=0.02) as crew,
    ):
        while cuts < CUTS or kills < KILLS:
            turn = await served.turn(await served.session(), WORDS)
            seen: list[Frame] = []
            is_whole = True
            while not seen or seen[-1].event != "completed":
                client = drawn.choice((first_client, second_client))
                await _read_some(client, turn, seen, drawn.randint(1, 6))
                cuts += 1
                if is_whole and kills < KILLS and len(seen) > 5:
                    await crew.replace(0)
                    is_whole = False
                    kills += 1
            _check(seen)
    print(f"{cuts} cuts, {kills} kills")
