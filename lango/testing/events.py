"""Hypothesis strategies for ADK events: `adk_events()` and `ordinary_events()`.

`adk_events()` follows the fields of ADK's models, so it generates a field that an ADK release adds
without a change here. Strategies are written by hand only where a model is less precise than ADK
(ids, state keys, an invariant between fields). Nothing is filtered out.
"""

from __future__ import annotations

import enum
import types as python_types
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any, Final, Literal, TypeVar, Union, cast, get_args, get_origin

from google.adk.auth.auth_credential import ServiceAccount, ServiceAccountCredential
from google.adk.auth.auth_tool import AuthConfig
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.models.cache_metadata import CacheMetadata
from google.adk.tools.tool_confirmation import ToolConfirmation
from google.genai import types
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from lango.testing.runner_events import STATE_KEYS, ordinary_events
from lango.testing.values import (
    any_objects,
    any_values,
    blobs,
    floats,
    instances,
    integers,
    plain_json,
    texts,
    weighted,
)

__all__ = ["adk_events", "model", "ordinary_events"]

M = TypeVar("M", bound=BaseModel)

_PRIMITIVES: Final[dict[Any, Callable[[], SearchStrategy[Any]]]] = {
    str: texts,
    int: integers,
    float: floats,
    bool: st.booleans,
    bytes: blobs,
    type(None): st.none,
    Any: any_values,
    dict[str, Any]: any_objects,
}


def adk_events() -> SearchStrategy[Event]:
    """Every event that google-adk can hold: a third ordinary, two thirds arbitrary."""
    return weighted((1, ordinary_events()), (2, _events()))


# --- from an annotation to a strategy -------------------------------------------------------


def model(cls: type[M]) -> SearchStrategy[M]:
    """Instances of a pydantic model with some of its optional fields set."""
    return cast("SearchStrategy[M]", _model(cls))


@cache
def _model(cls: type[BaseModel]) -> SearchStrategy[Any]:
    by_hand = _BY_HAND.get(cls)
    return by_hand() if by_hand else _sparse(cls)


@cache
def _sparse(cls: type[BaseModel], least: int = 0, most: int = 4) -> SearchStrategy[Any]:
    required = {name for name, field in cls.model_fields.items() if field.is_required()}
    required |= _ALWAYS.get(cls, set())
    optional = sorted(set(cls.model_fields) - required)
    optional_names = st.sets(st.sampled_from(optional), min_size=least, max_size=most)

    @st.composite
    def build(draw: DrawFn) -> BaseModel:
        names = required | draw(optional_names) if optional else required
        values = {name: draw(_field(cls, name)) for name in sorted(names)}
        return _instance(cls, values, draw(_extras(cls)))

    return st.deferred(build)


def _instance(cls: type[BaseModel], values: dict[str, Any], extras: dict[str, Any]) -> BaseModel:
    aliased = {cls.model_fields[name].alias or name: value for name, value in values.items()}
    return cls.model_validate({**aliased, **extras})


@cache
def _extras(cls: type[BaseModel]) -> SearchStrategy[dict[str, Any]]:
    if cls.model_config.get("extra") != "allow":
        return st.just({})
    return weighted((5, st.just({})), (1, st.fixed_dictionaries({"x-vendor": plain_json()})))


@cache
def _field(cls: type[BaseModel], name: str) -> SearchStrategy[Any]:
    by_hand = _FIELDS_BY_HAND.get((cls, name))
    if by_hand:
        return by_hand()
    field = cls.model_fields[name]
    return _constrained(field) if field.metadata else _of(field.annotation)


def _constrained(field: FieldInfo) -> SearchStrategy[Any]:
    bounds = {
        key: getattr(rule, key)
        for rule in field.metadata
        for key in ("ge", "le")
        if hasattr(rule, key)
    }
    if len(bounds) != len(field.metadata):
        raise NotImplementedError(f"no strategy for the rules {field.metadata}")
    numbers = st.integers(bounds.get("ge"), bounds.get("le"))
    return st.none() | numbers if type(None) in get_args(field.annotation) else numbers


