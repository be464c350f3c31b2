"""ADK's events compaction from a few settings: summaries instead of a cut history."""

from __future__ import annotations

import warnings

from google.adk.agents.llm_agent import LlmAgent
from google.adk.apps.app import EventsCompactionConfig
from google.adk.apps.llm_event_summarizer import LlmEventSummarizer
from google.adk.models.base_llm import BaseLlm
from google.adk.workflow import BaseNode

from lango.adk.transfers import agents_of
from lango.errors import ConfigError

Compaction = EventsCompactionConfig
"""When a conversation is summarised, and by which summariser."""


def compaction(
    summarizer: LlmEventSummarizer,
    *,
    turns: int | None = None,
    overlap: int = 0,
    tokens: int | None = None,
    keep_events: int = 0,
) -> Compaction:
    """A summary after that many turns, or before a request of that many tokens."""
    with warnings.catch_warnings():  # it is experimental, so lango pins ADK
        warnings.simplefilter("ignore", UserWarning)
        return Compaction(
            summarizer=summarizer,
            compaction_interval=turns,
            overlap_size=None if turns is None else overlap,
            token_threshold=tokens,
            event_retention_size=None if tokens is None else keep_events,
        )


def summarizer_of(
    root: BaseNode, model: BaseLlm | None = None, prompt: str | None = None
) -> LlmEventSummarizer:
    """ADK's summariser, by default with the model of the first agent that has one."""
    for agent in agents_of(root) if model is None else ():
        if isinstance(agent, LlmAgent):
            model = agent.canonical_model
            break
    if model is None:
        raise ConfigError("No agent here has a model that could summarise: set `compaction.model`.")
    return LlmEventSummarizer(llm=model, prompt_template=prompt)
