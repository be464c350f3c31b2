"""Faults between us and a model, as responses of a scripted server."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

from lango.errors import (
    AuthenticationError,
    BadRequestError,
    BadStreamError,
    ContextTooLongError,
    ModelError,
    ModelTimeoutError,
    ModelUnavailableError,
    RateLimitedError,
    UnknownModelError,
)
from lango.testing.wires import Broken, Call, Refusal, Reply, ScriptedAnswer

SUM: Final = '{"a": 2, "b": 3}'
_DEEP: Final = '{"a":' * 3_000 + "1" + "}" * 3_000


def _calling(*arguments: str, ids: tuple[str | None, ...] = ("call_1", "call_2")) -> ScriptedAnswer:
    calls = [Call("add", text, call_id) for text, call_id in zip(arguments, ids, strict=False)]
    return ScriptedAnswer(calls=tuple(calls))


@dataclass(frozen=True, slots=True)
class HttpFault:
    """A fault, the error it must raise, and whether a retry is right."""

    name: str
    reply: Reply
    error: type[ModelError] | None = None  # None: lango corrects the fault, and the turn succeeds
    retried: bool = False
    spoken: bool = False  # text had reached the consumer before
    sums: list[int] = field(default_factory=list[int])  # the calls that the tool ran for


FAULTS: Final = (
    HttpFault("no finish reason", Broken("no_finish"), BadStreamError, spoken=True),
    HttpFault("zero bytes", Broken("zero_bytes"), BadStreamError, retried=True),
    HttpFault("empty choices", Broken("empty"), BadStreamError, retried=True),
    HttpFault("HTML with 200", Broken("html"), BadStreamError, retried=True),
    HttpFault("duplicate call ids", _calling(SUM, SUM, ids=("same", "same")), sums=[5, 5]),
    HttpFault("missing call ids", _calling(SUM, SUM, ids=(None, None)), sums=[5, 5]),
    HttpFault("ids that ADK strips", _calling(SUM, SUM, ids=("adk-1", "")), sums=[5, 5]),
    HttpFault("truncated arguments", _calling('{"a": 2, "b'), BadStreamError, retried=True),
    HttpFault("arguments are a list", _calling("[2, 3]"), BadStreamError, retried=True),
    HttpFault(
        "arguments nested 3,000 deep",
        replace(_calling(_DEEP), delta=2_000),
        BadStreamError,
        retried=True,
    ),
    HttpFault("no arguments", _calling(""), BadStreamError, retried=True),
    HttpFault("one call whole, one broken", _calling(SUM, "{"), BadStreamError, retried=True),
    HttpFault(
        "a call cut before its arguments",
        Broken("half_call", ScriptedAnswer("Let me see. ", (Call("add", SUM),))),
        BadStreamError,
        spoken=True,
    ),
    HttpFault("429", Refusal("rate_limited"), RateLimitedError, retried=True),
    HttpFault(
        "429, Retry-After",
        Refusal("rate_limited", retry_after="0.05"),
        RateLimitedError,
        retried=True,
    ),
    HttpFault(
        "429, Retry-After an hour", Refusal("rate_limited", retry_after="3600"), RateLimitedError
    ),
    HttpFault("500", Refusal("failing"), ModelUnavailableError, retried=True),
    HttpFault("503", Refusal("overloaded", 503), ModelUnavailableError, retried=True),
    HttpFault(
        "503, Retry-After",
        Refusal("overloaded", 503, retry_after="0.05"),
        ModelUnavailableError,
        retried=True,
    ),
    HttpFault("overloaded", Refusal("overloaded"), ModelUnavailableError, retried=True),
    HttpFault("error in mid-stream", Broken("error"), ModelUnavailableError, spoken=True),
    HttpFault("cut in mid-stream", Broken("cut"), ModelUnavailableError, spoken=True),
    HttpFault("cut at once", Broken("cut", at=0), ModelUnavailableError, retried=True),
    HttpFault("stall in mid-stream", Broken("stall"), ModelTimeoutError, spoken=True),
    HttpFault("stall at once", Broken("stall", at=0), ModelTimeoutError, retried=True),
    HttpFault("context length exceeded", Refusal("too_long"), ContextTooLongError),
    HttpFault("wrong key", Refusal("no_key"), AuthenticationError),
    HttpFault("no such model", Refusal("no_model"), UnknownModelError),
    HttpFault("bad request", Refusal("bad_request"), BadRequestError),
)
