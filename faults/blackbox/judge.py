"""The judge: invariants of a run, checked by its evidence alone. It imports no code of lango."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, Final

from faults.blackbox.evidence import Evidence, Row, fields_of, moment, parsed

ONCE: Final = frozenset({"count", "slow", "pay", "ask"})
"""The tools that are not idempotent."""
ENDS: Final = frozenset({"completed", "failed", "cancelled", "input_required"})
_OVER: Final = ENDS | {"answered"}
_RAN: Final = frozenset({"completed", "input_required", "answered"})
_GIVEN_UP: Final = "WorkerLostError"
_DEATHS: Final = 5
_HEAD: Final = re.compile(r"<<(\w+)\.(\d+)\.(U[0-9a-f]+)\.(N\w+)>>")
_MARK: Final = re.compile(r"BOX:(\w+):(U[0-9a-f]+)")
_CLOCK: Final = 0.005  # seconds within which the order of two clocks is unknown


class Case:
    """The evidence, indexed for the checks."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence
        table = evidence.tables
        self.sessions = {row["pk"]: row for row in table["sessions"]}
        self.turns = {row["id"]: row for row in table["turns"]}
        self.deleted = {line["sid"] for line in evidence.logged("deleted")}
        # A delete without a response may have happened or not.
        self.doomed = {line["sid"] for line in evidence.logged("deleting")} | self.deleted
        self.acks = {line["turn"]: line for line in evidence.logged("ack")}
        self.kept = {id: ack for id, ack in self.acks.items() if ack["sid"] not in self.doomed}
        self.ends: dict[str, Row] = {line["turn"]: line for line in evidence.logged("end")}
        self.messages: dict[Any, list[Row]] = defaultdict(list)
        for row in sorted(table["messages"], key=lambda row: (row["session_pk"], row["seq"])):
            self.messages[row["session_pk"]].append(row)
        self.by_public = {row["public_id"]: row for row in table["sessions"]}

    def calls(self, *, answers: bool) -> Iterator[tuple[Row, Row]]:
        """Each call, or each result of a call, with its message."""
        for rows in self.messages.values():
            for message in rows:
                for call in parsed(message["tool_calls"]) or ():
                    if ("output" if answers else "input") in call:
                        yield message, call


def acknowledged_turns_are_there(case: Case) -> Iterator[str]:
    """Every turn that was acknowledged is a row, with the number that the client got."""
    for id, ack in case.kept.items():
        row = case.turns.get(id)
        if row is None:
            yield f"acknowledged turn {id} ({ack['app']}) is lost"
        elif row["number"] != ack["number"]:
            yield f"turn {id} was acknowledged as {ack['number']} and is {row['number']}"
    for line in case.evidence.logged("twins"):
        if len(set(line["turns"])) != 1:
            yield f"one idempotency key made {line['turns']}"


def messages_are_stored_once(case: Case) -> Iterator[str]:
    """The user's message is in its own session, once, if the turn ran; in no other, ever."""
    where: dict[str, list[str]] = defaultdict(list)
    for pk, rows in case.messages.items():
        session = case.sessions.get(pk)
        if session is None:
            continue  # another invariant checks it
        for row in rows:
            found = _MARK.fullmatch(row["content"] or "") if row["role"] == "user" else None
            if found and session["parent_pk"] is None:
                where[found[2]].append(session["public_id"])
    for id, ack in case.kept.items():
        row = case.turns.get(id)
        if row is None or ack["how"] == "answer":
            continue
        stored = where[ack["uid"]]
        if len(stored) > 1:
            yield f"the message of turn {id} ({ack['app']}) is stored {len(stored)} times"
        if not stored and row["state"] in _RAN:
            yield f"the message of turn {id} ({ack['app']}), {row['state']}, is lost"
        if any(sid != ack["sid"] for sid in stored):
            yield f"the message of turn {id} ({ack['app']}) is in another session"


