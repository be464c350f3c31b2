"""The judge of BLACKBOX finds each thing that must not be, and shares no code with lango."""

import copy
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from faults.blackbox import judge, model_server
from faults.blackbox.evidence import Evidence, Row
from faults.blackbox.judge import INVARIANTS, judged

ROOT = Path(__file__).resolve().parents[2]
UID, SECOND, DELETED = "Ua1", "Ua2", "Udd"
HEAD = f"<<appr.0.{UID}.N1>>"
TIMES = {"started": "2026-01-01T00:00:01+00:00", "ended": "2026-01-01T00:00:02+00:00"}
LATER = {"started": "2026-01-01T00:00:03+00:00", "ended": "2026-01-01T00:00:04+00:00"}
LAST = {"started": "2026-01-01T00:00:05+00:00", "ended": "2026-01-01T00:00:06+00:00"}
FINISHED = "2026-01-01T00:00:01.500000+00:00"
BEGAN = 1767225601.2  # a moment before that


def turn(id: str, number: int, state: str, times: dict[str, str]) -> Row:
    return {
        **{"id": id, "session_pk": 1, "number": number, "state": state, "attempts": 1},
        **{"handed_over": 0, "error": None, "last_event": 2, **times},
    }


def message(seq: int, role: str, content: str, calls: Any = None) -> Row:
    return {
        **{"session_pk": 1, "seq": seq, "role": role, "content": content},
        **{"event_id": f"e{seq}", "tool_calls": calls},
    }


def ack(id: str, number: int, uid: str, how: str, **more: Any) -> Row:
    return {
        **{"kind": "ack", "turn": id, "number": number, "uid": uid, "sid": "ses_1", "how": how},
        **{"app": "appr", "tenant": "north", "user": "u", "t": number * 2.0},
        **{"t_sent": number * 2.0 - 1, **more},
    }


def end(id: str, type: str, text: dict[str, Any] | None = None) -> Row:
    return {"kind": "end", "turn": id, "type": type, "last": 2, "said": text or {}}


def tool(name: str, phase: str = "begin", uid: str = UID) -> Row:
    return {"tool": name, "uid": uid, "k": "appr0", "phase": phase, "t": BEGAN}


def event(turn: int, number: int, type: str) -> Row:
    return {"session_pk": 1, "turn": turn, "number": number, "type": type}


def sound() -> Evidence:
    """A run in which all is well: an approved payment, a second turn, and a deleted session."""
    args = {"uid": UID, "k": "appr0"}
    calls = [
        {"id": "c1", "name": "pay", "input": args},
        {"id": "c2", "name": "put", "input": args},
    ]
    answers = [{"id": "c1", "output": {"paid": UID}}, {"id": "c2", "output": {"put": UID}}]
    session = {"public_id": "ses_1", "tenant": "north", "user_id": "u", "parent_pk": None}
    ledger = {"session_pk": 1, "tool": "put", "args": args, "finished": FINISHED}
    ended = {1: "input_required", 2: "completed", 3: "completed"}
    return Evidence(
        tables={
            "sessions": [{"pk": 1, **session}],
            "turns": [
                turn("t1", 1, "answered", TIMES),
                turn("t2", 2, "completed", LATER),
                turn("t3", 3, "completed", LAST),
            ],
            "messages": [
                message(1, "user", f"BOX:appr:{UID}"),
                message(2, "assistant", HEAD, calls),
                message(3, "tool", "", answers),
                message(4, "user", f"BOX:appr:{SECOND}"),
                message(5, "assistant", f"<<appr.0.{SECOND}.N2>> w1"),
            ],
            "turn_events": [
                made
                for number, type in ended.items()
                for made in (event(number, 1, "accepted"), event(number, 2, type))
            ],
            "tool_ledger": [ledger],
            "model_calls": [{"session_pk": 1, "turn": "i1"}],
        },
        client=[
            {"kind": "session", "sid": "ses_1", "tenant": "north", "user": "u"},
            {"kind": "foreign", "sid": "ses_1", "status": 404},
            ack("t1", 1, UID, "message"),
            {"kind": "twins", "turns": ["t1", "t1"]},
            {"kind": "read", "turn": "t1", "after": 0, "ids": [1]},
            {"kind": "read", "turn": "t1", "after": 1, "ids": [2]},
            end("t1", "input_required", {"e2": {"pieces": HEAD, "text": HEAD}}),
            ack("t2", 2, UID, "answer", approved=True),
            end("t2", "completed"),
            ack("t3", 3, SECOND, "message"),
            end("t3", "completed"),
            ack("t9", 1, DELETED, "message") | {"sid": "ses_9"},
            {"kind": "deleting", "sid": "ses_9", "uids": [DELETED]},
            {"kind": "deleted", "sid": "ses_9"},
        ],
        tools=[tool("put"), tool("put", "end"), tool("pay"), tool("pay", "end")],
        model=[{"kind": "asked", "agent": "appr", "uid": UID, "uids": [UID], "unpaired": []}],
    )


