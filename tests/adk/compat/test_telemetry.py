"""Canary of lango/adk/compat/telemetry.py."""

from typing import Any

import pytest
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.telemetry import _instrumentation
from google.genai import types

from lango.adk.compat import telemetry
from lango.adk.versions import ADK_VERSION
from tests.support.canary import Canary

CANARY = Canary.of_adk("telemetry.py", "dropping partial responses that telemetry would keep")
MODULE = "telemetry._instrumentation"
HAS_METHOD = not ADK_VERSION.startswith("2.12.")


def test_a_scope_records_responses_by_this_method() -> None:
    if HAS_METHOD:
        CANARY.takes(vars(telemetry)["_record"], "self", "invocation_context", "response")
    else:
        assert not hasattr(_instrumentation.InferenceScope, "record_llm_response")
        telemetry.forget_partial_responses()


def test_a_scope_collects_responses_in_a_list() -> None:
    options = {"llm_request": LlmRequest(), "user_id": "ann"} if HAS_METHOD else {}
    scope = CANARY.part(MODULE, "InferenceScope")(**options)
    CANARY.check(isinstance(scope.llm_responses, list), "InferenceScope", "a list llm_responses")
    scope.llm_responses.append(LlmResponse())
    CANARY.check(len(scope.llm_responses) == 1, "InferenceScope", "a mutable llm_responses")


def _collect(scope: Any, context: Any, response: LlmResponse) -> None:
    del context
    scope.llm_responses.append(response)


def test_what_telemetry_reads_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_record", _collect)
    options = {"llm_request": LlmRequest(), "user_id": "ann"} if HAS_METHOD else {}
    scope = CANARY.part(MODULE, "InferenceScope")(**options)
    record: Any = vars(telemetry)["_record_and_forget"]
    usage = types.GenerateContentResponseUsageMetadata(prompt_token_count=3)
    for number in range(9):
        reported = usage if number in (2, 5) else None
        record(scope, None, LlmResponse(partial=True, usage_metadata=reported))
        assert len(scope.llm_responses) <= 2
    assert [each.usage_metadata for each in scope.llm_responses] == [usage, None]
    record(scope, None, LlmResponse())
    record(scope, None, LlmResponse())  # whole ones all stay
    assert [bool(each.partial) for each in scope.llm_responses] == [True, False, False]