def messages_are_in_order(case: Case) -> Iterator[str]:
    """Messages are in the order of acknowledgement, except of scheduled and interrupting turns."""
    plain: dict[str, list[str]] = defaultdict(list)
    for ack in sorted(case.kept.values(), key=lambda ack: ack["number"]):
        if ack["how"] == "message":
            plain[ack["sid"]].append(ack["uid"])
    for sid, uids in plain.items():
        session = case.by_public.get(sid)
        rows = case.messages[session["pk"]] if session else []
        marks = [_MARK.fullmatch(row["content"] or "") for row in rows if row["role"] == "user"]
        stored = [mark[2] for mark in marks if mark and mark[2] in uids]
        if stored != [uid for uid in uids if uid in stored]:
            yield f"the messages of {sid} stand as {stored}, handed in as {uids}"
    for ack, other in _neighbours(case):
        if ack["t"] < other["t_sent"] and ack["number"] > other["number"]:
            yield f"{other['turn']} was sent after {ack['turn']} and has the lower number"


def _neighbours(case: Case) -> Iterator[tuple[Row, Row]]:
    by_session: dict[str, list[Row]] = defaultdict(list)
    for ack in case.kept.values():
        by_session[ack["sid"]].append(ack)
    for acks in by_session.values():
        acks.sort(key=lambda ack: ack["t"])
        for index, ack in enumerate(acks):
            for other in acks[index + 1 :]:
                yield ack, other


def one_turn_at_a_time(case: Case) -> Iterator[str]:
    """No two turns of a session run at once."""
    runs: dict[Any, list[tuple[float, float, str]]] = defaultdict(list)
    for row in case.turns.values():
        started, ended = moment(row["started"]), moment(row["ended"])
        if started is not None and ended is not None:
            runs[row["session_pk"]].append((started, ended, row["id"]))
    for each in runs.values():
        each.sort()
        for (_, ended, one), (started, _, two) in pairwise(each):
            if started < ended:
                yield f"{one} and {two} of one session ran at once"


def turns_end(case: Case) -> Iterator[str]:
    """Each accepted turn is over or waits for a person; its client saw that end, and no other.

    A turn fails only by losing five workers.
    """
    for id, ack in case.kept.items():
        row = case.turns.get(id)
        if row is None:
            continue
        state, end = row["state"], case.ends.get(id)
        if state not in _OVER:
            yield f"turn {id} ({ack['app']}) is left {state} after {row['attempts']} attempts"
            continue
        if end is None:
            yield f"the client of turn {id} ({ack['app']}), {state}, saw no end"
        elif end["type"] != ("input_required" if state == "answered" else state):
            yield f"turn {id} ({ack['app']}) is {state}; its client saw {end['type']}"
        if state == "failed":
            error = fields_of(row["error"])
            deaths = row["attempts"] - row["handed_over"]
            if error.get("type") != _GIVEN_UP or deaths < _DEATHS:
                yield f"turn {id} ({ack['app']}) failed after {deaths} deaths: {error}"
    for line in case.evidence.logged("stuck"):
        if case.acks.get(line["turn"], {}).get("sid") not in case.doomed:
            yield f"the stream of turn {line['turn']} told no end"


def tools_run_once(case: Case) -> Iterator[str]:
    """A tool that is not idempotent starts at most once for each stored call."""
    begun = Counter(
        (line["tool"], line["uid"], line["k"])
        for line in case.evidence.tools
        if line["phase"] == "begin" and line["tool"] in ONCE
    )
    stored = Counter(
        (call["name"], (arguments := fields_of(call["input"])).get("uid"), arguments.get("k"))
        for _, call in case.calls(answers=False)
    )
    for run, times in begun.items():
        if times > max(stored[run], 1):
            yield f"{run} is not idempotent and ran {times} times"


def finished_tools_stay_finished(case: Case) -> Iterator[str]:
    """A tool whose result is in the database does not start again."""
    begun: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    for line in case.evidence.tools:
        if line["phase"] == "begin":
            begun[line["tool"], line["uid"], line["k"]].append(line["t"])
    rows = case.evidence.tables["tool_ledger"]
    ledger_runs = [(row["tool"], fields_of(row["args"]), row) for row in rows]
    times = Counter((tool, args.get("uid"), args.get("k")) for tool, args, _ in ledger_runs)
    for tool, args, row in ledger_runs:
        run = (tool, args.get("uid"), args.get("k"))
        finished = moment(row["finished"])
        if finished is None or times[run] != 1:
            continue
        late = [began for began in begun[run] if began > finished + _CLOCK]
        if late:
            yield f"{run} was finished and began again {late[0] - finished:.2f} s later"


