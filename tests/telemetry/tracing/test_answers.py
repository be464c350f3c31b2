"""The request that answers an approval leads to the trace of the turn that asked."""

from pathlib import Path

from faults.turns.workspace import Workspace, turn_process
from lango.core.turns.events import Answer
from lango.telemetry.tracing.current import use_tracer
from tests.telemetry.tracing.test_spans import Kept


async def test_an_answer_is_linked(sqlite_url: str, tmp_path: Path) -> None:
    kept = Kept()
    use_tracer(kept.tracer)
    try:
        async with (
            turn_process(Workspace(sqlite_url, "app", tmp_path)) as process,
            process.worker(),
        ):
            asking = await process.turns.wait(await process.say('call pay {"amount": 1}'))
            with kept.tracer.request("POST", {}, {}):
                answer = Answer(asking.waits_for[0], approved=True)
                answering = await process.turns.answer(asking.id, answer)
            await process.turns.wait(answering)
    finally:
        use_tracer(None)
    [request] = [span for span in kept.spans if span.name == "POST"]
    asked = next(span for span in kept.spans if span.name == "turn")
    [link] = request.links
    assert asked.context is not None
    assert link.context.span_id == asked.context.span_id
    assert f"{link.context.trace_id:032x}" == asking.trace_id != answering.trace_id
