"""lango uses private parts of ADK in `lango/adk/compat` only, of each other vendor in one file."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

import pytest

import lango

ROOT = Path(__file__).resolve().parents[2]
COMPAT = "lango/adk/compat/"
CANARIES = "tests/adk/compat/"
OTHER_CANARIES = "tests/house/test_vendor_parts.py"


@dataclass(frozen=True)
class PrivateUse:
    """The one file that uses private parts of a vendor, and why it does."""

    file: str
    parts: frozenset[str]
    reason: str


PRIVATE_USES: Final = {
    "aiosqlite": PrivateUse(
        "lango/store/db/sqlite/driver.py",
        frozenset({"_conn", "_execute", "_thread"}),
        "one trip to the connection's thread for each statement",
    ),
    "asyncio": PrivateUse(
        "lango/tools/builtin/processes.py",
        frozenset({"_transport"}),
        "asyncio has no public way to close the pipes of a process that holds them open",
    ),
    "opentelemetry": PrivateUse(
        "lango/telemetry/tracing/collected.py",
        frozenset({"opentelemetry._logs"}),
        "the API of logs has no other module, and ADK reports messages to it",
    ),
    "pydantic": PrivateUse(
        "lango/adk/sessions/pydantic_slots.py",
        frozenset(
            {
                *("__private_attributes__", "__pydantic_decorators__", "__pydantic_extra__"),
                *("__pydantic_fields_set__", "__pydantic_private__"),
            }
        ),
        "a session's events are rebuilt at a fraction of the cost of validation",
    ),
    "uvicorn": PrivateUse(
        "lango/server/http/connections.py",
        frozenset({"uvicorn.protocols.http.httptools_impl.HttpToolsProtocol"}),
        "uvicorn has no limits of connections and of slow clients",
    ),
}
INTERNAL: Final = ("google.adk.cli", "google.adk.flows", "uvicorn.protocols")
"""Modules without an underscore that their vendors do not document."""
DOCUMENTED: Final = frozenset({"os._exit", "sys._current_frames"})
"""Names of the standard library that are public in spite of their underscore."""
OF_TUPLES: Final = frozenset({"_asdict", "_fields", "_make", "_replace"})
"""The documented names of named tuples."""
OF_PYDANTIC: Final = re.compile(r"__pydantic_\w+__|__private_attributes__")
OWN: Final = frozenset({"self", "cls"})
BY_NAME: Final = frozenset({"delattr", "getattr", "hasattr", "setattr"})

Function = ast.FunctionDef | ast.AsyncFunctionDef


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_"


def is_vendor(module: str) -> bool:
    root = module.partition(".")[0]
    return root == "asyncio" or (root != "lango" and root not in sys.stdlib_module_names)


@dataclass
class Source:
    """One file: the names it imports, and the members that its classes define."""

    name: str
    text: str
    tree: ast.Module = field(init=False)
    imports: dict[str, str] = field(default_factory=dict[str, str])
    members: set[str] = field(default_factory=set[str])

    def __post_init__(self) -> None:
        self.tree = ast.parse(self.text, self.name)
        for node in ast.walk(self.tree):
            self.imports.update(_imported(node))
            self.members.update(_defined(node))

    def vendor_of(self, node: ast.AST) -> str:
        """The imported part of a vendor that an expression starts from; else empty."""
        while isinstance(node, ast.Attribute):
            node = node.value
        found = self.imports.get(node.id, "") if isinstance(node, ast.Name) else ""
        return found if found and is_vendor(found) else ""


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.asname or alias.name.partition(".")[0], alias.name
    elif isinstance(node, ast.ImportFrom) and node.module:
        for alias in node.names:
            yield alias.asname or alias.name, f"{node.module}.{alias.name}"


def _defined(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.ClassDef):
        for each in node.body:
            if isinstance(each, Function | ast.ClassDef):
                yield each.name
            for target in _targets(each):
                yield from (target.id,) if isinstance(target, ast.Name) else ()
    for target in _targets(node):
        if isinstance(target, ast.Attribute) and _is_own(target.value):
            yield target.attr


def _targets(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.Assign):
        for target in node.targets:
            yield from target.elts if isinstance(target, ast.Tuple) else (target,)
    elif isinstance(node, ast.AnnAssign | ast.AugAssign):
        yield node.target


def _is_own(node: ast.AST) -> bool:
    """Whether an expression is `self`, `cls` or `super()`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name) and node.func.id == "super"
    return isinstance(node, ast.Name) and node.id in OWN