def logged(evidence: Evidence, kind: str, index: int = 0) -> Row:
    return [line for line in evidence.client if line["kind"] == kind][index]


def row(evidence: Evidence, table: str, index: int = 0) -> Row:
    return evidence.tables[table][index]


def lose_turn(it: Evidence) -> None:
    del it.tables["turns"][2]


def renumber_turn(it: Evidence) -> None:
    logged(it, "ack")["number"] = 7


def make_two_turns_of_a_key(it: Evidence) -> None:
    logged(it, "twins")["turns"] = ["t1", "t8"]


def lose_message(it: Evidence) -> None:
    del it.tables["messages"][3]


def repeat_message(it: Evidence) -> None:
    it.tables["messages"].append(message(6, "user", f"BOX:appr:{SECOND}"))


def misplace_message(it: Evidence) -> None:
    it.tables["sessions"].append(row(it, "sessions") | {"pk": 2, "public_id": "ses_2"})
    row(it, "messages", 3)["session_pk"] = 2


def reorder_messages(it: Evidence) -> None:
    row(it, "messages", 3)["seq"] = 0


def number_against_the_order(it: Evidence) -> None:
    logged(it, "ack", 2)["number"] = row(it, "turns", 2)["number"] = 0


def run_two_at_once(it: Evidence) -> None:
    row(it, "turns", 2)["started"] = TIMES["started"]


def leave_turn_running(it: Evidence) -> None:
    row(it, "turns", 2)["state"] = "running"


def hide_end(it: Evidence) -> None:
    it.client.remove(logged(it, "end", 2))


def tell_another_end(it: Evidence) -> None:
    logged(it, "end", 2)["type"] = "cancelled"


def fail_without_deaths(it: Evidence) -> None:
    row(it, "turns", 2).update(state="failed", error='{"type": "WorkerLostError"}', attempts=3)
    logged(it, "end", 2)["type"] = "failed"


def fail_by_another_error(it: Evidence) -> None:
    row(it, "turns", 2).update(state="failed", error={"type": "InternalError"}, attempts=5)
    logged(it, "end", 2)["type"] = "failed"


def stall_stream(it: Evidence) -> None:
    it.client.append({"kind": "stuck", "turn": "t3"})


def run_tool_twice(it: Evidence) -> None:
    it.tools.append(tool("count"))
    it.tools.append(tool("count"))


def run_finished_tool_again(it: Evidence) -> None:
    it.tools.append(tool("put") | {"t": BEGAN + 1})


def pay_twice(it: Evidence) -> None:
    it.tools.append(tool("pay"))


def pay_though_refused(it: Evidence) -> None:
    logged(it, "ack", 1)["approved"] = False


def pay_unasked(it: Evidence) -> None:
    it.tools.append(tool("pay", uid=SECOND))


def never_pay(it: Evidence) -> None:
    it.tools = [line for line in it.tools if line["tool"] != "pay"]


def send_unpaired_call(it: Evidence) -> None:
    it.model[0]["unpaired"] = ["c1"]


def store_unpaired_call(it: Evidence) -> None:
    row(it, "messages", 2)["tool_calls"] = row(it, "messages", 2)["tool_calls"][:1]


def store_answer_twice(it: Evidence) -> None:
    it.tables["messages"].append(message(6, "assistant", HEAD))


def store_step_twice(it: Evidence) -> None:
    it.tables["messages"].append(message(6, "assistant", HEAD.replace("N1", "N3")))


def cut_hole_into_log(it: Evidence) -> None:
    row(it, "turn_events")["number"] = 3


def end_log_twice(it: Evidence) -> None:
    row(it, "turn_events", 4)["type"] = "completed"


def tell_gap(it: Evidence) -> None:
    logged(it, "read", 1)["ids"] = [3]


def tell_repeat(it: Evidence) -> None:
    logged(it, "read", 1)["ids"] = [1, 2]


def end_stream_early(it: Evidence) -> None:
    logged(it, "end", 2)["last"] = 1


def tell_other_pieces(it: Evidence) -> None:
    logged(it, "end")["said"]["e2"]["pieces"] = HEAD[1:]


def tell_other_text(it: Evidence) -> None:
    logged(it, "end")["said"]["e2"] = {"pieces": "else", "text": "else"}


def tell_unstored_text(it: Evidence) -> None:
    logged(it, "end")["said"]["e8"] = {"pieces": None, "text": "else"}


def keep_deleted_session(it: Evidence) -> None:
    it.tables["sessions"].append(row(it, "sessions") | {"pk": 9, "public_id": "ses_9"})


def keep_deleted_rows(it: Evidence) -> None:
    it.tables["model_calls"].append({"session_pk": 9, "turn": "i9"})


def keep_deleted_words(it: Evidence) -> None:
    it.tables["prompt_parts"] = [{"tenant": "north", "text": f"He said {DELETED}."}]


