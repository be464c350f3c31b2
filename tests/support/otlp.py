"""A receiver of traces: OTLP over HTTP on loopback, which decodes what it gets."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span as ProtoSpan

PATIENCE = 120.0


@dataclass(frozen=True)
class Received:
    """A span as it arrived."""

    name: str
    scope: str
    service: str
    kind: str
    trace: str
    id: str
    parent: str
    links: tuple[str, ...]
    attributes: Mapping[str, Any]
    events: Mapping[str, Mapping[str, Any]]
    status: str
    status_text: str
    began: int
    ended: int


@dataclass
class Receiver:
    """What has arrived so far."""

    url: str = ""
    spans: list[Received] = field(default_factory=list[Received])
    bodies: list[bytes] = field(default_factory=list[bytes])
    headers: list[Mapping[str, str]] = field(default_factory=list[Mapping[str, str]])
    lock: Lock = field(default_factory=Lock)

    def take(self, body: bytes, headers: Mapping[str, str]) -> None:
        """Decode one request."""
        request = ExportTraceServiceRequest.FromString(body)
        with self.lock:
            self.bodies.append(body)
            self.headers.append(headers)
            for resource in request.resource_spans:
                service = _values(resource.resource.attributes)["service.name"]
                for scope in resource.scope_spans:
                    self.spans += [
                        _received(span, scope.scope.name, service) for span in scope.spans
                    ]

    def wait_for(self, complete: Callable[[list[Received]], bool]) -> list[Received]:
        """The spans, once they are complete."""
        until = time.monotonic() + PATIENCE
        while True:
            with self.lock:
                spans = list(self.spans)
            if complete(spans):
                return spans
            assert time.monotonic() < until, sorted(span.name for span in spans)
            time.sleep(0.05)  # spans come in batches, from another process

    def of_trace(self, trace: str, *names: str) -> list[Received]:
        """The spans of a trace, once it has spans of these names."""

        def complete(spans: list[Received]) -> bool:
            return set(names) <= {span.name for span in spans if span.trace == trace}

        return [span for span in self.wait_for(complete) if span.trace == trace]


@contextmanager
def receiver() -> Generator[Receiver]:
    """A receiver that listens until the end of the block."""
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path == "/v1/traces"
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.take(body, {name.lower(): value for name, value in self.headers.items()})
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield received
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _received(span: ProtoSpan, scope: str, service: str) -> Received:
    return Received(
        name=span.name,
        scope=scope,
        service=service,
        kind=ProtoSpan.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_"),
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        links=tuple(link.span_id.hex() for link in span.links),
        attributes=_values(span.attributes),
        events={event.name: _values(event.attributes) for event in span.events},
        status=("UNSET", "OK", "ERROR")[span.status.code],
        status_text=span.status.message,
        began=span.start_time_unix_nano,
        ended=span.end_time_unix_nano,
    )


def _values(attributes: Any) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in attributes}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_value(each) for each in value.array_value.values]
    return None if kind is None else getattr(value, kind)
