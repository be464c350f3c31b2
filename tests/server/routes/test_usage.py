"""GET /v1/usage: sums of model calls, held against the records they are made of."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lango.core.context.model_calls import ModelAttempt, ModelCall
from lango.core.messages.streams import Usage
from lango.server.auth.callers import Caller
from lango.server.routes.insight import LONGEST
from lango.store.model_calls import ModelCallStore
from tests.server.served_apps import ServedApp

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
SPAN = {"since": "2026-02-01T00:00:00Z", "until": "2026-04-01T00:00:00Z"}


def record(name: str, **told: Any) -> ModelCall:
    """A call of ann's at noon, but for what is said."""
    at = told.pop("at", NOON).timestamp()
    attempt = ModelAttempt(
        provider="p",
        model=told.pop("model", "m1"),
        started=at,
        ended=at + 1,
        usage=told.pop("usage", Usage(10, 2, 3, 1)),
        outcome=told.pop("outcome", "completed"),
    )
    session = ("app", told.pop("user", "ann"), "s")
    known: dict[str, Any] = {"number": 1, "turn": "t1", "agent": "a", "price": 0.5} | told
    return ModelCall(attempt, call=name, session=session, **known)


async def written(served: ServedApp, *records: ModelCall) -> None:
    await ModelCallStore(served.process.store.database).add(served.tenant, records)


async def usage(served: ServedApp, name: str = "ann", **query: Any) -> dict[str, Any]:
    async with served.client(name) as client:
        answer = await client.get("/v1/usage", params=SPAN | query)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_nothing_yet(served: ServedApp) -> None:
    result = await usage(served)
    assert result["rows"] == []
    zero = dict.fromkeys(("calls", "attempts", "turns", "input", "output", "cached"), 0)
    assert result["total"] == {**zero, "reasoning": 0, "cost": None, "cut_off": 0}
    assert (result["by"], result["more"]) == (["day"], False)


async def test_sums_by_day_the_newest_first(served: ServedApp) -> None:
    late = datetime(2026, 3, 1, 23, 59, 59, 999_999, tzinfo=UTC)
    await written(
        served,
        record(f"{served.tenant}1"),
        record(f"{served.tenant}1", number=2, usage=None, price=None),
        record(f"{served.tenant}2", at=late, turn="t2"),
        record(f"{served.tenant}3", at=late + timedelta(microseconds=1), turn="t2"),
        record(f"{served.tenant}4", at=NOON - timedelta(days=90)),
    )
    result = await usage(served)
    days = [(row["day"], row["calls"], row["attempts"], row["turns"]) for row in result["rows"]]
    assert days == [("2026-03-02", 1, 1, 1), ("2026-03-01", 2, 3, 2)]
    first = result["rows"][1]
    assert (first["input"], first["output"], first["cached"], first["reasoning"]) == (20, 4, 6, 2)
    assert (first["cost"], result["total"]["cost"]) == (1.0, 1.5)
    assert (result["total"]["calls"], result["total"]["turns"]) == (3, 2)
    assert first["model"] is first["user"] is first["app"] is None


async def test_told_apart_as_wished(served: ServedApp) -> None:
    await written(
        served,
        record(f"{served.tenant}1", model="m1", price=0.1),
        record(f"{served.tenant}2", model="m2", price=0.3, agent="b"),
        record(f"{served.tenant}3", model="m3", price=None, turn=""),
    )
    result = await usage(served, by=["model", "agent", "model"])
    rows = [(row["model"], row["agent"], row["cost"], row["turns"]) for row in result["rows"]]
    assert rows == [("m2", "b", 0.3, 1), ("m1", "a", 0.1, 1), ("m3", "a", None, 0)]
    assert result["by"] == ["agent", "model"]
    assert (await usage(served, by="app"))["rows"][0]["app"] == "app"


async def test_whose_it_is(served: ServedApp) -> None:
    served.callers["admin"] = Caller(served.tenant, None, frozenset({"admin"}), "key")
    both = [record(f"{served.tenant}{user}", user=user) for user in ("ann", "bob")]
    await written(served, *both)
    assert (await usage(served))["total"]["calls"] == 1
    assert (await usage(served, "other-ann"))["total"]["calls"] == 0
    users = (await usage(served, "admin", by="user"))["rows"]
    assert sorted(row["user"] for row in users) == ["ann", "bob"]
    assert (await usage(served, "admin", user="bob"))["total"]["calls"] == 1
    assert (await usage(served, app="other"))["total"]["calls"] == 0


@pytest.mark.parametrize(
    "query",
    [
        {"by": "hour"},
        {"since": "2026-01-01"},
        {"since": "2026-02-01T00:00:00Z", "until": "2026-01-01T00:00:00Z"},
        {"since": (NOON - LONGEST).isoformat(), "until": (NOON + LONGEST).isoformat()},
    ],
    ids=["by", "no-zone", "backwards", "too-long"],
)
async def test_what_is_not_taken(query: dict[str, str], sqlite_served: ServedApp) -> None:
    async with sqlite_served.client() as client:
        assert (await client.get("/v1/usage", params=query)).status_code == 422


async def test_without_a_span_it_is_the_last_month(sqlite_served: ServedApp) -> None:
    async with sqlite_served.client() as client:
        body = (await client.get("/v1/usage")).json()
    since, until = (datetime.fromisoformat(body[name]) for name in ("since", "until"))
    assert until - since == timedelta(days=30)


async def test_calls_without_known_usage_are_counted_apart(served: ServedApp) -> None:
    unknown: dict[str, Any] = {"usage": None, "price": None}
    await written(
        served,
        record(f"{served.tenant}1"),
        record(f"{served.tenant}2", outcome="cut_off", **unknown),
        record(f"{served.tenant}3", outcome="started", **unknown),
    )
    total = (await usage(served))["total"]
    assert (total["calls"], total["cut_off"], total["input"]) == (3, 1, 10)
