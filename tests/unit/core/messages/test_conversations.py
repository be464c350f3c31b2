"""What conversations are known by."""

from lango.core.messages.conversations import Said, conversation_hash

HELLO = (Said("user", "Hello"), Said("assistant", "Hi, you"))


def test_the_hash_is_chained() -> None:
    more = Said("user", "So")
    assert conversation_hash([*HELLO, more]) == conversation_hash([more], conversation_hash(HELLO))
    assert conversation_hash([]) == ""


def test_what_clients_change_on_the_way_makes_no_difference() -> None:
    changed = (Said("user", " Hello\r\n"), Said("assistant", "Hi,  you\n"))
    assert conversation_hash(changed) == conversation_hash(HELLO)
    composed, apart = Said("user", "\u00e9"), Said("user", "e\u0301")
    assert conversation_hash([composed]) == conversation_hash([apart])
    assert len(conversation_hash([Said("user", "\ud800\x00")])) == 64


def test_any_other_difference_is_one() -> None:
    others = [
        HELLO[:1],
        HELLO[::-1],
        (HELLO[0], Said("user", "Hi, you")),
        (HELLO[0], Said("assistant", "Hi, You")),
        (Said("user", "Hello Hi, you"),),
        (*HELLO, Said("user", "")),
    ]
    hashes = {conversation_hash(one) for one in [HELLO, *others]}
    assert len(hashes) == len(others) + 1
