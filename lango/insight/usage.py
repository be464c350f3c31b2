"""Which model calls a usage report sums up, by default."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from lango.store.insight.usage import UsageFilter

_SPAN: Final = timedelta(days=30)


def recent_usage(
    tenant: str,
    since: datetime | None = None,
    until: datetime | None = None,
    user: str | None = None,
    app: str | None = None,
) -> UsageFilter:
    """The calls of a span: by default of the 30 days before its end, and it ends now."""
    end = until or datetime.now(UTC)
    return UsageFilter(tenant, since or end - _SPAN, end, user, app)
