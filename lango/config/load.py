"""Loads the settings: defaults, then the file, then `LANGO_*`, then flags; later wins."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, cast

import yaml
from pydantic import ValidationError
from pydantic_settings import EnvSettingsSource, SettingsError

from lango.config.problems import in_words
from lango.config.secrets import ExternalText, expanded
from lango.config.settings import Settings
from lango.errors import ConfigError

logger = logging.getLogger(__name__)

FILE: Final = "lango.yaml"
FILE_VARIABLE: Final = "LANGO_CONFIG"
_FLAG: Final = "a flag"
_PREFIX: Final = "LANGO_"
_NESTED: Final = "__"
_OTHERS: Final = (FILE_VARIABLE, "LANGO_URL", "LANGO_KEY", "LANGO_TEST_")
"""Variables that are not settings: the file's path, and those of clients and tests."""

Layer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class LoadedSettings:
    """The settings, and the origin of each value."""

    settings: Settings
    path: Path | None  # of the file, if there is one
    origins: Mapping[str, str]

    @property
    def folder(self) -> Path:
        """The folder that paths in the file are relative to."""
        return self.path.parent if self.path else Path.cwd()

    def values(self) -> Iterator[tuple[str, Any, str]]:
        """Every value with its path and origin; secrets are masked."""
        dump = self.settings.model_dump(mode="json", by_alias=True)
        for path, value in _leaves(dump):
            yield path, value, self._origin(path)

    def _origin(self, path: str) -> str:
        """The origin of the value itself, or of its nearest enclosing section."""
        while path:
            if path in self.origins:
                return self.origins[path]
            path = path.rpartition(".")[0]
        return "default"


def load(path: str | Path | None = None, flags: Mapping[str, Any] | None = None) -> LoadedSettings:
    """Load the settings; without a path from the file in LANGO_CONFIG, else ./lango.yaml."""
    file = _find(path)
    file_values = _read(file) if file else {}
    environment_values = _environment()
    flag_values = dict(flags or {})
    origins = {
        **_origins(file_values, lambda _: file.name if file else ""),
        **_origins(environment_values, _variable_name),
        **_origins(flag_values, lambda _: _FLAG),
    }
    merged = _merged(_merged(file_values, environment_values), flag_values)
    try:
        settings = Settings.model_validate(merged)
    except ValidationError as error:
        source = str(file) if file else "settings"
        variables = _origins(environment_values, _variable_name)
        raise ConfigError(in_words(error, source, variables)) from None
    return LoadedSettings(settings, file, origins)


def _find(path: str | Path | None) -> Path | None:
    """The named file, or the one in the current folder; parent folders are never searched."""
    file = path or os.environ.get(FILE_VARIABLE)
    if file is None:
        default_file = Path(FILE)
        return default_file if default_file.is_file() else None
    if not Path(file).is_file():
        origin = "" if path else f", which {FILE_VARIABLE} names"
        raise ConfigError(f"There is no file {file}{origin}.")
    return Path(file)


def _read(path: Path) -> Layer:
    try:
        content: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.MarkedYAMLError as error:
        line = f" line {error.problem_mark.line + 1}:" if error.problem_mark else ""
        raise ConfigError(f"{path}:{line} {error.problem or 'not YAML'}.") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: the file must be a mapping of keys to values.")
    return expanded(cast(Layer, content), "", path.parent)


def _environment() -> Layer:
    _check_names()
    try:
        return _marked(EnvSettingsSource(Settings)())
    except SettingsError as error:
        raise ConfigError(f"{error}: {error.__cause__}.") from error


def _check_names() -> None:
    """Raise ConfigError for a variable of a section that does not exist.

    A variable without `__` only gets a warning, as it may be another program's: Kubernetes sets
    LANGO_PORT in each pod where a Service is called lango.
    """
    for name in sorted(os.environ):
        section, nested, _ = name.removeprefix(_PREFIX).partition(_NESTED)
        if not name.startswith(_PREFIX) or section.lower() in Settings.model_fields:
            continue
        if nested:
            hint = _suggestion(section.lower())
            raise ConfigError(f"The variable {name} sets nothing: there is no such section. {hint}")
        if not name.startswith(_OTHERS):
            logger.warning("The environment variable %s sets nothing and is ignored.", name)


def _suggestion(section: str) -> str:
    near = get_close_matches(section, Settings.model_fields, n=1)
    if near:
        return f"Did you mean {_variable_name(near[0])}{_NESTED}…?"
    return f"There are: {', '.join(map(_variable_name, Settings.model_fields))}."


def _marked(value: Any) -> Any:
    """Mark texts from the environment: they are not literals in the file."""
    if isinstance(value, str):
        return ExternalText(value)
    if isinstance(value, dict):
        return {key: _marked(inner) for key, inner in cast(Layer, value).items()}
    if isinstance(value, list):
        return [_marked(inner) for inner in cast("list[Any]", value)]
    return value


def _variable_name(path: str) -> str:
    return _PREFIX + path.upper().replace(".", _NESTED)


def _merged(lower: Layer, upper: Layer) -> Layer:
    merged = dict(lower)
    for key, value in upper.items():
        lower_value = merged.get(key)
        if isinstance(lower_value, dict) and isinstance(value, dict):
            value = _merged(cast(Layer, lower_value), cast(Layer, value))
        merged[key] = value
    return merged


def _origins(layer: Layer, label: Callable[[str], str]) -> dict[str, str]:
    return {path: label(path) for path, _ in _leaves(layer)}


def _leaves(value: Layer, path: str = "") -> Iterator[tuple[str, Any]]:
    for key, inner in value.items():
        leaf = f"{path}.{key}" if path else str(key)
        if isinstance(inner, dict) and inner:
            yield from _leaves(cast(Layer, inner), leaf)
        else:
            yield leaf, inner
