"""Prometheus metrics of the provider. Labels never name a tenant, a run or an archetype."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from wsgiref.simple_server import WSGIServer

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from pharoah_protocol import __version__


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
        self.alerts = Counter("pharoah_alerts_total", "Alerts sent, by state.", ["state"], registry=self.registry)
        self.validations = Counter(
            "pharoah_validation_runs_total", "Validations, by result.", ["result"], registry=self.registry
        )
        self.sessions_active = Gauge("pharoah_sessions_active", "Runs being watched.", registry=self.registry)
        self.rejected = Counter(
            "pharoah_ingest_dropped_total", "Rows that were rejected, by reason.", ["reason"], registry=self.registry
        )

    def watch_agents(self, last_seen: Callable[[], dict[str, float]]) -> None:
        """Heartbeats of connected agents; an agent that is gone has no series, because a stale value would mislead."""
        self.registry.register(_Agents(last_seen))

    def serve(self, host: str, port: int) -> WSGIServer:
        """Serve /metrics; port 0 picks a free one. Raises OSError when the port is taken."""
        server, _ = start_http_server(port, host, registry=self.registry)
        return server


class _Agents(Collector):
    def __init__(self, last_seen: Callable[[], dict[str, float]]) -> None:
        self._last_seen = last_seen

    def collect(self) -> Iterator[GaugeMetricFamily]:
        up = GaugeMetricFamily("pharoah_agent_up", "1 while the node's agent is connected.", labels=["node"])
        beat = GaugeMetricFamily(
            "pharoah_agent_last_heartbeat_timestamp_seconds",
            "Last message of the node's agent.",
            labels=["node"],
        )
        for node, seen in self._last_seen().items():
            up.add_metric([node], float(time.time() - seen < 30))
            beat.add_metric([node], seen)
        yield up
        yield beat
