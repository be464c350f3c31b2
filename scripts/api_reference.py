"""The page of the Python API: which names mkdocstrings writes there (a hook of mkdocs)."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any, Final

PAGE: Final = "reference/python.md"
ROOT: Final = Path(__file__).resolve().parent.parent
_ERRORS: Final = "lango.errors"
_INTRODUCTION: Final = """# Python API

For developers who use lango from Python. This page lists every name of the package root
(`import lango`) with its signature and docstring. The site writes it from the source, so it
describes the version at hand. The pages on [agents](agents.md), [models](models.md),
[tools](tools.md), [plugins](plugins.md) and [turns](turns.md) show how to use these names;
[Tests with models](../how-to/testing-models.md) shows `lango.testing`.
"""
_ERRORS_SECTION: Final = """## Errors

Every error derives from `LangoError`. [Errors](errors.md) says for each one when it is raised and
what to do.
"""


def homes() -> dict[str, str]:
    """The module of every name of the package root."""
    root = ast.parse((ROOT / "lango" / "__init__.py").read_text("utf-8"))
    imports = (node for node in ast.walk(root) if isinstance(node, ast.ImportFrom) and node.module)
    found = {alias.name: str(node.module) for node in imports for alias in node.names}
    return {name: found[name] for name in _all(root)}


def page() -> str:
    """The whole page as Markdown."""
    names = homes()
    errors = [name for name, module in names.items() if module == _ERRORS]
    others = sorted((name for name in names if name not in errors), key=str.casefold)
    sections = [f"::: {names[name]}.{name}\n" for name in others]
    details = [f"::: {_ERRORS}.{name}\n    options:\n      heading_level: 3\n" for name in errors]
    return "\n".join([_INTRODUCTION, *sections, _ERRORS_SECTION, *details])


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
