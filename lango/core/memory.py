"""The words by which memory is searched, and the ranking of what they find.

Both databases index and compare these words as they are: neither parses a text or a query, so the
locale of a server changes nothing, and no query has a syntax that could be wrong.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import pairwise
from math import log
from typing import Final

MAX_TEXT: Final = 50_000
"""Characters of a text whose words are indexed."""
MAX_WORDS: Final = 4_000
"""Words that are indexed of a text: with MAX_WORD, below the 1 MB of PostgreSQL's tsvector."""
MAX_WORD: Final = 40
"""Characters of a word: longer ones are cut, in texts and queries alike."""
MAX_QUERY_WORDS: Final = 64
_RANK_OFFSET: Final = 60
"""The usual constant of reciprocal rank fusion: it keeps one list's first ranks from deciding."""

_OWNER_MARK: Final = "§"  # in no word: no text can pretend to be another owner's
_PIECE: Final = re.compile(r"\s+|\S{1,128}")
"""What is normalised at a time: to order the marks of a letter takes quadratic time."""
_ASCII_WORD: Final = re.compile("[a-z0-9]+")
# Scripts that write words without spaces, and Korean, which joins particles to them.
_UNSPACED: Final = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff"  # Japanese
    "\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"  # Han, Hangul
)
_RUN: Final = re.compile(
    rf"(?P<unspaced>[{_UNSPACED}]{{1,1000}})"
    r"|(?P<symbol>[\u2190-\u2bff\U0001f1e6-\U0001f3fa\U0001f400-\U0001faff])"
    rf"|(?P<word>(?:[^\W_{_UNSPACED}]|[\u0900-\u0963\u0966-\u0dff])+)"  # Indic: and vowel signs
)
_ACCENTS: Final = re.compile("[\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0670]")  # vowel points too


def owner_word(*names: str) -> str:
    """The word that all texts of one owner have, and no other's."""
    digest = sha256("\0".join(names).encode(errors="surrogatepass")).hexdigest()
    return _OWNER_MARK + digest[:32]


def indexed_words(text: str) -> list[str]:
    """The distinct words that a text is found by, in their order.

    In a script without spaces these are its characters and the pairs of adjacent ones.
    """
    words: dict[str, None] = {}
    for kind, run in _runs(text[:MAX_TEXT]):
        parts = (*run, *_pairs(run)) if kind == "unspaced" else (run[:MAX_WORD],)
        words.update(dict.fromkeys(parts))
        if len(words) >= MAX_WORDS:
            break
    return list(words)[:MAX_WORDS]


def query_words(query: str) -> list[str]:
    """The distinct words of a query, those beyond MAX_QUERY_WORDS left out."""
    words: dict[str, None] = {}
    for kind, run in _runs(query[:MAX_TEXT]):
        parts = _pairs(run) if kind == "unspaced" and len(run) > 1 else [run[:MAX_WORD]]
        words.update(dict.fromkeys(parts))
        if len(words) >= MAX_QUERY_WORDS:
            break
    return list(words)[:MAX_QUERY_WORDS]


def _runs(text: str) -> Iterator[tuple[str | None, str]]:
    """The runs of a text that are words, each with its kind."""
    if text.isascii():
        for word in _ASCII_WORD.findall(text.lower()):
            yield "word", word
        return
    for match in _RUN.finditer(_folded(text)):
        yield match.lastgroup, match[0]


def _folded(text: str) -> str:
    """A text without differences of case, width and accents."""
    return "".join(map(_folded_piece, _PIECE.findall(text)))


def _folded_piece(text: str) -> str:
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    return unicodedata.normalize("NFKC", _ACCENTS.sub("", decomposed))


def _pairs(run: str) -> list[str]:
    return [first + second for first, second in pairwise(run)]


def ranked(hits: Mapping[str, Sequence[int]]) -> list[int]:
    """The found numbers, the best first: those with the most words, and with the rarest.

    `hits` has the numbers that each word finds. Of equal ones, the higher number comes first.
    """
    total = len({number for numbers in hits.values() for number in numbers})
    scores: dict[int, float] = {}
    for numbers in hits.values():
        weight = log(1 + total / len(numbers)) if numbers else 0.0
        for number in numbers:
            scores[number] = scores.get(number, 0.0) + weight
    return _best_first(scores)


def fused(rankings: Iterable[Sequence[int]]) -> list[int]:
    """Several rankings as one, by reciprocal rank fusion: it compares ranks, not scores."""
    scores: dict[int, float] = {}
    for ranking in rankings:
        for rank, number in enumerate(ranking, 1):
            scores[number] = scores.get(number, 0.0) + 1 / (_RANK_OFFSET + rank)
    return _best_first(scores)


def _best_first(scores: Mapping[int, float]) -> list[int]:
    return sorted(scores, key=lambda number: (-scores[number], -number))


def index_text(owner: str, words: Iterable[str]) -> str:
    """The words of a text as its row stores them, after the word of its owner."""
    return " ".join((owner, *words))
