"""Other models to fall back on: each is sent what it takes."""

import pytest

from lango.adk.models.adapter import ModelAdapter
from lango.adk.models.reasoning import reasoning_of
from lango.core.context.model_calls import ModelCall
from lango.errors import ContextTooLongError, ModelUnavailableError
from lango.providers.policy.retry import Fallback, Policy, PolicyProvider
from lango.testing import Fault, Reply, ScriptedProvider
from tests.unit.adk.models.asking import THOUSAND, TOO_LONG, ask, request, texts


async def test_each_model_gets_what_its_own_window_takes() -> None:
    records: list[ModelCall] = []
    first = ScriptedProvider([Reply(fault=Fault(0, ModelUnavailableError()))])
    small = ScriptedProvider(["ok"])
    policy = Policy(tries=1)
    provider = PolicyProvider(first, policy, fallbacks=[Fallback(small, "small", 1_200)])
    model = ModelAdapter(
        provider, "large", token_budget=None, context_window=9_000, on_model_call=records.append
    )
    [response] = await ask(model, request(THOUSAND, "so", THOUSAND, "so", "last"))
    assert texts([response]) == ["ok"]
    assert response.model_version == "small"
    assert len(first.requests[0].messages) == 5
    assert [m.content for m in small.requests[0].messages] == ["so", "last"]
    assert [(r.attempt.model, r.sent, r.left_out) for r in records] == [
        ("large", 5, 0),
        ("small", 2, 3),
    ]


async def test_too_long_for_a_fallback_shrinks_what_that_one_gets() -> None:
    first = ScriptedProvider([Reply(fault=Fault(0, ModelUnavailableError()))])
    other = ScriptedProvider([TOO_LONG, Reply("ok", thoughts="hm")])
    provider = PolicyProvider(first, Policy(tries=1), fallbacks=[Fallback(other, "other")])
    model = ModelAdapter(provider, "demo")
    [response] = await ask(model, request(THOUSAND, "so", "last"))
    assert [len(request.messages) for request in other.requests] == [3, 2]
    assert len(first.requests) == 1
    [thought, _] = (response.content and response.content.parts) or []
    assert reasoning_of(thought).model == "other"


async def test_what_fits_no_model_is_not_sent() -> None:
    first, other = ScriptedProvider(), ScriptedProvider()
    fallbacks = [Fallback(other, "small", 500)]
    provider = PolicyProvider(first, Policy(tries=1), fallbacks=fallbacks)
    model = ModelAdapter(provider, "demo", token_budget=None, context_window=600)
    with pytest.raises(ContextTooLongError, match="scripted small"):
        await ask(model, request("a", "b", THOUSAND))
    assert not first.requests
    assert not other.requests
    fallbacks[0] = Fallback(other, "large", 9_000)
    provider = PolicyProvider(first, Policy(tries=1), fallbacks=fallbacks)
    model = ModelAdapter(provider, "demo", token_budget=None, context_window=600)
    await ask(model, request("a", "b", THOUSAND))
    assert not first.requests
    assert [request.model for request in other.requests] == ["large"]
