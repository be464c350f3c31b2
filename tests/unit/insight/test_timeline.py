"""The steps of model calls on a timeline."""

from lango.core.context.model_calls import CallOutcome, ModelAttempt, ModelCall
from lango.core.times import moment
from lango.insight.timeline import model_steps


def call(number: int, outcome: CallOutcome) -> ModelCall:
    at = 100.0 * number
    attempt = ModelAttempt("openai", "gpt-5", at, at + 1.0, outcome=outcome)
    return ModelCall(attempt, 1, call=f"mc_{number}")


def test_calls_under_way_and_calls_that_were_cut_off() -> None:
    """One goes on; of the other it is known only that its worker was lost."""
    outcomes: tuple[CallOutcome, ...] = ("completed", "started", "cut_off")
    steps = list(model_steps([call(n, outcome) for n, outcome in enumerate(outcomes)]))
    assert [step.outcome for step in steps] == ["completed", "running", "lost"]
    assert [step.ended for step in steps] == [moment(1.0), None, moment(201.0)]
