"""Words that hide the actor of a sentence are absent from every text that a person reads."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("bench", "deploy", "docs", "examples", "faults", "lango", "scripts", "tests")
PAGES = ("AGENTS.md", "CHANGELOG.md", "CONTRIBUTING.md", "Makefile", "README.md", "mkdocs.yml")
SUFFIXES = {
    *(".css", ".html", ".jinja", ".js", ".json", ".mako", ".md", ".py", ".sh", ".sql", ".toml"),
    *(".txt", ".yaml", ".yml"),
}
IGNORED = {"__pycache__", "node_modules"}
# Written in pieces, so that this file passes its own test.
PRONOUNS = ("who" + "ever", "whom" + "ever", "some" + "body", "no" + "body", "any" + "body")
PHRASES = (("is", "told"), ("gone", "on", "with"))
BETWEEN_WORDS = r"[\s#*/>_]+"  # a phrase may continue after a line break or in an identifier


def pattern_of(first: str, *rest: str) -> re.Pattern[str]:
    """A phrase that starts a word; the literal comes first, which makes the search fast."""
    return re.compile(BETWEEN_WORDS.join((rf"{first}(?<![^\W_]{first})", *rest)))


HIDDEN_ACTORS = [*map(re.compile, PRONOUNS), *(pattern_of(*phrase) for phrase in PHRASES)]


def texts() -> Iterator[Path]:
    yield from (path for page in PAGES if (path := ROOT / page).exists())
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if IGNORED.isdisjoint(path.parts) and (
                path.suffix in SUFFIXES or path.name == "Dockerfile"
            ):
                yield path


def hits(text: str) -> list[tuple[int, str]]:
    """The line number and the words of each hit."""
    lowered = text.lower()
    return [
        (lowered.count("\n", 0, found.start()) + 1, " ".join(found[0].split()))
        for pattern in HIDDEN_ACTORS
        for found in pattern.finditer(lowered)
    ]


def test_texts_name_their_actors() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {words}"
        for path in sorted(texts())
        for line, words in hits(path.read_text("utf-8"))
    ]
    assert found == [], "\n" + "\n".join(found)


def test_the_search_reads_the_repository() -> None:
    names = {str(path.relative_to(ROOT)) for path in texts()}
    assert names >= {"README.md", "docs/index.md", "lango/errors.py", "tests/house/test_words.py"}
    assert {Path(name).parts[0] for name in names} >= set(FOLDERS)


@pytest.mark.parametrize("words", [*PRONOUNS, *(" ".join(phrase) for phrase in PHRASES)])
def test_the_search_finds(words: str) -> None:
    assert hits(f"one\nand {words} else") == [(2, words)]
    assert hits(f"_{words.upper().replace(' ', '_')}S_CHILD")
    assert hits("# " + words.replace(" ", "\n    # "))


def test_the_search_ignores_other_words() -> None:
    assert hits("This tolds nothing; his told him; a body; however; what this told us") == []
