"""Records every model call in the database."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from google.adk.agents.callback_context import CallbackContext
from google.adk.agents.invocation_context import InvocationContext
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse

from lango.adk.models.caller import ModelCaller, claimed_turn, is_inner, note_caller
from lango.adk.plugins.models import is_surely_asked, model_of
from lango.adk.plugins.records import RecordingPlugin, record_of
from lango.adk.plugins.writing import Writer
from lango.core.context.model_calls import ModelCall
from lango.errors import StoreBusyError
from lango.providers.policy.per_loop import PerLoop
from lango.store.model_calls import ModelCallStore
from lango.store.sessions.store import SqlSessionStore
from lango.store.turns.model_calls import enter_call
from lango.telemetry.metrics.switch import metrics

FLUSH_SECONDS: Final = 1.0
"""How long an answer, and the end of a turn, wait for their records to be written."""
CLAIMED_FLUSH_SECONDS: Final = 10.0
"""The same in a durable turn, whose next step needs the same database anyway."""
CLOSE_SECONDS: Final = 4.0
"""ADK gives a plugin five seconds to close."""


_Kind = Literal["settle", "add", "parts"]


class _Written(NamedTuple):
    """A pending write: the end of a call that has a row, a whole row, or prompt parts."""

    tenant: str
    record: ModelCall
    kind: _Kind


class ModelCallsPlugin(RecordingPlugin):
    """Writes one row of `model_calls` for every attempt of every model call.

    `store` is a store or its URL. In a durable turn the row is written as `started` before the
    request goes out. In other runs, and for a model that is not lango's if its agent has
    before_model callbacks, it is written when the attempt ends. An answer waits for the record of
    its usage, so a later crash does not lose it. If the database fails or is slow at that point,
    the records wait and the turn continues. `tenant` is for sessions outside the store.
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

    async def before_model_callback(
        self, *, callback_context: CallbackContext, llm_request: LlmRequest
    ) -> LlmResponse | None:
        """Subscribe to the call's records; write the `started` row if the model is not lango's."""
        replaced = await super().before_model_callback(
            callback_context=callback_context, llm_request=llm_request
        )
        caller = note_caller(callback_context, llm_request)
        if caller.claimed is not None and is_surely_asked(callback_context):
            await self.started(caller, record_of(caller, model_of(callback_context), "started"))
        return replaced

    async def started(self, caller: ModelCaller, record: ModelCall) -> None:
        """Write the row of a claimed turn's call; Fenced if another worker holds the turn."""
        holding = caller.claimed.holding if caller.claimed else None
        if (
            holding is None
            or record.session_pk != holding.claim.turn.session_pk
            or not self._has(caller)
        ):
            return
        with holding.proving():
            await enter_call(self.store.database, holding.claim, record)
        caller.entered.add(record.number)
        await holding.check()  # queries only if the row took long
        tenant = self._tenant(caller)
        if self._calls.has_new_parts(tenant, record):
            self._writers.get().put(_Written(tenant, record, "parts"))

    def recorded(self, caller: ModelCaller, record: ModelCall) -> None:
        """Measure the record, and queue it for writing."""
        if metrics.recorder is not None:
            metrics.recorder.model_request(record.attempt, record.price)
        if not self._has(caller):  # the session is in another database
            record = replace(record, session_pk=None, turn_number=None)
        kind: _Kind = "settle" if record.number in caller.entered else "add"
        self._writers.get().put(_Written(self._tenant(caller), record, kind))

    def _tenant(self, caller: ModelCaller) -> str:
        return self.tenant if caller.tenant is None else caller.tenant

    def _has(self, caller: ModelCaller) -> bool:
        """Whether the caller's session is in the database of the records."""
        return self.store.database.is_same(caller.database)

    async def _write(self, batch: Sequence[_Written]) -> None:
        await self._calls.settle(
            [write_item.record for write_item in batch if write_item.kind == "settle"]
        )
        busy: StoreBusyError | None = None
        for tenant in {write_item.tenant for write_item in batch}:
            for kind, write in (("add", self._calls.add), ("parts", self._calls.add_parts)):
                records = [
                    write_item.record
                    for write_item in batch
                    if (write_item.tenant, write_item.kind) == (tenant, kind)
                ]
                try:
                    await write(tenant, records)
                except StoreBusyError as error:  # the rest is written; a repeat is harmless
                    busy = error
        if busy is not None:
            raise busy

    async def flush(self) -> None:
        """Wait for pending writes; in a durable turn also while the database is down."""
        writer, is_durable = self._writers.get(), claimed_turn.get() is not None
        seconds = CLAIMED_FLUSH_SECONDS if is_durable else FLUSH_SECONDS
        await writer.flush(seconds, outlasts=is_durable)

    async def after_model_callback(
        self, *, callback_context: CallbackContext, llm_response: LlmResponse
    ) -> LlmResponse | None:
        """Wait for the record of a whole answer, before the agent uses the answer."""
        replaced = await super().after_model_callback(
            callback_context=callback_context, llm_response=llm_response
        )
        if not llm_response.partial:
            await self.flush()
        return replaced

    async def after_run_callback(self, *, invocation_context: InvocationContext) -> None:
        """Wait for the turn's records, for a limited time."""
        if not is_inner(invocation_context.invocation_id):
            await self.flush()

    async def on_run_error_callback(
        self, *, invocation_context: InvocationContext, error: Exception
    ) -> None:
        """The same when the turn failed."""
        del error
        await self.after_run_callback(invocation_context=invocation_context)

    async def close(self) -> None:
        """Write pending records, and close the store if the plugin opened it."""
        writer = self._writers.pop()
        if writer is not None:
            await writer.close(CLOSE_SECONDS)
        if self._owns_store:
            await self.store.close()
