"""Canary of lango/adk/compat/sessions.py."""

from tests.support.canary import Canary

CANARY = Canary.of_adk("sessions.py", "states of sessions, and contents that were loaded")
SERVICE = "BaseSessionService"


def test_session_services_inherit_these_helpers() -> None:
    parameters = {
        "_apply_temp_state": ("self", "session", "event"),
        "_trim_temp_delta_state": ("self", "event"),
        "_update_session_state": ("self", "session", "event"),
    }
    for name, needed in parameters.items():
        helper = CANARY.part("sessions.base_session_service", f"{SERVICE}.{name}")
        CANARY.takes(helper, *needed)


def test_adk_appends_by_the_same_helpers() -> None:
    service = CANARY.part("sessions.base_session_service", SERVICE)
    CANARY.contains(
        service,
        "self._apply_temp_state(session, event)",
        "self._trim_temp_delta_state(event)",
        "self._update_session_state(session, event)",
    )


def test_adks_gemini_prepares_its_requests_by_this_method() -> None:
    method = CANARY.part("models.base_llm", "BaseLlm._maybe_append_user_content")
    CANARY.takes(method, "self", "llm_request")
    gemini = CANARY.part("models.google_llm", "Gemini.generate_content_async")
    CANARY.contains(gemini, "self._maybe_append_user_content(llm_request)")
