"""A provider on a vendor's SDK: what the wires do alike."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable
from typing import Any, ClassVar, Generic, TypeVar

from lango.core.streams import StreamEvent
from lango.errors import ModelError
from lango.providers.assembly import Assembly
from lango.providers.base import ModelRequest
from lango.providers.loops import PerLoop
from lango.providers.timeouts import Timeouts
from lango.providers.warming import build_models
from lango.providers.wire import Decoder, decoded

Client = TypeVar("Client")
Chunk = TypeVar("Chunk")


class SdkProvider(ABC, Generic[Client, Chunk]):
    """Has a client of the SDK for each loop, and a decoder for each answer.

    A client that was given is used as it is, and is its owner's to close.
    """

    family: ClassVar[str]
    """The name it has when it is given none."""

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
        self._given = client
        self._made = PerLoop(self._make)

    @property
    def name(self) -> str:
        """The family its reasoning data belongs to."""
        return self._name

    def stream(self, request: ModelRequest) -> AsyncIterator[StreamEvent]:
        """The answer as it arrives."""
        decoder = self._decoder(request)

        def call() -> Awaitable[AsyncIterator[Chunk]]:
            resource = self._resource(self._given or self._made.get())
            return self._open(resource, request, decoder.answer)

        return decoded(call, decoder, self._explain, self._timeouts)

    async def warm_up(self) -> None:
        """Import the SDK and make the client, in a thread; else the first answer waits for both.

        Raises MissingExtraError, and AuthenticationError where the SDK wants its key at once.
        """
        client = self._given or await self._made.in_thread()
        await asyncio.to_thread(self._resource, client)
        await asyncio.to_thread(lambda: build_models(self._chunk()))

    async def close(self) -> None:
        """Close the connections of the running loop; a later request makes new ones."""
        client = self._made.pop()
        if client is not None:
            await self._shut(client)

    @abstractmethod
    def _make(self) -> Client:
        """A client that never tries again by itself, for that is the policy's work."""

    @abstractmethod
    def _resource(self, client: Client) -> Any:
        """The part of a client that is asked; SDKs import it when they are asked for it."""

    @abstractmethod
    def _chunk(self) -> Any:
        """The type of the chunks."""

    @abstractmethod
    def _decoder(self, request: ModelRequest) -> Decoder[Chunk]:
        """The decoder of one answer."""

    @abstractmethod
    def _open(
        self, resource: Any, request: ModelRequest, answer: Assembly
    ) -> Awaitable[AsyncIterator[Chunk]]:
        """The chunks of one answer."""

    @abstractmethod
    def _explain(self, error: Exception) -> ModelError | None:
        """An error of the SDK as ours; None for what the SDK did not raise."""

    @abstractmethod
    async def _shut(self, client: Client) -> None:
        """Close a client."""
