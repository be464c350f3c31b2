"""Talking to an agent in the console."""

from __future__ import annotations

import asyncio
import re
from http import HTTPStatus

import httpx
import pytest
from playwright.async_api import Page, Route, expect

from tests.console.stage import CODER, COURIER, HOSTILE, SUPPORT, Stage
from tests.console.talking import OFFER, begin, composer, ended, messages, say, view
from tests.support.browsing import PATIENCE

pytestmark = pytest.mark.asyncio(loop_scope="session")

BEFORE_THE_GATE = "no crash could stop."
AFTER_THE_GATE = "it ended all the same."
ACCEPTED = 'id: 1\nevent: accepted\ndata: {"id": 1, "type": "accepted"}\n\n: and no more\n\n'


def client_of(stage: Stage) -> httpx.AsyncClient:
    """A client of the server's API, with the key of the page."""
    headers = {"Authorization": f"Bearer {stage.key}"}
    return httpx.AsyncClient(base_url=stage.url, headers=headers, timeout=PATIENCE)


async def deliver(client: httpx.AsyncClient, path: str, call: str) -> None:
    """Deliver the result of a call, as the system does that worked on it.

    While a turn of the run is not over, the server says when to send it again.
    """
    body = {"call": call, "result": {"status": "fetched"}}
    answer = await client.post(path, json=body)
    async with asyncio.timeout(PATIENCE):
        while answer.status_code == HTTPStatus.CONFLICT:
            await asyncio.sleep(0.2)
            answer = await client.post(path, json=body)
    assert answer.is_success, answer.text


async def test_an_answer_streams_and_tool_calls_are_folded(page: Page) -> None:
    await begin(page)
    await expect(messages(page, "assistant").last).to_contain_text(OFFER)
    await expect(messages(page, "assistant").last.locator("strong")).to_have_text("1042")
    await expect(messages(page, "assistant").last.locator("li")).to_have_count(2)
    tools = page.locator(".tool")
    await expect(tools).to_have_count(2)
    await expect(tools.first).to_contain_text("find_order")
    await expect(tools.first.locator("pre")).to_have_count(0)
    await tools.first.locator("summary").click()
    await expect(tools.first.locator("pre").first).to_contain_text('"order": "1042"')
    await expect(tools.first.locator("pre").last).to_contain_text('"total": 64.5')
    await ended(page)


async def test_words_are_shown_and_read_out_before_the_end(page: Page, stage: Stage) -> None:
    await begin(page, "Tell me a story.")
    await expect(messages(page, "assistant")).to_contain_text(BEFORE_THE_GATE)
    await expect(page.locator("[data-growing]")).to_have_count(1)
    await expect(page.locator("[aria-live=polite]", has_text=BEFORE_THE_GATE)).to_have_count(1)
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    stage.open_gate()
    await expect(messages(page, "assistant")).to_contain_text(AFTER_THE_GATE)
    await ended(page)


async def test_a_running_tool_shows_how_far_it_is(page: Page, stage: Stage) -> None:
    await begin(page, "Please pack it.")
    tool = page.locator(".tool")
    await expect(tool.locator(".status")).to_have_text("25 % · folding the box")
    await expect(tool.get_by_role("progressbar")).to_have_attribute("value", "0.25")
    await page.reload()
    await expect(tool.locator(".status")).to_have_text("25 % · folding the box")
    stage.open_gate()
    await expect(messages(page, "assistant").last).to_contain_text("It is packed.")
    await ended(page)
    await expect(tool.locator(".status")).to_have_text("done")
    await expect(tool.get_by_role("progressbar")).to_be_hidden()


async def test_a_reload_in_mid_turn_loses_nothing(page: Page, stage: Stage) -> None:
    await begin(page, "Tell me a story.")
    await expect(messages(page, "assistant")).to_contain_text(BEFORE_THE_GATE)
    await page.reload()
    await expect(messages(page, "assistant")).to_contain_text(BEFORE_THE_GATE)
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    stage.open_gate()
    await expect(messages(page, "assistant")).to_contain_text(AFTER_THE_GATE)
    await ended(page)
    result = await messages(page, "assistant").inner_text()
    await page.reload()
    await expect(messages(page, "assistant")).to_have_text(re.compile(AFTER_THE_GATE))
    assert await messages(page, "assistant").inner_text() == result
    await expect(messages(page, "user")).to_have_count(1)


async def test_a_lost_connection_is_taken_up_again(page: Page, stage: Stage) -> None:
    seen: list[str] = []

    async def cut_off_once(route: Route) -> None:
        seen.append(route.request.headers["last-event-id"])
        if len(seen) > 1:
            await route.continue_()
        else:
            await route.fulfill(content_type="text/event-stream", body=ACCEPTED)

    await page.route("**/v1/turns/*/events*", cut_off_once)
    await begin(page, "Tell me a story.")  # it cannot end before the page reads its events
    await expect(messages(page, "assistant")).to_contain_text(BEFORE_THE_GATE)
    stage.open_gate()
    await expect(messages(page, "assistant")).to_contain_text(AFTER_THE_GATE)
    await ended(page)
    assert seen == ["0", "1"]


async def test_stop_keeps_what_was_said(page: Page) -> None:
    await begin(page, "Talk for ever.")
    await expect(messages(page, "assistant")).to_contain_text("word1 ")
    await page.get_by_role("button", name="Stop").click()
    await expect(page.locator(".standing")).to_have_text("Stopped")
    await expect(messages(page, "assistant")).to_contain_text("word1 ")
    await say(page, "Talk for ever, again.")
    await expect(messages(page, "assistant").last).to_contain_text("word1 ")
    await page.keyboard.press("Escape")
    await expect(page.locator(".standing")).to_have_text(["Stopped", "Stopped"])


