"""A server on loopback that embeds texts by OpenAI's and Google's APIs; it can be held, or refuse.

The vector of a text counts its words, so texts are near that share words; a test that is about
meaning takes the local model.
"""

import asyncio
import json
import threading
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from zlib import crc32

DIMENSIONS = 16


def vector_of(text: str) -> list[float]:
    counts = [0.0] * DIMENSIONS
    for word in text.lower().split():
        counts[crc32(word.encode()) % DIMENSIONS] += 1.0
    return counts if any(counts) else [1.0] * DIMENSIONS


@dataclass(slots=True)
class EmbeddingServer:
    """What the server got, and how it answers."""

    url: str = ""
    requests: list[list[str]] = field(default_factory=list[list[str]])  # their texts
    bodies: list[Any] = field(default_factory=list[Any])
    paths: list[str] = field(default_factory=list[str])
    refused: str = ""  # a request with this text gets status 400
    status: int = 200
    too_long: int = 10_000  # characters of a text that gets status 400
    open: threading.Event = field(default_factory=threading.Event)

    async def asked(self, count: int = 1) -> None:
        """Wait until it got so many requests."""
        async with asyncio.timeout(300):
            while len(self.requests) < count:  # noqa: ASYNC110 - another thread counts
                await asyncio.sleep(0.02)

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        is_google = "batchEmbedContents" in path
        texts: list[str] = (
            [each["content"]["parts"][0]["text"] for each in body["requests"]]
            if is_google
            else body["input"]
        )
        self.paths.append(path)
        self.bodies.append(body)
        self.requests.append(texts)
        self.open.wait(300)
        if self.status != 200:
            return self.status, {"error": {"message": "out of order"}}
        if (self.refused and self.refused in texts) or max(map(len, texts)) > self.too_long:
            return 400, {"error": {"message": "refused"}}
        vectors = [vector_of(text) for text in texts]
        if is_google:
            return 200, {"embeddings": [{"values": vector} for vector in vectors]}
        data = [{"index": index, "embedding": vector} for index, vector in enumerate(vectors)]
        return 200, {"data": data[::-1], "model": body["model"], "object": "list"}


@contextmanager
def embedding_server() -> Generator[EmbeddingServer]:
    """The server, which answers at once until `open` is cleared."""
    state = EmbeddingServer()
    state.open.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, answer = state.answer(self.path, body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:  # of a client that was killed
                self.close_connection = True

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        state.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield state
        finally:
            state.open.set()
            server.shutdown()
            thread.join()
