"""Prometheus metrics of the provider. Labels never name a tenant, a run, an archetype or a node.

What is served is a snapshot that changes once a minute (`metrics_server`): a reader must not see from the steps of a
counter when somebody else asks, launches or ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pharoah_protocol import __version__

HEARTBEAT_SECONDS = 30.0
"""An agent that was heard within this time counts as up; it sends telemetry every two seconds."""


class Metrics:
    """Metrics of one provider. It has its own registry, so that several providers in one process stay apart."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        build = Gauge("pharoah_build_info", "Version of this provider.", ["version"], registry=self.registry)
        build.labels(__version__).set(1)
        self.rpcs = Counter(
            "pharoah_rpc_requests_total",
            "Calls by method and status.",
            ["method", "code"],
            registry=self.registry,
        )
        self.rpc_seconds = Histogram(
            "pharoah_rpc_duration_seconds",
            "Time to answer.",
            ["method"],
            registry=self.registry,
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 2),
        )
        self.long_steps = Counter(
            "pharoah_long_steps_total",
            "Steps of calls that took more than 50 ms of the event loop's processor time.",
            ["method"],
            registry=self.registry,
        )
        self.alerts = Counter("pharoah_alerts_total", "Alerts sent, by state.", ["state"], registry=self.registry)
        self.validations = Counter(
            "pharoah_validation_runs_total", "Validations, by result.", ["result"], registry=self.registry
        )
        self.probe_results = Counter(
            "pharoah_guest_probe_results_total",
            "Results of micro-benchmarks that sidecars sent: accepted, or why not.",
            ["result"],
            registry=self.registry,
        )
        self.sessions_active = Gauge("pharoah_sessions_active", "Runs being watched.", registry=self.registry)
        self.fleet_health = Gauge(
            "pharoah_fleet_health_ratio",
            "Expected share of nodes that are neither gray nor persistent.",
            registry=self.registry,
        )
        self.fleet_health.set(1)
        self.node_actions = Gauge(
            "pharoah_node_actions", "Nodes by what is to be done with them.", ["action"], registry=self.registry
        )
        self.rejected = Counter(
            "pharoah_ingest_dropped_total", "Rows that were rejected, by reason.", ["reason"], registry=self.registry
        )

    def watch_agents(self, last_seen: Callable[[], dict[str, float]], clock: Callable[[], float]) -> None:
        """Count connected agents; which ones they are is for operators (`pharoah-provider nodes`). `clock` is the one
        from which `last_seen` has its times."""
        self.registry.register(_Agents(last_seen, clock))

    def text(self) -> bytes:
        """All metrics as they are now, in the text format of Prometheus."""
        return generate_latest(self.registry)


class _Agents(Collector):
    def __init__(self, last_seen: Callable[[], dict[str, float]], clock: Callable[[], float]) -> None:
        self._last_seen, self._clock = last_seen, clock

    def collect(self) -> Iterator[GaugeMetricFamily]:
        seen, now = self._last_seen().values(), self._clock()
        up = sum(now - at < HEARTBEAT_SECONDS for at in seen)
        yield GaugeMetricFamily("pharoah_agents_connected", "Nodes whose agent is connected.", len(seen))
        yield GaugeMetricFamily("pharoah_agents_up", "Nodes whose agent was heard in the last 30 s.", up)
