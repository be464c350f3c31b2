"""An embedding model: vectors of texts, and of one query within a short time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from math import isfinite
from typing import Final

from lango.errors import BadStreamError, ModelError, ModelTimeoutError
from lango.providers.base import Closing, Embedding, Warming

logger = logging.getLogger(__name__)

TEXTS_WITHIN: Final = 60.0
"""Seconds that a request for many texts may take."""
QUERY_WITHIN: Final = 2.0
"""Seconds that the embedding of a query may delay a search."""
_MAX_QUERY: Final = 2_000
"""Characters of a query that are embedded."""


class Embedder:
    """A provider's embedding model; `name` is the full one, "openai:text-embedding-3-small"."""

    def __init__(self, provider: Embedding, name: str, model: str) -> None:
        self.name = name
        self._provider = provider
        self._model = model
        self._is_warm = False
        self._fails = False  # logged, until a query succeeds again

    async def embed(
        self, texts: Sequence[str], *, within: float = TEXTS_WITHIN
    ) -> list[list[float]]:
        """The vectors of texts, in their order; raises a ModelError. Nothing is retried."""
        if not self._is_warm and isinstance(self._provider, Warming):
            await self._provider.warm_up()  # not in the time: an SDK's first use is slow
            self._is_warm = True
        try:
            async with asyncio.timeout(within):
                vectors = await self._provider.embed(self._model, texts)
        except TimeoutError as error:
            raise ModelTimeoutError(f"No embeddings came within {within:g} s.") from error
        is_whole = len(vectors) == len(texts) and all(map(_is_valid, vectors))
        if not is_whole:
            raise BadStreamError(f"{len(vectors)} embeddings for {len(texts)} texts, or not valid.")
        return vectors

    async def embed_query(self, query: str) -> list[float] | None:
        """The vector of a query; None, logged once, if there is none in time."""
        if not query.strip():
            return None
        try:
            [vector] = await self.embed([query[:_MAX_QUERY]], within=QUERY_WITHIN)
        except ModelError as error:
            if not self._fails:
                logger.warning(
                    "%s: %s Searches of memory use words alone until it answers.", self.name, error
                )
            self._fails = True
            return None
        self._fails = False
        return vector

    async def close(self) -> None:
        """Close the connections of the running loop."""
        if isinstance(self._provider, Closing):
            await self._provider.close()


def _is_valid(vector: Sequence[float]) -> bool:
    return any(vector) and all(map(isfinite, vector))
