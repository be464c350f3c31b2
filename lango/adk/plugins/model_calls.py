"""Every model call, kept in the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Final

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.models.llm_response import LlmResponse

from lango.adk.calls import Caller, is_inner
from lango.adk.plugins.records import RecordingPlugin
from lango.adk.plugins.writing import Writer
from lango.core.model_calls import ModelCall
from lango.providers.loops import PerLoop
from lango.store.model_calls import ModelCallStore
from lango.store.sessions import SqlSessionStore

FLUSH_SECONDS: Final = 1.0
"""How long an answer, and the end of a turn, wait for their records to be written."""
CLOSE_SECONDS: Final = 4.0
"""ADK gives a plugin five seconds to close."""


class ModelCallsPlugin(RecordingPlugin):
    """Writes one row of `model_calls` for every attempt of every model call.

    `store` is a store or its URL. An answer goes on to its agent when its record is written, so a
    process that dies later has not lost what the call used. A database that fails or is slow never
    costs a turn: the records wait for it. `tenant` is that of sessions which are not the store's.
    """

    def __init__(
        self, store: SqlSessionStore | str, *, tenant: str = "", name: str = "lango_model_calls"
    ) -> None:
        super().__init__(name)
        self._owns_store = isinstance(store, str)
        self.store = SqlSessionStore(store) if isinstance(store, str) else store
        self.tenant = tenant
        self._calls = ModelCallStore(self.store.database)
        self._writers = PerLoop(lambda: Writer(self._write, "Records of model calls"))

    def recorded(self, who: Caller, record: ModelCall) -> None:
        """Have it written."""
        tenant = self.tenant if who.tenant is None else who.tenant
        if not self.store.database.is_same(who.database):  # a key of another database's session
            record = replace(record, session_pk=None)
        self._writers.get().put((tenant, record))

    async def _write(self, batch: Sequence[tuple[str, ModelCall]]) -> None:
        for tenant, of_tenant in groupby(batch, key=lambda one: one[0]):
            await self._calls.add(tenant, [record for _, record in of_tenant])

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Wait for the record of a whole answer: nothing may be done with it before."""
        replaced = await super().after_model_callback(
            callback_context=callback_context, llm_response=llm_response
        )
        if not llm_response.partial:
            await self._writers.get().flush(FLUSH_SECONDS)
        return replaced

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Wait for the turn's records, but not long."""
        if not is_inner(invocation_context.invocation_id):
            await self._writers.get().flush(FLUSH_SECONDS)

    async def on_run_error_callback(
        self, *, invocation_context: InvocationContext, error: Exception
    ) -> None:
        """The same when the turn failed."""
        del error
        await self.after_run_callback(invocation_context=invocation_context)

    async def close(self) -> None:
        """Write what waits, and close the store unless it was somebody else's."""
        writer = self._writers.pop()
        if writer is not None:
            await writer.close(CLOSE_SECONDS)
        if self._owns_store:
            await self.store.close()
