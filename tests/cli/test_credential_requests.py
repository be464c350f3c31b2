"""A credential that a turn waits for, at the terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lango.cli import talk
from lango.core.turns.events import CredentialKind, CredentialRequest

ADDRESS = "https://provider.example/authorize?state=s"


def test_the_request_and_its_address_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    talk.print_credential(CredentialRequest("q", "c", "files\x1b[2J", "oauth2", ADDRESS))
    shown = capsys.readouterr().err
    assert "files" in shown
    assert ADDRESS in shown
    assert "\x1b[2J" not in shown


@pytest.mark.parametrize(
    ("kind", "shown", "hidden", "payload"),
    [
        ("oauth2", [" https://here/?code=c&state=s "], [], "https://here/?code=c&state=s"),
        ("api_key", [], [" hush "], "hush"),
        ("bearer", [], ["hush"], "hush"),
        ("basic", [" ann "], ["hu:sh "], {"username": "ann", "password": "hu:sh "}),
        ("basic", ["ann"], [""], None),
        ("basic", [""], [], None),
        ("api_key", [], [""], None),
        ("api_key", [], [], None),
        ("other", [], [], None),
    ],
)
def test_a_person_types_it(
    monkeypatch: pytest.MonkeyPatch,
    kind: CredentialKind,
    shown: list[str],
    hidden: list[str],
    payload: Any,
) -> None:
    def typing(lines: list[str]) -> Callable[[str], str]:
        def typed(prompt: str) -> str:
            assert prompt.endswith("> ")
            if not lines:
                raise EOFError
            return lines.pop(0)

        return typed

    monkeypatch.setattr(talk, "getpass", typing(hidden))
    monkeypatch.setattr("builtins.input", typing(shown))
    answer = talk.ask_credential(CredentialRequest("q", "c", "files", kind))
    assert (answer and (answer.call_id, answer.payload)) == (payload and ("q", payload))
    assert (shown, hidden) == ([], []), "a secret was asked for with echo, or not at all"
