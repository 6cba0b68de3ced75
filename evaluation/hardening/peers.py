"""Whom an agent connects to, and whose numbers it takes: other nodes, and the exporter of GPUs of its own node.

The first part runs in a network namespace (`peers_worker`). In the second one another user of the machine listens on
the port of the exporter, in many ways; beside it a process of our own, and one of a user that the operator has named.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.synchronize import Event
from typing import Any

from evaluation.figures import Figures
from pharoah_provider.agent.exporter_source import ExporterAddress, ExporterSource
from pharoah_provider.agent.signals._device_fields import DeviceField
from pharoah_provider.agent.signals._signal import NotOnThisNode
from tests.harness.other_user import NOBODY, become_nobody

WORKER_SECONDS = 2400.0
METRICS = b'DCGM_FI_DEV_GPU_TEMP{gpu="0"} 99\n'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(METRICS), METRICS)
_FORKED = multiprocessing.get_context("fork")
"""Forked, because another user may not be allowed to execute this Python."""

Listen = Callable[[str, int], socket.socket]


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Add the figures of this part."""
    if os.geteuid() != 0:
        for key in ("foreign_peer_connections", "foreign_exporter_believed"):
            figures.skip(key, "needs root: namespaces, and processes of another user")
        return
    _measure_peers(figures, quick, seed)
    _measure_exporters(figures)


def _measure_peers(figures: Figures, quick: bool, seed: int) -> None:
    command = ["unshare", "--net", "--mount", sys.executable, "-m", "evaluation.hardening.peers_worker", str(seed)]
    done = subprocess.run(
        [*command, *(["quick"] if quick else [])], capture_output=True, text=True, timeout=WORKER_SECONDS, check=False
    )
    if done.returncode != 0:
        raise RuntimeError(f"the site in a namespace failed:\n{done.stderr[-3000:]}")
    seen: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    by_provider, by_agent, control = seen["by_provider"], seen["by_agent"], seen["control"]
    figures.details["peers"] = seen
    foreign = by_provider["foreign"] + sum(one["connections"] for one in by_agent)
    tried = by_provider["orders"] + len(by_agent)
    figures.add("foreign_peer_connections", foreign, "0", foreign == 0, f"n={tried}")
    led = sum(one["led_elsewhere"] for one in by_agent)
    figures.add("foreign_peer_led_to", led, "0", led == 0, f"n={len(by_agent)}")
    # The controls: where the network allows it, and where the operator names the place, the services are reached. Even
    # then they are sent nothing, as they do not greet.
    reached = min(by_provider["control"], control["connections"])
    figures.add("peer_control_connections_min", reached, ">= 1", reached >= 1)
    sent = sum(one["sent_bytes"] for one in (by_provider, control, *by_agent))
    figures.add("foreign_peer_bytes", sent, "0", sent == 0)


def _measure_exporters(figures: Figures) -> None:
    taken, tried = [], 0
    for name, listen in _WAYS.items():
        for asked in ("127.0.0.1", "::1", "127.0.0.2"):
            tried += 1
            with _served(listen, asked, as_nobody=True) as port:
                taken += [f"{name} at {asked}"] * _is_taken(asked, port)
    figures.add("foreign_exporter_believed", len(taken), "0", not taken, f"n={tried}")
    figures.details["foreign_exporters"] = taken
    with _served(_plainly, "127.0.0.1", as_nobody=False) as port:
        ours = _is_taken("127.0.0.1", port)
    with _served(_plainly, "127.0.0.1", as_nobody=True) as port:
        named = _is_taken("127.0.0.1", port, str(NOBODY))
    figures.add("own_exporter_read", ours and named, "True", ours and named)


def _is_taken(host: str, port: int, service_users: str = "") -> bool:
    """Whether the agent's source takes what answers there."""
    address = ExporterAddress.from_text(f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics")
    try:
        found = ExporterSource(lambda: address.fetch(service_users), address.url).read(DeviceField.TEMPERATURE_CELSIUS)
    except NotOnThisNode:
        return False
    return bool(found)


def _plainly(host: str, port: int) -> socket.socket:
    return socket.create_server((host, port), family=_family(host))


def _everywhere(host: str, port: int) -> socket.socket:
    return socket.create_server(("::" if ":" in host else "0.0.0.0", port), family=_family(host))


def _on_both(_: str, port: int) -> socket.socket:
    """One socket of version 6 takes both versions."""
    return socket.create_server(("::", port), family=socket.AF_INET6, dualstack_ipv6=True)


def _by_root(host: str, port: int) -> socket.socket:
    """Bound before its process gives its rights up, as a service that began as root is."""
    return _plainly(host, port)


_WAYS: dict[str, Listen] = {
    "one address": _plainly,
    "all addresses": _everywhere,
    "both versions": _on_both,
    "bound by root": _by_root,
}


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


@contextmanager
def _served(listen: Listen, host: str, *, as_nobody: bool) -> Iterator[int]:
    """The port of an exporter that runs in a process of its own, as another user or as we."""
    with socket.socket(_family(host)) as probe:
        probe.bind((host, 0))
        port = int(probe.getsockname()[1])
    ready = _FORKED.Event()
    process = _FORKED.Process(target=_serve, args=(listen, host, port, as_nobody, ready), daemon=True)
    process.start()
    try:
        if not ready.wait(10):
            raise RuntimeError(f"no exporter listens on {host}")
        yield port
    finally:
        process.kill()
        process.join()


def _serve(listen: Listen, host: str, port: int, as_nobody: bool, ready: Event) -> None:
    if as_nobody and listen is not _by_root:
        become_nobody()
    with listen(host, port) as listening:
        if as_nobody and listen is _by_root:
            become_nobody()
        ready.set()
        while True:
            connection, _ = listening.accept()
            threading.Thread(target=_answer, args=(connection,), daemon=True).start()


def _answer(connection: socket.socket) -> None:
    """At once, before it is asked: an answer that is there must not be taken either."""
    with connection, suppress(OSError):
        connection.sendall(ANSWER)
        connection.recv(4096)
