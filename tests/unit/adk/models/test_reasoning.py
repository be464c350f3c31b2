"""Reasoning in ADK's parts, there and back."""

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from lango.adk.models.convert import convert_messages
from lango.adk.models.reasoning import reasoning_of, thought_part
from lango.core.messages.messages import Reasoning

texts = st.text(max_size=40)
reasonings = st.builds(Reasoning, texts, texts, texts, texts)


@given(reasonings)
def test_it_comes_back_as_it_went(reasoning: Reasoning) -> None:
    assert reasoning_of(thought_part(reasoning)) == reasoning


@given(reasonings)
def test_it_survives_being_dumped_and_validated(reasoning: Reasoning) -> None:
    part = thought_part(reasoning)
    again = types.Part.model_validate_json(part.model_dump_json(exclude_none=True))
    assert again == part
    assert reasoning_of(again) == reasoning


def test_it_is_a_thought_for_adk() -> None:
    part = thought_part(Reasoning("hm", "openai", "gpt-5", "sealed"))
    assert (part.thought, part.text) == (True, "hm")
    assert part.part_metadata is None  # Vertex AI refuses to take any
    assert part.thought_signature


def test_a_bare_thought_has_no_signature() -> None:
    assert thought_part(Reasoning("hm")) == types.Part(text="hm", thought=True)


@pytest.mark.parametrize("signature", [None, b"", b"\x00\xff", b'{"lango":1,', b'{"lango":1,"x"'])
def test_the_data_of_other_models_is_not_sent_back(signature: bytes | None) -> None:
    part = types.Part(text="hm", thought=True, thought_signature=signature)
    assert reasoning_of(part) == Reasoning("hm")


def test_thoughts_are_the_message_s_reasoning() -> None:
    pieces = (Reasoning("one", "a", "b", "c"), Reasoning("", "a", "b", "d"))
    parts = [*map(thought_part, pieces), types.Part(text="so")]
    [message] = convert_messages([types.Content(role="model", parts=parts)])
    assert (message.content, message.reasoning) == ("so", pieces)
    [silent] = convert_messages([types.Content(role="model", parts=parts[:1])])
    assert (silent.role, silent.content, silent.reasoning) == ("assistant", "", pieces[:1])
