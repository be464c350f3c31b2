"""Canary of lango/adk/compat/contents.py."""

from tests.canary import Canary

CANARY = Canary.of_adk("contents.py", "results that arrive after other messages")
MODULE = "flows.llm_flows.context._contents"
NAME = "_rearrange_events_for_latest_function_response"


def test_adk_arranges_the_newest_result_by_this_function() -> None:
    CANARY.part(MODULE, NAME)
    CANARY.contains(CANARY.part(MODULE, "_get_contents"), f"{NAME}(")


def test_the_function_takes_events() -> None:
    from lango.adk.compat.contents import arrange

    CANARY.takes(arrange, "events")
