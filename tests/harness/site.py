"""A small site on one machine: a provider and four nodes, all real processes that talk over loopback.

Two nodes share a configuration (each has a core of its own, where there are two). The other two share another one, with
little memory and an older instruction set, and are guests on these cores: a row takes two nodes of a configuration.
Each core stands for a host of its own.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from pharoah_benchmarks.micro import suitable
from pharoah_protocol.channels import Access
from pharoah_protocol.rpc import Stub
from pharoah_protocol.v1 import ListRequest
from pharoah_protocol.vocabulary import DeviceKind
from pharoah_provider.certificates import Authority
from pharoah_provider.channel import operator_channel
from pharoah_provider.first_start import make_provider
from pharoah_provider.monitoring.levels import ROUNDS
from tests.harness.processes import STOP_SECONDS, ProcessScope
from tests.harness.sockets import socket_folder

SETTLE_SECONDS = 20
BENCHMARK_SHARE = 8.0
"""Seconds of micro-benchmarks per second that one tenant may order: hours of a real site pass within minutes here, with
new runs on two nodes every other minute, and all of them are one tenant's. The hardening evaluation holds the default.
"""
PROVIDER_PROGRAM = ("-m", "pharoah_provider.cli")
"""What Python runs as the provider."""
START_SECONDS = 240.0
"""How long services may take to start: 4 s, of which they get a tenth on a busy machine."""
SERVICE_STOP_SECONDS = 10.0
"""How long the services of a site may take to end when nothing is wrong."""
SMALL_MEMORY_BYTES = 440_000_000
"""Well between what a GPT of the demo needs at 1,024 tokens with flash attention and with math attention."""


def node_profiles() -> dict[str, dict[str, Any]]:
    """Profiles of the four nodes."""
    first, *rest = sorted(os.sched_getaffinity(0))
    second = rest[0] if rest else first
    small = {"threads": 1, "isa": "avx2", "memory_limit_bytes": SMALL_MEMORY_BYTES}
    return {
        "n1": {"cpus": [first], "threads": 1},
        "n2": {"cpus": [second], "threads": 1},
        "n3": {"cpus": [second], **small},
        "n4": {"cpus": [first], **small},
    }


@dataclass
class Site:
    folder: Path
    sockets: Path
    """Folder of the agents' sockets."""
    profiles: dict[str, dict[str, Any]] = field(default_factory=node_profiles)
    endpoint: str = ""
    http: str = ""
    provider_key: str = ""
    settle_seconds: float = SETTLE_SECONDS
    benchmark_share: float = BENCHMARK_SHARE
    provider_program: Sequence[str] = PROVIDER_PROGRAM
    scope: ProcessScope = field(default_factory=ProcessScope)
    """What runs on this site."""
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    # processes

    def start(self) -> None:
        """Provider first, then the agents; returns when all of them are connected."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._make_certificates()
        self.endpoint, self.http = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        self._start_witness()
        self.start_provider()
        for node in self.profiles:
            self.start_agent(node)
        self._wait(lambda: len(self.listing("nodes")) == len(self.profiles), "the agents to connect")

    def start_provider(self) -> None:
        """Also again, after it was killed: same files, same port."""
        files = {
            "--db": "provider.duckdb",
            "--keys": "keys",
            "--audit": "audit",
            "--tls-cert": "pki/provider.pem",
            "--tls-key": "pki/provider.key",
            "--client-ca": "pki/ca.pem",
            "--witnesses": "witnesses",
        }
        arguments = [part for flag, name in files.items() for part in (flag, str(self.folder / name))]
        arguments += ["--tenant-queries", "100000", "--organisation-queries", "100000"]
        arguments += ["--tenant-offers", "100000"]
        arguments += ["--settle-seconds", str(self.settle_seconds), "--benchmark-share", str(self.benchmark_share)]
        arguments += ["--idle-check-seconds", "0"]  # nodes share cores here, and a check takes time of its neighbours
        command = ["serve", "--listen", self.endpoint, "--http", self.http, *arguments]
        self._spawn("provider", [sys.executable, *self.provider_program, *command])
        self._wait(self._serving, "the provider to listen")
        self.provider_key = self._said_key()
        (self.folder / "provider.pub").write_text(self.provider_key)

    def start_agent(self, node: str, *options: str) -> None:
        """Also again, after it was killed: same key, same socket. `options` are further ones of `pharoah-agent run`."""
        arguments = ["run", "--node", node, "--endpoint", self.endpoint]
        arguments += [*self._as(f"agent-{node}"), "--socket", str(self.agent_socket(node))]
        arguments += ["--key", str(self.folder / f"{node}.key"), "--profile", json.dumps(self.profiles[node])]
        arguments += ["--host", f"host of core {self.profiles[node]['cpus'][0]}", *options]
        command = [sys.executable, "-m", "pharoah_provider.agent.cli", *arguments]
        self._spawn(node, self.on_cores(node, command))

    def kill(self, name: str) -> None:
        """Kill `provider` or the agent of a node, as the operating system does it."""
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def pid(self, name: str) -> int:
        """The process of `provider`, or of the agent of a node."""
        return self._processes[name].pid

    def stop(self, service_seconds: float) -> None:
        """End jobs, their sidecars, then the services, which have `service_seconds` to finish what they do."""
        self.scope.end(reversed(list(self._processes.values())), service_seconds)
        for process in self._processes.values():
            process.wait()
        self._processes.clear()

    # what a tenant, an operator and a plain user do here

    def tenant_environment(self, node: str) -> dict[str, str]:
        return {
            **os.environ,
            "PHAROAH_ENDPOINT": self.endpoint,
            "PHAROAH_CA_FILE": str(self.folder / "pki/ca.pem"),
            "PHAROAH_CERT_FILE": str(self.folder / "pki/tenant-acme-research.pem"),
            "PHAROAH_CERT_KEY_FILE": str(self.folder / "pki/tenant-acme-research.key"),
            "PHAROAH_WITNESSES_FILE": str(self.folder / "witnesses"),
            "PHAROAH_STATE_DIR": str(self.folder / "state"),
            "PHAROAH_PROVIDER_KEY_FILE": str(self.folder / "provider.pub"),
            "PHAROAH_NODE_SOCKET": str(self.agent_socket(node)),
        }

    def under_pharoah(self, node: str, command: Sequence[str], *options: str) -> list[str]:
        """`pharoah run` as a tenant types it on the node: check, dry run and sidecar are within its limits too."""
        return self.within(node, [sys.executable, "-m", "pharoah", "run", *options, "--", *command])

    def bare(self, node: str, command: Sequence[str]) -> list[str]:
        """The same command under the node's profile, without Pharoah around it."""
        return [sys.executable, "-m", "pharoah_protocol.node_profile", json.dumps(self.profiles[node]), *command]

    def operator(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pharoah_provider.cli", *arguments, "--endpoint", self.endpoint]
        command += self._as("operator-ops")
        return self.scope.own(
            subprocess.Popen(command, stdout=None if arguments[0] == "campaign" else subprocess.PIPE, text=True)
        )

    def listing(self, name: str) -> list[dict[str, Any]]:
        """What `pharoah-provider NAME -o json` prints, without the cost of a process: jobs are being timed."""
        request = ListRequest(listing=name)
        pki = self.folder / "pki"
        files = [pki / name for name in ("ca.pem", "operator-ops.key", "operator-ops.pem")]
        credentials = grpc.ssl_channel_credentials(*(file.read_bytes() for file in files))
        with operator_channel(Access(self.endpoint, credentials=credentials)) as channel:
            answer = Stub(channel, "Operator").List(request, timeout=30)
        return [json.loads(row) for row in answer.rows]

    def levels_known(self, since: float, nodes: int) -> bool:
        """Whether the benchmarks have been measured on so many nodes beside the jobs that run there `since` then."""
        rows = [p for p in self.listing("probes") if p["purpose"] == "level" and p["started_at"] > since]
        rounds = Counter((p["node"], p["benchmark"]) for p in rows)
        return sum(count >= ROUNDS for count in rounds.values()) >= nodes * len(
            suitable({DeviceKind.CPU}, beside_job=True)
        )

    def agent_socket(self, node: str) -> Path:
        """In a folder that nobody else can change, wherever the folder of the site is."""
        return self.sockets / f"{node}.sock"

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def within(self, node: str, command: list[str]) -> list[str]:
        """The command within the limits that the node's operating system enforces, as that of a small container would:
        `pharoah run` states a memory limit, and does not make a node small."""
        enforced = ("cpus", "memory_limit_bytes")
        limits = json.dumps({key: value for key, value in self.profiles[node].items() if key in enforced})
        return [sys.executable, "-m", "pharoah_protocol.node_profile", limits, *command]

    def on_cores(self, node: str, command: list[str]) -> list[str]:
        cores = json.dumps({"cpus": self.profiles[node]["cpus"]})
        return [sys.executable, "-m", "pharoah_protocol.node_profile", cores, *command]

    def _start_witness(self) -> None:
        """Somebody else's process, which sees every epoch before a tenant accepts it."""
        public = make_provider(str(self.folder / "keys"), self.folder / "provider.duckdb").public
        (self.folder / "provider.pub").write_text(public.hex())
        address = f"127.0.0.1:{free_port()}"
        command = [
            "witness",
            "--name",
            "witness.example",
            "--listen",
            address,
            "--folder",
            str(self.folder / "witness"),
        ]
        command += ["--init", "--provider-key", str(self.folder / "provider.pub")]
        self._spawn("witness", [sys.executable, "-m", "pharoah_auditor.cli", *command])
        said = "witness key for providers and tenants: "
        self._wait(lambda: said in self.log("witness"), "the witness to listen")
        key = self.log("witness").rpartition(said)[2].split()[0]
        (self.folder / "witnesses").write_text(f"{key} http://{address}\n")

    def _spawn(self, name: str, command: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._processes[name] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _make_certificates(self) -> None:
        authority = Authority(self.folder / "pki", "pharoah.local")
        authority.issue("provider", ("127.0.0.1",))
        for name in ("tenant/acme/research", "operator/ops", *(f"agent/{node}" for node in self.profiles)):
            authority.issue(name)

    def _as(self, name: str) -> list[str]:
        pki = self.folder / "pki"
        return ["--ca", str(pki / "ca.pem"), "--cert", str(pki / f"{name}.pem"), "--cert-key", str(pki / f"{name}.key")]

    def _serving(self) -> bool:
        if (status := self._processes["provider"].poll()) is not None:
            raise RuntimeError(f"the provider ended with {status}: {self.log('provider')[-500:]}")
        host, _, port = self.endpoint.rpartition(":")
        with socket.socket() as probe:
            return probe.connect_ex((host, int(port))) == 0 and "provider key" in self.log("provider")

    def _said_key(self) -> str:
        return self.log("provider").rpartition("provider key for tenants: ")[2].split()[0]

    def _wait(self, condition: Any, what: str, seconds: float = START_SECONDS) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited {seconds:g} s for {what}; logs are in {self.folder}")
            time.sleep(0.1)


@contextmanager
def running_site(
    folder: Path,
    profiles: Mapping[str, dict[str, Any]] | None = None,
    settle_seconds: float = SETTLE_SECONDS,
    provider_program: Sequence[str] = PROVIDER_PROGRAM,
) -> Iterator[Site]:
    """A site that is stopped at the end, also when it is interrupted at any moment."""
    with socket_folder() as sockets:
        chosen = node_profiles() if profiles is None else dict(profiles)
        site = Site(folder, sockets, chosen, settle_seconds=settle_seconds, provider_program=provider_program)
        service_seconds = STOP_SECONDS
        try:
            site.start()
            yield site
            service_seconds = SERVICE_STOP_SECONDS
        finally:
            site.stop(service_seconds)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
