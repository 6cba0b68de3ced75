"""How to serve a provider: where, with which files, to whom, within which bounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pharoah_learning.node_actions import Breaker
from pharoah_provider.monitoring.budgets import SHARE
from pharoah_provider.monitoring.idle_checks import PAUSE_SECONDS
from pharoah_provider.monitoring.monitor import SETTLE_SECONDS
from pharoah_provider.node_actions import ActionMode
from pharoah_provider.peer_hosts import PeerHosts
from pharoah_serving.addresses import Defaults
from pharoah_serving.clock import Clock
from pharoah_serving.listener import Tls
from pharoah_serving.quotas import Limits
from pharoah_serving.token_command import TOKENS
from pharoah_system.local_sockets import PROVIDER_SOCKET

DEFAULT_ADDRESSES = Defaults(socket=PROVIDER_SOCKET, port="127.0.0.1:7443")


@dataclass(frozen=True)
class ServerSettings:
    """The options of `pharoah-provider serve`."""

    listen: str = ""
    """HOST:PORT with TLS, else `unix:/path`; when it is empty, one of `DEFAULT_ADDRESSES`."""
    socket_group: str = ""
    """Its members may connect to the Unix socket, besides its owner."""
    http: str = "unix:pharoah-run/metrics.sock"
    """Where /metrics is served (`metrics_server`)."""
    http_token: Path | None = None
    metrics_public: bool = False
    db: Path = Path("pharoah.duckdb")
    keys: str = "pharoah-keys"
    """A folder, or `command:CMD` for a key service."""
    audit: Path = Path("pharoah-audit")
    witnesses: Path | None = None
    tls: Tls | None = None
    domain: str = "pharoah.local"
    """SPIFFE trust domain of client certificates."""
    deny_list: Path | None = None
    """Serial numbers of certificates that are not accepted any more."""
    tokens: Path = TOKENS
    """List of the callers without TLS, who use a Unix socket."""
    settle_seconds: float = SETTLE_SECONDS
    benchmark_share: float = SHARE
    """Share of the time that micro-benchmarks may take for one tenant, on all nodes together."""
    idle_check_seconds: float = PAUSE_SECONDS
    """How long an idle node is left alone between two checks; 0 for no checks."""
    alert_url: str = ""
    """An Alertmanager that gets all incidents; empty for none."""
    node_actions: ActionMode = ActionMode.RECOMMEND
    """How far the actions of sick nodes go."""
    breaker: Breaker = field(default_factory=Breaker)
    """How many nodes may be drained at a time."""
    limits: Limits = field(default_factory=Limits)
    peer_hosts: PeerHosts = field(default_factory=PeerHosts)
    """Where nodes reach each other while two of them measure their network together."""
    retention: Mapping[str, float] = field(default_factory=dict)
    """Days by table, where they differ from `storage.retention`."""
    init: bool = False
    """Whether to make the keys when there are none."""
    clock: Clock = field(default_factory=Clock)
