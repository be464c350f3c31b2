"""Hold a conversation with `lango serve` by clients of OpenAI's API, each in its newest release.

`make clients` installs every client into an environment of its own, so it needs a package index. A
client says two things, one answered whole and one streamed; then its session must hold just these.
Open WebUI is tried by hand, with a browser; here only its prompts for titles, tags, follow-up
questions and searches are compared with those that lango recognises.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lango.server.openai.sessions import SentConversation, VisibleMessage
from lango.server.openai.tasks import task_answer
from tests.cli.processes import Running, lango
from tests.server.openai.webui_prompts import TEMPLATES, has_literals

OPEN_WEBUI = "open-webui"
CHAT = "USER: hello\nASSISTANT: You said: hello"
TASK_ANSWERS: dict[str, object] = {"title": "hello", "tags": [], "follow_ups": [], "queries": []}
SAID = ["hello", "and again"]
ANSWERS = ["You said: hello", "You said: and again"]

OPENAI = """
import os, openai
client = openai.OpenAI(base_url=os.environ["LANGO_API"], api_key=os.environ["LANGO_KEY"])
said = [{"role": "user", "content": "hello"}]
answer = client.chat.completions.create(model="assistant", messages=said).choices[0].message
print(answer.content)
said += [answer, {"role": "user", "content": "and again"}]
stream = client.chat.completions.create(model="assistant", messages=said, stream=True)
print("".join(chunk.choices[0].delta.content or "" for chunk in stream))
"""
LANGCHAIN = """
import os
from langchain_openai import ChatOpenAI
model = ChatOpenAI(
    model="assistant", base_url=os.environ["LANGO_API"], api_key=os.environ["LANGO_KEY"]
)
answer = model.invoke("hello")
print(answer.text)
print("".join(c.text for c in model.stream([("user", "hello"), answer, ("user", "and again")])))
"""
LITELLM = """
import os
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm
how = {"model": "openai/assistant", "api_base": os.environ["LANGO_API"],
       "api_key": os.environ["LANGO_KEY"]}
