"""Where settings come from, which of them wins, and what is said of wrong ones."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from lango.cli.options import store_flags
from lango.config.load import load
from lango.errors import ConfigError

MINIMAL = "apps:\n  demo:\n    agent:\n      model: scripted:demo\n"


@pytest.fixture(autouse=True)
def _process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("LANGO_CONFIG", raising=False)


def written(text: str, name: str = "lango.yaml") -> Path:
    path = Path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def problem(text: str) -> str:
    written(text)
    with pytest.raises(ConfigError) as caught:
        load()
    return str(caught.value)


def test_without_a_file_there_are_defaults() -> None:
    loaded = load()
    assert loaded.path is None
    assert loaded.settings.store.url.get_secret_value() == "sqlite:///lango.db"
    assert loaded.settings.history.token_budget == 32_000
    assert {origin for _, _, origin in loaded.values()} == {"default"}


def test_an_empty_file_says_nothing() -> None:
    written("# nothing yet\n")
    assert load().settings.apps == {}


def test_later_sources_win(monkeypatch: pytest.MonkeyPatch) -> None:
    written("history: {token_budget: 1}\nstore: {tenant: file, schema: file}\n")
    monkeypatch.setenv("LANGO_STORE__TENANT", "variable")
    monkeypatch.setenv("LANGO_STORE__SCHEMA", "variable")
    loaded = load(flags={"store": {"tenant": "flag"}})
    origins = {path: (value, origin) for path, value, origin in loaded.values()}
    assert origins["history.token_budget"] == (1, "lango.yaml")
    assert origins["store.schema"] == ("variable", "LANGO_STORE__SCHEMA")
    assert origins["store.tenant"] == ("flag", "a flag")
    assert origins["limits.model_calls"] == (100, "default")


def test_the_file_is_named_by_argument_then_by_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    written("store: {tenant: here}\n")
    written("store: {tenant: named}\n", "one/named.yaml")
    written("store: {tenant: argument}\n", "argument.yaml")
    assert load().settings.store.tenant == "here"
    monkeypatch.setenv("LANGO_CONFIG", "one/named.yaml")
    assert load().settings.store.tenant == "named"
    assert load("argument.yaml").settings.store.tenant == "argument"


def test_a_parent_folders_file_is_never_read(monkeypatch: pytest.MonkeyPatch) -> None:
    written("store: {tenant: above}\n")
    Path("below").mkdir()
    monkeypatch.chdir("below")
    assert load().path is None


def test_a_named_file_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"There is no file missing\.yaml"):
        load("missing.yaml")
    monkeypatch.setenv("LANGO_CONFIG", "gone.yaml")
    with pytest.raises(ConfigError, match="which LANGO_CONFIG names"):
        load()


def test_references_are_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI", "from-variable")
    written("from-file\n", "keys/anthropic")
    written(
        "providers:\n"
        "  openai: {api_key: '${OPENAI}'}\n"
        "  anthropic: {api_key: '${file:keys/anthropic}'}\n"
        "store: {tenant: 'costs $$5'}\n"
    )
    settings = load().settings
    keys = {n: p.api_key.get_secret_value() for n, p in settings.providers.items() if p.api_key}
    assert keys == {"openai": "from-variable", "anthropic": "from-file"}
    assert settings.store.tenant == "costs $5"


def test_a_reference_to_nothing() -> None:
    text = problem("providers: {openai: {api_key: '${NOT_SET_ANYWHERE}'}}\n")
    expected = "providers.openai.api_key: the environment variable NOT_SET_ANYWHERE is not set."
    assert text == expected
    assert "cannot be read: No such file" in problem("store: {url: '${file:gone}'}\n")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("providers: {openai: {api_key: sk-1}}", "providers.openai.api_key"),
        ("store: {url: 'postgresql://u:pw@h/d'}", "store.url"),
        ("store: {direct_url: 'postgresql://u:pw@h/d', pooled: true}", "store.direct_url"),
        ("store: {url: 'postgresql://h/d?direct_url=postgresql%3A//u:pw@h/d'}", "store.url"),
        ("mcp_servers: {a: {url: 'http://h', headers: {Authorization: x}}}", "Authorization"),
        ("mcp_servers: {a: {command: [x], env: {GITHUB_TOKEN: x}}}", "mcp_servers.a.env"),
    ],
)
def test_a_secret_does_not_belong_in_the_file(text: str, where: str) -> None:
    said = problem(text)
    assert where in said
    assert "write ${NAME}" in said
    assert "sk-1" not in said
    assert "pw@" not in said
    written(f"{text}\nallow_literal_secrets: true\n")
    load()


def test_what_is_no_secret_may_stand_there() -> None:
    written(
        "store: {url: 'postgresql://u@h/d'}\n"
        "mcp_servers: {a: {command: [x], env: {LOG_LEVEL: debug}}}\n"
    )
    load()


def test_the_environment_may_hold_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGO_PROVIDERS__OPENAI__API_KEY", "sk-canary")
    monkeypatch.setenv("LANGO_STORE__URL", "postgresql://u:canary@h/d")
    loaded = load()
    key = loaded.settings.providers["openai"].api_key
    assert key is not None
    assert key.get_secret_value() == "sk-canary"
    shown = str(list(loaded.values())) + repr(loaded.settings) + loaded.settings.model_dump_json()
    assert "canary" not in shown
    assert "postgresql://u:**********@h/d" in shown


def test_the_environment_may_hold_a_list_of_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    key = base64.b64encode(bytes(32)).decode()
    monkeypatch.setenv("LANGO_CREDENTIALS__KEYS", json.dumps([key]))
    assert [one.get_secret_value() for one in load().settings.credentials.keys] == [key]


def test_a_url_in_the_url_of_a_store_is_masked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    past = "postgresql%3A%2F%2Fu%3Acanary%40h%2Fd"
    monkeypatch.setenv(
        "LANGO_STORE__URL", f"postgresql://u:canary@p/d?direct_url={past}&pooled=true"
    )
    loaded = load()
    shown = str(list(loaded.values())) + repr(loaded.settings) + loaded.settings.model_dump_json()
    assert "canary" not in shown
    assert "u:**********@p/d?direct_url=postgresql%3A%2F%2Fu%3A**********%40h%2Fd&pooled=" in shown


def test_the_way_to_a_pooled_store_is_one_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGO_STORE__URL", "postgresql://u@p/d?sslmode=require")
    assert load().settings.store.full_url == "postgresql://u@p/d?sslmode=require"
    monkeypatch.setenv("LANGO_STORE__POOLED", "true")
    monkeypatch.setenv("LANGO_STORE__DIRECT_URL", "postgresql://u:p%20w@h/d")
    way = "pooled=true&direct_url=postgresql%3A%2F%2Fu%3Ap%2520w%40h%2Fd"
    assert load().settings.store.full_url == f"postgresql://u@p/d?sslmode=require&{way}"
    flags = store_flags("postgresql://u@other/d")
    assert load(flags=flags).settings.store.full_url == "postgresql://u@other/d"


def test_tls_is_part_of_every_url(tmp_path: Path) -> None:
    ca = tmp_path / "db ca.pem"
    ca.touch()
    url, direct = "postgresql://u@p/d?application_name=x", "postgresql://u@h/d?sslmode=verify-full"
    tls = {"tls": "verify-full", "tls_ca": str(ca)}
    pooled = {"pooled": True, "direct_url": direct}
    store = load(flags={"store": {"url": url, **tls, **pooled}}).settings.store
    where = urlencode({"sslrootcert": str(ca)})
    way = urlencode({"pooled": "true", "direct_url": f"{direct}&{where}"})
    assert store.full_url == f"{url}&sslmode=verify-full&{where}&{way}"
    local = {"url": "sqlite:///here.db", **tls}
    assert load(flags={"store": local}).settings.store.full_url == "sqlite:///here.db"


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ({"url": "postgresql://p/d?sslmode=require", "tls": "verify-full"}, "another sslmode"),
        ({"url": "postgresql://p/d?sslrootcert=/a", "tls_ca": "/b"}, "another sslrootcert"),
        ({"url": "postgresql://p/d", "tls_ca": "/b"}, "no effect without `tls: verify-full`"),
        ({"url": "postgresql://p/d", "tls": "disable", "tls_ca": "/b"}, "no effect without"),
        ({"url": "postgresql://p/d", "tls": "require", "tls_ca": "/no/ca"}, "no file /no/ca"),
        (
            {
                "url": "postgresql://p/d",
                "tls": "verify-full",
                "pooled": True,
                "direct_url": "postgresql://p/d?sslmode=disable",
            },
            "`tls` is verify-full, but the URL has another sslmode",
        ),
    ],
)
def test_tls_that_contradicts_a_url_is_refused(store: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(flags={"store": store})
    assert said in str(caught.value)


def test_unknown_keys_name_the_nearest() -> None:
    text = problem(MINIMAL.replace("model:", "modle:") + "stroe: {}\n")
    assert "apps.demo.agent.modle: there is no such key. Did you mean model?" in text
    assert "apps.demo.agent.model: this key is needed." in text
    assert "stroe: there is no such key. Did you mean store?" in text
    assert "pool_timeout, pooled, schema, tenant, tls, tls_ca, url." in problem("store: {zzz: 1}\n")


def test_unknown_keys_in_sub_agents() -> None:
    nested = MINIMAL + "      sub_agents: [{model: a:b, instructions: x}]\n"
    assert "sub_agents.0.instructions: there is no such key. Did you mean instruction?" in problem(
        nested
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n- b\n", "must be a mapping"),
        ("a: [\n", "line 2:"),
        ("apps: {a: {}}\n", "give either `agent` (written here) or `load` (from code)"),
        ("mcp_servers: {a: {}}\n", "give either `command` (a program to run) or `url`"),
        ("history: {token_budget: 0}\n", "history.token_budget: Input should be greater"),
        ("history: {token_budget: much}\n", "history.token_budget: Input should be a valid"),
        (MINIMAL.replace("demo:", "my-app:", 1), "apps.my-app.agent.name: 'my-app' cannot name"),
        (MINIMAL.replace("demo:", "user:", 1), "and not 'user'"),
        (MINIMAL + "      sub_agents: [{model: a:b}]\n", "agent.sub_agents.0.name: '' cannot"),
        (MINIMAL + "      sub_agents: [{model: a:b, name: demo}]\n", "0.name: another agent"),
    ],
)
def test_what_is_wrong_is_said(text: str, said: str) -> None:
    assert said in problem(text)


def test_a_variable_that_is_no_json(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGO_APPS", "{not json")
    with pytest.raises(ConfigError, match="apps"):
        load()


def test_shorthands() -> None:
    tools = "      tools: ['builtin:time', {use: 'builtin:files', root: data}]\n"
    written(f"{MINIMAL}{tools}  code: my.module:root_agent\n")
    apps = load().settings.apps
    assert apps["code"].load == "my.module:root_agent"
    agent = apps["demo"].agent
    assert agent is not None
    assert [(tool.use, tool.options) for tool in agent.tools] == [
        ("builtin:time", {}),
        ("builtin:files", {"root": "data"}),
    ]


@pytest.mark.parametrize(
    ("text", "path"), [("off", "off"), ("false", "off"), ("/adk", "/adk"), ("/", "/")]
)
def test_off_is_a_text(text: str, path: str) -> None:
    written(f"{MINIMAL}server: {{adk_routes: {text}}}\n")
    assert load().settings.server.adk_routes == path


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("LANGO_STROE__URL", "Did you mean LANGO_STORE__…?"),
        ("LANGO_XYZ__URL", "There are: LANGO_APPS, LANGO_STORE"),
        ("LANGO_STORE__URLL", "LANGO_STORE__URLL: store.urll: there is no such key. Did you mean"),
    ],
)
def test_a_variable_of_no_setting_is_an_error(
    monkeypatch: pytest.MonkeyPatch, name: str, said: str
) -> None:
    monkeypatch.setenv(name, "x")
    with pytest.raises(ConfigError) as caught:
        load()
    assert said in str(caught.value)


def test_a_variable_that_may_be_another_programs_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As LANGO_PORT of Kubernetes is; what others of ours read is left alone."""
    monkeypatch.setenv("LANGO_PORT", "tcp://10.0.0.1:80")
    monkeypatch.setenv("LANGO_URL", "http://localhost")
    load()
    assert caplog.messages == ["The environment variable LANGO_PORT sets nothing and is ignored."]


@pytest.mark.parametrize("url", ["s3://b", "gs://b/p/q", "az://c/p", "file:///folder"])
def test_an_object_store_is_a_url_of_a_known_kind(url: str) -> None:
    written(f"{MINIMAL}files: {{objects: '{url}'}}\n")
    assert load().settings.files.objects == url


@pytest.mark.parametrize(
    "url",
    ["bucket", "s3:bucket", "s3://", "https://b.example", "file://folder", "s3://key:secret@b"],
)
def test_an_object_store_of_no_known_kind_is_refused(url: str) -> None:
    refused = problem(f"{MINIMAL}files: {{objects: '{url}'}}\n")
    assert "files.objects" in refused
    assert "s3://bucket/prefix" in refused
