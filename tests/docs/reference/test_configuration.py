"""Every key of lango.yaml is in its reference page, with what it does and its default."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lango.config.settings import Settings

PAGE = Path(__file__).resolve().parents[3] / "docs/reference/configuration.md"
SCHEMA = Settings.model_json_schema()
SECTIONS = {
    "The file": SCHEMA,
    "store": SCHEMA["$defs"]["StoreSettings"],
    "history": SCHEMA["$defs"]["HistorySettings"],
    "limits": SCHEMA["$defs"]["LimitSettings"],
    "worker": SCHEMA["$defs"]["WorkerSettings"],
    "providers": SCHEMA["$defs"]["ProviderSettings"],
    "apps": SCHEMA["$defs"]["AppSettings"],
    "memory": SCHEMA["$defs"]["MemorySettings"],
    "compaction": SCHEMA["$defs"]["CompactionSettings"],
    "agent": SCHEMA["$defs"]["AgentSettings"],
    "tools": SCHEMA["$defs"]["ToolSettings"],
    "credentials": SCHEMA["$defs"]["CredentialSettings"],
    "server": SCHEMA["$defs"]["ServerSettings"],
    "telemetry": SCHEMA["$defs"]["TelemetrySettings"],
    "files": SCHEMA["$defs"]["FileStoreSettings"],
    "files of server": SCHEMA["$defs"]["FileSettings"],
    "quotas": SCHEMA["$defs"]["QuotaSettings"],
    "oidc": SCHEMA["$defs"]["OidcSettings"],
    "limits of oidc": SCHEMA["$defs"]["CallerLimitSettings"],
    "mcp_servers": SCHEMA["$defs"]["McpServerSettings"],
    "metrics": SCHEMA["$defs"]["MetricsSettings"],
    "openapi_documents": SCHEMA["$defs"]["OpenApiSettings"],
    "auth of openapi_documents": SCHEMA["$defs"]["ApiAuthSettings"],
}


def row(key: str, field: dict[str, Any], needed: bool) -> str:
    """The line of a key."""
    default = "needed" if needed else _default(field)
    return f"| `{key}` | {field['description']} | {default} |"


def _default(field: dict[str, Any]) -> str:
    if "default" not in field or isinstance(field["default"], dict):
        return ""
    return f"`{json.dumps(field['default'])}`"


@pytest.mark.parametrize("section", SECTIONS)
def test_every_key_has_its_row(section: str) -> None:
    heading = f"\n## {section}\n"
    text = PAGE.read_text()
    assert heading in text
    part = text.split(heading, 1)[1].split("\n## ", 1)[0]
    schema = SECTIONS[section]
    needed = schema.get("required", [])
    rows = [row(key, field, key in needed) for key, field in schema["properties"].items()]
    assert [line for line in part.splitlines() if line.startswith("| `")] == rows


def test_every_section_is_looked_at() -> None:
    assert len(SECTIONS) == len(SCHEMA["$defs"]) + 1
