"""Ids of spans that every process derives, and W3C Trace Context."""

import pytest

from lango.telemetry.tracing.ids import (
    TraceParent,
    span_id_of,
    trace_id_in,
    trace_id_of_turn,
)

TEXT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_every_part_of_a_turn_has_an_id_of_its_own() -> None:
    ids = {span_id_of("t1"), span_id_of("t1", 1), span_id_of("t1", 2), span_id_of("t2", 1)}
    assert len(ids) == 4
    assert all(0 < span_id < 2**64 for span_id in ids)
    assert span_id_of("t1", 1) == span_id_of("t1", 1)
    assert 2**64 < trace_id_of_turn("t1") < 2**128
    assert f"{trace_id_of_turn('t1'):032x}"[:16] != f"{span_id_of('t1'):016x}"


def test_a_traceparent_is_read_and_written() -> None:
    parent = TraceParent.parse(TEXT)
    assert parent is not None
    assert (str(parent), parent.sampled) == (TEXT, True)
    unsampled = TraceParent.parse(TEXT[:-2] + "00")
    assert unsampled is not None
    assert not unsampled.sampled
    assert trace_id_in(TEXT) == "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    "text", [None, "", "00", TEXT[:-1], TEXT.replace("b7ad6b7169203331", "0" * 16), TEXT.upper()]
)
def test_anything_else_is_none(text: str | None) -> None:
    assert TraceParent.parse(text) is None
    assert trace_id_in(text) is None
