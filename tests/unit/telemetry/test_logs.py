"""Log records as JSON."""

import json
import logging
import sys
from typing import Any

import pytest

from lango.core.current import current_turn, request_id
from lango.core.redaction import MASK
from lango.telemetry.logs import FIELDS, JsonFormatter

CANARY = "sk-canary0123456789abcdef"


def line(record: logging.LogRecord) -> dict[str, Any]:
    text = JsonFormatter().format(record)
    assert "\n" not in text
    return json.loads(text)


def record(message: str, *values: object, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord("lango.x", logging.WARNING, __file__, 1, message, values, None)
    vars(made).update(more)
    return made


def test_a_line() -> None:
    made = record("%d turns\nare lost", 3, created=0.5)
    assert line(made) == {
        "time": "1970-01-01T00:00:00.500Z",
        "level": "WARNING",
        "logger": "lango.x",
        "message": "3 turns\nare lost",
    }


def test_it_has_the_ids_of_what_the_task_works_for() -> None:
    before = request_id.set("req_1"), current_turn.set("turn_1")
    try:
        read = line(record("hello", **{FIELDS: {"error_id": "err_1", "tool": ""}}))
    finally:
        request_id.reset(before[0])
        current_turn.reset(before[1])
    ids = {name: read[name] for name in read.keys() - {"time", "level", "logger", "message"}}
    assert ids == {"request": "req_1", "turn": "turn_1", "error_id": "err_1"}


def test_the_fields_of_a_record_come_before_those_of_its_task() -> None:
    before = current_turn.set("turn_1")
    try:
        assert line(record("hello", **{FIELDS: {"turn": "turn_2"}}))["turn"] == "turn_2"
    finally:
        current_turn.reset(before)


def test_no_part_of_it_holds_a_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_PASSWORD", "pw-canary-5f1c")
    try:
        raise RuntimeError(f"cannot connect to postgresql://ann:{CANARY}@db/shop: pw-canary-5f1c")
    except RuntimeError:
        made = record("it said %s", CANARY, exc_info=sys.exc_info(), **{FIELDS: {"path": CANARY}})
    text = JsonFormatter().format(made)
    assert "RuntimeError" in json.loads(text)["exception"]
    assert text.count(MASK) >= 4
    for secret in (CANARY, "pw-canary-5f1c"):
        assert secret not in text
