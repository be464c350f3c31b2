"""ADK arranges contents itself in these tests: another test's durable agent may have patched it."""

import pytest

from lango.adk.compat.contents import arrange, replace_arrange


@pytest.fixture(autouse=True)
def _adk_arranges() -> None:
    replace_arrange(arrange)  # the next durable agent patches it again
