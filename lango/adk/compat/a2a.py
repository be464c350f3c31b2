"""The import of ADK's A2A agent, which fails without a2a and which ADK retries in every turn."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Final

_A2A_AGENT: Final = "google.adk.agents.remote_a2a_agent"


class _Absent(ModuleType):
    """Stands in for a module that cannot be imported: access to its classes raises ImportError.

    Other names raise AttributeError, for linters and test tools that inspect every module.
    """

    def __getattr__(self, name: str) -> object:
        if not name[:1].isupper():
            raise AttributeError(name)
        raise ImportError(f"{self.__name__} needs a2a: pip install 'google-adk[a2a]'", name=name)


def skip_a2a() -> None:
    """Without a2a, keep ADK from retrying the import of what needs it in every turn."""
    if _A2A_AGENT not in sys.modules and find_spec("a2a") is None:
        sys.modules[_A2A_AGENT] = _Absent(_A2A_AGENT)
