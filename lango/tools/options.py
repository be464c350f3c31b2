"""The options of built-in tools, from the settings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError

from lango.errors import InvalidToolError
from lango.tools.schema import location_of


class Options(BaseModel):
    """Base class of a tool's options; unknown ones are an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _existing(path: Path) -> Path:
    """Resolve the path now: a link that later replaces it has no effect."""
    resolved = path.expanduser().resolve()
    if not resolved.is_dir():
        raise ValueError(f"{path} is no folder")
    return resolved


def _narrow(path: Path) -> Path:
    if path == Path(path.anchor):
        raise ValueError("the whole file system cannot be the root: name a folder")
    return path


Folder = Annotated[Path, AfterValidator(_existing)]
"""A folder that exists."""
Root = Annotated[Folder, AfterValidator(_narrow)]
"""The folder that a tool must stay in."""

T = TypeVar("T", bound=Options)


def read_options(kind: type[T], spec: str, values: Mapping[str, Any]) -> T:
    """The validated options; InvalidToolError names each wrong one."""
    try:
        return kind.model_validate(dict(values))
    except ValidationError as error:
        problems = "; ".join(f"{location_of([*e['loc']])}: {e['msg']}" for e in error.errors())
        names = ", ".join(kind.model_fields)
        raise InvalidToolError(f"{spec}: {problems}. Its options are {names}.") from error
