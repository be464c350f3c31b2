"""Serve samples of ADK's own collection, unchanged, and print what works as a table.

`python -m scripts.adk_samples FOLDER` takes the folder `contributing/samples` of a copy of
google/adk-python; names after it choose samples. A server that speaks Gemini's API on loopback
takes the place of the model. Each sample is tried twice: undisturbed, and with `kill -9` of the
server in the middle of a turn. It needs a package index for a server that one sample has with it.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import secrets
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

import httpx

from lango.testing.wires.script import Broken, Call, ScriptedAnswer
from lango.testing.wires.server import WireServer
from tests.cli.processes import PATIENCE, Running, lango

ENDS: Final = ("completed", "failed", "cancelled", "input_required")
CLOSED: Final = "http://127.0.0.1:9"  # no request may leave the machine
FINAL: Final = "That is all, from the model."


def say(text: str = FINAL) -> ScriptedAnswer:
    """The model says a text."""
    return ScriptedAnswer(text)


def call(name: str, **arguments: object) -> ScriptedAnswer:
    """The model calls a tool."""
    made = Call(name, json.dumps(arguments), id=f"call_{name}")
    return ScriptedAnswer(calls=(made,), signature="signed")


class Model:
    """The model server, in a thread of its own: the script waits for processes meanwhile."""

    def __init__(self, replies: tuple[ScriptedAnswer, ...], stall_at: int | None) -> None:
        self.replies, self.stall_at = replies, stall_at
        self.server = WireServer("gemini", *self._with_stall())
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)

    def _with_stall(self) -> tuple[ScriptedAnswer | Broken, ...]:
        if self.stall_at is None:
            return self.replies
        stalled = Broken("stall", self.replies[self.stall_at])
        return (*self.replies[: self.stall_at], stalled)

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self.server.__aenter__(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self.server.__aexit__(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    @property
    def stalls(self) -> bool:
        """Whether an answer has stopped in its middle."""
        return self.stall_at is not None and len(self.server.requests) > self.stall_at

    def release(self) -> None:
        """Answer whole from now on, beginning with the answer that stopped."""
        self.server.say(*self.replies[self.stall_at or 0 :])
        self.stall_at = None


class NotAsExpectedError(Exception):
    """A sample did something else."""


def require(holds: object, found: object) -> None:
    """Fail the sample with what was found instead."""
    if not holds:
        raise NotAsExpectedError(str(found))


def _why(turn: Any) -> str:
    """The state of a turn that should have another one, and its error."""
    return f"the turn is {turn['state']}: {turn['error'] and turn['error']['type']}"


@dataclass
class Talk:
    """A conversation with one sample, over HTTP."""

    folder: Path
    sample: Sample
    model: Model
    kills: bool
    environment: dict[str, str]
    server: Running | None = None
    killed: list[str] = field(default_factory=list[str])  # the turns that lost their server
    _sessions: dict[str, str] = field(default_factory=dict[str, str])  # id by alias

    def __enter__(self) -> Self:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.server is not None:
            self.server.kill()

    def _start(self) -> None:
        arguments = ("serve", "--insecure-no-auth", "--port", "0")
        self.server = Running(self.folder, *arguments, environment=self.environment)
        self.server.wait_for("Serving")
        [address, *_] = re.findall(r"http://[\d.:]+", self.server.err + self.server.out)
        self.web = httpx.Client(base_url=address, timeout=PATIENCE, trust_env=False)

    def restart(self, turn: str = "") -> None:
        """Kill the server and start another, if this is what is tried."""
        if self.kills and self.server is not None:
            self.server.kill()
            if turn:
                self.killed.append(turn)
            self._start()

    def ask(self, method: str, path: str, **how: Any) -> Any:
        """One request; the JSON of its answer."""
        answer = self.web.request(method, path, **how)
        require(answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.json()

    def session(self, alias: str) -> str:
        """The id of a session, which is created on its first use."""
        if alias not in self._sessions:
            made = self.ask("POST", "/v1/sessions", json={"app": self.sample.app, "alias": alias})
            self._sessions[alias] = made["id"]
        return self._sessions[alias]

    def say(self, message: str, alias: str = "first") -> Any:
        """Send a message; its turn, after it has ended."""
        path = f"/v1/sessions/{self.session(alias)}/turns"
        return self._ended(self.ask("POST", path, json={"message": message})["id"])

    def answer(self, turn: Any, payload: object = None) -> Any:
        """Answer what a turn asks with yes or a payload; the turn that continues it."""
        require(turn["state"] == "input_required", _why(turn))
        self.restart()
        asked = [item["credential"] for item in turn["credentials"]] or turn["waits_for"]
        body = {"call": asked[0], "approved": True, "payload": payload}
        return self._ended(self.ask("POST", f"/v1/turns/{turn['id']}/approvals", json=body)["id"])

    def deliver(self, turn: Any, result: object) -> Any:
        """Deliver the result of a long-running call; the turn that continues."""
        require(turn["state"] == "input_required", _why(turn))
        self.restart()
        body = {"call": turn["waits_for"][0], "result": result}
        return self._ended(self.ask("POST", f"/v1/turns/{turn['id']}/results", json=body)["id"])

    def _ended(self, turn: str) -> Any:
        until = time.monotonic() + PATIENCE
        while (found := self.ask("GET", f"/v1/turns/{turn}"))["state"] not in ENDS:
            require(time.monotonic() < until, found)
            if self.model.stalls:
                self.model.release()
                self.restart(turn)
            time.sleep(0.05)
        self._check_stream(found)
        return found

    def _check_stream(self, turn: Any) -> None:
        """The stream of a turn is gapless, and its end is the turn's."""
        answer = self.web.get(f"/v1/turns/{turn['id']}/events?thoughts=true")
        events = [json.loads(line[6:]) for line in answer.text.splitlines() if line[:6] == "data: "]
        require([event["id"] for event in events] == [*range(1, len(events) + 1)], events)
        require(events[-1]["type"] == turn["state"], events)

    def completes(self, turn: Any, text: str = FINAL) -> None:
        """Require that a turn has completed with a text."""
        require(turn["state"] == "completed", _why(turn))
        require(text in (turn["text"] or ""), turn["text"])

    def messages(self, alias: str = "first") -> list[Any]:
        """The messages of a session."""
        return self.ask("GET", f"/v1/sessions/{self.session(alias)}/messages?limit=200")["messages"]

    def outputs(self, tool: str, alias: str = "first") -> list[Any]:
        """The outputs of a tool, in order."""
        calls = [one for message in self.messages(alias) for one in message["tool_calls"]]
        return [one["output"] for one in calls if one["name"] == tool and "output" in one]

    def adk(self, path: str = "", alias: str = "first") -> Any:
        """A session as ADK's own routes show it."""
        return self.ask("GET", f"/adk/apps/{self.sample.app}/users/user/sessions/{alias}{path}")

    def say_by_adk(self, message: str, alias: str = "first") -> list[Any]:
        """Send a message by ADK's own routes; the events of its stream."""
        who = {"appName": self.sample.app, "userId": "user", "sessionId": alias}
        content = {"role": "user", "parts": [{"text": message}]}
        body = {**who, "streaming": True, "newMessage": content}
        answer = self.web.post("/adk/run_sse", json=body)
        require(answer.is_success, answer.text)
        return [json.loads(line[6:]) for line in answer.text.splitlines() if line[:6] == "data: "]