def parts_used(source: Source, members: set[str]) -> Iterator[tuple[int, str]]:
    """The private parts that a file uses, by line; `members` are those of all lango's classes."""
    for node in ast.walk(source.tree):
        for part in (
            *_in_imports(node),
            *_in_names(node, source, members),
            *_patched(node, source),
        ):
            yield getattr(node, "lineno", 0), part
    for number, line in enumerate(source.text.splitlines(), 1):
        is_documented = any(name in line for name in DOCUMENTED)
        if re.search(r"#.*pyright: ignore\[.*reportPrivate", line) and not is_documented:
            yield number, "pyright: ignore"


def _in_imports(node: ast.AST) -> Iterator[str]:
    names = [path for _, path in _imported(node)]
    if isinstance(node, ast.Call) and _called(node) == "import_module":
        names = [one.value for one in node.args if isinstance(one, ast.Constant)]
    for path in map(str, names):
        is_internal = path.startswith(tuple(f"{one}." for one in INTERNAL)) or path in INTERNAL
        if is_vendor(path) and (is_internal or any(map(is_private, path.split(".")))):
            yield path


def _in_names(node: ast.AST, source: Source, members: set[str]) -> Iterator[str]:
    owner, name = None, ""
    if isinstance(node, ast.Attribute):
        owner, name = node.value, node.attr
    elif isinstance(node, ast.Call) and _called(node) in BY_NAME and len(node.args) > 1:
        owner, given = node.args[:2]
        name = str(given.value) if isinstance(given, ast.Constant) else ""
        if not name and source.vendor_of(owner):
            yield f"{ast.unparse(node)}"
    elif isinstance(node, ast.Constant) and OF_PYDANTIC.fullmatch(str(node.value)):
        yield str(node.value)
    if OF_PYDANTIC.fullmatch(name):
        yield name
    if owner is None or not is_private(name) or name in OF_TUPLES:
        return
    if f"{ast.unparse(owner)}.{name}" in DOCUMENTED:
        return
    if name not in source.members and not (_is_own(owner) and name in members):
        yield name


def _called(node: ast.Call) -> str:
    function = node.func
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""


def _patched(node: ast.AST, source: Source) -> Iterator[str]:
    if isinstance(node, ast.Call) and _called(node) in {"setattr", "delattr"}:
        owner, *_ = node.args
        yield from (f"patch of {ast.unparse(owner)}",) if source.vendor_of(owner) else ()
    for target in _targets(node):
        if isinstance(target, ast.Subscript) and ast.unparse(target.value) == "sys.modules":
            yield "patch of sys.modules"
        elif isinstance(target, ast.Attribute) and source.vendor_of(target.value):
            yield f"patch of {ast.unparse(target)}"
        elif isinstance(target, ast.Attribute) and target.attr == "__class__":
            yield "patch of __class__"


def problems(sources: list[Source]) -> list[str]:
    """The uses of private parts outside the files listed for them."""
    elsewhere = [source for source in sources if not source.name.startswith(COMPAT)]
    members = {name for source in elsewhere for name in source.members}
    allowed = {(use.file, part) for use in PRIVATE_USES.values() for part in use.parts}
    return [
        f"{source.name}:{line} {part}"
        for source in elsewhere
        for line, part in parts_used(source, members)
        if (source.name, part) not in allowed
    ]


@cache
def shipped() -> list[Source]:
    paths = sorted((ROOT / "lango").rglob("*.py"))
    return [Source(str(path.relative_to(ROOT)), path.read_text("utf-8")) for path in paths]


def test_private_parts_are_used_in_their_files_only() -> None:
    assert problems(shipped()) == []


@pytest.mark.parametrize("vendor", PRIVATE_USES)
def test_a_file_uses_all_the_parts_it_is_listed_for(vendor: str) -> None:
    use = PRIVATE_USES[vendor]
    [source] = [one for one in shipped() if one.name == use.file]
    used = {part for _, part in parts_used(source, source.members)}
    replaced = {part for part in use.parts if f"self.{part} = " in source.text}
    assert used | replaced >= use.parts


@pytest.mark.parametrize("vendor", PRIVATE_USES)
def test_a_file_has_a_canary(vendor: str) -> None:
    text = (ROOT / OTHER_CANARIES).read_text("utf-8")
    assert f'"{vendor}", "{vendor}", "{PRIVATE_USES[vendor].file}"' in " ".join(text.split())


def test_every_file_of_compat_has_a_canary() -> None:
    files = {path.stem for path in (ROOT / COMPAT).glob("*.py")} - {"__init__"}
    canaries = {path.stem.removeprefix("test_") for path in (ROOT / CANARIES).glob("test_*.py")}
    assert canaries == files