said = [{"role": "user", "content": "hello"}]
answer = litellm.completion(messages=said, **how).choices[0].message.content
print(answer)
said += [{"role": "assistant", "content": answer}, {"role": "user", "content": "and again"}]
stream = litellm.completion(messages=said, stream=True, **how)
print("".join(chunk.choices[0].delta.content or "" for chunk in stream))
"""
LLM = """
import json, os, pathlib, subprocess, sys
home = pathlib.Path(os.environ["LLM_USER_PATH"])
home.mkdir()
home.joinpath("extra-openai-models.yaml").write_text(
    "- {model_id: mine, model_name: assistant, api_key_name: lango, "
    f"api_base: '{os.environ['LANGO_API']}'}}"
)
home.joinpath("keys.json").write_text(json.dumps({"lango": os.environ["LANGO_KEY"]}))
command = [sys.executable, "-m", "llm"]
subprocess.run([*command, "-m", "mine", "--no-stream", "hello"], check=True)
subprocess.run([*command, "-c", "and again"], check=True)
"""
AI_SDK = """
import { generateText, streamText } from 'ai';
import { createOpenAICompatible } from '@ai-sdk/openai-compatible';
const { LANGO_API, LANGO_KEY } = process.env;
const lango = createOpenAICompatible({ name: 'lango', baseURL: LANGO_API, apiKey: LANGO_KEY });
const model = lango('assistant');
const first = await generateText({ model, prompt: 'hello' });
console.log(first.text);
const messages = [
  { role: 'user', content: 'hello' },
  ...first.response.messages,
  { role: 'user', content: 'and again' },
];
console.log(await streamText({ model, messages }).text);
"""


@dataclass(frozen=True)
class Client:
    """A client by its package, and a program that uses it."""

    package: str
    program: str
    beside: tuple[str, ...] = ()

    @property
    def is_python(self) -> bool:
        return self.program is not AI_SDK


CLIENTS = (
    Client("openai", OPENAI),
    Client("langchain-openai", LANGCHAIN),
    Client("litellm", LITELLM),
    Client("llm", LLM),
    # The newest AI SDK wants a newer Node.js than many systems have.
    Client("ai", AI_SDK, ("@ai-sdk/openai-compatible@latest", "node@22")),
)


def output(*command: str, **environment: str) -> str:
    """What a command prints; it must succeed."""
    return subprocess.run(
        command, check=True, stdout=subprocess.PIPE, text=True, env=os.environ | environment
    ).stdout


def installed(client: Client, folder: Path) -> tuple[str, list[str]]:
    """The version of a client that was put into a folder, and the command for its program."""
    if client.is_python:
        python = str(folder / "venv/bin/python")
        output("uv", "venv", "--quiet", str(folder / "venv"))
        output("uv", "pip", "install", "--quiet", "--python", python, client.package)
        ask = f"import importlib.metadata as m; print(m.version({client.package!r}))"
        return output(python, "-c", ask).strip(), [python, str(folder / "program.py")]
    packages = [f"{client.package}@latest", *client.beside]
    output("npm", "install", "--silent", "--prefix", str(folder), *packages)
    about = json.loads((folder / "node_modules" / client.package / "package.json").read_text())
    return about["version"], [str(folder / "node_modules/.bin/node"), str(folder / "program.mjs")]


def require(holds: bool, found: object) -> None:
    if not holds:
        sys.exit(f"This was not expected: {found}")


def fetched(url: str, key: str) -> Any:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {key}"})  # noqa: S310
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - loopback
        return json.load(answer)


def tried(client: Client, address: str, key: str, folder: Path) -> str:
    """How a client fared, in a line."""
    version, command = installed(client, folder)
    Path(command[-1]).write_text(client.program)
    home = {"LLM_USER_PATH": str(folder / "llm"), "NODE_PATH": str(folder / "node_modules")}
    told = output(*command, LANGO_API=f"{address}/openai/v1", LANGO_KEY=key, **home).split("\n")
    require([line for line in told if line] == ANSWERS, told)
    newest = fetched(f"{address}/v1/sessions", key)["sessions"][0]["id"]
    messages = fetched(f"{address}/v1/sessions/{newest}/messages", key)["messages"]
    spoken = [one["content"] for one in messages if one["role"] in ("user", "assistant")]
    require(spoken == [SAID[0], ANSWERS[0], SAID[1], ANSWERS[1]], spoken)
    return f"ok  {client.package} {version}"


def webui_prompts(folder: Path) -> tuple[str, dict[str, str]]:
    """The newest Open WebUI's version and its prompts by name, read but not imported."""
    target = ["--target", str(folder), "--no-deps", OPEN_WEBUI]
    output("uv", "pip", "install", "--quiet", "--python", sys.executable, *target)
    [about] = folder.glob("open_webui-*.dist-info")
    parsed = ast.parse((folder / "open_webui/config.py").read_text())
    prompts = {
        name.id: each.value.value
        for each in parsed.body
        if isinstance(each, ast.Assign) and isinstance(each.value, ast.Constant)
        for name in each.targets
        if isinstance(name, ast.Name) and isinstance(each.value.value, str)
    }
    return about.name.removesuffix(".dist-info").rpartition("-")[2], prompts


def recognised(folder: Path) -> str:
    """Whether lango recognises the prompts of Open WebUI's tasks, in a line."""
    version, prompts = webui_prompts(folder)
    for field, name in TEMPLATES.items():
        text = re.sub(r"\{\{MESSAGES[^}]*\}\}", CHAT, prompts[name])
        require(has_literals(field, text), text)
        answer = task_answer(SentConversation((), (VisibleMessage("user", text),)))
        require(answer is not None and json.loads(answer) == {field: TASK_ANSWERS[field]}, answer)
    return f"ok  {OPEN_WEBUI} {version}, its prompts"


def main() -> None:
    """Try every client, or those that are named."""
    chosen = [one for one in CLIENTS if one.package in sys.argv[1:] or not sys.argv[1:]]
    if OPEN_WEBUI in sys.argv[1:] or not sys.argv[1:]:
        with tempfile.TemporaryDirectory() as workspace:
            print(recognised(Path(workspace)), flush=True)
    if not chosen:
        return
    with tempfile.TemporaryDirectory() as workspace:
        folder = Path(workspace)
        lango(folder, "init", ".")
        key = lango(folder, "keys", "create", "--user", "ann").stdout.strip()
        with Running(folder, "serve", "--port", "0") as server:
            server.wait_for("Serving assistant")
            [address, *_] = re.findall(r"http://[\d.:]+", server.err)
            for client in chosen:
                own = folder / client.package
                own.mkdir()
                print(tried(client, address, key, own), flush=True)


if __name__ == "__main__":
    main()
