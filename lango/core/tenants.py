"""The tenant that the running task works for; shared resources are divided by it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

current_tenant: Final = ContextVar("current_tenant", default="")
"""Empty for work that a process does for all tenants."""
