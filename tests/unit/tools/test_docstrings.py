"""Docstrings, as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lango.tools.docstrings import parse

GOOGLE = """
    Find a train.

    Only direct ones.

    Args:
        start: Where to
            begin: a station.
        end (str, optional): Where to stop.
        *others: not a parameter's own text

    Returns:
        The train.
    """
NUMPY = """
    Find a train.

    Only direct ones.

    Parameters
    ----------
    start : str
        Where to
        begin: a station.
    end : str, optional
        Where to stop.

    Returns
    -------
    str
        The train.
    """
SPHINX = """
    Find a train.

    Only direct ones.

    :param start: Where to
        begin: a station.
    :param str end: Where to stop.
    :returns: The train.
    """


@pytest.mark.parametrize("doc", [GOOGLE, NUMPY, SPHINX], ids=["google", "numpy", "sphinx"])
def test_the_usual_forms(doc: str) -> None:
    description, parameters = parse(doc)
    assert description == "Find a train.\n\nOnly direct ones."
    assert parameters["start"] == "Where to begin: a station."
    assert parameters["end"] == "Where to stop."


@pytest.mark.parametrize("doc", [None, "", "  \n "])
def test_nothing_said(doc: str | None) -> None:
    assert parse(doc) == ("", {})


def test_a_text_of_no_form_is_the_description() -> None:
    assert parse("Find it.\n\nArgs matter here: be exact.") == (
        "Find it.\n\nArgs matter here: be exact.",
        {},
    )


def test_what_is_for_readers_of_the_code_is_left_out() -> None:
    assert parse("Find it.\n\nRaises:\n    ValueError: sometimes.") == ("Find it.", {})


@given(st.text(alphabet=":\n -Args()Parmetsx*", max_size=300))
def test_any_text_is_taken(doc: str) -> None:
    description, parameters = parse(doc)
    assert len(description) <= len(doc)
    assert all(parameters.values())
