"""Artifacts of a claimed turn: fenced by its claim, and saved once per call."""

from __future__ import annotations

from dataclasses import replace

from lango.adk.artifacts import SqlArtifactService
from lango.adk.durable.ledger import saving
from lango.store.files.rows import NewArtifact
from lango.store.sessions.entries import SessionKey
from lango.store.turns.claimed_writes import ClaimedWrites


class ClaimedArtifacts(SqlArtifactService):
    """Artifacts beside the sessions; a tool that runs again gets the version it saved before."""

    def __init__(self, artifacts: SqlArtifactService, writes: ClaimedWrites) -> None:
        super().__init__(artifacts.store, tenant=writes.claim.turn.session.tenant)
        self._writes = writes

    async def _save(self, key: SessionKey, new: NewArtifact) -> int:
        call = saving.get()
        if call is not None:
            new = replace(new, call_id=call.next_id(new.name))
        return await self._writes.save_artifact(key, new)
