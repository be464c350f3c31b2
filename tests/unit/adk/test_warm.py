"""A part of ADK that cannot be imported here, kept from being tried again in every turn."""

import importlib
import sys
from importlib.util import find_spec

import pytest

from lango.adk.warm import skip_a2a

A2A_AGENT = "google.adk.agents.remote_a2a_agent"

pytestmark = pytest.mark.skipif(find_spec("a2a") is not None, reason="a2a is installed")


def test_the_import_error_of_the_agent_says_what_to_install() -> None:
    skip_a2a()
    with pytest.raises(ImportError, match=r"pip install 'google-adk\[a2a\]'"):
        importlib.import_module(A2A_AGENT).RemoteA2aAgent  # noqa: B018


@pytest.mark.parametrize("name", ["__file__", "__path__", "pytest_plugins", "_private"])
def test_who_looks_at_every_module_is_not_disturbed(name: str) -> None:
    skip_a2a()
    assert not hasattr(sys.modules[A2A_AGENT], name)
