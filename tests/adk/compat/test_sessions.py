"""Canary of lango/adk/compat/sessions.py."""

from tests.canary import Canary

CANARY = Canary.of_adk("sessions.py", "the state of a session object after an append")
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
