"""Answers with credentials: checked and exchanged when they are given, stored only encrypted."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from lango.adk.credentials.answers import (
    AuthConfig,
    AuthCredential,
    exchanged,
    read_config,
    read_credential,
    reference_to,
)
from lango.adk.credentials.kinds import asked_configs, kind_of, state_of
from lango.adk.credentials.turn import dumped
from lango.adk.tools.approvals import History
from lango.core.turns.events import Answer
from lango.errors import CredentialNotFoundError, CredentialRefusedError, TurnConflictError
from lango.store.credentials.store import ConsentRequest, Owner, SqlCredentialStore
from lango.store.db.statement import Transaction
from lango.store.sessions.entries import SessionKey
from lango.store.turns.submit import Admit

_DECLINED: Final = (
    "A credential cannot be declined: leave the call unanswered, and send another message instead."
)


_GONE: Final = (
    "The request that this consent answers has expired, or cannot be decrypted. Send another "
    "message: the tool asks again if it needs the credential."
)
_CLAIMED: Final = "Another answer to this call is being exchanged. Wait for its result."


@dataclass(frozen=True, slots=True)
class _CredentialAnswer:
    """A credential that an answer has, and the request that it answers."""

    request: AuthConfig
    credential: AuthCredential


class CredentialAnswers:
    """Takes the credentials out of answers before a turn is made of them."""

    def __init__(
        self, store: SqlCredentialStore, session: SessionKey, answers: Sequence[Answer]
    ) -> None:
        self._store = store
        self._owner = Owner(session.tenant, session.app_name, session.user_id)
        self._credentials: list[_CredentialAnswer] = []
        self._claimed: list[str] = []
        self._rows: list[Mapping[str, Any]] = []
        self.answers = list(answers)
        """The answers without secrets."""

    def take(self, history: History) -> None:
        """Read the credentials; CredentialRefusedError for one that the call cannot use.

        CredentialsDisabledError if there is no key to encrypt them with.
        """
        configs = asked_configs(history)
        self.answers = [self._without_secret(answer, configs) for answer in self.answers]

    def _without_secret(self, answer: Answer, configs: Mapping[str, AuthConfig]) -> Answer:
        request = configs.get(answer.call_id)
        if request is None:
            return answer
        self._store.require()
        if not answer.approved:
            raise CredentialRefusedError(_DECLINED)
        self._credentials.append(
            _CredentialAnswer(request, read_credential(request, answer.payload))
        )
        return replace(answer, payload=reference_to(request))

    def admitting(self, admit: Admit | None) -> Admit | None:
        """`admit`, after which the credentials are exchanged.

        So this happens once the calls are known to wait, and before the answer is accepted.
        """
        if not self._credentials:
            return admit

        async def admit_and_exchange() -> None:
            if admit is not None:
                await admit()
            self._rows = [await self._exchanged(answered) for answered in self._credentials]

        return admit_and_exchange

    async def save(self, transaction: Transaction) -> None:
        """Store the credentials in the transaction that accepts the answer.

        So the credential of an answer that is refused is never used.
        """
        for row in self._rows:
            await self._store.put(transaction, row)
        for state in self._claimed:
            await self._store.delete_request(transaction, self._owner, state)

    @asynccontextmanager
    async def releasing(self) -> AsyncGenerator[None]:
        """Release the requests that were claimed in the block, if it fails."""
        try:
            yield
        except BaseException:
            for state in self._claimed:
                await self._store.release_request(self._owner, state)
            raise

    async def _exchanged(self, answered: _CredentialAnswer) -> Mapping[str, Any]:
        """The row of a credential; a consent's code is sent to its provider once."""
        is_consent = kind_of(answered.request) == "oauth2"
        private = await self._claim(answered.request) if is_consent else answered.request
        config = await exchanged(private, answered.credential)
        name = config.credential_key or ""
        return self._store.row_of(self._owner, name, dumped(config), kind_of(config))

    async def _claim(self, config: AuthConfig) -> AuthConfig:
        """The request with the tool's client secret and the PKCE verifier, for this answer alone.

        CredentialRefusedError without them: a code is never sent as that of a public client.
        """
        state = state_of(config) or ""
        request = await self._store.claim_request(self._owner, state)
        if request is not None:
            self._claimed.append(state)
            return read_config(request.text)
        stored = await self._store.find_request(state)
        if stored is not None and stored.owner == self._owner:
            raise TurnConflictError(_CLAIMED)
        raise CredentialRefusedError(_GONE)


async def consent_request(store: SqlCredentialStore, state: str) -> ConsentRequest:
    """The request whose consent a provider sends back; CredentialNotFoundError if unknown."""
    request = await store.find_request(state)
    if request is None:
        raise CredentialNotFoundError
    return request


def asked_with_state(history: History, state: str) -> str:
    """The id of the credential request that has this state; CredentialNotFoundError if none has."""
    for call_id, config in asked_configs(history).items():
        if state_of(config) == state:
            return call_id
    raise CredentialNotFoundError
