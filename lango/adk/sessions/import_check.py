"""Checksums of a session: of ADK's events, and of the stored copy."""

from __future__ import annotations

import hashlib
import json
from contextlib import aclosing
from typing import Any

from google.adk.events.event import Event

from lango.adk.sessions.decode import EventsAdapter, moved_names
from lango.adk.sessions.normalise import with_response_role
from lango.core.values import json_value
from lango.store.sessions.entries import Entry, SessionKey, StoredMessage
from lango.store.sessions.store import SqlSessionStore
from lango.store.transfer.bulk_import import StoredChange, StoredCopy


class Fingerprint:
    """The number of entries, and a SHA-256 over all of them in order."""

    def __init__(self) -> None:
        self.entries = 0
        self._hash = hashlib.sha256()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Fingerprint) and str(self) == str(other)

    def __str__(self) -> str:
        return f"{self.entries} entries (sha256 {self.hex()[:16]}…)"

    def hex(self) -> str:
        """The checksum."""
        return self._hash.hexdigest()

    def add_text(self, text: str) -> None:
        """Add an entry."""
        self.entries += 1
        self._hash.update(text.encode())
        self._hash.update(b"\n")

    def add_entry(self, event: Event, entry: Entry) -> None:
        """Add what `entry_of` made of an ADK event, as the store should return it."""
        if entry.state_only:
            delta = json_value(entry.changes or "{}")
            self.add_text(_canonical([entry.event_id, entry.invocation_id, delta]))
        else:
            self.add_text(_event_text(with_response_role(event)))

    def add_stored(self, row: Event | StoredChange) -> None:
        """Add a stored row."""
        if isinstance(row, StoredChange):
            self.add_text(_canonical([row.event_id, row.invocation_id, row.delta]))
        else:
            self.add_text(_event_text(row))


async def fingerprint_of_stored(
    store: SqlSessionStore, key: SessionKey, copy: StoredCopy, entries: int
) -> Fingerprint:
    """The fingerprint of the first `entries` rows, converted as when a session is loaded."""
    fingerprint = Fingerprint()
    async with aclosing(copy.pages(min(copy.entries, entries))) as pages:
        async for page in pages:
            rows = [row for row in page if isinstance(row, StoredMessage)]
            names = moved_names(rows)
            blobs = await store.read_blobs(key, names) if names else {}
            events = iter(EventsAdapter(rows, blobs=blobs).all())
            for row in page:
                fingerprint.add_stored(row if isinstance(row, StoredChange) else next(events))
    return fingerprint


def _event_text(event: Event) -> str:
    data = event.model_dump(mode="json", exclude_none=True, warnings=False)
    if "long_running_tool_ids" in data:  # a set: it has no order
        data["long_running_tool_ids"].sort()
    return _canonical(data)


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))
