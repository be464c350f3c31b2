"""Names for the tools of MCP servers: legal, each held by one tool, and never an agent's own."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from lango.tools.names import RESERVED, TOOL_NAME, NamedTool, ServerTools, server_tool_names

NAMES = st.sampled_from(
    [
        *("go", "pay", "a_go", "a_pay", "b_go", "a b", "", "2fa", "x.y", "x_y", "z" * 60),
        *("to_agent", "transfer.to.agent", "transfer_to_agent"),
    ]
)
SERVERS = st.sampled_from(["a", "b", "transfer"])


def names_of(*listings: ServerTools, taken: tuple[str, ...] = ()) -> list[dict[str, str | None]]:
    """The name each tool gets, by the server's own name for it; a later double is not shown."""
    shown: list[dict[str, str | None]] = []
    for named in server_tool_names(listings, taken):
        shown.append({})
        for tool in named:
            shown[-1].setdefault(tool.tool, tool.name)
    return shown


def test_a_name_that_nothing_else_has_stays() -> None:
    [[named]] = server_tool_names([ServerTools("files", ("read",))], ["write"])
    assert named == NamedTool("read", "read")


def test_an_own_tool_keeps_its_name() -> None:
    [[named]] = server_tool_names([ServerTools("shop", ("pay",))], ["pay"])
    assert (named.tool, named.name) == ("pay", "shop_pay")
    assert "another tool of the agent is called 'pay'" in named.problem


def test_neither_of_two_servers_gets_a_name_that_both_list() -> None:
    assert names_of(ServerTools("a", ("go", "stay")), ServerTools("b", ("go",))) == [
        {"go": "a_go", "stay": "stay"},
        {"go": "b_go"},
    ]


def test_a_prefix_settles_it() -> None:
    listings = [ServerTools("a", ("go",), prefix="first"), ServerTools("b", ("go",))]
    assert names_of(*listings) == [{"go": "first_go"}, {"go": "go"}]
    assert not [
        named.problem for server in server_tool_names(listings) for named in server if named.problem
    ]


def test_the_longer_name_gives_way_if_it_is_held_too() -> None:
    taken = ("go", "a_go")
    [[named]] = server_tool_names([ServerTools("a", ("go",))], taken)
    assert named.name is None
    assert "left out" in named.problem
    assert names_of(ServerTools("a", ("go", "a_go")), taken=("go",)) == [
        {"go": None, "a_go": "a_go"}
    ]
    assert names_of(ServerTools("a", ("go",)), ServerTools("a", ("go",))) == [
        {"go": None},
        {"go": None},
    ]


def test_names_that_no_provider_takes() -> None:
    listing = ServerTools("my server", ("a b", "", "x" * 65, "2fa", "disk.free", "é"))
    assert names_of(listing) == [
        {
            **{"a b": None, "": None, "x" * 65: None, "é": None},
            **{"2fa": "my_server_2fa", "disk.free": "disk_free"},
        }
    ]


def test_a_server_that_lists_a_name_twice_keeps_the_first() -> None:
    [[first, second]] = server_tool_names([ServerTools("a", ("go", "go"))])
    assert (first.name, second.name) == ("go", None)
    assert "lists 'go' twice" in second.problem


def test_a_name_of_adks_own_is_left_out() -> None:
    [[named]] = server_tool_names([ServerTools("a", ("transfer_to_agent",), prefix="p")])
    assert named.name is None
    assert "ADK" in named.problem


@given(
    st.lists(
        st.builds(ServerTools, SERVERS, st.lists(NAMES).map(tuple), st.sampled_from(["", "a"])),
        max_size=3,
    ),
    st.sets(NAMES),
)
def test_names_are_legal_and_each_is_held_once(
    listings: list[ServerTools], taken: set[str]
) -> None:
    given_names = [tool.name for server in server_tool_names(listings, taken) for tool in server]
    names = [name for name in given_names if name is not None]
    assert all(TOOL_NAME.fullmatch(name) for name in names)
    assert max([*Counter(names).values(), 0]) <= 1
    assert {*taken, *RESERVED}.isdisjoint(names)
    changed = [t for server in server_tool_names(listings, taken) for t in server if t.name is None]
    assert all(tool.problem for tool in changed)
