"""Converts the token usage in ADK's responses to lango's Usage."""

from __future__ import annotations

from google.genai import types

from lango.core.messages.streams import Usage


def usage_of(metadata: types.GenerateContentResponseUsageMetadata | None) -> Usage:
    """Tokens as a model reported them; thoughts count as output, as they are billed."""
    if metadata is None:
        return Usage()
    thoughts = metadata.thoughts_token_count or 0
    return Usage(
        input=(metadata.prompt_token_count or 0) + (metadata.tool_use_prompt_token_count or 0),
        output=(metadata.candidates_token_count or 0) + thoughts,
        cached=metadata.cached_content_token_count or 0,
        reasoning=thoughts,
    )
