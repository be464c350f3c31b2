"""A conversation at a terminal, for `lango chat` and `lango run`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from getpass import getpass
from typing import Any, Final

import typer

from lango.adk.tools.approvals import INPUT
from lango.agent.agent import Agent
from lango.cli.background import Background
from lango.cli.options import StoreOptions, command_of
from lango.cli.output.printable import printable
from lango.cli.output.screen import Screen
from lango.core.turns.events import (
    ENDS,
    Answer,
    Approval,
    ApprovalRequired,
    Cancelled,
    Completed,
    CredentialKind,
    CredentialRequest,
    CredentialRequired,
    End,
    Failed,
    InputRequired,
    TurnEvent,
)

Ask = Callable[[Approval], Answer | None]
Turn = Callable[[asyncio.Event], AsyncIterator[TurnEvent]]

_NO_MESSAGE: Final = "The agent asks for an input."
_NO_RESULT: Final = (
    "The turn waits for the result of a long-running call: {}. `{}` delivers it; `{}` has the "
    "turn's id."
)
_EARLIER: Final = "Finishing an earlier turn of this session first…"
_CREDENTIAL: Final = "{} needs a credential of yours ({})."
_CONSENT: Final = "Open this address, and consent:"
_PROMPTS: Final[Mapping[CredentialKind, str]] = {
    "oauth2": "The address that you came to after it> ",
    "api_key": "API key> ",
    "bearer": "Token> ",
    "basic": "User name> ",
}
_PASSWORD: Final = "Password> "  # noqa: S105 - a prompt
_CODES: Final[dict[type[End], int]] = {Completed: 0, Failed: 1, InputRequired: 3, Cancelled: 130}


def exit_code(end: End) -> int:
    """The exit code for a turn's end; 3 if the turn waits for an approval or a result."""
    return _CODES[type(end)]


class TerminalChat:
    """Runs and shows the turns of one session; Ctrl-C stops the turn, not the program."""

    def __init__(
        self,
        background: Background,
        agent: Agent,
        screen: Screen,
        *,
        user: str,
        session: str,
        ask: Ask | None = None,
        store_options: StoreOptions = (None, None, None),
    ) -> None:
        self._background = background
        self._agent = agent
        self._screen = screen
        self._who = {"user": user, "session": session}
        self._ask = ask
        self._store_options = store_options
        self.questions: list[Approval] = []  # those that the newest turn waits for

    def say(self, text: str) -> End:
        """Run one turn, and ask for the approvals it needs."""
        return self._follow_to_end(lambda abort: self._agent.stream(text, **self._who, abort=abort))

    def catch_up(self) -> None:
        """Resume turns whose process died, and follow those that another process runs."""
        unfinished = self._background.run(self._agent.unfinished(**self._who))
        if unfinished:
            typer.secho(_EARLIER, dim=True, err=True)
        for turn in unfinished:
            self._follow_to_end(partial(self._resume, turn))

    def decide_pending(self) -> None:
        """Ask for the approvals that the session waits for."""
        pending = self._background.run(self._agent.pending(**self._who))
        if pending:
            self.decide(pending)

    def _resume(self, turn: str, abort: asyncio.Event) -> AsyncIterator[TurnEvent]:
        return self._agent.resume(turn, abort=abort)

    def decide(self, approvals: Sequence[Approval]) -> End | None:
        """Resume a turn that waits for these; None if the person answers none of them."""
        ask = self._ask or _refuse
        answers = [answer for answer in map(ask, approvals) if answer is not None]
        if not answers:
            return None
        return self._follow_to_end(
            lambda abort: self._agent.answer(answers, **self._who, abort=abort)
        )

    def _follow_to_end(self, turn: Turn) -> End:
        abort = asyncio.Event()
        result = self._background.run(self._shown(turn(abort)), interrupted=abort.set)
        end, approvals, credentials = result
        self.questions = approvals if isinstance(end, InputRequired) else []
        if isinstance(end, InputRequired) and credentials:
            return self._give(credentials) or end
        if isinstance(end, InputRequired) and not approvals:
            calls = printable(", ".join(end.calls))
            deliver = command_of(self._store_options, "turns", "deliver")
            listing = command_of(self._store_options, "turns", "list", "--status", "input_required")
            typer.secho(_NO_RESULT.format(calls, deliver, listing), dim=True, err=True)
        if self.questions and self._ask is not None:
            return self.decide(approvals) or end
        return end

    def _give(self, requests: Sequence[CredentialRequest]) -> End | None:
        """Show the credentials that a turn waits for; None if the person gives none of them."""
        for request in requests:
            print_credential(request)
        if self._ask is None:
            return None
        answers = [answer for answer in map(ask_credential, requests) if answer is not None]
        if not answers:
            return None
        return self._follow_to_end(
            lambda abort: self._agent.answer(answers, **self._who, abort=abort)
        )

    async def _shown(
        self, events: AsyncIterator[TurnEvent]
    ) -> tuple[End, list[Approval], list[CredentialRequest]]:
        approvals: list[Approval] = []
        credentials: list[CredentialRequest] = []
        end: End | None = None
        async for event in events:
            self._screen.show(event)
            if isinstance(event, ApprovalRequired):
                approvals.append(event.approval)
            if isinstance(event, CredentialRequired):
                credentials.append(event.request)
            if isinstance(event, ENDS):
                end = event
        assert end is not None, "a turn ends with exactly one end"  # noqa: S101 - its contract
        return end, approvals, credentials