@cache
def _of(annotation: Any) -> SearchStrategy[Any]:
    if annotation in _PRIMITIVES:
        return _PRIMITIVES[annotation]()
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _model(annotation)
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _enum(annotation)
    return _of_generic(annotation)


def _of_generic(annotation: Any) -> SearchStrategy[Any]:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, python_types.UnionType):
        # Mostly a value: None is the default of nearly every field.
        arms = [(1 if arm is type(None) else 4, _of(arm)) for arm in arguments]
        return weighted(*arms)
    if origin is list:
        return st.lists(_of(arguments[0]), max_size=3)
    if origin is set:
        return st.sets(_of(arguments[0]), max_size=3)
    if origin is dict:
        return st.dictionaries(_of(arguments[0]), _of(arguments[1]), max_size=3)
    raise NotImplementedError(f"no strategy for {annotation!r}")


def _enum(cls: type[enum.Enum]) -> SearchStrategy[Any]:
    members = st.sampled_from(list(cls))
    if not cls.__module__.startswith("google.genai"):
        return members
    # The SDK keeps unknown values, which a newer server may send.
    return weighted((9, members), (1, st.builds(_unknown_member, st.just(cls))))


def _unknown_member(cls: type[enum.Enum]) -> enum.Enum:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return cls("VALUE_OF_A_LATER_VERSION")


# --- what the models do not say -------------------------------------------------------------


def _ids() -> SearchStrategy[str]:
    """Ids as ADK and models create them; one in forty is empty, too long or not storable."""
    odd = st.sampled_from(["../../etc", "with space", "шаг-1", "a" * 256, "call_1", "e\u0301"])
    bad = st.sampled_from(["", "a" * 257, "a" * 10_000, "tab\t", "nul\x00", "\ud800"])
    return weighted((33, st.uuids().map(str)), (6, odd), (1, bad))


def _call_ids() -> SearchStrategy[str | None]:
    """Call ids: few, so that they repeat; sometimes None or empty."""
    few = st.sampled_from(["call_1", "call_2", "adk-1", "call_search", "call_search_2"])
    return weighted((12, few), (4, st.none()), (4, st.just("")), (2, _ids()))


def _names() -> SearchStrategy[str]:
    return weighted((8, st.sampled_from(["search", "transfer_to_agent", "book"])), (1, texts()))


def _long_running_ids() -> SearchStrategy[set[str] | None]:
    ids = st.one_of(st.sampled_from(["call_1", "call_2", "call_search"]), _ids())
    return weighted((1, st.none()), (6, st.sets(ids, max_size=3)))


def _state_deltas() -> SearchStrategy[dict[str, Any]]:
    keys = weighted(
        (6, st.sampled_from(STATE_KEYS)),
        (1, st.sampled_from(["app:", "user:", "temp:", ":", "App:x", " user:x", "app:user:x"])),
        (1, texts()),
    )
    values: SearchStrategy[Any] = weighted((1, st.none()), (3, plain_json()), (2, any_values()))
    return st.dictionaries(keys, values, max_size=4)


def _keyed_by_call(values: SearchStrategy[Any]) -> SearchStrategy[dict[str, Any]]:
    keys = weighted((6, st.sampled_from(["call_1", "call_2"])), (1, texts()))
    return st.dictionaries(keys, values, max_size=2)


def _timestamps() -> SearchStrategy[float]:
    recent = st.floats(1.7e9, 1.8e9)
    return weighted((6, recent), (1, st.sampled_from([0.0, -1.0, 1.8e9, 1e18])), (1, st.floats()))


def _events() -> SearchStrategy[Event]:
    """Events with the common fields, and some of the others."""
    always = ("id", "author", "invocation_id", "timestamp")
    other_fields = sorted(set(Event.model_fields) - {*always, "content", "actions"})

    @st.composite
    def build(draw: DrawFn) -> Event:
        names = {*always, *draw(st.sets(st.sampled_from(other_fields), max_size=5))}
        names |= draw(st.sampled_from([{"content"}, {"content", "actions"}, {"actions"}, set()]))
        values = {name: draw(_field(Event, name)) for name in sorted(names)}
        return cast("Event", _instance(Event, values, {}))

    return build()


