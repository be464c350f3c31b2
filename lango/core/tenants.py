"""For which tenant the running task works: what tenants share is shared out by it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

current_tenant: Final = ContextVar("current_tenant", default="")
"""Empty for what a process does for all of them."""