def answers_are_obeyed(case: Case) -> Iterator[str]:
    """An approved call runs once (or is reported as unknown), an unapproved one never."""
    began = Counter(
        line["uid"]
        for line in case.evidence.tools
        if line["tool"] == "pay" and line["phase"] == "begin"
    )
    yes: dict[str, str] = {}
    for id, ack in case.acks.items():
        if ack["how"] == "answer" and ack["app"] == "appr" and ack["approved"]:
            yes[ack["uid"]] = id
    for uid, times in began.items():
        if uid not in yes:
            yield f"pay ran for {uid} without an approval"
        elif times > 1:
            yield f"pay ran {times} times for {uid}, approved once"
    answers_by_call = {
        call["id"]: fields_of(call["input"]).get("uid")
        for _, call in case.calls(answers=False)
        if call["name"] == "pay"
    }
    unknown = {
        answers_by_call.get(call["id"])
        for _, call in case.calls(answers=True)
        if "interrupted" in str(call["output"])
    }
    for uid, id in yes.items():
        row = case.turns.get(id)
        ended = id in case.kept and row is not None and row["state"] == "completed"
        if ended and not began[uid] and uid not in unknown:
            yield f"pay was approved for {uid} and never ran, though {id} completed"


def calls_are_answered(case: Case) -> Iterator[str]:
    """No request to the model, and no history without an open turn, has a call without a result."""
    for line in case.evidence.model:
        if line["kind"] == "asked" and line["unpaired"]:
            yield f"{line['agent']} was sent unpaired calls {line['unpaired']} for {line['uid']}"
    waiting = {row["session_pk"] for row in case.turns.values() if row["state"] == "input_required"}
    answered = {(message["session_pk"], call["id"]) for message, call in case.calls(answers=True)}
    for message, call in case.calls(answers=False):
        pk = message["session_pk"]
        parent = (case.sessions.get(pk) or {}).get("parent_pk")
        if (pk, call["id"]) not in answered and not {pk, parent} & waiting:
            yield f"the call {call['id']} of {call['name']} in session {pk} has no answer"


def model_answers_are_stored_once(case: Case) -> Iterator[str]:
    """No answer of the model and no step of an agent is stored twice."""
    for pk, rows in case.messages.items():
        heads = [_HEAD.match(row["content"] or "") for row in rows if row["role"] == "assistant"]
        for head, times in Counter(head[0] for head in heads if head).items():
            if times > 1:
                yield f"session {pk} has the answer {head} {times} times"
        steps = Counter((head[1], head[2], head[3]) for head in heads if head)
        for step, times in steps.items():
            if times > 1:
                yield f"session {pk} has the step {step} {times} times"


def logs_are_whole(case: Case) -> Iterator[str]:
    """The log of a turn has every number once, and one end event, which is the last."""
    logs: dict[Any, list[Row]] = defaultdict(list)
    for row in case.evidence.tables["turn_events"]:
        logs[row["session_pk"], row["turn"]].append(row)
    for row in case.turns.values():
        log = sorted(logs[row["session_pk"], row["number"]], key=lambda event: int(event["number"]))
        if [event["number"] for event in log] != list(range(1, row["last_event"] + 1)):
            yield f"the log of {row['id']} has a gap or a repeat"
        ends = [index for index, event in enumerate(log) if event["type"] in ENDS]
        if row["ended"] is not None and ends != [len(log) - 1]:
            yield f"the log of {row['id']} does not end once"


def streams_are_whole(case: Case) -> Iterator[str]:
    """Each connection gets the events after its position; their texts are those stored."""
    stored = {row["event_id"]: row for rows in case.messages.values() for row in rows}
    for line in case.evidence.logged("read"):
        after, ids = line["after"], line["ids"]
        if ids != list(range(after + 1, after + 1 + len(ids))):
            yield f"a stream of {line['turn']} behind {after} told {ids}"
    for id, end in case.ends.items():
        row = case.turns.get(id)
        if row is None or id not in case.kept:
            continue
        if end["last"] != row["last_event"]:
            yield f"{id} ended for its client at {end['last']}, in its log at {row['last_event']}"
        for message, message_read in end["said"].items():
            pieces, text = message_read["pieces"], message_read["text"]
            taken_over = row["attempts"] > 1 and text.startswith(pieces or "")
            if pieces is not None and pieces != text and not taken_over:
                yield f"the pieces of {id} make up {pieces[-60:]!r}, not {text[-60:]!r}"
            kept = stored.get(message)
            if kept is None:
                yield f"{id} told {text[:60]!r}, which is not stored"
            elif kept["role"] == "assistant" and kept["content"] != text:
                yield f"{id} told {text[:60]!r}; stored is {kept['content'][:60]!r}"


