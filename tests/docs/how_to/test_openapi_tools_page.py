"""The page on OpenAPI documents: its code makes an agent, and its settings say the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

from lango.adk.openapi.toolset import OperationToolset
from lango.app import openapi_document
from lango.config.settings import Settings

PAGE: Final = (Path(__file__).resolve().parents[3] / "docs/how-to/openapi-tools.md").read_text()


def _block(language: str) -> str:
    (code,) = re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)
    return code


def test_the_code_and_the_settings_are_of_one_document() -> None:
    names: dict[str, Any] = {}
    exec(_block("python"), names)  # noqa: S102 - our own page
    (toolset,) = names["agent"].tools
    assert isinstance(toolset, OperationToolset)
    loaded = yaml.safe_load(_block("yaml").replace("${SHOP_TOKEN}", "the token"))
    settings = Settings.model_validate(loaded | {"allow_literal_secrets": True})
    assert openapi_document("shop", settings.openapi_documents["shop"]) == toolset.document
