"""The words of memory: what is found by what, and in which order."""

import unicodedata
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.core.memory import (
    MAX_QUERY_WORDS,
    MAX_TEXT,
    MAX_WORD,
    MAX_WORDS,
    fused,
    index_text,
    indexed_words,
    owner_word,
    query_words,
    ranked,
)


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("My cat is called Minka.", "minka"),
        ("user_id in snake_case", "ID"),
        ("I use C++ and node.js", "node"),
        ("Crème brûlée, À LA CARTE", "creme brulee"),
        ("creme brulee", "Crème"),
        ("Die Straße", "STRASSE"),
        ("ＦＵＬＬ width", "full"),
        ("İstanbul", "istanbul"),
        ("私はPythonを使う", "python"),
        ("東京都に住んでいます", "東京"),
        ("東京都に住んでいます", "都"),
        ("ｶﾀｶﾅ", "カタ"),
        ("나는 서울에 살아요", "서울"),
        ("ฉันชอบกินข้าวผัด", "ข้าวผัด"),
        ("मुझे हिन्दी पसंद है।", "हिन्दी"),
        ("أحب القِراءة", "القراءة"),
        ("שָׁלוֹם", "שלום"),
        ("Привет, мир", "МИР"),
        ("pizza 🍕 on Friday", "🍕"),
        ("👩‍🍳 cooks", "🍳"),
    ],
)
def test_a_text_is_found_by_its_words(text: str, query: str) -> None:
    assert query_words(query)
    assert set(query_words(query)) <= set(indexed_words(text))


@pytest.mark.parametrize(
    ("text", "query"),
    [("concatenate", "cat"), ("東京", "京東"), ("ten", "10"), ("words", "wörter"), ("a", "§")],
)
def test_and_not_by_others(text: str, query: str) -> None:
    assert not set(query_words(query)) & set(indexed_words(text))


def test_marks_are_ordered_for_few_characters_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """To order the marks of one letter takes quadratic time, and no other thread runs then."""
    normalize, longest = unicodedata.normalize, list[int]()

    def noting(form: Literal["NFC", "NFD", "NFKC", "NFKD"], text: str) -> str:
        longest.append(len(text))
        return normalize(form, text)

    monkeypatch.setattr(unicodedata, "normalize", noting)
    indexed_words("a" + "\u0300" * 25_000 + "\u0316" * 25_000)
    assert 0 < max(longest) < 1_000


@pytest.mark.parametrize("query", ["", " ", "?!", "\x00", "\ud800", "''\"\"*:^()&|<->", "§§"])
def test_a_query_without_words_has_none(query: str) -> None:
    assert query_words(query) == []


@given(st.text(max_size=300))
def test_no_word_has_a_character_with_a_meaning_in_sql(text: str) -> None:
    for word in (*indexed_words(text), *query_words(text)):
        assert 0 < len(word) <= MAX_WORD
        assert word.isascii() is False or word.isalnum()
        assert not set(word) & set(" \t\r\n\x00'\"\\§:*&|!()<>-")
        word.encode()


@given(st.text(max_size=300))
def test_a_text_is_found_by_every_word_of_itself(text: str) -> None:
    assert set(query_words(text)) <= set(indexed_words(text))


@given(st.text(max_size=100))
def test_case_and_form_make_no_difference(text: str) -> None:
    assert query_words(text.upper().lower()) == query_words(text.upper())


def test_a_long_text_has_its_first_words() -> None:
    words = indexed_words(" ".join(f"w{n}" for n in range(MAX_WORDS * 2)))
    assert (len(words), words[0], words[-1]) == (MAX_WORDS, "w0", f"w{MAX_WORDS - 1}")
    assert len(indexed_words("".join(map(chr, range(0x4E00, 0x9000))))) == MAX_WORDS
    assert indexed_words("a " * MAX_TEXT + "beyond") == ["a"]
    assert indexed_words("x" * 100) == query_words("x" * 100) == ["x" * MAX_WORD]


def test_a_long_query_has_its_first_words() -> None:
    assert len(query_words(" ".join(map(str, range(1000))))) == MAX_QUERY_WORDS
    assert len(query_words("".join(map(chr, range(0x4E00, 0x5000))))) == MAX_QUERY_WORDS


def test_an_owner_is_no_word_of_a_text() -> None:
    own = owner_word("tenant", "app", "ann")
    assert own not in indexed_words(f"{own} {index_text(own, ['a'])}")
    assert own != owner_word("tenant", "ap", "pann") != owner_word("tenant", "app", "bob")


def test_rare_words_count_more_and_the_newest_comes_first() -> None:
    assert ranked({}) == ranked({"a": []}) == []
    assert ranked({"the": [1, 2, 3, 4], "cat": [2]}) == [2, 4, 3, 1]
    assert ranked({"a": [1, 2], "b": [1], "c": [2], "d": [3]}) == [2, 1, 3]


@given(
    st.dictionaries(
        st.text("abc", min_size=1), st.lists(st.integers(1, 30), unique=True, max_size=9)
    )
)
def test_all_that_was_found_is_ranked_once(hits: dict[str, list[int]]) -> None:
    found = {number for numbers in hits.values() for number in numbers}
    for best in (ranked(hits), fused(hits.values())):
        assert len(best) == len(found)
        assert set(best) == found


def test_fused_rankings_begin_with_what_is_high_in_both() -> None:
    assert fused([]) == fused([[], []]) == []
    assert fused([[3, 1, 2]]) == [3, 1, 2]
    assert fused([[1, 2, 3], [4, 2]]) == [2, 4, 1, 3]
    assert fused([[5], [7]]) == [7, 5]
