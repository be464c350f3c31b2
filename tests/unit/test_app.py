"""The composition root: which app is meant, and that what the settings say gets where it works."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from google.adk.agents import BaseAgent, LlmAgent

from lango.adk.mcp.toolset import ServerToolset
from lango.adk.models.adapter import ModelAdapter
from lango.adk.plugins.budget import BudgetPlugin
from lango.adk.plugins.limits import LimitsPlugin
from lango.adk.plugins.model_calls import ModelCallsPlugin
from lango.adk.plugins.repeat_stop import RepeatStopPlugin
from lango.adk.sessions.service import SessionServiceAdapter
from lango.app import Application, mcp_server
from lango.config.load import load
from lango.errors import AppLoadError, ConfigError, UnknownModelError, UnknownToolError
from lango.providers.policy.retry import Policy
from lango.store.sessions.store import SqlSessionStore
from lango.testing.wires import Refusal, WireServer
from lango.turns.worker import WorkerOptions
from tests.unit.adk.models.asking import ask, request, texts

DEMO = "scripted:demo"
Made = Callable[..., Application]

root_agent = LlmAgent(name="from_code")


class OwnWay(BaseAgent):
    """An agent class that lango cannot resume."""


in_its_own_way = OwnWay(name="own")


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """An application of these settings, its store never opened."""

    def make(**settings: Any) -> Application:
        store = {"url": f"sqlite:///{tmp_path}/never.db", "tenant": "t"}
        return Application(load(flags={"store": store, **settings}))

    return make


def agent(model: str = DEMO, **more: Any) -> dict[str, Any]:
    return {"agent": {"model": model, **more}}


def write_agent(folder: str, code: str) -> None:
    Path(folder).mkdir()
    Path(folder, "agent.py").write_text(code)


def test_the_store_has_the_pool_of_the_settings(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {}

    class Recorded(SqlSessionStore):
        def __init__(self, url: str, **given: Any) -> None:
            options.update(given)
            super().__init__(url, **given)

    monkeypatch.setattr("lango.app.SqlSessionStore", Recorded)
    pool = {"pool_size": 3, "pool_overflow": 4, "pool_timeout": 5.5}
    made(store={"url": f"sqlite:///{tmp_path}/never.db", **pool})
    assert {name: options.get(name) for name in pool} == pool


def test_the_one_app_need_not_be_named(made: Made) -> None:
    application = made(apps={"clerk": agent()})
    assert application.app_name(None) == application.app_name("clerk") == "clerk"
    assert application.app_name("my.module:root_agent") == "my.module:root_agent"


def test_agents_in_folders_are_named(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write_agent("weather", "")
    write_agent("billing", "")
    Path("data").mkdir()
    application = made(apps={})
    with pytest.raises(ConfigError) as caught:
        application.app_name(None)
    text = "Name the app as the first argument; this folder has billing, weather."
    assert str(caught.value) == text
    with pytest.raises(ConfigError) as caught:
        application.app_name("wether")
    assert str(caught.value).endswith("has billing, weather. Did you mean weather?")
    monkeypatch.chdir("weather")
    with pytest.raises(ConfigError, match=r"this folder is an agent, named `\.`\."):
        application.app_name(None)


@pytest.mark.parametrize(
    ("apps", "name", "expected"),
    [
        ({}, None, "There is no app here. `lango init .`"),
        ({}, "clerk", "There is no app clerk here. `lango init .`"),
        (
            {"a": agent(), "b": agent()},
            None,
            "Name the app as the first argument; lango.yaml has a, b.",
        ),
        (
            {"shop": agent(), "b": agent()},
            "shopp",
            "There is no app shopp; lango.yaml has shop, b. Did you mean shop?",
        ),
        ({"a": agent()}, "c", "There is no app c; lango.yaml has a."),
        ({}, "./shop/clerk.py", "named by module and variable, as shop.clerk:root_agent."),
        ({"a": agent()}, "/srv/clerk.py", "as clerk:root_agent."),
    ],
)
async def test_an_app_that_is_not_there(
    made: Made, apps: dict[str, Any], name: str | None, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        await made(apps=apps).agent(name)
    assert expected in str(caught.value)


async def test_an_agent_is_made_once(made: Made) -> None:
    application = made(apps={"a": agent(), "b": agent()})
    assert await application.agent("a") is await application.agent("a")
    assert await application.agent("b") is not await application.agent("a")


async def test_code_is_run_as_it_is(made: Made) -> None:
    named = f"{__name__}:root_agent"
    application = made(apps={"clerk": named})
    for name, app_name in (("clerk", "clerk"), (named, "from_code")):
        found = await application.agent(name)
        assert found.root.name == "from_code"
        assert found.runner.app.name == app_name
    with pytest.raises(AppLoadError, match=r"has no root_agnt\. Did you mean root_agent"):
        await application.agent(f"{__name__}:root_agnt")


async def test_an_agent_named_by_its_folder_has_the_folders_name(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ADK's examples call every root agent root_agent: their sessions must not mix."""
    monkeypatch.chdir(tmp_path)
    tag = os.urandom(4).hex()
    code = "from google.adk.agents import LlmAgent\nroot_agent = LlmAgent(name='root_agent')\n"
    own = "from google.adk.apps.app import App\napp = App(name='its_own', root_agent=root_agent)\n"
    application = made()
    for folder, text, app_name in (
        (f"tea_{tag}", code, f"tea_{tag}"),
        (f"toys_{tag}", code, f"toys_{tag}"),
        (f"apps_{tag}", code + own, "its_own"),
    ):
        write_agent(folder, text)
        found = await application.agent(folder)
        assert (found.root.name, found.runner.app.name) == ("root_agent", app_name)


