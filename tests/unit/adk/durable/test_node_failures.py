"""Failed tries: what the ledger keeps of them is all that ADK and the turn's error need."""

import json

import pytest
from google.adk.workflow import NodeTimeoutError
from google.adk.workflow._errors import DynamicNodeFailError

from lango.adk.durable.nodes.failures import failure_of, is_failure, is_of_child, replayed_error
from lango.core.turns.events import error_data
from lango.errors import AgentNotFoundError, ModelUnavailableError


class LineDown(ConnectionError):
    """With a status, as the errors of some clients have."""

    status = "UNAVAILABLE"


class OurLineDown(ModelUnavailableError):
    """Derived from one of lango's own."""


ERRORS = [
    ValueError("no"),
    KeyError("k"),
    LineDown("down"),
    NodeTimeoutError(node_name="n", timeout=1.0),
    ModelUnavailableError("busy"),
    OurLineDown("busy"),
    AgentNotFoundError("gone", ["here"]),
    Exception("plain"),
]


def names_of(error: Exception) -> set[str]:
    return {kind.__name__ for kind in type(error).__mro__}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_failure_is_raised_again_as_it_was(error: Exception) -> None:
    kept = json.loads(json.dumps(failure_of(error)))
    assert is_failure(kept)
    again = replayed_error(kept, "root@1/n@1", is_stored=False)
    assert (str(again), names_of(again)) == (str(error), names_of(error))
    assert type(again).__name__ == type(error).__name__
    assert getattr(again, "status", None) == getattr(error, "status", None)
    assert error_data(again) == error_data(error)


def test_a_failure_whose_event_is_stored_is_one_that_adk_writes_no_event_of() -> None:
    again = replayed_error(failure_of(ValueError("no")), "root@1/n@1", is_stored=True)
    assert isinstance(again, DynamicNodeFailError)
    assert (str(again.error), type(again.error).__name__) == ("no", "ValueError")
    assert again.error_node_path == "root@1/n@1"


def test_a_failure_of_a_node_that_the_function_ran_is_kept_as_that_nodes() -> None:
    inner = ValueError("no")
    kept = failure_of(DynamicNodeFailError(message="m", error=inner, error_node_path="p"))
    assert is_of_child(kept)
    assert not is_of_child(failure_of(inner))
    assert str(replayed_error(kept, "p", is_stored=False)) == "no"
