"""Canary of lango/adk/compat/a2a.py: ADK imports its A2A agent in every turn."""

import importlib
import sys
from importlib.util import find_spec

import pytest

from lango.adk.compat.a2a import skip_a2a
from tests.support.canary import Canary

CANARY = Canary.of_adk("a2a.py", "skipping an import that fails in every turn")
A2A_AGENT = "google.adk.agents.remote_a2a_agent"

without_a2a = pytest.mark.skipif(find_spec("a2a") is not None, reason="a2a is installed")


def test_adk_imports_the_agent_where_it_runs_nodes() -> None:
    nodes = CANARY.part("workflow.utils._workflow_graph_utils")
    CANARY.contains(nodes, "from ...agents.remote_a2a_agent import RemoteA2aAgent")


@pytest.fixture(autouse=True)
def _as_in_a_new_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, A2A_AGENT, raising=False)


@without_a2a
def test_access_to_the_agent_says_what_to_install() -> None:
    skip_a2a()
    with pytest.raises(ImportError, match=r"pip install 'google-adk\[a2a\]'"):
        importlib.import_module(A2A_AGENT).RemoteA2aAgent  # noqa: B018


@without_a2a
@pytest.mark.parametrize("name", ["__file__", "__path__", "pytest_plugins", "_private"])
def test_tools_that_inspect_every_module_get_no_import_error(name: str) -> None:
    skip_a2a()
    assert not hasattr(sys.modules[A2A_AGENT], name)
