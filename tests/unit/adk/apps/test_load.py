"""Agents by their names: where ADK's own tools find them, and the `.env` beside them."""

import os
import sys
from pathlib import Path

import pytest
from google.adk.agents import LlmAgent

from lango.adk.apps.load import load_root
from lango.errors import AppLoadError

AGENT = """
import os
from google.adk.agents import LlmAgent
root_agent = LlmAgent(name="shop", description=os.environ.get("{variable}", ""))
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A name that no test before has imported, in an empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return f"shop_{os.urandom(4).hex()}"


def written(package: str, files: dict[str, str]) -> str:
    """The name of the variable that its `.env` sets."""
    variable = f"{package.upper()}_ABOUT"
    for name, text in {".env": f"{variable}=sells tea\n", **files}.items():
        path = Path(package, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("{variable}", variable))
    return variable


@pytest.mark.parametrize("form", ["{0}", "./{0}", "{0}/", "{0}.agent", "{0}.agent:root_agent"])
async def test_the_usual_layout(package: str, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variable = written(package, {"__init__.py": "", "agent.py": AGENT})
    monkeypatch.delenv(variable, raising=False)
    found = await load_root(form.format(package))
    assert isinstance(found, LlmAgent)
    assert (found.name, found.description) == ("shop", "sells tea")


@pytest.mark.parametrize(
    "files",
    [
        {"__init__.py": AGENT},
        {"__init__.py": "from . import agent", "agent.py": AGENT},
        {"agent.py": AGENT},
        {"root_agent.yaml": "name: shop\ninstruction: Be kind.\ndescription: sells tea\n"},
    ],
    ids=["package", "package and module", "no package", "yaml"],
)
@pytest.mark.filterwarnings("ignore:LlmAgentConfig is deprecated")  # of ADK's own loader
async def test_other_layouts(package: str, files: dict[str, str]) -> None:
    written(package, files)
    found = await load_root(package)
    assert isinstance(found, LlmAgent)
    assert (found.name, found.description) == ("shop", "sells tea")


async def test_a_folder_without_an_agent_is_said(package: str) -> None:
    written(package, {"__init__.py": "", "agent.py": "x = 1"})
    with pytest.raises(AppLoadError, match=f"{package}: ADK cannot load it"):
        await load_root(package)


@pytest.mark.parametrize("form", ["{0}", "{0}.agent:root_agent"])
async def test_a_missing_extra_is_named(
    package: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(package, {"__init__.py": "", "agent.py": "import mcp.client\n" + AGENT})
    monkeypatch.delitem(sys.modules, "mcp.client", raising=False)
    monkeypatch.setitem(sys.modules, "mcp", None)  # as if it were not installed
    with pytest.raises(AppLoadError) as caught:
        await load_root(form.format(package))
    assert str(caught.value).endswith('. Install it: pip install "lango-adk[mcp]".')


async def test_no_extra_is_named_for_other_packages(package: str) -> None:
    written(package, {"__init__.py": "", "agent.py": "import lango_no_such_library\n"})
    with pytest.raises(AppLoadError, match="lango_no_such_library") as caught:
        await load_root(package)
    assert "pip install" not in str(caught.value)
