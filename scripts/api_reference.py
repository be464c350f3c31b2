"""The Python API page, written from the docstrings whenever the site is built (a hook of mkdocs).

The page is made from the source text: signatures and defaults read as they are written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

PAGE: Final = "reference/python.md"
ROOT: Final = Path(__file__).resolve().parent.parent
_LONGEST: Final = 88  # characters of a line of code
_ERRORS: Final = "lango.errors"
_INTRODUCTION: Final = """# Python API

For developers who use lango from Python. This page lists every name of the package root
(`import lango`) with its signature and docstring. The site writes it from the source, so it
describes the version at hand. The pages on [agents](agents.md), [models](models.md),
[tools](tools.md), [plugins](plugins.md) and [turns](turns.md) show how to use these names;
[Tests with models](../how-to/testing-models.md) shows `lango.testing`.
"""
_ERRORS_SECTION: Final = """
## Errors

Every error derives from `LangoError`. [Errors](errors.md) says for each one when it is raised and
what to do.

| error | meaning |
|---|---|
"""
Function = ast.FunctionDef | ast.AsyncFunctionDef


def homes() -> dict[str, str]:
    """The module of every name of the package root."""
    root = _tree("lango")
    imports = (node for node in ast.walk(root) if isinstance(node, ast.ImportFrom) and node.module)
    found = {alias.name: str(node.module) for node in imports for alias in node.names}
    return {name: found[name] for name in _all(root)}


def page() -> str:
    """The whole page as Markdown."""
    names = homes()
    errors = [name for name, module in names.items() if module == _ERRORS]
    others = sorted((name for name in names if name not in errors), key=str.casefold)
    sections = [_section(name, names[name]) for name in others]
    rows = [f"| `{name}` | {_first_line(_definition(_ERRORS, name))} |" for name in errors]
    return "\n".join([_INTRODUCTION, *sections, _ERRORS_SECTION + "\n".join(rows), ""])


def on_files(files: Any, config: Any) -> Any:
    """Add the page to those of the site; mkdocs calls this."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=page()))
    return files


def _all(root: ast.Module) -> list[str]:
    for node in root.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return ast.literal_eval(node.value)
    raise LookupError("lango/__init__.py has no __all__")


@cache
def _tree(module: str) -> ast.Module:
    path = ROOT.joinpath(*module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(source.read_text("utf-8"))


def _definition(module: str, name: str) -> ast.stmt:
    """The statement that defines a name, followed through imports from other modules of ours."""
    for node in _tree(module).body:
        if isinstance(node, ast.ClassDef | Function) and _defines(node, name):
            return node
        if isinstance(node, ast.Assign | ast.AnnAssign) and name in _targets(node):
            return node
        if isinstance(node, ast.ImportFrom) and name in [alias.name for alias in node.names]:
            return _definition(str(node.module), name)
    raise LookupError(f"{module} defines no {name}")


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [ast.unparse(target) for target in targets]


def _section(name: str, module: str) -> str:
    node = _definition(module, name)
    head = [f"## {name}", "", f"`{module}`", ""]
    if isinstance(node, ast.ClassDef):
        return "\n".join([*head, *_class(node)])
    if isinstance(node, Function):
        return "\n".join([*head, _code(_signature(node)), "", ast.get_docstring(node) or "", ""])
    return "\n".join([*head, _code(ast.unparse(node)), "", _after(module, node), ""])


def _class(node: ast.ClassDef) -> Iterator[str]:
    bases = ", ".join(ast.unparse(base) for base in node.bases)
    made = next((one for one in _functions(node) if one.name == "__init__"), None)
    lines = [f"class {node.name}({bases})" if bases else f"class {node.name}"]
    if made:
        lines.append(_call(node.name, made))
    fields = [ast.unparse(one) for one in node.body if _is_field(one)]
    yield _code("\n".join([*lines, *(f"    {field}" for field in fields)]))
    yield ""
    yield ast.get_docstring(node) or ""
    yield ""
    for method in _functions(node):
        if not method.name.startswith("_") and not _is_overload(method):
            yield f"### {node.name}.{method.name}"
            yield ""
            yield _code(_signature(method))
            yield ""
            yield ast.get_docstring(method) or "As in the class it derives from."
            yield ""


def _functions(node: ast.ClassDef) -> list[Function]:
    return [one for one in node.body if isinstance(one, Function)]


def _is_field(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.AnnAssign)
        and not ast.unparse(node.target).startswith("_")
        and "ClassVar" not in ast.unparse(node.annotation)
    )


def _defines(node: ast.ClassDef | Function, name: str) -> bool:
    return node.name == name and not _is_overload(node)


def _is_overload(node: ast.ClassDef | Function) -> bool:
    return "overload" in [ast.unparse(decorator) for decorator in node.decorator_list]


def _signature(node: Function) -> str:
    decorators = [f"@{ast.unparse(decorator)}" for decorator in node.decorator_list]
    kept = [line for line in decorators if line in ("@property", "@classmethod", "@staticmethod")]
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return "\n".join([*kept, _call(f"{word} {node.name}", node, returns)])


def _call(name: str, node: Function, returns: str = "") -> str:
    """A function's head, with one argument to a line where it is long."""
    arguments = _arguments(node)
    line = f"{name}({', '.join(arguments)}){returns}"
    if len(line) <= _LONGEST:
        return line
    return "\n".join([f"{name}(", *(f"    {argument}," for argument in arguments), f"){returns}"])


def _arguments(node: Function) -> list[str]:
    """The arguments as they are written, without `self`."""
    written = node.args
    plain = [*written.posonlyargs, *written.args]
    missing: list[ast.expr | None] = [None] * (len(plain) - len(written.defaults))
    defaults = [*missing, *written.defaults]
    before = [_argument(one, value) for one, value in zip(plain, defaults, strict=True)]
    named = [
        _argument(one, value)
        for one, value in zip(written.kwonlyargs, written.kw_defaults, strict=True)
    ]
    star = [f"*{_argument(written.vararg)}"] if written.vararg else ["*"] if named else []
    rest = [f"**{_argument(written.kwarg)}"] if written.kwarg else []
    return [one for one in [*before, *star, *named, *rest] if one not in ("self", "cls")]


def _argument(node: ast.arg, default: ast.expr | None = None) -> str:
    kind = f": {ast.unparse(node.annotation)}" if node.annotation else ""
    return f"{node.arg}{kind}" + (f" = {ast.unparse(default)}" if default else "")


def _first_line(node: ast.stmt) -> str:
    docstring = ast.get_docstring(node) if isinstance(node, ast.ClassDef) else None
    return (docstring or "").partition("\n\n")[0].replace("\n", " ").replace("|", "\\|")


def _after(module: str, node: ast.stmt) -> str:
    """The string below an assignment, which is its docstring."""
    body = _tree(module).body
    following = body[body.index(node) + 1 :][:1] if node in body else []
    for one in following:
        if isinstance(one, ast.Expr) and isinstance(one.value, ast.Constant):
            return str(one.value.value)
    return ""


def _code(source: str) -> str:
    return f"```python\n{source}\n```"
