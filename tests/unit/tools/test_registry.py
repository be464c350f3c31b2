"""Tools by their names in the settings."""

import sys
from pathlib import Path
from typing import Any

import pytest

from lango.errors import ConfigError, InvalidToolError, UnknownToolError
from lango.tools.registry import BUILTINS, load_tools

MODULE = '''
"""Tools of one's own."""
import lango

def greet(name: str) -> str:
    """Say hello."""
    return f"hello {name}"

@lango.tool(require_confirmation=True)
def erase(path: str) -> None:
    """Erase it."""

raw = lango.Tool("raw", "By hand.", {"type": "object"}, lambda arguments, info: 1)
several = [greet, (erase, raw)]
number = 3

class Office:
    @staticmethod
    def lock(door: str) -> None:
        """Lock it."""

def untyped(x): ...
'''


@pytest.fixture
def module_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module of one's own in the current folder; its name."""
    name = f"own_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"{name}_broken.py").write_text("1 / 0")
    (tmp_path / f"{name}_needy.py").write_text("import lango_no_such_library")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return name


@pytest.mark.parametrize(
    ("name", "options", "tools"),
    [
        ("exec", {"root": ".", "allow": ["ls"], "unsandboxed": True}, ["run_command"]),
        ("fetch", {}, ["fetch_url"]),
        ("files", {"root": "."}, ["read_file", "list_files", "find_files"]),
        (
            "files",
            {"root": ".", "write": True},
            ["read_file", "list_files", "find_files", "write_file"],
        ),
        ("time", {}, ["current_time"]),
    ],
)
def test_the_built_in_ones(name: str, options: dict[str, Any], tools: list[str]) -> None:
    loaded = load_tools(f"builtin:{name}", options)
    assert [tool.name for tool in loaded] == tools
    assert all(tool.description for tool in loaded)
    assert [tool.require_confirmation for tool in loaded] == [name == "exec"] * len(tools)
    assert name in BUILTINS


@pytest.mark.parametrize(
    ("attribute", "names"),
    [
        ("greet", ["greet"]),
        ("erase", ["erase"]),
        ("raw", ["raw"]),
        ("several", ["greet", "erase", "raw"]),
        ("Office.lock", ["lock"]),
    ],
)
def test_ones_own(module_name: str, attribute: str, names: list[str]) -> None:
    assert [tool.name for tool in load_tools(f"{module_name}:{attribute}")] == names


def test_what_the_settings_say_of_ones_own(module_name: str) -> None:
    options = {"name": "hi", "require_confirmation": True, "timeout": 5}
    (tool,) = load_tools(f"{module_name}:greet", options)
    assert (tool.name, tool.require_confirmation, tool.timeout) == ("hi", True, 5)
    assert tool.checked({"name": "x"}) == {"name": "x"}
    (kept,) = load_tools(f"{module_name}:erase", {"timeout": 5})
    assert kept.require_confirmation


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("builtin:file", "There is no builtin:file; .* Did you mean files"),
        ("builtin:", "There is no builtin:; there are builtin:exec, builtin:fetch"),
        ("files", "write builtin:NAME .* or package.module:attribute"),
        ("", "names no tool"),
        ("a b:c", "names no tool"),
        ("lango_no_such_module:x", "there is no module lango_no_such_module: is its folder"),
        ("HERE:gret", "has no gret. Did you mean greet"),
        ("HERE:Office.unlock", "has no Office.unlock"),
        ("HERE_needy:x", "needs lango_no_such_library, which is not installed"),
        ("HERE_broken:x", "importing .* failed: ZeroDivisionError"),
    ],
)
def test_names_that_lead_nowhere(module_name: str, spec: str, expected: str) -> None:
    with pytest.raises(UnknownToolError, match=expected) as caught:
        load_tools(spec.replace("HERE", module_name))
    assert isinstance(caught.value, ConfigError)


@pytest.mark.parametrize(
    ("spec", "options", "expected"),
    [
        ("HERE:number", {}, "is int: a tool is a typed function"),
        ("HERE:Office", {}, "is type: a tool is a typed function"),
        ("HERE:untyped", {}, "the parameter x has no type"),
        ("HERE:several", {"name": "x"}, "is 3 tools, which cannot share one name"),
        ("HERE:greet", {"colour": "red"}, "colour: Extra inputs .* Its options are name, "),
        ("HERE:greet", {"name": "a b"}, "cannot be a tool's name"),
        ("builtin:files", {}, "root: Field required. Its options are root, write"),
        ("builtin:files", {"root": "./nowhere"}, "nowhere is no folder"),
        ("builtin:files", {"root": "/"}, "the whole file system cannot be the root"),
        ("builtin:exec", {"root": ".", "allow": []}, "allow: "),
        ("builtin:fetch", {"max_redirects": 6}, "max_redirects: "),
        ("builtin:fetch", {"networks": ["10.0.0.1/8"]}, "networks"),
    ],
)
def test_what_cannot_work(
    module_name: str, spec: str, options: dict[str, Any], expected: str
) -> None:
    with pytest.raises(InvalidToolError, match=expected):
        load_tools(spec.replace("HERE", module_name), options)
