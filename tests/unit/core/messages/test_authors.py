"""Who said a message, when its row does not say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.core.messages.authors import DEFAULT_AGENT_NAME, author_of

ROLES = ["user", "assistant", "model", "tool", "function", "system", "control", "narrator", ""]
roles = st.sampled_from(ROLES) | st.text()


@given(roles, st.text(min_size=1), st.text())
def test_a_stored_author_always_wins(role: str, author: str, root: str) -> None:
    assert author_of(role, author, root) == author


@given(st.text())
def test_a_user_message_is_the_users(root: str) -> None:
    assert author_of("user", "", root) == "user"


@pytest.mark.parametrize("role", [role for role in ROLES if role != "user"])
def test_all_else_is_the_root_agents(role: str) -> None:
    assert author_of(role, "", "concierge") == "concierge"
    assert author_of(role, "") == DEFAULT_AGENT_NAME == "lango-agent"


@given(roles, st.text(st.characters(categories=["Ll"]), min_size=1).map("agent_{}".format))
def test_never_the_bare_role(role: str, root: str) -> None:
    assert author_of(role, "", root) in {"user", root}
