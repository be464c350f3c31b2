"""Writes the Grafana dashboard of deploy/: `python -m scripts.dashboard`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

FILE: Final = Path(__file__).resolve().parents[1] / "deploy/grafana/lango.json"
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_WIDTH: Final = 8
_HEIGHT: Final = 8
_PER_LINE: Final = 3

Panel = tuple[str, str, tuple[tuple[str, str], ...]]
"""A title, a unit of Grafana, and queries with their legends."""


def _p95(metric: str, *labels: str) -> str:
    by = ", ".join(("le", *labels))
    return f"histogram_quantile(0.95, sum by ({by}) (rate({metric}_bucket[$__rate_interval])))"


def _rate(metric: str, *labels: str, where: str = "") -> str:
    return f"sum by ({', '.join(labels)}) (rate({metric}{where}[$__rate_interval]))"


_OF_MODEL: Final = ("provider", "model")
_MODEL: Final = "{{provider}}:{{model}}"
_ROWS: Final[tuple[tuple[str, tuple[Panel, ...]], ...]] = (
    (
        "Objectives",
        (
            (
                "Submit to start, p95",
                "s",
                ((_p95("lango_turn_start_delay_seconds", "app"), "{{app}}"),),
            ),
            ("First word, p95", "s", ((_p95("lango_turn_first_word_seconds", "app"), "{{app}}"),)),
            ("Takeover, p95", "s", ((_p95("lango_turn_takeover_seconds", "app"), "{{app}}"),)),
            (
                "Failed turns",
                "percentunit",
                (
                    (
                        _rate("lango_turns_ended_total", "app", where='{state="failed"}')
                        + " / "
                        + _rate("lango_turns_ended_total", "app"),
                        "{{app}}",
                    ),
                ),
            ),
        ),
    ),
    (
        "Queue and turns",
        (
            (
                "Open turns",
                "short",
                (("max by (app, state) (lango_turns_open)", "{{app}} {{state}}"),),
            ),
            (
                "Oldest queued turn",
                "s",
                (("max by (app) (lango_queue_oldest_seconds)", "{{app}}"),),
            ),
            (
                "Turns ended",
                "ops",
                ((_rate("lango_turns_ended_total", "app", "state"), "{{app}} {{state}}"),),
            ),
            (
                "Failures",
                "ops",
                ((_rate("lango_turn_failures_total", "app", "error"), "{{app}} {{error}}"),),
            ),
            ("Attempts", "ops", ((_rate("lango_turn_attempts_total", "cause"), "{{cause}}"),)),
            (
                "Attempt, p95",
                "s",
                ((_p95("lango_turn_attempt_duration_seconds", "app"), "{{app}}"),),
            ),
        ),
    ),
    (
        "Workers",
        (
            (
                "Workers",
                "short",
                (
                    ("max by (state) (lango_workers)", "{{state}}"),
                    ("max(lango_turns_without_worker)", "turns without a worker"),
                    ("max(lango_turn_most_workers_lost)", "most workers lost by one turn"),
                ),
            ),
            (
                "Running turns",
                "short",
                (
                    ("lango_worker_running_turns", "{{instance}}"),
                    ("sum(lango_worker_concurrency)", "limit of all"),
                    ("lango_worker_abandoned_runs", "{{instance}} abandoned"),
                ),
            ),
            (
                "Heartbeats",
                "s",
                (
                    ("lango_worker_heartbeat_age_seconds", "{{instance}}"),
                    ("max(lango_workers_oldest_heartbeat_seconds)", "oldest in the database"),
                ),
            ),
            (
                "Event loop, late by (p95)",
                "s",
                ((_p95("lango_event_loop_lag_seconds", "instance"), "{{instance}}"),),
            ),
            (
                "CPU",
                "percentunit",
                (("rate(process_cpu_seconds_total[$__rate_interval])", "{{instance}}"),),
            ),
            ("Memory", "bytes", (("process_resident_memory_bytes", "{{instance}}"),)),
        ),
    ),
    (
        "Models and tools",
        (
            (
                "Requests to models",
                "ops",
                (
                    (
                        _rate("lango_model_requests_total", *_OF_MODEL, "outcome"),
                        f"{_MODEL} {{{{outcome}}}}",
                    ),
                ),
            ),
            (
                "Request to a model, p95",
                "s",
                ((_p95("lango_model_request_duration_seconds", *_OF_MODEL), _MODEL),),
            ),
            (
                "First event of a model, p95",
                "s",
                ((_p95("lango_model_first_event_seconds", *_OF_MODEL), _MODEL),),
            ),
            (
                "Errors of models",
                "ops",
                (
                    (
                        _rate("lango_model_errors_total", *_OF_MODEL, "error"),
                        f"{_MODEL} {{{{error}}}}",
                    ),
                ),
            ),
            (
                "Tokens a second",
                "short",
                ((_rate("lango_model_tokens_total", "model", "kind"), "{{model}} {{kind}}"),),
            ),
            (
                "Cost, US dollars an hour",
                "currencyUSD",
                (
                    (
                        "sum by (provider, model) (increase(lango_model_cost_dollars_total[1h]))",
                        _MODEL,
                    ),
                ),
            ),
            (
                "Tool calls",
                "ops",
                ((_rate("lango_tool_calls_total", "tool", "outcome"), "{{tool}} {{outcome}}"),),
            ),
            ("Tool call, p95", "s", ((_p95("lango_tool_duration_seconds", "tool"), "{{tool}}"),)),
        ),
    ),
    (
        "HTTP and database",
        (
            ("Requests", "reqps", ((_rate("lango_http_requests_total", "status"), "{{status}}"),)),
            (
                "Answer begins, p95",
                "s",
                ((_p95("lango_http_response_start_seconds", "route"), "{{route}}"),),
            ),
            ("Open streams", "short", (("lango_http_open_streams", "{{instance}}"),)),
            (
                "Connections",
                "short",
                (
                    ("lango_database_connections_in_use", "{{instance}} {{pool}}"),
                    ("max by (pool) (lango_database_connections_limit)", "limit of {{pool}}"),
                ),
            ),
            ("Database answers", "short", (("lango_database_up", "{{instance}}"),)),
            ("Versions", "short", (("count by (version) (lango_build_info)", "{{version}}"),)),
        ),
    ),
)


def dashboard() -> dict[str, Any]:
    """The dashboard, as Grafana imports it."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, drawn in _ROWS:
        panels.append(
            _panel(len(panels), "row", title, 24, 1, 0, y) | {"collapsed": False, "panels": []}
        )
        y += 1
        for number, (name, unit, queries) in enumerate(drawn):
            line, column = divmod(number, _PER_LINE)
            x, top = column * _WIDTH, y + line * _HEIGHT
            panel = _panel(len(panels), "timeseries", name, _WIDTH, _HEIGHT, x, top)
            panels.append(panel | _drawing(unit, queries))
        y += -(-len(drawn) // _PER_LINE) * _HEIGHT
    return {
        "title": "lango",
        "uid": "lango",
        "tags": ["lango"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {
            "list": [
                {
                    "name": "datasource",
                    "label": "Data source",
                    "type": "datasource",
                    "query": "prometheus",
                }
            ]
        },
        "panels": panels,
    }


def _panel(number: int, kind: str, title: str, w: int, h: int, x: int, y: int) -> dict[str, Any]:
    grid_position = {"w": w, "h": h, "x": x, "y": y}
    return {"id": number + 1, "type": kind, "title": title, "gridPos": grid_position}


def _drawing(unit: str, queries: tuple[tuple[str, str], ...]) -> dict[str, Any]:
    return {
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom"},
            "tooltip": {"mode": "multi"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "datasource": _SOURCE,
                "expr": query,
                "legendFormat": legend,
            }
            for index, (query, legend) in enumerate(queries)
        ],
    }


def text() -> str:
    """The file."""
    return json.dumps(dashboard(), indent=1) + "\n"


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
