"""Base class of providers on a vendor's SDK."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ClassVar, Generic, TypeVar

from lango.core.messages.streams import StreamEvent
from lango.errors import ModelError
from lango.providers.base import ModelRequest
from lango.providers.policy.per_loop import PerLoop
from lango.providers.policy.timeouts import Timeouts
from lango.providers.shared.assembly import Assembly
from lango.providers.shared.decoding import Decoder, decoded
from lango.providers.shared.errors import of_invalid_stream, of_transport

Client = TypeVar("Client")
Chunk = TypeVar("Chunk")
Answer = TypeVar("Answer")


class SdkProvider(ABC, Generic[Client, Chunk]):
    """Has an SDK client for each event loop, and a decoder for each answer.

    A client passed by the caller is used as it is; the caller closes it.
    """

    family: ClassVar[str]
    """The default name."""

    def __init__(
        self,
        *,
        name: str = "",
        api_key: str | None = None,
        base_url: str | None = None,
        timeouts: Timeouts | None = None,
        client: Client | None = None,
    ) -> None:
        self._name = name or self.family
        self._api_key = api_key
        self._base_url = base_url
        self._timeouts = timeouts or Timeouts()
        self._client = client
        self._made = PerLoop(self._make)

    @property
    def name(self) -> str:
        """The family its reasoning data belongs to."""
        return self._name

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """Stream the answer."""
        decoder = self._decoder(request)

        def call() -> Awaitable[AsyncIterator[Chunk]]:
            resource = self._resource(self._client or self._made.get())
            return self._open(resource, request, decoder.answer)

        return decoded(call, decoder, self._explain, self._timeouts)

    async def warm_up(self) -> None:
        """Import the SDK and create the client, in a thread; else both delay the first answer.

        Raises MissingExtraError, and AuthenticationError if the client needs its key at creation.
        """
        client = self._client or await self._made.in_thread()
        await asyncio.to_thread(self._resource, client)

    async def close(self) -> None:
        """Close the connections of the running loop; a later request opens new ones."""
        client = self._made.pop()
        if client is not None:
            await self._close_client(client)

    async def _requested(self, request: Callable[[Client], Awaitable[Answer]]) -> Answer:
        """The answer to a request that is not streamed; every error is raised as a ModelError."""
        client = self._client or await self._made.in_thread()
        try:
            return await request(client)
        except TimeoutError:
            raise  # of the caller's own clock
        except Exception as error:
            explained = self._explain(error) or of_transport(error) or of_invalid_stream(error)
            raise explained from error

    @abstractmethod
    def _make(self) -> Client:
        """Create a client that does not retry: the policy does that."""

    @abstractmethod
    def _resource(self, client: Client) -> Any:
        """The part of a client that takes requests; SDKs import it on first access."""

    @abstractmethod
    def _decoder(self, request: ModelRequest) -> Decoder[Chunk]:
        """The decoder of one answer."""

    @abstractmethod
    def _open(
        self, resource: Any, request: ModelRequest, answer: Assembly
    ) -> Awaitable[AsyncIterator[Chunk]]:
        """Open the stream of one answer's chunks."""

    @abstractmethod
    def _explain(self, error: Exception) -> ModelError | None:
        """The lango error for an SDK error; None for other exceptions."""

    @abstractmethod
    async def _close_client(self, client: Client) -> None:
        """Close a client."""