async def test_messages_sent_meanwhile_wait_and_can_be_cancelled(page: Page, stage: Stage) -> None:
    await begin(page, "Tell me a story.")
    await expect(messages(page, "assistant")).to_contain_text(BEFORE_THE_GATE)
    await say(page, "one more")
    await expect(page.locator(".standing").last).to_have_text("Queued")
    await page.get_by_role("button", name="Cancel").click()
    await expect(page.locator(".standing").last).to_have_text("Stopped")
    await say(page, "and another")
    stage.open_gate()
    await expect(messages(page, "assistant").last).to_have_text("You said: and another")


async def test_approve_and_deny(page: Page) -> None:
    await begin(page, "Please refund the teapot.")
    await expect(page.get_by_label("Approval of refund")).to_contain_text("amount39")
    await page.reload()  # a question survives it
    await page.get_by_role("button", name="Approve").click()
    await expect(messages(page, "assistant").last).to_contain_text("RF-20931")
    await expect(page.get_by_label("Approval of refund")).to_have_count(0)
    await expect(page.locator(".tool .status")).to_have_text("done")
    await say(page, "Another refund, please.")
    await page.get_by_role("button", name="Deny").click()
    await expect(messages(page, "assistant").last).to_contain_text("Nothing was refunded.")
    await page.reload()
    await expect(messages(page, "assistant").last).to_contain_text("Nothing was refunded.")
    await expect(page.get_by_role("button", name="Approve")).to_have_count(0)


async def test_calls_that_wait_for_their_results(page: Page, stage: Stage) -> None:
    await begin(page, "Fetch my parcels.", agent=COURIER)
    standing, statuses = page.locator(".standing"), page.locator(".tool .status")
    for _ in range(2):
        await expect(standing).to_have_text("Waiting for the results of fetch_parcel")
        await expect(statuses).to_have_text(["still working", "still working"])
        await page.reload()
    turn = await page.locator(".turn").get_attribute("data-turn")
    async with client_of(stage) as client:
        calls = (await client.get(f"/v1/turns/{turn}")).json()["waits_for"]
        await deliver(client, f"/v1/turns/{turn}/results", calls[0])
        await page.reload()
        await expect(messages(page, "assistant").last).to_have_text("1 of 2 parcels are here.")
        await expect(standing.first).to_have_text("Waiting for the result of fetch_parcel")
        await expect(statuses.filter(has_text="done")).to_have_count(1)
        await expect(statuses.filter(has_text="still working")).to_have_count(1)
        await deliver(client, f"/v1/turns/{turn}/results", calls[1])
    await page.reload()
    await expect(messages(page, "assistant").last).to_have_text("2 of 2 parcels are here.")
    await expect(statuses).to_have_text(["done", "done"])
    await expect(standing).to_have_count(0)


async def test_a_session_without_a_title_gets_that_of_its_first_message(
    page: Page, stage: Stage
) -> None:
    async with client_of(stage) as client:
        session = (await client.post("/v1/sessions", json={"app": SUPPORT})).json()
    await page.goto(f"{stage.url}/console/#/sessions/{session['id']}")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Untitled")
    await say(page, "Tell me a story.")  # it stops at the gate: the title does not wait for its end
    await expect(page.get_by_role("heading", level=1)).to_have_text("Tell me a story.")
    await expect(page).to_have_title("Tell me a story. · lango")
    current = page.get_by_label("Recent sessions").locator("[aria-current]")
    await expect(current).to_contain_text("Tell me a story.")


async def test_what_models_and_tools_say_is_text(page: Page) -> None:
    await begin(page, f"Be hostile: {HOSTILE}")
    await expect(messages(page, "assistant").last).to_contain_text(f"It said {HOSTILE}")
    await expect(messages(page, "user")).to_contain_text(HOSTILE)
    await page.locator(".tool summary").click()
    await expect(page.locator(".tool pre").last).to_contain_text("<script>")
    await view(page, "Context")
    await expect(page.locator(".sections")).to_contain_text("onerror")
    await page.get_by_role("link", name="Sessions", exact=True).click()
    await expect(page.locator("tbody tr").first).to_contain_text("<script>")
    assert await page.evaluate("window.hacked") is None
    assert await page.locator("img:not([src='icon.svg'])").count() == 0


async def test_keys_do_what_buttons_do(page: Page) -> None:
    await begin(page, "hello")
    await ended(page)
    await expect(composer(page)).to_be_focused()
    await composer(page).fill("two")
    await composer(page).press("Shift+Enter")
    await composer(page).type("lines")
    await composer(page).press("Enter")
    await expect(messages(page, "user").last).to_have_text("two\nlines")
    await page.keyboard.press("Control+k")
    await expect(page.get_by_label("Search sessions")).to_be_focused()
    await page.keyboard.press("Alt+n")
    await expect(page.get_by_role("heading", name="New chat")).to_be_visible()
    await expect(composer(page)).to_be_focused()


async def test_code_and_its_output_are_shown_once(page: Page, stage: Stage) -> None:
    parts = page.locator(".part pre")

    async def shown(*texts: str) -> None:
        await expect(parts).to_have_text(["print(6 * 7)", re.compile(re.escape(f"42 {HOSTILE}"))])
        await expect(messages(page, "assistant")).to_have_text(list(texts))
        assert await page.evaluate("window.hacked") is None

    await begin(page, "Compute.", agent=CODER)
    await shown("Let me compute it.", "So it is")
    await page.reload()
    await shown("Let me compute it.", "So it is")
    stage.open_gate()
    await ended(page)
    await shown("Let me compute it.", "So it is forty-two.")
    await page.reload()
    await shown("Let me compute it.", "So it is forty-two.")
