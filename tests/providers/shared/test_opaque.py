"""Reasoning on its way out and back."""

from lango.core.messages.messages import Message, Reasoning
from lango.providers.shared.opaque import interleave, own, pack


def test_reasoning_finds_its_positions() -> None:
    pieces = [(0, "r0"), (1, "r1"), (3, "r3"), (99, "beyond")]
    assert list(interleave(pieces, ["text"], ["c0", "c1"])) == [
        "r0",
        "text",
        "r1",
        "c0",
        "c1",
        "r3",
        "beyond",
    ]


def test_only_own_and_sound_reasoning_is_taken() -> None:
    def thought(provider: str, model: str, opaque: str) -> Reasoning:
        return Reasoning("", provider, model, opaque)

    message = Message(
        "assistant",
        reasoning=(
            thought("a", "m", pack(1, {"x": "é"})),
            thought("b", "m", pack(1, {})),
            thought("a", "n", pack(2, {})),
            thought("a", "m", "not ours"),
            thought("a", "m", "[]"),
            thought("a", "m", '{"at": "1", "item": {}}'),
            thought("a", "m", ""),
        ),
    )
    assert own(message, "a") == [(1, {"x": "é"}), (2, {})]
    assert own(message, "a", "m") == [(1, {"x": "é"})]