def _contents() -> SearchStrategy[types.Content]:
    roles = weighted((4, st.sampled_from(["user", "model"])), (1, st.none()), (1, texts()))
    parts = st.one_of(
        st.lists(_parts(), min_size=1, max_size=4),
        st.lists(_parts(), min_size=1, max_size=1),
        weighted((3, st.just(cast("list[types.Part]", []))), (1, st.none())),
    )
    return instances(types.Content, role=roles, parts=parts)


def _parts() -> SearchStrategy[types.Part]:
    """The usual kinds of parts, and parts with arbitrary fields set."""
    return weighted(
        (3, instances(types.Part, text=texts())),
        (2, instances(types.Part, function_call=model(types.FunctionCall))),
        (2, instances(types.Part, function_response=model(types.FunctionResponse))),
        (1, instances(types.Part, text=texts(), thought=st.just(True), thought_signature=blobs())),
        (4, cast("SearchStrategy[types.Part]", _sparse(types.Part, 1, 1))),
        (2, cast("SearchStrategy[types.Part]", _sparse(types.Part, 0, 3))),
    )


def _actions() -> SearchStrategy[EventActions]:
    return weighted(
        (1, instances(EventActions, state_delta=_state_deltas())),
        (2, cast("SearchStrategy[EventActions]", _sparse(EventActions, 1))),
    )


def _cache_metadata() -> SearchStrategy[CacheMetadata]:
    """Either a fingerprint alone or an active cache; ADK allows nothing in between."""
    counts = st.integers(0, 1000)
    inactive = instances(CacheMetadata, fingerprint=texts(), contents_count=counts)
    active = instances(
        CacheMetadata,
        fingerprint=texts(),
        contents_count=counts,
        cache_name=texts(),
        expire_time=floats(),
        invocations_used=counts,
        created_at=st.none() | floats(),
    )
    return inactive | active


def _credential_keys() -> SearchStrategy[str]:
    """Never empty: for an empty key ADK hashes the scheme, which fails for unencodable text."""
    return texts().map(lambda text: text or "key")


def _service_accounts() -> SearchStrategy[ServiceAccount]:
    credentials = model(ServiceAccountCredential)
    return instances(
        ServiceAccount,
        service_account_credential=credentials,
        use_default_credential=st.booleans(),
        scopes=st.none() | st.lists(texts(), max_size=2),
        use_id_token=st.booleans(),
        audience=st.just("https://service.example"),
    )


_BY_HAND: Final[dict[type[BaseModel], Callable[[], SearchStrategy[Any]]]] = {
    types.Content: _contents,
    EventActions: _actions,
    CacheMetadata: _cache_metadata,
    ServiceAccount: _service_accounts,
}

_ALWAYS: Final[dict[type[BaseModel], set[str]]] = {AuthConfig: {"credential_key"}}

_FIELDS_BY_HAND: Final[dict[tuple[type[BaseModel], str], Callable[[], SearchStrategy[Any]]]] = {
    (Event, "id"): _ids,
    (Event, "author"): lambda: weighted(
        (6, st.sampled_from(["user", "agent", "helper"])), (1, st.just("")), (1, texts())
    ),
    (Event, "invocation_id"): lambda: weighted(
        (6, st.sampled_from(["inv-1", "inv-2"])), (1, st.just("")), (1, _ids())
    ),
    (Event, "timestamp"): _timestamps,
    (Event, "partial"): lambda: weighted((2, st.none()), (2, st.just(False)), (1, st.just(True))),
    (Event, "long_running_tool_ids"): _long_running_ids,
    (EventActions, "state_delta"): _state_deltas,
    (EventActions, "requested_auth_configs"): lambda: _keyed_by_call(model(AuthConfig)),
    (EventActions, "requested_tool_confirmations"): lambda: _keyed_by_call(model(ToolConfirmation)),
    (AuthConfig, "credential_key"): _credential_keys,
    (types.FunctionCall, "id"): _call_ids,
    (types.FunctionCall, "name"): _names,
    (types.FunctionResponse, "id"): _call_ids,
    (types.FunctionResponse, "name"): _names,
}