@dataclass(frozen=True)
class Sample:
    """A sample by its folder, what its model answers, and the conversation that tries it."""

    folder: str
    shows: str
    talk: Callable[[Talk], None]
    replies: tuple[ScriptedAnswer, ...] = (say(),)
    stall_at: int | None = 0  # the answer in which the server is killed; None: while it waits
    settings: str = ""  # of the app, besides its folder
    beside: Callable[[Path], list[str]] | None = None  # the command of a server that it needs
    port: int = 0  # of that server

    @property
    def app(self) -> str:
        """The name of its app."""
        return self.folder.rpartition("/")[2]


def hello_world(talk: Talk) -> None:
    turn = talk.say("Roll a die, and check 2, 4 and 7.")
    talk.completes(turn)
    [rolled] = talk.outputs("roll_die")
    require(talk.adk()["state"]["rolls"] == [rolled["result"]], talk.adk()["state"])
    require(talk.outputs("check_prime")[0]["result"] == "2, 7 are prime numbers.", "primes")
    newest = talk.say_by_adk("And now?")[-1]
    require(newest["content"]["parts"][0]["text"].strip() == FINAL, newest)


def callbacks(talk: Talk) -> None:
    talk.completes(talk.say("hi"), "Hello from before_model callback!")
    talk.completes(talk.say("How is London?"), "[Token Usage: Input=12, Output=7]")
    require("intercepted by callback" in str(talk.outputs("get_weather")), talk.messages())


