"""The keys that encrypt credentials."""

import base64

import pytest

from lango.errors import ConfigError
from lango.store.credentials.keyring import Keyring, Sealed

OLD, NEW = (base64.b64encode(bytes([number]) * 32).decode() for number in (1, 2))
ROW = ("tenant", "app", "ann", "files")


def test_a_text_comes_back_from_its_row_alone() -> None:
    keys = Keyring([OLD])
    sealed = keys.seal("hush-token", ROW)
    assert b"hush" not in sealed.data
    assert keys.unseal(sealed, ROW) == "hush-token"
    for changed in range(len(ROW)):
        other = tuple(f"{name}x" if index == changed else name for index, name in enumerate(ROW))
        assert keys.unseal(sealed, other) is None
    assert keys.unseal(sealed, ("tenant", "app", "annfiles", "")) is None


def test_a_changed_text_is_none() -> None:
    keys = Keyring([OLD])
    sealed = keys.seal("hush-token", ROW)
    for index in range(len(sealed.data)):
        changed = bytearray(sealed.data)
        changed[index] ^= 1
        assert keys.unseal(Sealed(sealed.key_id, bytes(changed)), ROW) is None
    assert keys.unseal(Sealed(sealed.key_id, b""), ROW) is None


def test_the_same_text_is_encrypted_differently() -> None:
    keys = Keyring([OLD])
    assert keys.seal("a", ROW) != keys.seal("a", ROW)


def test_the_first_key_encrypts_and_all_decrypt() -> None:
    sealed = Keyring([OLD]).seal("hush-token", ROW)
    both = Keyring([NEW, OLD])
    assert both.unseal(sealed, ROW) == "hush-token"
    again = both.seal("hush-token", ROW)
    assert again.key_id == both.first_id != sealed.key_id
    assert Keyring([NEW]).unseal(again, ROW) == "hush-token"
    assert Keyring([OLD]).unseal(again, ROW) is None


@pytest.mark.parametrize("key", ["", "short", "not base64!", base64.b64encode(b"x" * 31).decode()])
def test_a_wrong_key_is_named_by_its_index(key: str) -> None:
    with pytest.raises(ConfigError, match=r"credentials\.keys\[1\].*openssl") as raised:
        Keyring([OLD, key])
    assert not key or key not in str(raised.value)


def test_without_keys_it_is_false() -> None:
    assert not Keyring([])
    assert Keyring([OLD])