def _refuse(approval: Approval) -> Answer:
    """Refuse an approval if no person can be asked."""
    return approval.answer(approved=False)


def ask_at_terminal(approval: Approval) -> Answer | None:
    """Ask a person. Anything but yes means no; None if a requested input is not typed."""
    typer.echo()
    print_question(approval)
    if approval.name == INPUT:
        text = typed("answer> ")
        return None if text is None else approval.answer(approved=True, payload=_value(text))
    text = typed("Let it? [y/N] ") or ""
    return approval.answer(text.strip().lower() in ("y", "yes"))


def print_question(approval: Approval, *, err: bool = False) -> None:
    """Print a turn's question: a call that waits for approval, or the message of a node."""
    if approval.name == INPUT:
        typer.secho(printable(approval.hint or _NO_MESSAGE), bold=True, err=err)
        return
    arguments = json.dumps(approval.arguments, ensure_ascii=False, indent=2)
    typer.secho(f"{printable(approval.name)} wants to run with", bold=True, err=err)
    typer.echo(printable(arguments), err=err)
    if approval.hint:
        typer.echo(printable(approval.hint), err=err)


def print_credential(request: CredentialRequest) -> None:
    """Print which credential a call needs, and where the user consents."""
    question = _CREDENTIAL.format(printable(request.name), request.kind)
    typer.secho(question, bold=True, err=True)
    if request.auth_uri:
        typer.echo(_CONSENT, err=True)
        typer.echo(printable(request.auth_uri), err=True)


def ask_credential(request: CredentialRequest) -> Answer | None:
    """Ask a person for a credential; None if none is typed, or it has no form to type.

    Keys, passwords and tokens are not shown, and not kept in the history of typed lines.
    """
    prompt = _PROMPTS.get(request.kind)
    if prompt is None:
        return None
    if request.kind == "basic":
        user = (typed(prompt) or "").strip()
        password = typed(_PASSWORD, hidden=True) if user else None
        return request.answer({"username": user, "password": password}) if password else None
    text = (typed(prompt, hidden=request.kind != "oauth2") or "").strip()
    return request.answer(text) if text else None


def typed(prompt: str, *, hidden: bool = False) -> str | None:
    """The typed line; None at the end of the input, or after Ctrl-C. `hidden`: without echo."""
    try:
        return getpass(prompt) if hidden else input(prompt)
    except (EOFError, KeyboardInterrupt):
        typer.echo()
        return None


def _value(text: str) -> Any:
    """The object or list, if the text is one in JSON; else the text itself."""
    if not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except ValueError:
        return text
