"""Label values of bounded number."""

from lango.telemetry.metrics.labels import OTHER, BoundedLabel


def test_values_beyond_the_bound_are_other() -> None:
    label = BoundedLabel(2)
    assert [label("a"), label("b"), label("c"), label("a")] == ["a", "b", OTHER, "a"]


def test_a_value_that_is_too_long_or_empty_is_other() -> None:
    label = BoundedLabel(2)
    assert [label("x" * 101), label(""), label("x" * 100)] == [OTHER, OTHER, "x" * 100]


def test_asking_for_a_known_value_does_not_make_it_known() -> None:
    label = BoundedLabel(2)
    assert label.if_known("a") == OTHER
    assert label("a") == "a"
    assert label.if_known("a") == "a"
