"""Agents as ADK's documentation writes them run on our parts as they do on ADK's own.

The samples know nothing of lango. They name a model, which ADK's registry turns into one; here
the registry has the scripted model. Everything else is what their authors would run.
"""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from tests.adk.runner.parity.same import Names, difference, plain, rename, visible
from tests.adk.runner.parity.sample_runs import SampleResult, ours, run, theirs
from tests.adk.runner.parity.sample_talks import TALKS

FOLDER = Path(__file__).parent / "samples"
AT_ONCE = {"agent_tool", "parallel"}
"""Where several agents ask the model at the same time."""
SAMPLES = sorted(path.stem for path in FOLDER.glob("*.py"))

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is deprecated in favor of Workflow"),
    # ADK's own AgentTool gives its Runner plugins in a way that ADK calls deprecated.
    pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated"),
]


def test_ten_samples_each_with_a_talk() -> None:
    assert len(SAMPLES) == 10
    assert sorted(TALKS) == SAMPLES


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_sample_is_made_of_adk_alone(sample: str) -> None:
    tree = ast.parse((FOLDER / f"{sample}.py").read_text())
    roots: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            roots.add((node.module or "").partition(".")[0])
    assert roots <= {"google", "pydantic", "typing"}


@pytest.mark.parametrize("streaming", [True, False], ids=["streaming", "whole"])
@pytest.mark.parametrize("sample", SAMPLES)
async def test_the_same_events_as_on_adks_own_parts(
    sample: str,
    streaming: bool,
    store_url: str,
    tenant: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module, talk = f"tests.adk.runner.parity.samples.{sample}", TALKS[sample]
    own = await run(module, talk, ours(store_url, tenant), monkeypatch, streaming=streaming)
    adks = await run(module, talk, theirs(), monkeypatch, streaming=streaming)
    our_names: Names = {}
    their_names: Names = {}
    _same(plain(own.given, our_names), plain(adks.given, their_names))
    _same(plain(own.stored, our_names), plain(visible(adks.stored), their_names))
    at_once = sample in AT_ONCE
    _same(_requests(own, our_names, at_once), _requests(adks, their_names, at_once))
    assert own.state == adks.state
    assert len(adks.stored) > len(talk.turns)
    message_count = sum(map(len, talk.says.values()))
    assert len(adks.requests) == message_count, "a model was to say more than it was asked for"


def _same(mine: list[Any], adks: list[Any]) -> None:
    assert not difference(mine, adks), difference(mine, adks)


def _requests(ran: SampleResult, names: Names, at_once: bool) -> list[Any]:
    """What the model was sent; agents that work at once ask, and are quoted, in any order."""
    requests = [json.loads(rename(json.dumps(one), names)) for one in ran.requests]
    if at_once:
        for request in requests:
            request["messages"].sort(key=str)
        requests.sort(key=str)
    return requests
