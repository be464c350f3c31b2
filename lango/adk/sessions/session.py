"""The session object that ADK holds during a run."""

from __future__ import annotations

from dataclasses import dataclass, field

from google.adk.sessions.session import Session
from pydantic import PrivateAttr

from lango.adk.sessions.decode import message_of
from lango.adk.sessions.pydantic_slots import private_values
from lango.core.messages.messages import CONTROL, Message
from lango.store.db.database import Database
from lango.store.sessions.entries import SessionKey, SessionRef, StoredMessage


@dataclass(slots=True)
class StoreLink:
    """Links a session object to the store; one private attribute, as pydantic's are slow."""

    ref: SessionRef | None = None
    rows: list[StoredMessage] = field(default_factory=list[StoredMessage])
    whole: bool = True
    database: Database | None = None

    def first_seq_of(self, invocation_id: str) -> int | None:
        """The seq at which an invocation begins in the loaded rows."""
        return next((row.seq for row in self.rows if row.invocation_id == invocation_id), None)


class SessionAdapter(Session):
    """ADK's session with its rows, and whether it has all of them."""

    _link: StoreLink = PrivateAttr(default_factory=StoreLink)

    @property
    def whole(self) -> bool:
        """False if older events were left out to fit the token budget."""
        return self.link.whole

    @property
    def history(self) -> list[Message]:
        """The conversation in this object: loaded messages, then appended ones."""
        return [message_of(row) for row in self.link.rows if row.role != CONTROL]

    @property
    def link(self) -> StoreLink:
        """The link to the store."""
        return private_values(self)["_link"]

    def attach(self, link: StoreLink) -> None:
        """Bind the object to its session in the store."""
        self._link = link


def link_of(session: Session) -> StoreLink:
    """The link of any session object; an empty one if lango did not load it."""
    return session.link if isinstance(session, SessionAdapter) else StoreLink()


def ref_of(session: Session, link: StoreLink, tenant: str) -> SessionRef:
    """The session in the store; if another tenant loaded it, it is looked up, not trusted."""
    if link.ref is not None and link.ref.key.tenant == tenant:
        return link.ref
    return SessionRef(SessionKey(tenant, session.app_name, session.user_id, session.id))