def artifacts(talk: Talk) -> None:
    talk.completes(talk.say("Write a report and show it."))
    names = {"report.txt", "sample_image.bmp"}
    require(set(talk.adk("/artifacts")) == names, talk.adk("/artifacts"))
    require(talk.outputs("generate_report")[0]["version"] == 0, talk.messages())
    require(len(talk.adk("/artifacts/report.txt/versions")) == 1, "versions")
    sent = str(talk.model.server.requests[-1].body)
    require("REPORT: SQL" in sent, sent)


def app(talk: Talk) -> None:
    for message in ("one", "two"):
        talk.completes(talk.say(message))
    require(len(talk.messages()) == 4, talk.messages())


def memory(talk: Talk) -> None:
    talk.completes(talk.say("My cat is called Minka.", "monday"))
    talk.completes(talk.say("What is my cat called?", "friday"))
    require("Minka" in str(talk.outputs("load_memory", "friday")), talk.messages("friday"))


def tool_confirmation(talk: Talk) -> None:
    talk.completes(talk.answer(talk.say("Send 200 to Ann.")))
    require("Successfully transferred $200" in str(talk.outputs("transfer_funds")), "transfer")


def human_in_loop(talk: Talk) -> None:
    talk.completes(talk.deliver(talk.say("Reimburse 200."), {"status": "approved"}))
    require("ok" in str(talk.outputs("reimburse")), talk.messages())


def sub_agents(talk: Talk) -> None:
    talk.completes(talk.say("What is the status of 7?"))
    require(talk.messages()[-1]["author"] == "info_agent", talk.messages())
    require("Account 7 is active." in str(talk.outputs("get_account_status")), talk.messages())


def workflow_sequence(talk: Talk) -> None:
    talk.completes(talk.say("go"), "Vitamin C.")
    said = [message["content"].strip() for message in talk.messages()]
    require(said == ["go", "Kiwi", "Vitamin C."], talk.messages())


def workflow_loop(talk: Talk) -> None:
    talk.completes(talk.say("flowers"), "tech-related")
    said = [message["content"].strip() for message in talk.messages()[1:]]
    require(said == ["Roses", UNRELATED.text, "Robots", RELATED.text], said)


def workflow_input(talk: Talk) -> None:
    turn = talk.answer(talk.say("My order has not arrived."), "approve")
    talk.completes(turn, "Draft approved and sent successfully.")


def workflow_api_key(talk: Talk) -> None:
    turn = talk.answer(talk.say("go"), {"api_key": "weather-key-1"})
    talk.completes(turn, "Weather for San Francisco: 18C, Sunny.")


def workflow_oauth(talk: Talk) -> None:
    turn = talk.say("start")
    require("github.com/login/oauth/authorize" in str(turn["credentials"]), turn)
    tokens = {"authType": "oauth2", "oauth2": {"accessToken": "gho_of_the_script"}}
    talk.completes(talk.answer(turn, tokens), "Failed to fetch repositories.")


def client_credentials(talk: Talk) -> None:
    talk.completes(talk.say("How is the weather in Tokyo?"))
    require("Weather for Tokyo" in str(talk.outputs("get_weather_data")), talk.messages())