def keep_child_of_deleted(it: Evidence) -> None:
    child = {"pk": 5, "public_id": "ses_5", "parent_pk": 9}
    it.tables["sessions"].append(row(it, "sessions") | child)


def file_under_another_tenant(it: Evidence) -> None:
    row(it, "sessions")["tenant"] = "south"


def show_to_another_tenant(it: Evidence) -> None:
    logged(it, "foreign")["status"] = 200


def mix_sessions_in_a_request(it: Evidence) -> None:
    it.model[0]["uids"] = [UID, DELETED]


def refuse_request(it: Evidence) -> None:
    refused = {"method": "POST", "path": "/", "status": 500, "body": ""}
    it.client.append({"kind": "refused", **refused})


WRONG: dict[Callable[[Evidence], None], Callable[..., Any]] = {
    lose_turn: judge.acknowledged_turns_are_there,
    renumber_turn: judge.acknowledged_turns_are_there,
    make_two_turns_of_a_key: judge.acknowledged_turns_are_there,
    lose_message: judge.messages_are_stored_once,
    repeat_message: judge.messages_are_stored_once,
    misplace_message: judge.messages_are_stored_once,
    reorder_messages: judge.messages_are_in_order,
    number_against_the_order: judge.messages_are_in_order,
    run_two_at_once: judge.one_turn_at_a_time,
    leave_turn_running: judge.turns_end,
    hide_end: judge.turns_end,
    tell_another_end: judge.turns_end,
    fail_without_deaths: judge.turns_end,
    fail_by_another_error: judge.turns_end,
    stall_stream: judge.turns_end,
    run_tool_twice: judge.tools_run_once,
    pay_twice: judge.tools_run_once,
    run_finished_tool_again: judge.finished_tools_stay_finished,
    pay_though_refused: judge.answers_are_obeyed,
    pay_unasked: judge.answers_are_obeyed,
    never_pay: judge.answers_are_obeyed,
    send_unpaired_call: judge.calls_are_answered,
    store_unpaired_call: judge.calls_are_answered,
    store_answer_twice: judge.model_answers_are_stored_once,
    store_step_twice: judge.model_answers_are_stored_once,
    cut_hole_into_log: judge.logs_are_whole,
    end_log_twice: judge.logs_are_whole,
    tell_gap: judge.streams_are_whole,
    tell_repeat: judge.streams_are_whole,
    end_stream_early: judge.streams_are_whole,
    tell_other_pieces: judge.streams_are_whole,
    tell_other_text: judge.streams_are_whole,
    tell_unstored_text: judge.streams_are_whole,
    keep_deleted_session: judge.deletes_are_complete,
    keep_deleted_rows: judge.deletes_are_complete,
    keep_deleted_words: judge.deletes_are_complete,
    keep_child_of_deleted: judge.deletes_are_complete,
    file_under_another_tenant: judge.nothing_crosses_tenants,
    show_to_another_tenant: judge.nothing_crosses_tenants,
    mix_sessions_in_a_request: judge.nothing_crosses_tenants,
    refuse_request: judge.clients_get_no_errors,
}


def test_a_sound_run_is_not_objected_to() -> None:
    assert judged(sound()) == []


@pytest.mark.parametrize("falsify", WRONG, ids=lambda each: each.__name__)
def test_what_is_wrong_is_found(falsify: Callable[[Evidence], None]) -> None:
    evidence = copy.deepcopy(sound())
    falsify(evidence)
    by = WRONG[falsify].__name__.replace("_", " ")
    assert [wrong for wrong in judged(evidence) if wrong.startswith(by)] != []


def test_every_invariant_is_tried() -> None:
    assert set(WRONG.values()) == set(INVARIANTS)


def test_an_approved_call_may_be_told_as_unknown() -> None:
    evidence = sound()
    never_pay(evidence)
    row(evidence, "messages", 2)["tool_calls"][0]["output"] = {"error": "interrupted, unknown"}
    assert judged(evidence) == []


def test_pieces_may_end_early_where_a_turn_was_taken_over() -> None:
    evidence = sound()
    logged(evidence, "end")["said"]["e2"]["pieces"] = HEAD[:5]
    row(evidence, "turns")["attempts"] = 2
    assert judged(evidence) == []


def test_the_judge_loads_nothing_of_lango() -> None:
    code = (
        "import sys, faults.blackbox.judge, faults.blackbox.logs;"
        "print([name for name in sys.modules if name.split('.')[0] == 'lango'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True, text=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("calls", "answers", "wrong"),
    [(["a"], ["a"], []), (["a"], [], ["a"]), ([], ["b"], ["b"]), (["a", "a"], ["a"], ["a"])],
)
def test_the_model_server_sees_what_is_unpaired(
    calls: list[str], answers: list[str], wrong: list[str]
) -> None:
    call_message = {"role": "assistant", "tool_calls": [{"id": id} for id in calls]}
    results = [{"role": "tool", "tool_call_id": id} for id in answers]
    assert model_server.unpaired([call_message, *results]) == wrong
