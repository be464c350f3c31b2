"""`lango doctor` on loaded agents: their models, MCP servers and shapes."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from sqlalchemy import make_url

from faults.carriers.bus_servers import bus_server
from faults.carriers.temporal_server import temporal_server
from faults.database.own_cluster import free_port
from tests.cli.running import CommandResult, run
from tests.support.databases import direct, server_url, through
from tests.support.embedding_server import embedding_server
from tests.support.pgbouncer import pgbouncer, require_pgbouncer

SETTINGS = """\
store: {url: "sqlite:///here.db"}
mcp_servers: {wiki: {command: [no-such-server]}}
openapi_documents: {shop: {url: "http://127.0.0.1:1/openapi.json"}}
apps:
"""
APPS = {
    "asks": "  asks: {agent: {model: 'scripted:demo', mcp: [wiki]}}\n",
    "shops": "  shops: {agent: {model: 'scripted:demo', openapi: [shop]}}\n",
    "nokey": "  nokey: {load: 'loaded:nokey'}\n",
    "own": "  own: {load: 'loaded:own'}\n",
    "plain": "  plain: {load: 'loaded:plain'}\n",
    "caching": "  caching: {load: 'loaded:caching'}\n",
    "mute": "  mute: {load: 'loaded:mute'}\n",
}
LOADED = '''\
"""Agents of which the settings know no more than where they are."""

from google.adk.agents import Agent, BaseAgent
from google.adk.agents.context_cache_config import ContextCacheConfig
from google.adk.apps.app import App
from google.adk.models import BaseLlm, LlmResponse
from google.adk.tools.agent_tool import AgentTool
from google.genai import types

import lango


class Mute(BaseLlm):
    async def generate_content_async(self, request, stream=False):
        yield LlmResponse(content=types.ModelContent("No."), partial=False)


class Own(BaseAgent):
    pass


hidden = Agent(name="hidden", model="gemini-2.5-flash")
below = Agent(name="below", model=lango.ModelAdapter("scripted:demo"), tools=[AgentTool(hidden)])
nokey = Agent(name="nokey", model=lango.ModelAdapter("scripted:demo"), sub_agents=[below])
own = Own(name="own")
plain = Agent(name="plain", model=lango.ModelAdapter("scripted:demo"))
mute = Agent(name="mute", model=Mute(model="mute"))
caching = App(name="caching", root_agent=plain, context_cache_config=ContextCacheConfig())
'''


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of these agents, and being in it."""
    for name in ("GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(sys.modules, "loaded", raising=False)
    monkeypatch.chdir(tmp_path)
    Path("loaded.py").write_text(LOADED)


def examined(*apps: str) -> tuple[CommandResult, dict[str, str]]:
    """What it prints of these apps, and each finding by its name, mark included."""
    Path("lango.yaml").write_text(SETTINGS + "".join(APPS[app] for app in apps))
    return diagnosed()


def diagnosed(*options: str) -> tuple[CommandResult, dict[str, str]]:
    """The same of the settings that are there."""
    ran = run("doctor", *options)
    lines = [line for line in ran.out.splitlines() if line[2:4] == "  "]
    return ran, {line[4:39].strip(): f"{line[:2]} {line[39:]}" for line in lines}


def test_the_models_of_loaded_agents_are_tried() -> None:
    ran, found = examined("nokey", "plain")
    assert ran.code == 1
    assert found["model scripted:demo of plain"].startswith("ok a streamed tool call")
    missing = found["model gemini-2.5-flash of nokey"]
    assert missing.startswith("!! ValueError: No API key was provided.")
    assert "All of it works" not in ran.out


def test_a_model_that_calls_no_tool_is_a_warning_if_its_agent_is_loaded() -> None:
    ran, found = examined("mute")
    assert ran.code == 0
    assert found["model mute of mute"].startswith("?? it answers, but it did not call the tool")
    assert ran.out.endswith("Nothing is broken; see the 1 warning above.\n")


def test_a_setting_for_explicit_prompt_caches_is_a_warning() -> None:
    """lango's models do not read it."""
    ran, found = examined("caching", "plain")
    assert ran.code == 0, ran.out
    said = found["prompt caches of caching"]
    assert said.startswith("?? App.context_cache_config has no effect on scripted:demo:")
    assert "docs: how-to/models" in said
    assert "prompt caches of plain" not in found


def test_a_server_that_cannot_be_started_is_named() -> None:
    ran, found = examined("asks")
    assert ran.code == 1
    said = found["MCP server wiki of asks"]
    assert said.startswith("!! cannot be reached: [Errno 2] No such file or directory: 'no-such")
    assert "Install or start it" in said
    assert "`mcp_servers.wiki`" in said
    assert "All of it works" not in ran.out


def test_a_document_that_cannot_be_fetched_is_named() -> None:
    ran, found = examined("shops")
    assert ran.code == 1
    said = found["OpenAPI document shop of shops"]
    assert said.startswith("!! cannot be reached: 127.0.0.1 is not a public address, and may not")
    assert "`openapi_documents.shop` and its `networks`" in said
    said_by_run = run("run", "hello")
    assert (said_by_run.code, said_by_run.out) == (0, "You said: hello\n")
    assert "OpenAPI document 'shop' cannot be used, the turn runs without" in said_by_run.err


def test_an_agent_that_cannot_be_resumed_is_a_warning_with_what_to_do() -> None:
    ran, found = examined("own")
    assert ran.code == 0
    said = found["turns of own"]
    assert said.startswith("?? not resumable: own (Own) overrides how it runs. If a worker dies")
    assert "`lango turns retry`" in said
    assert ran.out.endswith("Nothing is broken; see the 1 warning above.\n")


def test_run_says_that_a_server_cannot_be_reached() -> None:
    Path("lango.yaml").write_text(SETTINGS + APPS["asks"])
    ran = run("run", "hello")
    assert (ran.code, ran.out) == (0, "You said: hello\n")
    assert "MCP server 'wiki' cannot be reached, the turn runs without its tools" in ran.err
    assert "No such file or directory: 'no-such-server'" in ran.err
    assert "lango doctor" in ran.err


def test_an_agent_is_examined_without_settings() -> None:
    ran = run("doctor", "loaded:plain", "loaded:own")
    assert ran.code == 0, ran.out
    assert "turns of loaded:plain              resumable" in ran.out
    assert "??  turns of loaded:own                not resumable" in ran.out
    assert "model scripted:demo of loaded:plain" in ran.out


def test_only_the_named_apps_are_examined() -> None:
    Path("lango.yaml").write_text(SETTINGS + APPS["asks"] + APPS["plain"])
    ran = run("doctor", "plain")
    assert ran.code == 0, ran.out
    assert "asks" not in ran.out


def test_agents_of_the_folder_are_named_and_no_file_is_made() -> None:
    Path("weather").mkdir()
    Path("weather", "agent.py").touch()
    assert "`lango doctor weather` checks them" in run("doctor").out
    assert not Path("lango.db").exists()
    missing = run("doctor", "--url", "sqlite:///nowhere/here.db")
    assert missing.code == 1
    assert "There is no folder nowhere for here.db." in missing.out


def test_settings_without_an_app_are_a_warning() -> None:
    ran = run("doctor", "--url", "sqlite:///here.db")
    assert ran.code == 0
    assert "??  apps" in ran.out
    assert "lango init" in ran.out
    assert "All of it works" not in ran.out


@pytest.mark.parametrize("has_direct", [True, False])
def test_doctor_says_what_does_not_pass_a_pooler(has_direct: bool, postgres_url: str) -> None:
    require_pgbouncer()
    past = direct(postgres_url)
    with pgbouncer(past) as port:
        url = make_url(through(past, port))
        if not has_direct:
            url = url.difference_update_query(["direct_url"])
        ran = run("doctor", "--url", url.render_as_string(hide_password=False))
    # What else it finds depends on the turns that other tests have left in the database.
    notices, settings = (
        next(line for line in ran.out.splitlines() if line[4:].startswith(what))
        for what in ("notices", "connection settings")
    )
    if has_direct:
        assert notices.startswith("ok")
    else:
        assert notices.startswith("??")
        assert "Set `store.direct_url`" in notices
    assert settings.startswith("??")
    assert "set lock_timeout = 5000" in settings


def test_doctor_finds_a_direct_url_of_another_database(postgres_url: str) -> None:
    require_pgbouncer()
    past = direct(postgres_url)
    with pgbouncer(past) as port:
        other = server_url()
        url = make_url(through(past, port)).update_query_dict({"direct_url": other})
        ran = run("doctor", "--url", url.render_as_string(hide_password=False))
    assert ran.code == 1
    assert "do not arrive by store.direct_url" in ran.out


def test_the_object_store_is_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LANGO_FILES__OBJECTS", f"file://{tmp_path}/objects")
    ran, found = examined("plain")
    assert ran.code == 0, ran.out
    assert found["object store"] == "ok stores, reads and deletes"
    assert not [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]


@pytest.mark.parametrize("url", ["s3://bucket", "az://container", "file:///dev/null/folder"])
def test_an_object_store_that_does_not_answer_is_named_with_what_to_do(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account of Azure is missing: such a setting is found without a request."""
    monkeypatch.setenv("LANGO_FILES__OBJECTS", url)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    for name in ("AWS_ALLOW_HTTP", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "true")
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    ran, found = examined("plain")
    assert ran.code == 1
    assert found["object store"].startswith("!! ")
    assert "or the environment variables" in found["object store"]
    assert "docs: how-to/object-storage" in found["object store"]


def test_the_bus_and_the_engine_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with bus_server("nats") as bus, temporal_server() as engine:
        asyncio.run(bus.start())
        asyncio.run(engine.start())
        monkeypatch.setenv("LANGO_BUS", bus.url)
        monkeypatch.setenv("LANGO_ENGINE", engine.url)
        ran, found = examined("plain")
    assert ran.code == 0
    assert found["bus"].startswith("ok nats at 127.0.0.1:")
    assert found["engine"].startswith("ok Temporal at 127.0.0.1:")
    assert "namespace default, answers; 0 turns are open there" in found["engine"]


def test_a_bus_and_an_engine_that_do_not_answer_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGO_BUS", f"redis://127.0.0.1:{free_port()}")
    monkeypatch.setenv("LANGO_ENGINE", f"temporal://127.0.0.1:{free_port()}")
    ran, found = examined("plain")
    assert ran.code == 1
    assert found["bus"].startswith("!! does not answer: ")
    assert found["engine"].startswith("!! does not answer: ")
    assert "correct `engine` in the settings" in found["engine"]


def test_an_embedding_model_is_tried_if_the_database_has_pgvector(vector_url: str) -> None:
    with embedding_server() as server:
        write_remembering(vector_url, server.url)
        ran, found = diagnosed("--no-models")
        assert ran.code == 0, ran.out
        assert found["embeddings of memory"] == "ok pgvector compares them"
        assert server.requests == []
        _, found = diagnosed()
        assert found["model llamacpp:some"] == "ok embeds texts, in 16 dimensions"
        server.status = 503
        ran, found = diagnosed()
        assert ran.code == 1
        assert found["model llamacpp:some"].startswith("!! ")


@pytest.mark.parametrize(
    ("database", "advice"),
    [("postgres_url", "`create extension vector`"), ("sqlite_url", "Use PostgreSQL with pgvector")],
)
def test_a_database_that_compares_no_embeddings_is_a_warning(
    request: pytest.FixtureRequest, database: str, advice: str
) -> None:
    with embedding_server() as server:
        write_remembering(request.getfixturevalue(database), server.url)
        ran, found = diagnosed()
        assert server.requests == []
    assert ran.code == 0, ran.out
    said = found["embeddings of memory"]
    assert said.startswith("?? ")
    assert advice in said


def write_remembering(store_url: str, model_url: str) -> None:
    Path("lango.yaml").write_text(
        f"store: {{url: '{store_url}'}}\n"
        f"providers: {{llamacpp: {{base_url: '{model_url}'}}}}\n"
        "apps:\n"
        "  shop:\n"
        "    memory: {embeddings: 'llamacpp:some'}\n"
        "    agent: {model: 'scripted:demo'}\n"
    )