def mcp_oauth(talk: Talk) -> None:
    turn = talk.say("Who is user1?")
    require("example.com/oauth/authorize" in str(turn["credentials"]), turn)
    tokens = {"authType": "oauth2", "oauth2": {"accessToken": "test_access_token_12345"}}
    talk.completes(talk.answer(turn, tokens))
    require("alice@example.com" in str(talk.outputs("get_user_profile")), talk.messages())


def streaming_tools(talk: Talk) -> None:
    talk.completes(talk.say("Watch the price of ABC."))
    outputs = talk.outputs("monitor_stock_price")
    require("the price for ABC is 300" in str(outputs), outputs)


def code_execution(talk: Talk) -> None:
    talk.completes(talk.say("How much is 6 times 7?"))
    require("codeExecution" in str(talk.model.server.requests[0].body), "no code execution")


def _weather_server(folder: Path) -> list[str]:
    server = ("--app-dir", str(folder), "oauth2_test_server:app")
    return [sys.executable, "-m", "uvicorn", *server, "--host", "127.0.0.1", "--port", "8080"]


def _mcp_server(folder: Path) -> list[str]:
    packages = ("--with", "mcp<2", "--with", "fastapi")  # the server is written for them
    return ["uv", "run", "--no-project", *packages, "python", str(folder / "oauth_mcp_server.py")]


UNRELATED: Final = say('{"grade": "unrelated", "feedback": "Name a machine."}')
RELATED: Final = say('{"grade": "tech-related", "feedback": ""}')
TRANSFER: Final = call("transfer_funds", amount=200, recipient="Ann")
REPORT: Final = call("generate_report", topic="SQL")
SAMPLES: Final = (
    Sample(
        "core/hello_world",
        "function tools, state",
        hello_world,
        (call("roll_die", sides=8), call("check_prime", nums=[2, 4, 7]), say()),
        2,
    ),
    Sample(
        "core/callbacks",
        "callbacks of model and tool",
        callbacks,
        (call("get_weather", city="London"), say()),
        1,
    ),
    Sample(
        "core/artifacts",
        "artifacts",
        artifacts,
        (
            REPORT,
            call("generate_media_artifact", media_type="image"),
            call("load_artifacts", artifact_names=["report.txt"]),
            say(),
        ),
        3,
    ),
    Sample(
        "core/app",
        "an App with plugins",
        app,
        stall_at=1,
        replies=(say(), say()),
    ),
    Sample(
        "context_management/memory",
        "memory",
        memory,
        (say(), call("load_memory", query="cat"), say()),
        2,
        "memory: true",
    ),
    Sample(
        "hitl/tool_confirmation",
        "a tool that asks a person",
        tool_confirmation,
        (TRANSFER, say()),
        1,
    ),
    Sample(
        "hitl/human_in_loop",
        "a long-running tool",
        human_in_loop,
        (
            call("ask_for_approval", purpose="dinner", amount=200),
            say(),
            call("reimburse", purpose="dinner", amount=200),
            say(),
        ),
        3,
    ),
    Sample(
        "multi_agent/sub_agents",
        "transfer to an agent",
        sub_agents,
        (
            call("transfer_to_agent", agent_name="info_agent"),
            call("get_account_status", account_id="7"),
            say(),
        ),
        2,
    ),
    Sample(
        "workflows/sequence",
        "a Workflow of agents",
        workflow_sequence,
        (say("Kiwi"), say("Vitamin C.")),
        1,
    ),
    Sample(
        "workflows/loop",
        "a Workflow with a cycle",
        workflow_loop,
        (say("Roses"), UNRELATED, say("Robots"), RELATED),
        2,
    ),
    Sample(
        "workflows/request_input",
        "a Workflow that asks a person",
        workflow_input,
        (say("Dear customer"),),
    ),
    Sample(
        "workflows/auth_api_key",
        "a Workflow that asks for an API key",
        workflow_api_key,
        stall_at=None,
    ),
    Sample(
        "workflows/auth_oauth",
        "a Workflow with OAuth consent",
        workflow_oauth,
        stall_at=None,
    ),
    Sample(
        "integrations/oauth2_client_credentials",
        "an OAuth tool, by client credentials",
        client_credentials,
        (call("get_weather_data", city="Tokyo"), say()),
        1,
        beside=_weather_server,
        port=8080,
    ),
    Sample(
        "mcp/mcp_toolset_auth",
        "MCP tools with OAuth consent",
        mcp_oauth,
        (call("get_user_profile", user_id="user1"), say()),
        1,
        beside=_mcp_server,
        port=3001,
    ),
    Sample(
        "live/live_bidi_streaming_tools_agent",
        "streaming tools",
        streaming_tools,
        (call("monitor_stock_price", stock_symbol="ABC"), say()),
        1,
    ),
    Sample(
        "code_execution/code_execution",
        "code that the model runs",
        code_execution,
    ),
)