async def test_sub_agents_have_models_and_tools_of_their_own(made: Made) -> None:
    below = {"name": "below", "model": "ollama:tiny", "description": "Knows the time."}
    refunds = {
        "name": "refunds",
        "model": "openai:gpt-5",
        "tools": ["builtin:time"],
        "sub_agents": [below],
        "temperature": 0.5,
        "max_tokens": 99,
        "context_window": 4_000,
    }
    root: Any = (await made(apps={"clerk": agent(sub_agents=[refunds])}).agent()).root
    [sub] = root.sub_agents
    assert (root.name, sub.name, sub.sub_agents[0].name) == ("clerk", "refunds", "below")
    models = [root.model.model, sub.model.model, sub.sub_agents[0].model.model]
    assert models == [DEMO, "openai:gpt-5", "ollama:tiny"]
    assert sub.model.context_window == 4_000
    assert [tool.name for tool in sub.tools] == ["current_time"]
    assert root.tools == []
    assert sub.sub_agents[0].description == "Knows the time."
    assert sub.generate_content_config.temperature == 0.5
    assert sub.generate_content_config.max_output_tokens == 99


@pytest.mark.parametrize(
    ("spec", "error", "expected"),
    [
        (agent(mcp=["gone"]), ConfigError, "There is no MCP server gone in the settings"),
        (agent(tools=["builtin:tmie"]), UnknownToolError, "Did you mean time"),
        (agent("unknown:x"), UnknownModelError, "names no provider"),
        (agent(fallbacks=["unknown:x"]), UnknownModelError, "names no provider"),
        ({"load": "no_such_module:agent"}, AppLoadError, "no module no_such_module"),
    ],
)
async def test_what_an_app_names_must_be_there(
    made: Made, spec: dict[str, Any], error: type[Exception], expected: str
) -> None:
    servers = {"github": {"command": ["github-mcp"]}}
    with pytest.raises(error, match=expected) as caught:
        await made(apps={"clerk": spec}, mcp_servers=servers).agent()
    if error is ConfigError:
        assert "they have github" in str(caught.value)


def test_a_provider_that_is_not_there(made: Made) -> None:
    with pytest.raises(ConfigError, match=r"providers\.opnai: there is no such provider.*openai"):
        made(providers={"opnai": {"base_url": "http://127.0.0.1:1/v1"}})


async def test_an_mcp_server_gets_what_is_said_of_it(made: Made) -> None:
    settings = {
        "command": ["github-mcp", "--stdio"],
        "env": {"GITHUB_TOKEN": "secret-1"},
        "tools": ["search"],
        "require_confirmation": ["search"],
        "timeout": 7,
        "prefix": "gh",
    }
    clerk = agent(mcp=["github"])
    application = made(
        apps={"clerk": clerk}, mcp_servers={"github": settings}, allow_literal_secrets=True
    )
    root: Any = (await application.agent()).root
    assert [type(one) for one in root.tools] == [ServerToolset]
    server = mcp_server("github", application.settings.mcp_servers["github"])
    assert (server.name, server.command) == ("github", ("github-mcp", "--stdio"))
    assert dict(server.env) == {"GITHUB_TOKEN": "secret-1"}
    assert (server.tools, server.require_confirmation) == (("search",), ("search",))
    assert (server.timeout, server.prefix) == (7, "gh")
    assert "secret-1" not in repr(server)
    await application.close()


async def test_keys_and_addresses_reach_the_providers(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of the fallbacks, too, and nothing is left open when the application is closed."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    async with (
        WireServer("openai_chat", Refusal("no_key")) as first,
        WireServer("anthropic") as other,
    ):
        application = made(
            apps={"clerk": agent("openai-chat:m", fallbacks=["anthropic:claude-x"])},
            providers={
                "openai-chat": {"api_key": "first-key", "base_url": first.url},
                "anthropic": {"api_key": "other-key", "base_url": other.url},
            },
            allow_literal_secrets=True,
        )
        root: Any = (await application.agent()).root
        assert texts(await ask(root.model, request("hi"))) == ["Hello."]
        assert first.requests[0].headers["authorization"] == "Bearer first-key"
        assert other.requests[0].headers["x-api-key"] == "other-key"
        assert other.requests[0].body["model"] == "claude-x"
        await application.close()
        async with asyncio.timeout(10):
            await first.left()
            await other.left()


