"""Memory of a claimed turn: it belongs to the session of the claim, not to one of its name."""

from __future__ import annotations

from lango.adk.memory import SqlMemoryService
from lango.store.sessions.entries import SessionKey, SessionRef
from lango.store.turns.rows import Claim


class ClaimedMemory(SqlMemoryService):
    """Memory beside the sessions; after its session was deleted, a turn adds nothing."""

    def __init__(self, memory: SqlMemoryService, claim: Claim) -> None:
        super().__init__(
            memory.store,
            tenant=claim.turn.session.tenant,
            requires_session=True,
            limit=memory.limit,
            embeddings=memory.embedder,
        )
        self._claim = claim

    @property
    def _added_in(self) -> SessionRef:
        return self._claim.ref

    def _ref(self, key: SessionKey) -> SessionRef:
        return self._claim.ref if key == self._claim.turn.session else super()._ref(key)
