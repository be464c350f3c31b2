"""An object store by obstore: a bucket of S3, Google or Azure, or a folder of this machine."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from lango.core.extras import install
from lango.core.ids import new_id
from lango.errors import ConfigError, ObjectStoreError
from lango.store.files.contents import CHUNK, BytesInMemory, Content

if TYPE_CHECKING:
    from collections.abc import Generator

    from obstore.store import ObjectStore as Client

logger = logging.getLogger(__name__)

EXTRA: Final = "objects"
PART: Final = 8 * CHUNK
"""Bytes of a request of an upload, which keeps up to four parts in memory."""
READ: Final = 2 * CHUNK
"""Bytes of a request of a download: a slow reader keeps no request open."""
_PARTS_AT_A_TIME: Final = 2
_PAGE: Final = 500
_RETRIES: Final[Any] = {"max_retries": 1, "retry_timeout": timedelta(seconds=10)}
"""Of a single request; operations are retried as those of the database are."""
_WORDS: Final = 300


class ObjectStore:
    """Objects by key. No key is used twice, so an object never changes.

    obstore reads credentials and endpoints from its environment variables. Every operation raises
    ObjectStoreError if the store cannot be reached, or refuses it.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.folder: str | None = None
        """The database's own folder in it, once it is known."""

    @cached_property
    def _client(self) -> Client:
        try:
            from obstore.exceptions import BaseError
            from obstore.store import from_url
        except ImportError as error:
            raise ConfigError(
                f"files.objects needs obstore. Install it: {install(EXTRA)}."
            ) from error
        try:
            if self.url.startswith("file:"):
                return from_url(self.url, mkdir=True)
            return from_url(self.url, retry_config=_RETRIES)
        except (BaseError, OSError, ValueError) as error:
            raise ConfigError(
                f"files.objects cannot be used: {_first_line(error)}. Correct it, or the "
                "environment variables of its account and credentials (docs: "
                "how-to/object-storage)."
            ) from error

    def open(self) -> None:
        """Read the settings of the client; ConfigError if they are wrong. Sends no request."""
        assert self._client is not None  # noqa: S101 - reading it raises

    async def put(self, key: str, content: Content) -> None:
        """Store an object, a few parts at a time; a repeated call stores the same."""
        with self._errors():
            await self._client.put_async(
                key,
                content.chunks(),
                use_multipart=content.size > PART,
                chunk_size=PART,
                max_concurrency=_PARTS_AT_A_TIME,
            )

    async def read(self, key: str, start: int, end: int) -> memoryview | None:
        """The bytes of an object from `start` to before `end`; None if there is no such object."""
        with self._errors():
            try:
                return memoryview(await self._client.get_range_async(key, start=start, end=end))
            except FileNotFoundError:
                return None

    async def delete(self, keys: Sequence[str]) -> None:
        """Delete objects; a missing one is no error."""
        with self._errors():
            try:
                await self._client.delete_async(keys)
            except FileNotFoundError:
                # Not all stores go on after a missing one.
                await asyncio.gather(*map(self._delete, keys))

    async def _delete(self, key: str) -> None:
        with suppress(FileNotFoundError):
            await self._client.delete_async(key)

    async def probe(self) -> None:
        """Store, read and delete an object; ObjectStoreError if that does not work."""
        key, content = f"lango-probe/{new_id('obj')}", BytesInMemory(b"lango")
        await self.put(key, content)
        data = await self.read(key, 0, content.size)
        await self.delete([key])
        if data is None or bytes(data) != content.data:
            raise ObjectStoreError("The object store returned something else than it was given.")

    async def older_than(self, folder: str, age: timedelta) -> AsyncGenerator[list[str]]:
        """The keys of a folder's objects that were stored longer ago than `age`, in pages."""
        before = datetime.now(UTC) - age
        with self._errors():
            # Its type names a package for tables, which obstore does not need.
            pages = self._client.list(folder, chunk_size=_PAGE)  # pyright: ignore[reportUnknownMemberType]
            async for page in pages:
                yield [
                    stored_object["path"]
                    for stored_object in page
                    if stored_object["last_modified"] < before
                ]

    @contextmanager
    def _errors(self) -> Generator[None]:
        """Raise what the client raises as ObjectStoreError."""
        self.open()
        from obstore.exceptions import BaseError

        try:
            yield
        except (BaseError, OSError) as error:
            logger.warning("The object store failed: %s", _first_line(error))
            raise ObjectStoreError(f"{ObjectStoreError.__doc__} {_first_line(error)}.") from error


def _first_line(error: BaseException) -> str:
    """What happened, without the dump that obstore adds."""
    return str(error).partition("\n")[0].strip().rstrip(".")[:_WORDS]
