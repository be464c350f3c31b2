"""Rebuilds pydantic models from lango's own JSON, at a fraction of validation's cost.

ADK's events are validated when they are created; rows from lango's own tables need their types
back, not a second check. A test compares events that hypothesis generates with real validation.
Classes with their own validators, and annotations not listed here, are validated as usual.
"""

from __future__ import annotations

import base64
import enum
import types as python_types
import warnings
from collections.abc import Callable
from functools import cached_property
from typing import Any, Generic, Literal, TypeVar, Union, cast, get_args, get_origin

from pydantic import BaseModel, RootModel, TypeAdapter
from pydantic_core import PydanticUndefined

from lango.adk.sessions.pydantic_slots import (
    has_private_factories,
    private_defaults,
    set_extra,
    set_fields_set,
    set_private,
    set_values,
    validator_names,
)

M = TypeVar("M", bound=BaseModel)
Converter = Callable[[Any], Any]

# Inherited by all models of google-genai: it only logs.
_HARMLESS_VALIDATOR = "_check_field_type_mismatches"
_SCALARS = (str, int, float, bool, object, type(None))


class FastModel(Generic[M]):
    """Creates the instances of one class."""

    def __init__(self, model: type[M]) -> None:
        self.model = model
        self.defaults: dict[str, Any] = {}
        self._factories: list[tuple[str, Callable[[], Any]]] = []
        for name, field in model.model_fields.items():
            self.defaults[name] = None if field.default is PydanticUndefined else field.default
            if field.default_factory is not None:
                self._factories.append((name, cast("Callable[[], Any]", field.default_factory)))
        self.assemble = _assembler(model)
        self._fresh_defaults = _starter(self.defaults, self._factories)

    @cached_property
    def converters(self) -> dict[str, Converter | None]:
        """The converter of each field from JSON; None where the JSON value needs none."""
        fields = self.model.model_fields.items()
        return {name: _converter(_unless_none(field.annotation)) for name, field in fields}

    @cached_property
    def is_plain(self) -> bool:
        """Whether field types alone determine an instance."""
        return not (
            validator_names(self.model) - {_HARMLESS_VALIDATOR}
            or has_private_factories(self.model)
            or self.model.model_config.get("extra") == "allow"
            or issubclass(self.model, RootModel)
        )

    def fresh(self) -> M:
        """An instance with its defaults, as calling the class would create it."""
        return self.assemble(self._fresh_defaults(), set())

    def build(self, **values: Any) -> M:
        """An instance with these field values, unchecked, and defaults for the rest."""
        fields = self._fresh_defaults()
        fields.update(values)
        return self.assemble(fields, set(values))

    def factory(self, field: str, **fixed: Any) -> Callable[[Any], M]:
        """A function that creates instances which differ in one field and share the fixed ones.

        The cheapest way to create thousands.
        """
        names = {field, *fixed}
        factories = [(name, factory) for name, factory in self._factories if name not in names]
        start, assemble = _starter(self.defaults | fixed, factories), self.assemble

        def make(value: Any) -> M:
            values = start()
            values[field] = value
            return assemble(values, names.copy())

        return make

    def revive(self, data: dict[str, Any], *, skip_validation: bool = False) -> M:
        """See the function `revive`."""
        if not (skip_validation or self.is_plain):
            return self.model.model_validate(data)
        values = self._fresh_defaults()
        self.fill(values, data)
        return self.assemble(values, set(data))

    def fill(self, values: dict[str, Any], data: dict[str, Any]) -> None:
        """Convert the fields in `data` from JSON, and add them to an instance's values."""
        converters = self.converters
        for name, value in data.items():
            convert = converters[name]
            values[name] = value if convert is None or value is None else convert(value)


_fast_models: dict[type[BaseModel], Any] = {}


def fast_model(model: type[M]) -> FastModel[M]:
    """The `FastModel` of a class, created once."""
    cached = _fast_models.get(model)
    if cached is None:
        cached = _fast_models[model] = FastModel(model)
    return cached


def revive(model: type[M], data: dict[str, Any], *, skip_validation: bool = False) -> M:
    """The model that was dumped as `data` (JSON mode, by field name, without Nones).

    `skip_validation` skips validation: the caller guarantees that validators would change nothing.
    """
    return fast_model(model).revive(data, skip_validation=skip_validation)


def build(model: type[M], **values: Any) -> M:
    """An instance with these field values, unchecked, and defaults for the rest."""
    return fast_model(model).build(**values)


def _starter(
    defaults: dict[str, Any], factories: list[tuple[str, Callable[[], Any]]]
) -> Callable[[], dict[str, Any]]:
    """A function that returns new default field values."""
    if not factories:
        return defaults.copy

    def start() -> dict[str, Any]:
        values = defaults.copy()
        for name, factory in factories:
            values[name] = factory()
        return values

    return start


def _assembler(model: type[M]) -> Callable[[dict[str, Any], set[str]], M]:
    """A function that creates an instance from its field values; a closure, for speed."""
    private = private_defaults(model)
    new, values_setter, fields_setter = object.__new__, set_values, set_fields_set
    extra_setter, private_setter = set_extra, set_private

    def assemble(values: dict[str, Any], fields_set: set[str]) -> M:
        instance = new(model)
        values_setter(instance, values)
        fields_setter(instance, fields_set)
        extra_setter(instance, None)
        private_setter(instance, private and private.copy())
        return instance

    return assemble


def _unless_none(annotation: Any) -> Any:
    """The type of an optional field without None, which `fill` checks for all fields."""
    members = [member for member in get_args(annotation) if member is not type(None)]
    optional = get_origin(annotation) in (Union, python_types.UnionType) and len(members) == 1
    return members[0] if optional else annotation


def _converter(annotation: Any) -> Converter | None:
    """The converter of a type; None if the JSON value needs none."""
    if annotation is Any or annotation in _SCALARS or get_origin(annotation) is Literal:
        return None
    if annotation is bytes:
        return _bytes
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum):
        return _enum(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return fast_model(annotation).revive
    return _generic(annotation)


def _enum(kind: type[enum.Enum]) -> Converter:
    """Convert to members by value; an unknown value was already warned about on arrival."""
    members = {member.value: member for member in kind}

    def convert(value: Any) -> enum.Enum:
        if value in members:
            return members[value]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return kind(value)

    return convert


def _generic(annotation: Any) -> Converter | None:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, python_types.UnionType):
        return _union(
            [argument for argument in arguments if argument is not type(None)], annotation
        )
    if origin is list:
        item = _converter(arguments[0])
        return None if item is None else lambda value: [item(entry) for entry in value]
    if origin is dict:
        item = _converter(arguments[1])
        return None if item is None else lambda value: {k: item(v) for k, v in value.items()}
    if origin is set and arguments == (str,):
        return set
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    return adapter.validate_python


def _union(members: list[Any], annotation: Any) -> Converter | None:
    if len(members) == 1:
        only = _converter(members[0])
        return None if only is None else lambda value: None if value is None else only(value)
    if all(_converter(member) is None for member in members):
        return None
    adapter: TypeAdapter[Any] = TypeAdapter(annotation)
    return adapter.validate_python


def _bytes(value: str | bytes) -> bytes:
    """Decode base64; bytes that were not in the row are already decoded."""
    return value if isinstance(value, bytes) else base64.urlsafe_b64decode(value)
