"""Clients over HTTP: they submit turns, read streams and cut them, answer, cancel, delete."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import httpx

from faults.blackbox.logs import Log

APPS: Final = (
    *("solo", "stream", "seq", "par", "loop", "xfer", "atool", "appr", "lrun", "wf", "line"),
)
ENDS: Final = frozenset({"completed", "failed", "cancelled", "input_required"})
_PATIENCE: Final = 400.0
"""Seconds in which a turn must end, whatever is killed: a limit, not a measurement."""
_BUSY: Final = (429, 503)
_KINDS: Final = 12


class GoneError(Exception):
    """The session was deleted."""


@dataclass
class Work:
    """The work that all clients share: the number of turns, and the shapes in rotation."""

    turns: int
    drawn: random.Random
    taken: int = 0
    _kinds: int = 0
    _apps: list[str] = field(default_factory=list[str])

    def next_app(self) -> str:
        """The next shape; all come up equally often."""
        if not self._apps:
            self._apps = list(APPS)
            self.drawn.shuffle(self._apps)
        return self._apps.pop()

    def take(self) -> int | None:
        """Take one more turn: the number that decides its kind, or None if there are enough."""
        if self.taken >= self.turns:
            return None
        self.taken += 1
        self._kinds += 1
        return self._kinds


@dataclass(frozen=True)
class Endpoints:
    """The URLs of the servers, and the key of each tenant."""

    urls: Sequence[str]
    keys: dict[str, str]


class Client:
    """One user of one tenant, who submits turns until the work is done."""

    def __init__(
        self, number: int, endpoints: Endpoints, work: Work, log: Log, drawn: random.Random
    ) -> None:
        self._endpoints, self._work, self._log, self._drawn = endpoints, work, log, drawn
        tenants = sorted(endpoints.keys)
        self._tenant = tenants[number % len(tenants)]
        self._other = tenants[(number + 1) % len(tenants)]
        self._user = f"user{number % 3}"
        self._http = httpx.AsyncClient(headers=self._headers(self._tenant), timeout=20.0)

    def _headers(self, tenant: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._endpoints.keys[tenant]}", "Lango-User": self._user}

    async def talk(self) -> None:
        """Work through one session after the other."""
        async with self._http:
            while self._work.taken < self._work.turns:
                try:
                    await self._session(self._work.next_app())
                except GoneError:
                    self._log.add("gone")

    async def _session(self, app: str) -> None:
        made = await self._request("POST", "/v1/sessions", {"app": app}, key=self._word("s"))
        sid = made["id"]
        self._log.add("session", sid=sid, app=app, tenant=self._tenant, user=self._user)
        await self._spy(sid)
        for _ in range(self._drawn.randint(1, 4)):
            number = self._work.take()
            if number is None:
                return
            if number % (2 * _KINDS) == 9:
                await self._delete(sid, app)
                return
            await self._turn(sid, app, number % _KINDS)

    async def _spy(self, sid: str) -> None:
        """Request the session as another tenant."""
        try:
            url = f"{self._drawn.choice(self._endpoints.urls)}/v1/sessions/{sid}"
            seen = await self._http.get(url, headers=self._headers(self._other))
        except httpx.TransportError:
            return
        if seen.status_code not in _BUSY:
            self._log.add("foreign", sid=sid, status=seen.status_code)

    async def _turn(self, sid: str, app: str, kind: int) -> None:
        first = self._word("U")
        if kind == 1:
            turn = await self._submit(sid, app, first, after=self._drawn.uniform(0.5, 3.0))
            await self._follow(turn, first, sid, app)
        elif kind == 3:
            turn = await self._submit(sid, app, first)
            await asyncio.sleep(self._drawn.uniform(0.0, 1.5))
            await self._request("POST", f"/v1/turns/{turn}/cancel")
            await self._follow(turn, first, sid, app)
        elif kind in (5, 7):
            turn, second = await self._submit(sid, app, first), self._word("U")
            await asyncio.sleep(self._drawn.uniform(0.0, 1.0) if kind == 5 else 0.0)
            other = await self._submit(sid, app, second, interrupts=kind == 5)
            self._work.taken += 1
            await asyncio.gather(
                self._follow(turn, first, sid, app), self._follow(other, second, sid, app)
            )
        else:
            turn = await self._submit(sid, app, first, twice=kind == 11)
            await self._follow(turn, first, sid, app)

    async def _delete(self, sid: str, app: str) -> None:
        """Delete the session while one of its turns runs."""
        uid = self._word("U")
        turn = await self._submit(sid, app, uid)
        self._log.add("deleting", sid=sid, uids=[uid])
        reading = asyncio.create_task(self._follow(turn, uid, sid, app, answers=False))
        await asyncio.sleep(self._drawn.uniform(0.0, 1.5))
        await self._request("DELETE", f"/v1/sessions/{sid}", may_be_gone=True)
        self._log.add("deleted", sid=sid)
        await asyncio.wait([reading])
        if not isinstance(error := reading.exception(), GoneError | None):
            raise error

    async def _submit(
        self,
        sid: str,
        app: str,
        uid: str,
        *,
        after: float = 0.0,
        interrupts: bool = False,
        twice: bool = False,
    ) -> str:
        body: dict[str, Any] = {"message": f"BOX:{app}:{uid}"}
        how = "message"
        if after:
            body["run_at"] = (datetime.now(UTC) + timedelta(seconds=after)).isoformat()
            how = "scheduled"
        if interrupts:
            body["busy"], how = "interrupt", "interrupt"
        sent, path, key = time.time(), f"/v1/sessions/{sid}/turns", f"k-{uid}"
        requests = [self._request("POST", path, body, key=key) for _ in range(1 + twice)]
        accepted = await asyncio.gather(*requests)
        if twice:
            self._log.add("twins", turns=[each["id"] for each in accepted])
        self._acknowledged(accepted[0], uid, sid, app, how, sent)
        return accepted[0]["id"]

    def _acknowledged(
        self, turn: Any, uid: str, sid: str, app: str, how: str, sent: float, **more: Any
    ) -> None:
        self._log.add(
            "ack",
            turn=turn["id"],
            number=turn["number"],
            uid=uid,
            sid=sid,
            app=app,
            how=how,
            tenant=self._tenant,
            user=self._user,
            t_sent=sent,
            **more,
        )

    async def _follow(
        self, turn: str, uid: str, sid: str, app: str, *, answers: bool = True
    ) -> None:
        """Read the turn to its end, and answer the input it requires."""
        end = await self._read(turn)
        for call in end.get("calls", ()) if end and answers else ():
            approved, sent = self._drawn.random() < 0.7, time.time()
            body = {"call": call, "approved": approved, "payload": {"answer": uid}}
            path, key = f"/v1/turns/{turn}/approvals", f"a-{turn}-{call}"
            accepted = await self._request("POST", path, body, key=key)
            if self._drawn.random() < 0.5:
                repeated = await self._request("POST", path, body, key=key)
                self._log.add("twins", turns=[accepted["id"], repeated["id"]])
            self._acknowledged(accepted, uid, sid, app, "answer", sent, approved=approved)
            await self._follow(accepted["id"], uid, sid, app)

    async def _read(self, turn: str) -> dict[str, Any] | None:
        """Read a turn to its end, over as many connections as it takes."""
        story = ReadTurn(turn, self._log)
        until = time.monotonic() + _PATIENCE
        while story.end is None:
            if time.monotonic() > until:
                self._log.add("stuck", turn=turn, last=story.last)
                return None
            await self._read_connection(story)
            await asyncio.sleep(self._drawn.uniform(0.0, 0.2))
        self._log.add("end", turn=turn, type=story.end["type"], last=story.last, said=story.said())
        return story.end

    async def _read_connection(self, story: ReadTurn) -> None:
        """Read one connection; cut it after some frames, or read it to its end."""
        most = self._drawn.randint(1, 12) if self._drawn.random() < 0.35 else 1 << 30
        path = f"{self._drawn.choice(self._endpoints.urls)}/v1/turns/{story.turn}/events"
        headers: dict[str, str] = {}
        if self._drawn.random() < 0.5:
            headers["Last-Event-ID"] = str(story.last)
        else:
            path += f"?after={story.last}"
        after, ids = story.last, list[int]()
        try:
            async with self._http.stream("GET", path, headers=headers, timeout=40.0) as answer:
                if answer.status_code == 404:
                    raise GoneError
                if answer.status_code != 200:
                    if answer.status_code not in _BUSY:
                        body = (await answer.aread()).decode()[:300]
                        self._refused("GET", path, answer.status_code, body)
                    return
                async for frame in _frames(answer):
                    ids.append(story.take(frame))
                    if story.end is not None or len(ids) >= most:
                        return
        except httpx.TransportError:
            return
        finally:
            if ids:
                self._log.add("read", turn=story.turn, after=after, ids=ids)

    async def _request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        may_be_gone: bool = False,
    ) -> Any:
        """Send a request until it gets a final response."""
        until = time.monotonic() + _PATIENCE
        headers = {"Idempotency-Key": key} if key else {}
        while time.monotonic() < until:
            try:
                url = self._drawn.choice(self._endpoints.urls) + path
                answer = await self._http.request(method, url, json=body, headers=headers)
            except httpx.TransportError:
                await asyncio.sleep(self._drawn.uniform(0.05, 0.3))
                continue
            if answer.is_success:
                return answer.json() if answer.content else None
            if answer.status_code == 404 and may_be_gone:
                return None
            if answer.status_code not in _BUSY:
                self._refused(method, path, answer.status_code, answer.text[:300])
                raise GoneError
            await asyncio.sleep(self._drawn.uniform(0.05, 0.3))
        self._refused(method, path, 0, "no answer")
        raise GoneError

    def _refused(self, method: str, path: str, status: int, body: str) -> None:
        self._log.add("refused", method=method, path=path, status=status, body=body)

    def _word(self, kind: str) -> str:
        return f"{kind}{self._drawn.getrandbits(64):016x}"


async def _frames(answer: httpx.Response) -> AsyncGenerator[str]:
    """The complete frames of a stream; comments are skipped."""
    rest = b""
    async for chunk in answer.aiter_bytes():
        *whole, rest = (rest + chunk).split(b"\n\n")
        for frame in whole:
            if not frame.startswith(b":"):
                yield frame.decode()


class ReadTurn:
    """The part of a turn that its reader has read so far."""

    def __init__(self, turn: str, log: Log) -> None:
        self.turn, self.last = turn, 0
        self.end: dict[str, Any] | None = None
        self._log = log
        self._pieces: dict[str, str] = {}
        self._said: dict[str, dict[str, Any]] = {}

    def take(self, frame: str) -> int:
        """Add a frame; return its number."""
        fields = dict(line.split(": ", 1) for line in frame.split("\n"))
        number, kind, data = int(fields["id"]), fields["event"], json.loads(fields["data"])
        self.last = number
        message = data.get("message", "")
        if kind == "message.delta":
            self._pieces[message] = self._pieces.get(message, "") + data["text"]
        elif kind == "message.reset":
            self._pieces.pop(message, None)
        elif kind == "message.completed":
            pieces = self._pieces.pop(message, None)
            self._said[message] = {"pieces": pieces, "text": data["text"]}
        elif kind in ENDS:
            self.end = data
        return number

    def said(self) -> dict[str, dict[str, Any]]:
        """The completed messages: for each its joined pieces, if it had any, and its text."""
        return self._said
