"""Canary of lango/adk/compat/contents.py."""

from tests.support.canary import Canary

CANARY = Canary.of_adk("contents.py", "results that arrive after other messages")
MODULE = "flows.llm_flows.context._contents"
NAME = "_rearrange_events_for_latest_function_response"


def test_adk_arranges_the_newest_result_by_this_function() -> None:
    CANARY.part(MODULE, NAME)
    CANARY.contains(CANARY.part(MODULE, "_get_contents"), f"{NAME}(")


def test_the_function_takes_events() -> None:
    from lango.adk.compat.contents import arrange

    CANARY.takes(arrange, "events")


def test_adks_summariser_has_its_model_here() -> None:
    from google.adk.apps.llm_event_summarizer import LlmEventSummarizer

    from lango.adk.compat.contents import summary_model
    from lango.adk.models.adapter import ModelAdapter

    model = ModelAdapter("scripted:demo")
    assert summary_model(LlmEventSummarizer(llm=model)) is model
    CANARY.contains(LlmEventSummarizer.maybe_summarize_events, "self._llm.generate_content_async(")