@contextmanager
def served(sample: Sample, folder: Path, workspace: Path, *, kills: bool) -> Generator[Talk]:
    """A sample behind `lango serve`, with a store of its own."""
    stall_at = sample.stall_at if kills else None
    with ExitStack() as stack, Model(sample.replies, stall_at) as model:
        if sample.beside is not None:
            stack.enter_context(_listening(sample.beside(folder), sample.port))
        app = f"  {sample.app}:\n    load: {folder}\n    {sample.settings}\n"
        (workspace / "lango.yaml").write_text(
            f"apps:\n{app}store:\n  url: sqlite:///samples.db\nserver:\n  adk_routes: /adk\n"
        )
        yield stack.enter_context(Talk(workspace, sample, model, kills, _environment(model)))
        require(not model.server.refused, model.server.refused)


def _environment(model: Model) -> dict[str, str]:
    return {
        "GOOGLE_API_KEY": "test-key",
        "GOOGLE_GEMINI_BASE_URL": model.server.url,
        "OAUTH_CLIENT_ID": "client",
        "OAUTH_CLIENT_SECRET": "hush",
        "LANGO_CREDENTIALS__KEYS": json.dumps([base64.b64encode(secrets.token_bytes(32)).decode()]),
        "LANGO_SERVER__PUBLIC_URL": "http://127.0.0.1:8000",
        "HTTPS_PROXY": CLOSED,
    }


@contextmanager
def _listening(command: list[str], port: int) -> Generator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + PATIENCE
        while True:
            require(process.poll() is None and time.monotonic() < until, f"{command} ended")
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except ConnectionRefusedError:
                time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(PATIENCE)


def tried(sample: Sample, folder: Path, *, kills: bool) -> str:
    """What a sample did: `yes`, or what happened instead."""
    with tempfile.TemporaryDirectory() as workspace:
        talk = None
        try:
            with served(sample, folder, Path(workspace), kills=kills) as talk:
                sample.talk(talk)
                resumed = [talk.ask("GET", f"/v1/turns/{turn}") for turn in talk.killed]
                require(all(turn["attempts"] == 2 for turn in resumed), resumed)
                require(not kills or resumed or sample.stall_at is None, "no turn was killed")
        except (NotAsExpectedError, AssertionError) as error:
            if talk is not None and talk.server is not None and os.environ.get("VERBOSE"):
                print(talk.server.err, file=sys.stderr)
            return f"no: {error}"
    return "yes"


def diagnosis(folder: Path) -> str:
    """What `lango doctor` says about a sample."""
    with tempfile.TemporaryDirectory() as workspace:
        url = ("--url", "sqlite:///samples.db", "--no-models")
        environment = {"GOOGLE_API_KEY": "test-key"}
        said = lango(Path(workspace), "doctor", str(folder), *url, environment=environment).stdout
    [line] = [line for line in said.splitlines() if "resumable" in line] or ["? ?"]
    return line.partition(f"of {folder} ")[2]


def main() -> None:
    """Try every sample, or those that are named."""
    root, *names = sys.argv[1:]
    print("| sample | shows | works | `lango doctor` | killed in mid-turn, it ends as it should |")
    print("|---|---|---|---|---|")
    for sample in SAMPLES:
        if names and sample.app not in names:
            continue
        folder = Path(root, sample.folder).resolve()
        cells = (
            f"`{sample.folder}`",
            sample.shows,
            tried(sample, folder, kills=False),
            diagnosis(folder),
            tried(sample, folder, kills=True),
        )
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
