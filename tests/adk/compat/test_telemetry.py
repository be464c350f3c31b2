"""Canary of lango/adk/compat/telemetry.py."""

from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse

from tests.canary import Canary

CANARY = Canary.of_adk("telemetry.py", "dropping partial responses that telemetry would keep")
MODULE = "telemetry._instrumentation"


def test_telemetry_publishes_the_scope_of_a_call() -> None:
    CANARY.takes(CANARY.part(MODULE, "inference_scope"))


def test_a_scope_collects_responses_in_a_list() -> None:
    scope = CANARY.part(MODULE, "InferenceScope")(llm_request=LlmRequest(), user_id="ann")
    CANARY.check(isinstance(scope.llm_responses, list), "InferenceScope", "a list llm_responses")
    scope.llm_responses.append(LlmResponse())
    CANARY.check(len(scope.llm_responses) == 1, "InferenceScope", "a mutable llm_responses")
