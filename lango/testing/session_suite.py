"""A conformance suite for ADK session services.

    from lango.testing.session_suite import checks

    @pytest.mark.parametrize("check", checks(), ids=lambda check: check.name)
    async def test_conformance(check):
        await check(lambda tenant: open_my_service(tenant))

The factory opens a service for a tenant; every check runs for two tenants concurrently with the
same app, user and session ids. For a service without tenants, open a separate service per tenant.
A `Requirement` names what goes beyond ADK's contract; leave out what your service does not promise.
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
    """The checks for a service that supports these requirements (default: all checks)."""
    every = (*SESSION_CHECKS, *EVENT_CHECKS)
    return [check for check in every if check.requires <= set(supports)]
