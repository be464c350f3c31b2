"""What conversations are known by."""

from lango.core.messages.conversations import VisibleMessage, conversation_hash

HELLO = (VisibleMessage("user", "Hello"), VisibleMessage("assistant", "Hi, you"))


def test_the_hash_is_chained() -> None:
    more = VisibleMessage("user", "So")
    assert conversation_hash([*HELLO, more]) == conversation_hash([more], conversation_hash(HELLO))
    assert conversation_hash([]) == ""


def test_what_clients_change_on_the_way_makes_no_difference() -> None:
    changed = (VisibleMessage("user", " Hello\r\n"), VisibleMessage("assistant", "Hi,  you\n"))
    assert conversation_hash(changed) == conversation_hash(HELLO)
    composed, apart = VisibleMessage("user", "\u00e9"), VisibleMessage("user", "e\u0301")
    assert conversation_hash([composed]) == conversation_hash([apart])
    assert len(conversation_hash([VisibleMessage("user", "\ud800\x00")])) == 64


def test_any_other_difference_is_one() -> None:
    others = [
        HELLO[:1],
        HELLO[::-1],
        (HELLO[0], VisibleMessage("user", "Hi, you")),
        (HELLO[0], VisibleMessage("assistant", "Hi, You")),
        (VisibleMessage("user", "Hello Hi, you"),),
        (*HELLO, VisibleMessage("user", "")),
    ]
    hashes = {conversation_hash(one) for one in [HELLO, *others]}
    assert len(hashes) == len(others) + 1
