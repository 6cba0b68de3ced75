"""`pharoah-agent`: run on a node, or check it."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from pharoah_benchmarks.facts import device_facts, server_facts
from pharoah_protocol.node_profile import ProfileError, check_profile
from pharoah_protocol.vocabulary import IncidentState
from pharoah_provider import channel
from pharoah_provider.agent.child_processes import Child, ChildDied, read_json
from pharoah_provider.agent.local_socket import load_key, ticket_socket
from pharoah_provider.agent.stream import AgentStream
from pharoah_provider.agent.telemetry import Telemetry
from pharoah_provider.channel import Access
from pharoah_provider.domain import Node
from pharoah_serving.errors import ProviderError

SOCKET = "/run/pharoah/agent.sock"
ANSWER_SECONDS = 1.0
"""A prolog waits for the check; an agent that lives answers in milliseconds."""
LONGEST_LINE = 80
"""Node problem detectors cut the line there."""
CODES = {
    "npd": {"ok": 0, "problem": 1, "unknown": 2},
    "nagios": {"ok": 0, "problem": 2, "unknown": 3},
    "slurm": {"ok": 0, "problem": 1, "unknown": 0},
}


def main(argv: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    parser = argparse.ArgumentParser(prog="pharoah-agent", description="Pharoah on one node.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    run = commands.add_parser("run", help="measure this node, hand out tickets, run what the provider orders")
    run.add_argument("--node", required=True, help="this node's name; never guessed from the network")
    channel.add_options(run)
    run.add_argument("--socket", type=Path, default=Path(SOCKET), help="default: %(default)s")
    run.add_argument("--key", type=Path, default=Path("/var/lib/pharoah/ticket.key"), help="default: %(default)s")
    run.add_argument("--profile", default="{}", help="node profile as JSON or a file of it")
    run.set_defaults(run=_run)
    measure = commands.add_parser("measure", help="print the node profile with what this machine can do at most in it")
    measure.add_argument("--profile", default="{}", help="node profile as JSON or a file of it")
    measure.set_defaults(run=_measure)
    check = commands.add_parser("check", help="print what is known of this node; benchmarks nothing")
    check.add_argument("--socket", type=Path, default=Path(SOCKET))
    check.add_argument("--format", choices=list(CODES), default="npd", help="whose exit codes to use")
    check.set_defaults(run=_check)
    arguments = parser.parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except (ProfileError, ChildDied, ProviderError, OSError) as error:
        print(f"pharoah-agent: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def entry() -> None:
    sys.exit(main())


def _run(arguments: argparse.Namespace) -> int:
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s {arguments.node} %(levelname)s %(message)s")
    profile, access = _profile(arguments.profile), channel.access(arguments)
    key = load_key(arguments.key)
    asyncio.run(_stand(arguments, profile, access, key))
    return 0


def _measure(arguments: argparse.Namespace) -> int:
    """Nothing else should run meanwhile; it takes about half a minute."""
    profile = _profile(arguments.profile)
    ceilings = asyncio.run(read_json("pharoah_benchmarks.ceilings", profile))
    print(json.dumps({**profile, "ceilings": ceilings}))
    return 0


async def _stand(
    arguments: argparse.Namespace, profile: Mapping[str, Any], access: Access, key: Ed25519PrivateKey
) -> None:
    facts = await read_json("pharoah_benchmarks.context", profile)
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    cpus = tuple(profile.get("cpus") or sorted(os.sched_getaffinity(0)))
    public = key.public_key().public_bytes_raw()
    node = Node(arguments.node, public, boot_id, tuple(server_facts(facts)), tuple(device_facts(facts)), cpus)
    probes = Child("pharoah_benchmarks.probe", profile)
    limit = str(profile.get("memory_limit_bytes", 0))
    fork_server = Child("pharoah_benchmarks.campaign.fork_server", profile, limit, limit_memory=False)
    stream = AgentStream(node, access, Telemetry(), probes, fork_server)
    running = asyncio.create_task(stream.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    try:
        async with ticket_socket(arguments.socket, arguments.node, boot_id, key, profile, stream.reported_state):
            await running
    except asyncio.CancelledError:
        pass
    finally:
        probes.stop()
        fork_server.stop()


def _profile(text: str) -> dict[str, Any]:
    try:
        content = text if text.lstrip().startswith("{") else Path(text).read_text()
        return check_profile(json.loads(content))
    except OSError as error:
        raise ProfileError(f"--profile {text}: {error.strerror}") from None
    except ValueError as error:
        raise ProfileError(f"--profile {text}: {error}") from None


def _check(arguments: argparse.Namespace) -> int:
    """Print what the agent has been sent of its node: a confirmed incident is a problem."""
    try:
        state, text = _known(asyncio.run(_ask_state(arguments.socket)))
    except (OSError, TimeoutError, ValueError, TypeError, KeyError, AttributeError) as error:
        state, text = "unknown", f"no agent answers at {arguments.socket} ({type(error).__name__})"
    print(text[:LONGEST_LINE])
    return CODES[arguments.format][state]


async def _ask_state(path: Path) -> dict[str, Any]:
    """The agent's answer on its local socket. Raises OSError, TimeoutError, ValueError."""
    async with asyncio.timeout(ANSWER_SECONDS):
        reader, writer = await asyncio.open_unix_connection(str(path))
        try:
            writer.write(b'{"op": "node_state"}\n')
            answer: dict[str, Any] = json.loads(await reader.readline())
            return answer
        finally:
            writer.close()


def _known(answer: Mapping[str, Any]) -> tuple[str, str]:
    """The result of a check, and its line."""
    known = answer["node_state"]
    if not known:
        return "unknown", "the agent answers, but has not heard from the provider"
    if IncidentState(known["state"]) is not IncidentState.CONFIRMED:
        return "ok", "no incident is known"
    since = time.strftime("%Y-%m-%d %H:%M", time.localtime(known["since"]))
    return "problem", f"confirmed incident since {since}: {known['evidence']}"


if __name__ == "__main__":
    entry()
