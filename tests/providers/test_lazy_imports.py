"""No vendor's SDK is loaded before a model of that vendor is spoken to."""

import json
import subprocess
import sys

import pytest

SDKS = ("anthropic", "genai_prices", "google.adk", "google.genai", "httpx", "httpx2", "openai")
WIRES = ("openai_chat", "openai_responses", "anthropic", "gemini")


@pytest.mark.parametrize(
    "code",
    [
        "import lango",
        "import lango.providers.registry",
        "from lango.providers.registry import *; [resolve(f'{g.name}:m') for g in GATEWAYS]",
        *(f"import lango.providers.{wire}" for wire in WIRES),
    ],
)
def test_no_sdk_is_loaded(code: str) -> None:
    listed = f"{code}; import json, sys; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", listed], capture_output=True, check=True, text=True
    )
    assert sorted(set(json.loads(done.stdout)).intersection(SDKS)) == []
