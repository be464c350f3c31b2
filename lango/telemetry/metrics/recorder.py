"""The metrics of a process, and the methods that instrumented code calls.

No label has a user, session, tenant or turn: the number of series must not grow with use.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import version
from typing import Final, Literal, get_args

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from lango.core.context.model_calls import ModelAttempt
from lango.core.fleet import FleetState
from lango.errors import WorkerLostError
from lango.telemetry.metrics.labels import OTHER, BoundedLabel

AttemptCause = Literal["new", "handed_over", "worker_lost"]
"""Why an attempt began: the turn's first, or after another worker gave the turn back or died."""

_ENDS: Final = ("completed", "failed", "cancelled", "input_required")
_WAITS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
_WORK: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_REQUESTS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_TAKEOVERS: Final = (1.0, 2.5, 5.0, 6.0, 7.5, 10.0, 15.0, 30.0, 60.0, 300.0, 1800.0)
_LAGS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})


class Recorder:
    """Counts and times what this process does."""

    content_type: Final = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        disable_created_metrics()  # a second series for each counter, which nothing here reads
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._app, self._error = BoundedLabel(50), BoundedLabel(50)
        self._provider, self._model = BoundedLabel(20), BoundedLabel(50)
        self._tool, self._route = BoundedLabel(100), BoundedLabel(200)
        self._shown: set[tuple[str, str]] = set()  # apps and states that have had open turns
        self._define_turns()
        self._define_models_and_tools()
        self._define_http()
        self._define_process()
        self._define_fleet()

    def _counter(self, name: str, about: str, *labels: str) -> Counter:
        return Counter(name, about, labels, registry=self.registry)

    def _gauge(self, name: str, about: str, *labels: str) -> Gauge:
        return Gauge(name, about, labels, registry=self.registry)

    def _histogram(
        self, name: str, about: str, buckets: tuple[float, ...], *labels: str
    ) -> Histogram:
        return Histogram(name, about, labels, buckets=buckets, registry=self.registry)

    def _define_turns(self) -> None:
        self._start_delays = self._histogram(
            "lango_turn_start_delay_seconds",
            "From a turn's submission (or its `run_at`) until a worker first claims it.",
            _WAITS,
            "app",
        )
        self._first_words = self._histogram(
            "lango_turn_first_word_seconds",
            "From a turn's submission (or its `run_at`) until the first text of its answer.",
            _WAITS,
            "app",
        )
        self._attempts = self._counter(
            "lango_turn_attempts_total",
            "Attempts at turns, by cause: new, handed_over, worker_lost.",
            *("app", "cause"),
        )
        self._takeovers = self._histogram(
            "lango_turn_takeover_seconds",
            "From the last heartbeat of a lost worker until this process claims its turn.",
            _TAKEOVERS,
            "app",
        )
        self._ends = self._counter(
            "lango_turns_ended_total",
            f"Turns that this process closed, by state: {', '.join(_ENDS)}.",
            *("app", "state"),
        )
        self._failures = self._counter(
            "lango_turn_failures_total",
            "Failed turns by the type of their error.",
            *("app", "error"),
        )
        self._attempt_times = self._histogram(
            "lango_turn_attempt_duration_seconds",
            "From a claim until the turn is closed.",
            _WORK,
            "app",
        )

    def _define_models_and_tools(self) -> None:
        of_model = ("provider", "model")
        self._model_times = self._histogram(
            "lango_model_request_duration_seconds",
            "Requests to models, each attempt on its own.",
            _WORK,
            *of_model,
        )
        self._first_events = self._histogram(
            "lango_model_first_event_seconds",
            "From a request to a model until the first event of its answer.",
            _WAITS,
            *of_model,
        )
        self._model_requests = self._counter(
            "lango_model_requests_total",
            "Requests to models, by outcome: completed, failed, cancelled.",
            *(*of_model, "outcome"),
        )
        self._model_errors = self._counter(
            "lango_model_errors_total",
            "Failed requests to models by the type of their error.",
            *(*of_model, "error"),
        )
        self._tokens = self._counter(
            "lango_model_tokens_total",
            "Tokens that providers reported, by kind: input, output, and of these cached (input) "
            "and reasoning (output).",
            *(*of_model, "kind"),
        )
        self._cost = self._counter(
            "lango_model_cost_dollars_total",
            "Cost of the requests whose price is known, in US dollars.",
            *of_model,
        )
        self._tool_times = self._histogram(
            "lango_tool_duration_seconds",
            "From a tool's call until its result.",
            _WORK,
            "tool",
        )
        self._tool_calls = self._counter(
            "lango_tool_calls_total",
            "Tool calls with a result, by outcome: ok, error.",
            *("tool", "outcome"),
        )

    def _define_http(self) -> None:
        self._requests = self._counter(
            "lango_http_requests_total",
            "Answered requests, by route template, method and status; status 0: the client left.",
            *("route", "method", "status"),
        )
        self._request_times = self._histogram(
            "lango_http_response_start_seconds",
            "From a request until its answer begins.",
            _REQUESTS,
            *("route", "method"),
        )
        self.open_streams = self._gauge(
            "lango_http_open_streams", "Event streams and waiting requests that are open now."
        )

    def _define_process(self) -> None:
        self._gauge("lango_build_info", "The version of lango; always 1.", "version").labels(
            version("lango-adk")
        ).set(1)
        self._running_turns = self._gauge(
            "lango_worker_running_turns", "Turns that the worker of this process runs now."
        )
        self._concurrency = self._gauge(
            "lango_worker_concurrency", "Turns that the worker of this process may run at a time."
        )
        self._abandoned_runs = self._gauge(
            "lango_worker_abandoned_runs",
            "Agent runs that ignored their cancellation and still run, without their claim.",
        )
        self._heartbeat_age = self._gauge(
            "lango_worker_heartbeat_age_seconds",
            "Since the last heartbeat of this process's worker reached the database.",
        )
        self._lags = self._histogram(
            "lango_event_loop_lag_seconds",
            "How late the event loop runs a timer, measured twice a second.",
            _LAGS,
        )
        self._connections = self._gauge(
            "lango_database_connections_in_use",
            "Database connections in use, by pool: turns (also appends), other.",
            "pool",
        )
        self._connection_limits = self._gauge(
            "lango_database_connections_limit", "The most connections of each pool.", "pool"
        )

    def _define_fleet(self) -> None:
        """Gauges that every process of a database reports alike: use `max`, not `sum`."""
        self._database_up = self._gauge(
            "lango_database_up", "Whether the last query for these gauges succeeded: 1 or 0."
        )
        self._open_turns = self._gauge(
            "lango_turns_open",
            "Open turns in the database, by state: scheduled, queued, running, input_required.",
            *("app", "state"),
        )
        self._queue_age = self._gauge(
            "lango_queue_oldest_seconds",
            "Since the oldest queued turn could have been claimed; absent if none waits.",
            "app",
        )
        self._unowned = self._gauge(
            "lango_turns_without_worker",
            "Running turns whose worker has no recent heartbeat: other workers must claim them.",
            "app",
        )
        self._most_workers_lost = self._gauge(
            "lango_turn_most_workers_lost",
            "The most workers that died while they ran one and the same turn, of those that run.",
            "app",
        )
        self._workers = self._gauge(
            "lango_workers", "Registered workers, by their heartbeats: alive, silent.", "state"
        )
        self._oldest_heartbeat = self._gauge(
            "lango_workers_oldest_heartbeat_seconds",
            "Since the oldest heartbeat of a worker that is alive.",
        )
        self._fleet_gauges = (
            *(self._open_turns, self._queue_age, self._unowned),
            *(self._most_workers_lost, self._workers),
        )

    def expect(self, apps: Iterable[str]) -> None:
        """Show the series of these apps at zero: Prometheus does not count how a series began."""
        for app in map(self._app, apps):
            self._start_delays.labels(app)
            self._first_words.labels(app)
            self._takeovers.labels(app)
            self._attempt_times.labels(app)
            for cause in get_args(AttemptCause):
                self._attempts.labels(app, cause)
            for state in _ENDS:
                self._ends.labels(app, state)
            self._failures.labels(app, self._error(WorkerLostError.__name__))

    def attempt_began(self, app: str, cause: AttemptCause, lost_for: float | None) -> None:
        """Count an attempt; `lost_for` are the seconds since the lost worker's last heartbeat."""
        app = self._app(app)
        self._attempts.labels(app, cause).inc()
        if lost_for is not None:
            self._takeovers.labels(app).observe(lost_for)

    def turn_started(self, app: str, delay: float) -> None:
        """Record how long a turn waited for its first claim."""
        self._start_delays.labels(self._app(app)).observe(max(delay, 0.0))

    def first_word(self, app: str, delay: float) -> None:
        """Record how long a turn's reader waited for the first text."""
        self._first_words.labels(self._app(app)).observe(max(delay, 0.0))

    def turn_ended(self, app: str, state: str, error: str, took: float) -> None:
        """Count a turn that was closed; `error` is the type of a failure, else empty."""
        app = self._app(app)
        self._ends.labels(app, state).inc()
        self._attempt_times.labels(app).observe(took)
        if error:
            self._failures.labels(app, self._error(error)).inc()

    def model_request(self, attempt: ModelAttempt, price: float | None) -> None:
        """Record one request to a model."""
        of_model = self._provider(attempt.provider), self._model(attempt.model)
        self._model_requests.labels(*of_model, attempt.outcome).inc()
        self._model_times.labels(*of_model).observe(max(attempt.ended - attempt.started, 0.0))
        if attempt.first_byte is not None:
            waited = max(attempt.first_byte - attempt.started, 0.0)
            self._first_events.labels(*of_model).observe(waited)
        if attempt.error:
            self._model_errors.labels(*of_model, self._error(attempt.error)).inc()
        if attempt.usage is not None:
            usage = attempt.usage
            for kind, tokens in (
                ("input", usage.input),
                ("output", usage.output),
                ("cached", usage.cached),
                ("reasoning", usage.reasoning),
            ):
                self._tokens.labels(*of_model, kind).inc(max(tokens, 0))
        if price is not None:
            self._cost.labels(*of_model).inc(max(price, 0.0))

    def tool_called(self, name: str, took: float | None, *, failed: bool, ran: bool) -> None:
        """Record a tool call; a name becomes a label only once a tool of that name `ran`.

        A model may call tools that do not exist, by names that hold anything.
        """
        tool = self._tool(name) if ran else self._tool.if_known(name)
        self._tool_calls.labels(tool, "error" if failed else "ok").inc()
        if took is not None:
            self._tool_times.labels(tool).observe(took)

    def request_answered(
        self, route: str | None, method: str, status: int, seconds: float | None
    ) -> None:
        """Record a request; None for a path without a route, or without an answer."""
        route = OTHER if route is None else self._route(route)
        method = method if method in _METHODS else OTHER
        self._requests.labels(route, method, str(status)).inc()
        if seconds is not None:
            self._request_times.labels(route, method).observe(seconds)

    def loop_lagged(self, seconds: float) -> None:
        """Record how late the event loop was."""
        self._lags.observe(seconds)

    def show_worker(
        self, *, running: int, concurrency: int, abandoned: int, heartbeat_age: float
    ) -> None:
        """Set the gauges of this process's worker."""
        self._running_turns.set(running)
        self._concurrency.set(concurrency)
        self._abandoned_runs.set(abandoned)
        self._heartbeat_age.set(heartbeat_age)

    def show_connections(self, pool: str, in_use: int, limit: int) -> None:
        """Set the gauges of a pool."""
        self._connections.labels(pool).set(in_use)
        self._connection_limits.labels(pool).set(limit)

    def show_fleet(self, fleet: FleetState | None) -> None:
        """Set the gauges of the database; None if it did not answer."""
        self._database_up.set(fleet is not None)
        for gauge in self._fleet_gauges:
            gauge.clear()
        self._oldest_heartbeat.set(fleet.oldest_heartbeat or 0.0 if fleet else 0.0)
        if fleet is None:
            return
        self._shown |= {(self._app(group.app), group.state) for group in fleet.turns}
        for app, state in self._shown:  # a count that fell to none is 0, not absent
            self._open_turns.labels(app, state).set(0)
            self._unowned.labels(app).set(0)
            self._most_workers_lost.labels(app).set(0)
        for group in fleet.turns:
            self._open_turns.labels(self._app(group.app), group.state).inc(group.count)
        for group in fleet.unowned:
            self._unowned.labels(self._app(group.app)).inc(group.count)
        lost = ((group.app, group.count) for group in fleet.most_workers_lost)
        self._set_largest(self._most_workers_lost, lost)
        waiting = ((group.app, group.oldest) for group in fleet.turns if group.state == "queued")
        self._set_largest(self._queue_age, waiting)
        self._workers.labels("alive").set(fleet.alive)
        self._workers.labels("silent").set(fleet.silent)

    def _set_largest(self, gauge: Gauge, values: Iterable[tuple[str, float | None]]) -> None:
        """Set a gauge by app; several apps may share the label `other`."""
        largest: dict[str, float] = {}
        for app, value in values:
            if value is not None:
                label = self._app(app)
                largest[label] = max(largest.get(label, 0.0), value)
        for label, value in largest.items():
            gauge.labels(label).set(value)

    def render(self) -> bytes:
        """All metrics in Prometheus' text format."""
        return generate_latest(self.registry)