def deletes_are_complete(case: Case) -> Iterator[str]:
    """A deleted session leaves no row, and none of its text in any column."""
    for sid in case.deleted & case.by_public.keys():
        yield f"the deleted session {sid} is still there"
    uids = {ack["uid"] for ack in case.acks.values() if ack["sid"] in case.deleted}
    uids |= {uid for line in case.evidence.logged("deleting") for uid in line["uids"]}
    kept = {ack["uid"] for ack in case.kept.values()}
    words = re.compile("|".join(sorted(uids - kept))) if uids - kept else None
    for name, rows in case.evidence.tables.items():
        orphans = {
            row["session_pk"]
            for row in rows
            if row.get("session_pk") is not None and row["session_pk"] not in case.sessions
        }
        if orphans:
            yield f"{name} has rows of {len(orphans)} sessions that are no more"
        if words is not None:
            left = [row for row in rows if words.search(str(row))]
            deleted = [row for row in left if not _may_stay(case, row)]
            if deleted:
                yield f"{name} has {len(deleted)} rows with words of deleted sessions"
    for row in case.sessions.values():
        if row["parent_pk"] is not None and row["parent_pk"] not in case.sessions:
            yield f"session {row['pk']} belongs to one that is no more"


def _may_stay(case: Case, row: Row) -> bool:
    """Whether a row belongs to a session whose delete request got no response."""
    session = case.sessions.get(row.get("session_pk") or row.get("pk"))
    return session is not None and session["public_id"] not in case.deleted


def nothing_crosses_tenants(case: Case) -> Iterator[str]:
    """A session belongs to its client's tenant and user, and shares no data with other users."""
    for line in case.evidence.logged("session"):
        row = case.by_public.get(line["sid"])
        if row and (row["tenant"], row["user_id"]) != (line["tenant"], line["user"]):
            yield f"session {line['sid']} is of {row['tenant']}, created by {line['tenant']}"
    for line in case.evidence.logged("foreign"):
        if line["status"] != 404:
            yield f"session {line['sid']} was shown to another tenant: {line['status']}"
    home = {ack["uid"]: ack["sid"] for ack in case.acks.values()}
    for line in case.evidence.model:
        homes = {home[uid] for uid in line.get("uids", ()) if uid in home}
        if len(homes) > 1:
            yield f"{line['agent']} was sent messages of {len(homes)} sessions"
    yield from _strange_messages(case)


def _strange_messages(case: Case) -> Iterator[str]:
    tenants = {ack["uid"]: ack["tenant"] for ack in case.acks.values()}
    for pk, rows in case.messages.items():
        tenant = case.sessions.get(pk, {}).get("tenant")
        for row in rows:
            for _, uid in _MARK.findall(row["content"] or ""):
                if tenant is not None and tenants.get(uid, tenant) != tenant:
                    yield f"a message of {tenants[uid]} is in a session of {tenant}"


def clients_get_no_errors(case: Case) -> Iterator[str]:
    """Every request gets a documented response in the end."""
    for line in case.evidence.logged("refused"):
        yield f"{line['method']} {line['path']} was answered {line['status']}: {line['body']}"


INVARIANTS: Final[tuple[Callable[[Case], Iterator[str]], ...]] = (
    acknowledged_turns_are_there,
    messages_are_stored_once,
    messages_are_in_order,
    one_turn_at_a_time,
    turns_end,
    tools_run_once,
    finished_tools_stay_finished,
    answers_are_obeyed,
    calls_are_answered,
    model_answers_are_stored_once,
    logs_are_whole,
    streams_are_whole,
    deletes_are_complete,
    nothing_crosses_tenants,
    clients_get_no_errors,
)


def judged(evidence: Evidence) -> list[str]:
    """All violations."""
    case = Case(evidence)
    return [
        f"{invariant.__name__.replace('_', ' ')}: {wrong}"
        for invariant in INVARIANTS
        for wrong in invariant(case)
    ]