@pytest.mark.parametrize(
    ("code", "part"),
    [
        ("from google.adk.runners import _apply_rewinds", "google.adk.runners._apply_rewinds"),
        ("from google.adk.workflow._errors import Any", "google.adk.workflow._errors.Any"),
        ("from google.adk.workflow import _errors", "google.adk.workflow._errors"),
        ("import google.adk.workflow._errors", "google.adk.workflow._errors"),
        ("from google.adk.cli.fast_api import a", "google.adk.cli.fast_api.a"),
        ("from google.adk import flows", "google.adk.flows"),
        ("import_module('google.adk._gone')", "google.adk._gone"),
        ("def f(runner): runner._find()", "_find"),
        ("class A(Runner):\n def f(self): self._find()", "_find"),
        ("class A(Runner):\n def f(self): super()._find()", "_find"),
        ("def _find(): ...\ndef f(runner): runner._find()", "_find"),
        ("def f(x): return getattr(x, '_find', None)", "_find"),
        ("from google.adk.runners import Runner\nRunner.run = None", "patch of Runner.run"),
        ("from google import adk\nsetattr(adk.runners, 'run', None)", "patch of adk.runners"),
        ("from google import adk\ngetattr(adk, NAME)", "getattr(adk, NAME)"),
        ("import sys\nsys.modules['google.adk'] = None", "patch of sys.modules"),
        ("def f(agent): agent.__class__ = A", "patch of __class__"),
        ("def f(model): return model.__pydantic_private__", "__pydantic_private__"),
        ("vars(model)['__pydantic_private__']", "__pydantic_private__"),
        ("x = y.z  # pyright: ignore[reportPrivateUsage]", "pyright: ignore"),
        ("def f(loop): loop._ready", "_ready"),
        ("from sqlalchemy.sql import _typing", "sqlalchemy.sql._typing"),
    ],
)
def test_a_new_use_is_found(code: str, part: str) -> None:
    offender = Source("lango/agent/agent.py", code)
    found = {problem.partition(" ")[2] for problem in problems([offender])}
    assert part in found
    assert problems([Source(f"{COMPAT}agents.py", code)]) == []


@pytest.mark.parametrize(
    "code",
    [
        "import os\nos._exit(0)",
        "def f(row): return row._asdict()",
        "class A:\n def _b(self): return self._b()",
        "class A:\n def __init__(self): self._b = 1\n def f(self, other): return other._b",
        "from google.adk.runners import Runner\nrunner = Runner()\nrunner.name = 'a'",
        "from lango.core import failpoints\nfailpoints.armed = None",
    ],
)
def test_what_is_ours_or_public_is_not_found(code: str) -> None:
    assert problems([Source("lango/agent/agent.py", code)]) == []


def modules() -> Iterator[ModuleType]:
    for info in pkgutil.walk_packages(lango.__path__, "lango."):
        if not info.name.endswith("__main__") and ".migrations" not in info.name:
            yield importlib.import_module(info.name)


@cache
def private_members(kind: type) -> set[str]:
    """The private names that a class defines or uses on itself."""
    try:
        source = inspect.getsource(kind)
    except (OSError, TypeError):  # made in C, or by a call of `type`
        source = ""
    used = re.findall(r"\b(?:self|cls|super\(\))\.(_[a-zA-Z]\w*)", source)
    return {name for name in {*vars(kind), *used} if is_private(name)} - {"_abc_impl"}


def shared_members(kind: type) -> set[str]:
    """The private names that a class of lango shares with a vendor's class it inherits from."""
    vendors = [base for base in kind.__mro__ if is_vendor(base.__module__)]
    theirs = {name for base in vendors for name in private_members(base)}
    return private_members(kind) & theirs if theirs else set()


def test_no_class_overrides_or_uses_a_private_member_of_its_vendor() -> None:
    allowed = {(use.file, part) for use in PRIVATE_USES.values() for part in use.parts}
    found: list[str] = []
    for module in modules():
        file = f"{module.__name__.replace('.', '/')}.py"
        if file.startswith(COMPAT):
            continue
        kinds = [kind for kind in vars(module).values() if inspect.isclass(kind)]
        for kind in kinds:
            if kind.__module__ == module.__name__:
                names = {name for name in shared_members(kind) if (file, name) not in allowed}
                found += [f"{file} {kind.__name__}.{name}" for name in sorted(names)]
    assert found == []


def test_an_override_is_found() -> None:
    from google.adk.runners import Runner

    class Rooted(Runner):
        def _find_agent_to_run(self, session: Any, root_agent: Any) -> Any: ...

    class Reading(Runner):
        def read(self) -> object:
            return self._find_agent_to_run

    assert shared_members(Rooted) == {"_find_agent_to_run"}
    assert shared_members(Reading) == {"_find_agent_to_run"}
