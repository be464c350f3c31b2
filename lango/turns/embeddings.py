"""Embeddings of memory: a worker makes them after turns are closed, never in their transaction."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterator, Sequence
from typing import Final

from lango.core.backoff import delays
from lango.core.failpoints import failpoint
from lango.errors import BadRequestError, ContextTooLongError, ModelError
from lango.providers.embeddings import Embedder
from lango.store.memory.vectors import EntryVectors

logger = logging.getLogger(__name__)

_GATHER: Final = 0.2
"""Seconds between a closed turn and the embedding of its entries, which go with those of others."""
_LOOK_EVERY: Final = 30.0
"""Seconds between two looks for entries that no closed turn announced, or that a worker left."""
_LONGEST_WAIT: Final = 60.0
_SHORTEST_TEXT: Final = 500
"""Characters of a refused text that is not cut further."""
_REFUSALS: Final = (BadRequestError, ContextTooLongError)
_NO_EXTENSION: Final = (
    "The entries of %s get no embeddings, and searches use words alone: the database has no "
    "pgvector. Install it, and run `create extension vector` in the database."
)


class EntryEmbedding:
    """Embeds the entries of one app, of all its users.

    A worker claims entries before it sends them to the model, so that workers share the work. A
    claim expires, so the entries of a killed worker are embedded by another one.
    """

    def __init__(self, entries: EntryVectors, app_name: str, embedder: Embedder) -> None:
        self._entries = entries
        self._app_name = app_name
        self._embedder = embedder
        self._woken = asyncio.Event()
        self._waits: Iterator[float] | None = None  # while the model fails
        self._is_logged = False  # that the extension is missing

    def wake(self) -> None:
        """Embed soon: a turn was closed."""
        self._woken.set()

    async def step(self) -> None:
        """Embed all entries that lack an embedding, then wait for more."""
        if not await self._is_supported():
            await asyncio.sleep(_LOOK_EVERY)
            return
        try:
            while await self._embed_some():
                self._waits = None
        except ModelError as error:
            await asyncio.sleep(self._wait_after(error))
            return
        await self._wait_for_more()

    async def _is_supported(self) -> bool:
        is_supported = await self._entries.are_supported()
        if not is_supported and not self._is_logged:
            logger.warning(_NO_EXTENSION, self._app_name)
        self._is_logged = not is_supported
        return is_supported

    def _wait_after(self, error: ModelError) -> float:
        """The seconds until the next try; the first failure of an outage is logged."""
        if self._waits is None:
            logger.warning(
                "The entries of %s get no embeddings until %s answers: %s",
                *(self._app_name, self._embedder.name, error),
            )
            self._waits = delays(first=1.0, cap=_LONGEST_WAIT)
        return max(next(self._waits), error.retry_after or 0.0)

    async def _wait_for_more(self) -> None:
        try:
            # At random: workers that were started together would look at the same moments.
            async with asyncio.timeout(_LOOK_EVERY * random.uniform(0.5, 1.5)):  # noqa: S311
                await self._woken.wait()
            await asyncio.sleep(_GATHER)
        except TimeoutError:
            pass
        self._woken.clear()

    async def _embed_some(self) -> bool:
        """Embed a batch; False if no entry was left. Raises a ModelError if none was embedded."""
        claimed = await self._entries.claim(self._app_name, self._embedder.name)
        if not claimed:
            return False
        failpoint("embedding.claimed")
        try:
            vectors = await self._vectors([entry.text for entry in claimed])
            if len(claimed) > 1 and not any(vectors):
                raise BadRequestError(f"It refuses each of {len(claimed)} texts.")
        except ModelError:
            await self._entries.release(claimed)
            raise
        failpoint("embedding.made")
        embedded = zip(claimed, vectors, strict=True)
        await self._entries.add(
            self._embedder.name,
            {entry.pk: vector for entry, vector in embedded if vector is not None},
        )
        return True

    async def _vectors(self, texts: Sequence[str]) -> list[list[float] | None]:
        """The vectors of texts; None for one that the model refuses, which is tried again later."""
        try:
            return [*await self._embedder.embed(texts)]
        except _REFUSALS as error:
            if len(texts) == 1:
                return [await self._vector_of_part(texts[0], error)]
            middle = len(texts) // 2
            return [*await self._vectors(texts[:middle]), *await self._vectors(texts[middle:])]

    async def _vector_of_part(self, text: str, error: ModelError) -> list[float] | None:
        """The vector of as much of a refused text as the model takes."""
        if len(text) <= _SHORTEST_TEXT:
            logger.info("%s refuses an entry of memory: %s", self._embedder.name, error)
            return None
        [vector] = await self._vectors([text[: len(text) // 2]])
        return vector
