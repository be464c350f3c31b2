"""Stop sequences, however the text is cut into deltas."""

from hypothesis import given
from hypothesis import strategies as st

from lango.providers.shared.stops import StopText


@given(
    st.text("abc", max_size=30), st.lists(st.integers(1, 5), min_size=1), st.text("abc", max_size=4)
)
def test_stop_sequences_do_not_depend_on_deltas(text: str, sizes: list[int], stop: str) -> None:
    stops, shown, at = StopText([stop, "ccc"]), "", 0
    for size in sizes * 30:
        shown += stops.feed(text[at : at + size])
        at += size
    shown += stops.rest()
    indexes = [index for each in (stop, "ccc") if each and (index := text.find(each)) >= 0]
    assert shown == text[: min(indexes, default=len(text))]
    assert stops.reached == bool(indexes)
