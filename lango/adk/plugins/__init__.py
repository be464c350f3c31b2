"""Plugins for any ADK app: each works alone, and `plugins()` returns the default set."""

from __future__ import annotations

from google.adk.plugins.base_plugin import BasePlugin

from lango.adk.plugins.budget import BudgetPlugin
from lango.adk.plugins.caller import CallerPlugin
from lango.adk.plugins.limits import LimitsPlugin
from lango.adk.plugins.model_calls import ModelCallsPlugin
from lango.adk.plugins.repeat_stop import RepeatStopPlugin
from lango.adk.plugins.tool_feedback import ToolFeedbackPlugin
from lango.adk.plugins.transfer import TransferGuardPlugin
from lango.store.sessions.store import SqlSessionStore


def plugins(
    store: SqlSessionStore | str | None = None,
    *,
    tenant: str = "",
    token_budget: int | None = 0,
    context_window: int | None = None,
    repeats: int = 3,
    model_calls: int | None = None,
    tool_calls: int | None = None,
    tokens: int | None = None,
    cost: float | None = None,
) -> list[BasePlugin]:
    """The default set, in its best order: `App(plugins=lango.plugins(store))`.

    With a store, model calls are recorded there. The last four parameters limit each turn; see
    LimitsPlugin.
    """
    return [
        # Plugins that count come first, so that calls which others answer count too.
        LimitsPlugin(model_calls=model_calls, tool_calls=tool_calls, tokens=tokens, cost=cost),
        RepeatStopPlugin(repeats),
        TransferGuardPlugin(),
        ToolFeedbackPlugin(),
        BudgetPlugin(token_budget, context_window),
        # Last, so that it sees only calls that are made.
        CallerPlugin() if store is None else ModelCallsPlugin(store, tenant=tenant),
    ]
