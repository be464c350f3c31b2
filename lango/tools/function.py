"""A typed function as a tool: its types become the schema, its docstring the description."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, ParamSpec, TypeVar, cast, overload

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.json_schema import GenerateJsonSchema

from lango.core.values import JsonObject
from lango.errors import InvalidToolError, ToolArgumentsError
from lango.tools import docstrings
from lango.tools.base import DEFAULT_TIMEOUT, CallInfo, Run, Tool
from lango.tools.schema import location_of, wrong_argument

P = ParamSpec("P")
R = TypeVar("R")

_VARIADIC: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@dataclass(frozen=True, eq=False)
class FunctionTool(Tool, Generic[P, R]):
    """A function as a tool; it can still be called as a function."""

    function: Callable[P, R] = field(kw_only=True)
    arguments: Arguments = field(kw_only=True)

    def __post_init__(self) -> None:
        """Take over the function's name, docstring and signature."""
        Tool.__post_init__(self)
        for name in ("__name__", "__qualname__", "__module__", "__doc__"):
            self.__dict__[name] = getattr(self.function, name, None)
        self.__dict__["__wrapped__"] = self.function

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, unchecked."""
        return self.function(*args, **kwargs)

    def checked(self, arguments: Mapping[str, Any]) -> JsonObject:
        """The arguments converted to the function's types."""
        return self.arguments.converted(arguments)


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    require_confirmation: bool = False,
    timeout: float | None = DEFAULT_TIMEOUT,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...
def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    idempotent: bool = False,
    require_confirmation: bool = False,
    timeout: float | None = DEFAULT_TIMEOUT,
) -> Any:
    """Make a tool from a typed function; a decorator with or without options."""

    def decorate(function: Callable[..., Any]) -> FunctionTool[..., Any]:
        arguments = Arguments(function)
        summary, of_parameters = docstrings.parse(inspect.getdoc(function))
        return FunctionTool(
            name=name or function.__name__,
            description=summary if description is None else description,
            parameters=arguments.schema(of_parameters),
            run=_runner(function, arguments),
            idempotent=idempotent,
            require_confirmation=require_confirmation,
            timeout=timeout,
            function=function,
            arguments=arguments,
        )

    return decorate if function is None else decorate(function)


def _runner(function: Callable[..., Any], arguments: Arguments) -> Run:
    if not inspect.iscoroutinefunction(function):
        return lambda values, info: arguments.apply(function, values, info)

    async def run(values: JsonObject, info: CallInfo) -> Any:
        return await cast("Awaitable[Any]", arguments.apply(function, values, info))

    return run


class _PlainSchema(GenerateJsonSchema):
    """Generates schemas without field titles, which only repeat the names."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - theirs

    def field_title_should_be_set(self, schema: Any) -> bool:
        """Never."""
        del schema
        return False


class Arguments:
    """A function's parameters as a pydantic model."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._name = getattr(function, "__name__", repr(function))
        self._parameters = self._parameters_of(function)
        hints = self._hints_of(function)
        self._injected = {
            name for name, hint in hints.items() if CallInfo in (hint, *typing.get_args(hint))
        }
        self._aliases: dict[str, str] = {}
        """Model fields get generated names: `json` or `copy` would hide pydantic's methods."""
        fields: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            if name not in self._injected:
                field_name = f"p{len(fields)}"
                self._aliases[field_name] = name
                fields[field_name] = (self._hint(name, hints), _field(parameter))
        self._model = self._model_of(fields)

    def schema(self, descriptions: Mapping[str, str]) -> JsonObject:
        """JSON Schema of the arguments; `descriptions` fill in where annotations have none."""
        schema = self._model.model_json_schema(by_alias=True, schema_generator=_PlainSchema)
        schema.pop("title", None)
        schema.pop("description", None)
        properties = cast("dict[str, JsonObject]", schema.setdefault("properties", {}))
        for name, described in properties.items():
            if name in descriptions:
                described.setdefault("description", descriptions[name])
        return schema

    def converted(self, arguments: Mapping[str, Any]) -> JsonObject:
        """The arguments converted to their types, with defaults."""
        try:
            model = self._model.model_validate(dict(arguments))
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            reason = first["msg"][:1].lower() + first["msg"][1:]
            # Not chained: pydantic's error carries the input into the log.
            raise ToolArgumentsError(wrong_argument(location_of([*first["loc"]]), reason)) from None
        return {name: getattr(model, field_name) for field_name, name in self._aliases.items()}

    def apply(self, function: Callable[..., Any], values: JsonObject, info: CallInfo) -> Any:
        """Call the function with converted arguments."""
        positional: list[Any] = []
        keywords: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            value = info if name in self._injected else values[name]
            if parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
                positional.append(value)
            else:
                keywords[name] = value
        return function(*positional, **keywords)

    def _parameters_of(self, function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
        if not inspect.isroutine(function):
            raise InvalidToolError(f"{self._name} is no function: a tool is made of a function.")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise InvalidToolError(f"{self._name} yields: a tool returns its result.")
        parameters = inspect.signature(function).parameters
        for name, parameter in parameters.items():
            if parameter.kind in _VARIADIC:
                raise InvalidToolError(
                    f"{self._name} takes *{name}: declare every parameter by name, for the model."
                )
        return parameters

    def _hints_of(self, function: Callable[..., Any]) -> dict[str, Any]:
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except (NameError, TypeError) as error:
            raise InvalidToolError(
                f"The types of {self._name} cannot be read ({error}): annotate it with types that "
                "its module can see at run time."
            ) from error
        return {name: hint for name, hint in hints.items() if name in self._parameters}

    def _hint(self, name: str, hints: Mapping[str, Any]) -> Any:
        if name not in hints:
            hint = "; of a method, take the bound one" if name in ("self", "cls") else ""
            raise InvalidToolError(f"{self._name}: the parameter {name} has no type{hint}.")
        return hints[name]

    def _model_of(self, fields: dict[str, Any]) -> type[BaseModel]:
        try:
            model = create_model(self._name, __config__=ConfigDict(extra="forbid"), **fields)
            model.model_json_schema(schema_generator=_PlainSchema)
        except (PydanticUserError, TypeError) as error:
            reason = str(error).splitlines()[0]
            raise InvalidToolError(
                f"{self._name}: a parameter's type has no JSON Schema ({reason}). Take JSON types, "
                "enums, dataclasses or pydantic models; CallInfo for the call itself."
            ) from error
        return model


def _field(parameter: inspect.Parameter) -> Any:
    if parameter.default is inspect.Parameter.empty:
        return Field(alias=parameter.name)
    return Field(default=parameter.default, alias=parameter.name)