@pytest.mark.parametrize("next_turn", ["sticky", "root"])
async def test_who_answers_next_is_the_apps_own(made: Made, next_turn: str) -> None:
    application = made(apps={"clerk": {**agent(), "next_turn": next_turn}, "other": agent()})
    assert (await application.agent("clerk")).runner.next_turn == next_turn
    assert (await application.agent("other")).runner.next_turn == "sticky"


async def test_limits_and_the_budget_reach_the_plugins(made: Made) -> None:
    application = made(
        apps={"clerk": agent()},
        history={"token_budget": 5_000},
        limits={
            "model_calls": 1,
            "tool_calls": 2,
            "tokens": 3,
            "cost": 0.5,
            "identical_calls": 4,
        },
    )
    clerk = await application.agent()
    plugins = {type(plugin): plugin for plugin in clerk.runner.app.plugins}
    limits, stop, budget, calls = (
        plugins[kind] for kind in (LimitsPlugin, RepeatStopPlugin, BudgetPlugin, ModelCallsPlugin)
    )
    assert isinstance(limits, LimitsPlugin)
    assert (limits.model_calls, limits.tool_calls) == (1, 2)
    assert (limits.tokens, limits.cost) == (3, 0.5)
    assert isinstance(stop, RepeatStopPlugin)
    assert stop.limit == 4
    assert isinstance(budget, BudgetPlugin)
    root: Any = clerk.root
    assert budget.token_budget == root.model.token_budget == 5_000
    assert isinstance(calls, ModelCallsPlugin)
    assert calls.store is application.store
    assert calls.tenant == "t"


async def test_a_session_is_loaded_up_to_the_budget_of_the_settings(made: Made) -> None:
    application = made(apps={"a": agent()}, history={"token_budget": 200_000})
    sessions = (await application.agent()).runner.session_service
    assert isinstance(sessions, SessionServiceAdapter)
    assert sessions.token_budget == 200_000


async def test_strict_refuses_what_cannot_be_resumed(made: Made) -> None:
    own = f"{__name__}:in_its_own_way"
    await made(apps={"clerk": own}).agent()
    application = made(apps={"clerk": own, "plain": agent()}, durability="strict")
    with pytest.raises(ConfigError, match=r"apps\.clerk: .*strict.*overrides how it runs"):
        await application.agent("clerk")
    assert (await application.agent("plain")).root.name == "plain"
    with pytest.raises(ConfigError, match=r"apps\.clerk"):
        await application.worker()


async def test_a_worker_runs_the_apps_of_the_settings(made: Made) -> None:
    named = f"{__name__}:root_agent"
    settings = {"concurrency": 7, "hang_after": 3, "event_retention_seconds": 60, "drain": 5}
    application = made(apps={"a": agent(), "b": named}, worker=settings)
    every = await application.worker()
    assert set(every.apps) == {"a", "b"}
    assert every.options == WorkerOptions(7, 3, 60, 5)
    some = await application.worker([named], concurrency=2)
    assert (some.apps, some.options.concurrency) == (("from_code",), 2)
    with pytest.raises(ConfigError, match="lango init"):
        await made().worker()


def test_no_turn_of_a_worker_waits_for_a_model_by_default() -> None:
    assert Policy().max_concurrent_requests >= WorkerOptions().most


@pytest.mark.parametrize(
    ("concurrency", "flag", "at_once"), [(7, None, 125), (300, None, 375), (7, 400, 500)]
)
async def test_a_model_is_asked_by_all_turns_of_a_worker_at_once(
    made: Made, monkeypatch: pytest.MonkeyPatch, concurrency: int, flag: int | None, at_once: int
) -> None:
    policies: list[Policy] = []

    class Spied(ModelAdapter):
        def __init__(self, provider: str, *, policy: Policy, **options: Any) -> None:
            policies.append(policy)
            super().__init__(provider, policy=policy, **options)

    monkeypatch.setattr("lango.app.ModelAdapter", Spied)
    await made(apps={"a": agent()}, worker={"concurrency": concurrency}).worker(concurrency=flag)
    assert [policy.max_concurrent_requests for policy in policies] == [at_once]


async def test_the_turns_of_a_tenant(sqlite_url: str) -> None:
    store = {"url": sqlite_url, "tenant": "t"}
    loaded = load(flags={"store": store, "apps": {"clerk": agent()}})
    async with Application(loaded) as application, await application.worker():
        for turns in (application.turns, application.turns_for("other")):
            turn = await turns.submit("clerk", "hi")
            assert turn.session.tenant == turns.tenant
            assert (await turns.wait(turn.id)).state == "completed"
            rows = await application.store.messages(turn.session)
            assert [row.content for row in rows] == ["hi", "You said: hi"]
    assert application.turns.tenant == "t"
