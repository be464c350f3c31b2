"""Which ids are kept as given, and the ids we make."""

import re
import time
import uuid
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.core.ids import MAX_ID_LENGTH, as_id, check_id, new_id
from lango.errors import InvalidIdError

OURS = re.compile(r"^[A-Za-z0-9_.-]{1,64}$")
FORBIDDEN = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0), 0xD800, 0xDBFF, 0xDFFF)]

good_ids = st.text(
    st.characters(exclude_categories=["Cc", "Cs"]), min_size=1, max_size=MAX_ID_LENGTH
)


@given(good_ids)
def test_any_text_without_controls_is_an_id(text: str) -> None:
    assert check_id("session id", text) is text


@pytest.mark.parametrize(
    "text",
    [
        "../../etc",
        "with some spaces",
        " ",
        "'; drop table sessions; --",
        "e\u0301",  # not composed to é
        "\u202eright to left",
        "👩‍👩‍👧",
        "\ufeff",
        "x" * MAX_ID_LENGTH,
        "\U0001f600" * MAX_ID_LENGTH,  # characters are counted, not bytes
    ],
)
def test_unusual_ids_are_kept_as_they_are(text: str) -> None:
    assert check_id("user id", text) is text


@given(good_ids, st.sampled_from(FORBIDDEN), st.data())
def test_a_control_character_anywhere_is_refused(
    text: str, forbidden: str, data: st.DataObject
) -> None:
    index = data.draw(st.integers(0, len(text)))
    bad = (text[:index] + forbidden + text[index:])[:MAX_ID_LENGTH]
    if forbidden not in bad:
        bad = bad[:-1] + forbidden
    with pytest.raises(InvalidIdError, match="holds a control character or a lone surrogate"):
        check_id("event id", bad)


def test_an_empty_id_is_refused() -> None:
    with pytest.raises(InvalidIdError, match="The session id is empty"):
        check_id("session id", "")


@pytest.mark.parametrize("length", [MAX_ID_LENGTH + 1, 10_000])
def test_a_long_id_is_refused_and_not_repeated_whole(length: int) -> None:
    with pytest.raises(InvalidIdError) as refusal:
        check_id("app name", "x" * length)
    text = str(refusal.value)
    assert f"The app name has {length} characters, 256 at most are allowed" in text
    assert len(text) < 200


def test_an_invalid_id_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="is empty"):
        check_id("tenant", "")


def test_a_kind_may_have_a_room_of_its_own() -> None:
    assert check_id("artifact name", "x" * 1024, 1024)
    with pytest.raises(InvalidIdError, match="1024 at most"):
        check_id("artifact name", "x" * 1025, 1024)


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=300))
def test_any_text_can_be_made_an_id(text: str) -> None:
    made = as_id(text)
    assert check_id("call id", made) == made
    assert len(made) == min(len(text), MAX_ID_LENGTH)
    assert as_id(made) == made


@given(good_ids)
def test_what_is_an_id_already_stays_one(text: str) -> None:
    assert as_id(text) == text


def test_our_ids_are_uuids_of_version_7() -> None:
    before = time.time_ns() // 1_000_000
    made = new_id("ses")
    after = time.time_ns() // 1_000_000
    prefix, _, digits = made.partition("_")
    number = uuid.UUID(digits)
    assert prefix == "ses"
    assert OURS.match(made)
    assert (number.version, number.variant) == (7, uuid.RFC_4122)
    assert before <= number.int >> 80 <= after
    assert check_id("session id", made) == made


def test_our_ids_are_unique() -> None:
    assert len({new_id("turn") for _ in range(10_000)}) == 10_000


def test_our_ids_sort_by_the_time_they_were_made(monkeypatch: pytest.MonkeyPatch) -> None:
    # Across the days on which the number of digits of the time changes, in both bases.
    moments = [0, 1, 15, 16, 9_999, 10_000, 2**31, 2**32, 10**12, 1_799_999_999_999, 2**47]
    made: list[str] = []
    for moment in moments:
        monkeypatch.setattr(time, "time_ns", lambda now=moment: now * 1_000_000)
        made.append(new_id("ses"))
    assert all(earlier < later for earlier, later in pairwise(made))
