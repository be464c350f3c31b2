"""A conformance suite that any ADK session service must pass.

    from lango.testing.session_suite import checks

    @pytest.mark.parametrize("check", checks(), ids=lambda check: check.name)
    async def test_conformance(check):
        await check(lambda tenant: open_my_service(tenant))

The factory opens a service for a tenant; every check runs for two tenants at once that use the
same app, user and session ids. A service without tenants gives each tenant a service of its own.
What goes beyond ADK's contract is named by a `Requirement`; leave out what yours does not promise.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, get_args

from lango.testing.checks import Check, ConformanceError, Requirement, ServiceFactory, Subject
from lango.testing.event_checks import EVENT_CHECKS
from lango.testing.session_checks import SESSION_CHECKS

__all__ = ["Check", "ConformanceError", "Requirement", "ServiceFactory", "Subject", "checks"]

EVERYTHING: Final[frozenset[Requirement]] = frozenset(get_args(Requirement))


def checks(supports: Collection[Requirement] = EVERYTHING) -> list[Check]:
    """The checks a service must pass that supports these requirements; all of them by default."""
    every = (*SESSION_CHECKS, *EVENT_CHECKS)
    return [check for check in every if check.requires <= set(supports)]
