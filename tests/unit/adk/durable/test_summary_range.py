"""Which events a summary replaces, and how they fit into the summariser's request."""

from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions, EventCompaction
from google.genai import types

from lango.adk.durable.summary_range import (
    events_to_summarise,
    events_tokens,
    fitting,
    open_message,
    separate,
)


def said(turn: str, text: str) -> Event:
    return Event(invocation_id=turn, author="user", content=types.UserContent(text))


def test_whole_turns_are_chosen_for_a_summary() -> None:
    so_far = [said("", "so far")]
    events = [said("1", "a " * 50), said("1", "b " * 50), said("2", "c " * 50), said("3", "d")]
    room = events_tokens([*so_far, *events[:2]])
    assert fitting([], events, 1_000) == events
    assert fitting(so_far, events, room) == [*so_far, *events[:2]]


def test_of_one_turn_too_long_the_beginnings_are_summarised() -> None:
    so_far, long = said("", "so far"), said("1", "word " * 1_000)
    first, shortened = fitting([so_far], [long, said("2", "next")], 100)
    assert first is so_far
    assert long.content is not None
    assert shortened.content is not None
    texts = [(content.parts or [])[0].text or "" for content in (long.content, shortened.content)]
    assert len(texts[0]) == 5_000
    assert 0 < len(texts[1]) < 600


def at(time: float, turn: str = "1", text: str = "x", author: str = "user") -> Event:
    content = types.Content(role=author, parts=[types.Part(text=text)])
    return Event(invocation_id=turn, author=author, content=content, timestamp=time)


def summary(start: float, end: float, text: str = "so far", scope: str | None = None) -> Event:
    content = types.ModelContent(text)
    compaction = EventCompaction(
        start_timestamp=start, end_timestamp=end, compacted_content=content
    )
    actions = EventActions(compaction=compaction)
    return Event(author="user", actions=actions, isolation_scope=scope)


def times(events: list[Event]) -> list[float]:
    return [event.timestamp for event in events]


def test_a_summary_ends_before_the_times_of_all_other_events() -> None:
    events = [at(1), at(2), at(6), at(5), at(7)]
    assert times(separate(events, [at(8)])) == [1, 2, 6, 5, 7]
    assert times(separate(events, [at(6)])) == [1, 2]  # 5 would be hidden with 6
    assert times(separate(events, [at(1)])) == []
    assert times(separate([at(1), at(5), at(2)], [])) == [1, 5, 2]


def test_events_in_any_order_of_times_are_summarised_once() -> None:
    """Whatever is hidden is in the summary, and whatever is in it is hidden."""
    session = [at(3), at(1), at(9, "2"), at(4, "2"), at(8, "3"), at(11, "4")]
    chosen = events_to_summarise(session[:5], session, 1_000, keep_newest=False)
    assert times(chosen) == [3, 1, 9, 4, 8]
    chosen = events_to_summarise(session[:4], session, 1_000, keep_newest=False)
    assert times(chosen) == [3, 1]


def test_the_newest_message_stays_while_a_model_is_about_to_answer() -> None:
    session = [at(1), at(2, author="root"), at(3, "2")]
    state_only = Event(invocation_id="2", author="root", timestamp=4.0)
    events = [*session, state_only]
    assert times(events_to_summarise(events, events, 1_000, keep_newest=True)) == [1, 2]
    assert times(events_to_summarise(events, events, 1_000, keep_newest=False)) == [1, 2, 3, 4]
    assert events_to_summarise(session[:1], session[:1], 1_000, keep_newest=True) == []


def test_the_summary_so_far_is_included_once() -> None:
    so_far = summary(1.0, 2.0)
    session = [at(1), at(2), so_far, at(3, "2"), at(4, "3")]
    assert so_far.actions.compaction is not None
    from_adk = at(1, "", "so far", "model")  # of the first event on
    from_adk.content = so_far.actions.compaction.compacted_content
    for events in ([session[3]], [from_adk, session[3]]):
        first, second = events_to_summarise(events, session, 1_000, keep_newest=True)
        assert (first.content, first.timestamp) == (from_adk.content, 1.0)
        assert second is session[3]


def test_an_overlap_is_left_out_if_it_does_not_fit() -> None:
    session = [at(1, text="long " * 100), summary(1.0, 1.0), at(2, "2", "short"), at(3, "3")]
    events = [session[0], session[2]]
    assert times(events_to_summarise(events, session, 1_000, keep_newest=True)) == [1, 1, 2]
    assert times(events_to_summarise(events, session, 50, keep_newest=True)) == [1, 2]


def test_nothing_new_is_no_summary() -> None:
    session = [at(1), summary(1.0, 1.0)]
    assert events_to_summarise(session[:1], session, 1_000, keep_newest=False) == []


def test_a_task_has_summaries_of_its_own() -> None:
    in_task = [at(3, "2"), at(4, "2")]
    for event in in_task:
        event.isolation_scope = "task"
    session = [at(1), summary(1.0, 2.0), *in_task]
    assert events_to_summarise(in_task, session, 1_000, keep_newest=False) == in_task


def test_a_message_is_open_if_only_a_part_of_its_turn_is_hidden() -> None:
    session = [at(1, "1", "earlier"), at(2, "2", "the question"), at(3, "2", "let me see", "root")]
    assert open_message(session, "2", 2.0) == "the question"
    assert open_message(session, "2", 3.0) == ""
    assert open_message(session, "2", 1.0) == ""


def test_calls_and_results_are_shortened_too() -> None:
    call = types.FunctionCall(id="c", name="look", args={"at": "long " * 200})
    result = types.FunctionResponse(id="c", name="look", response={"seen": "wide " * 200})
    contents = [
        types.ModelContent(types.Part(function_call=call)),
        types.UserContent(types.Part(function_response=result)),
    ]
    events = [Event(invocation_id="1", author="root", content=content) for content in contents]
    assert events_tokens(events) > 300
    shortened = fitting([], events, 100)
    assert 0 < events_tokens(shortened) <= 110
    called, answered = shortened[0].get_function_calls(), shortened[1].get_function_responses()
    assert (called[0].name, answered[0].name) == ("look", "look")
    assert "long" in str(called[0].args)
    assert "wide" in str(answered[0].response)


def test_the_estimate_is_of_what_adks_summariser_sends() -> None:
    from google.adk.apps.llm_event_summarizer import LlmEventSummarizer

    from lango.adk.models.adapter import ModelAdapter
    from lango.core.context.tokens import estimate_tokens

    call = types.FunctionCall(id="c", name="look", args={"at": "x" * 5_000})
    events = [
        *(at(number, text="a") for number in range(50)),
        Event(author="root", content=types.ModelContent(types.Part(function_call=call))),
    ]
    summarizer = LlmEventSummarizer(llm=ModelAdapter("scripted:demo"))
    prompt = summarizer._format_events_for_prompt(events)  # pyright: ignore[reportPrivateUsage]
    assert abs(events_tokens(events) - estimate_tokens(prompt)) < estimate_tokens(prompt) * 0.25
