"""`pharoah-agent`: run on a node, or check it."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pharoah_protocol.agent_messages import ForecastAnswer, NodeStateAnswer, NodeStateRequest
from pharoah_protocol.local_messages import Message, MessageError, decode, encode
from pharoah_protocol.node_profile import NodeProfile, ProfileError, check_profile
from pharoah_protocol.vocabulary import NodeAction
from pharoah_provider import channel
from pharoah_provider.agent import benchmark, signal_sources
from pharoah_provider.agent.child_processes import Child, ChildDied, read_json
from pharoah_provider.agent.node_facts import NodeFacts, parse_given_facts
from pharoah_provider.agent.own_thread import in_own_thread
from pharoah_provider.owned_tasks import OwnedTasks
from pharoah_serving.closed_output import end_when_output_is_closed
from pharoah_serving.errors import ProviderError
from pharoah_serving.identity import is_reserved_node, why_no_node
from pharoah_system.bounded_reading import UnreadableInput, parse_json, read_json_file
from pharoah_system.local_sockets import CheckedSocket
from pharoah_system.log_lines import log_to_standard_error
from pharoah_system.peer_networks import read_networks
from pharoah_system.standard_streams import say, say_uncaught_errors, show
from pharoah_system.text import sanitize_text
from pharoah_system.trusted_paths import UntrustedPathError

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from pharoah_protocol.channels import Access

log = logging.getLogger("pharoah.agent")

SOCKET = "/run/pharoah/agent.sock"
MEASURING_IDLE_SECONDS = 86_400.0
"""A child that measures may be wanted beside a job hours later, and its start takes processor time from that job."""
ANSWER_SECONDS = 1.0
"""A scheduler's prolog waits for the check; an agent that lives answers within milliseconds."""
MAX_LINE_LENGTH = 80
"""The node problem detector cuts the line there."""
CODES = {
    "npd": {"ok": 0, "advice": 0, "problem": 1, "unknown": 2},
    "nagios": {"ok": 0, "advice": 1, "problem": 2, "unknown": 3},
    "slurm": {"ok": 0, "advice": 0, "problem": 1, "unknown": 0},
}
"""Exit codes by format: what is only recommended is a warning where the format has one, and else no problem."""


class Output(StrEnum):
    """How a command prints."""

    TABLE = "table"
    JSON = "json"


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
    run.add_argument("--peer-address", default="", metavar="PORT",
                     help="the port, from 1024 on, at which another node reaches this one while both measure their "
                     "network together (default: none, so that this node measures only with nodes that can be "
                     "reached); of a HOST:PORT the port is used")  # fmt: skip
    run.add_argument("--peer-network", action="append", default=[], metavar="CIDR",
                     help="where other nodes may be met, such as 10.0.0.0/8; may be given again (default: the networks "
                     "of the interface to the provider, never loopback)")  # fmt: skip
    run.add_argument("--host", default="", metavar="NAME",
                     help="the physical machine, where nodes are virtual machines: those of one host share memory "
                     "bandwidth and caches (default: nodes under one kernel are on one host)")  # fmt: skip
    run.add_argument("--fact", action="append", default=[], metavar="NAME=VALUE",
                     help="a fact that only people know, such as cooling_zone=b2; may be given again")  # fmt: skip
    run.add_argument("--remote-folder", type=Path, metavar="FOLDER",
                     help="a folder on remote storage in which a micro-benchmark may write for a moment")  # fmt: skip
    signal_sources.add_options(run)
    run.set_defaults(run=_run)
    signals = commands.add_parser(
        "signals", help="print what the signals of this node show, and which it does not have"
    )
    signal_sources.add_options(signals)
    channel.add_service_users(signals)
    signals.add_argument("-o", "--output", choices=list(Output), type=Output, default=Output.TABLE,
                         help="default: %(default)s")  # fmt: skip
    signals.set_defaults(run=_signals)
    measure = commands.add_parser("measure", help="print the node profile with what this machine can do at most in it")
    measure.add_argument("--profile", default="{}", help="node profile as JSON or a file of it")
    measure.set_defaults(run=_measure)
    benchmark.add_parser(commands).set_defaults(run=lambda given: benchmark.run(given, _profile(given.profile)))
    check = commands.add_parser("check", help="print what is known of this node; benchmarks nothing")
    check.add_argument("--socket", type=Path, default=Path(SOCKET))
    channel.add_service_users(check)
    check.add_argument("--format", choices=list(CODES), default="npd", help="whose exit codes to use")
    check.set_defaults(run=_check)
    arguments = parser.parse_args(argv)
    try:
        with end_when_output_is_closed():
            return int(arguments.run(arguments))
    except (ProfileError, ChildDied, ProviderError, UnreadableInput, OSError) as error:
        say(f"pharoah-agent: {error}")
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


def entry() -> None:
    """The console script."""
    say_uncaught_errors()
    sys.exit(main())


def _run(arguments: argparse.Namespace) -> int:
    from pharoah_provider.agent.local_socket import load_key

    if is_reserved_node(arguments.node):
        raise ProviderError(f"--node: {why_no_node(arguments.node)}")
    shown = sanitize_text(arguments.node).replace("%", "%%")
    log_to_standard_error(logging.INFO, f"%(asctime)s {shown} %(levelname)s %(message)s")
    profile, access = _profile(arguments.profile), channel.access(arguments)
    try:
        given = parse_given_facts(arguments.fact)
        read_networks(arguments.peer_network)
    except ValueError as error:
        raise ProfileError(str(error)) from None
    key = load_key(arguments.key)
    with signal_sources.signal_sources(arguments):
        asyncio.run(_until_signalled(_stand(arguments, profile, access, key, given)))
    return 0


def _signals(arguments: argparse.Namespace) -> int:
    """Passive: opens no context on a GPU, and works without an agent or a provider."""
    from pharoah_provider.agent.signal_list import SignalList
    from pharoah_provider.agent.signals import AGENT_SIGNALS

    with signal_sources.signal_sources(arguments):
        found = SignalList.read(AGENT_SIGNALS)
    show(found.as_json() if arguments.output is Output.JSON else found.as_table())
    return 0


def _measure(arguments: argparse.Namespace) -> int:
    """Nothing else should run meanwhile; it takes about half a minute."""
    profile = _profile(arguments.profile)
    ceilings = asyncio.run(read_json("pharoah_benchmarks.ceilings", profile))
    show(json.dumps({**profile.to_dict(), "ceilings": ceilings}))
    return 0


async def _until_signalled(work: Coroutine[Any, Any, None]) -> None:
    """Do `work` until it ends or SIGTERM or SIGINT cancels it, at whatever point it is."""
    working = asyncio.create_task(work)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, working.cancel)
    await asyncio.wait({working})
    if not working.cancelled():
        working.result()  # raises what ended it


async def _stand(
    arguments: argparse.Namespace,
    profile: NodeProfile,
    access: Access,
    key: Ed25519PrivateKey,
    given: Mapping[str, str],
) -> None:
    # Here: other commands have a question that a scheduler waits for, and need none of it.
    from pharoah_benchmarks.facts import device_facts, server_facts
    from pharoah_provider.agent.fact_watch import FactWatch
    from pharoah_provider.agent.fork_servers import fork_servers
    from pharoah_provider.agent.job_signals import JobSignals
    from pharoah_provider.agent.known_jobs import KnownJobs
    from pharoah_provider.agent.local_socket import ticket_socket
    from pharoah_provider.agent.look import Look
    from pharoah_provider.agent.signal_buffer import SignalBuffer
    from pharoah_provider.agent.stream import AgentStream
    from pharoah_provider.agent.telemetry import Telemetry
    from pharoah_provider.domain import Node

    def read_process_state() -> Awaitable[Mapping[str, object]]:
        return read_json("pharoah_benchmarks.context", profile)

    facts = NodeFacts({**given, **await _first_seen(read_process_state)})
    now = await in_own_thread(facts.read)
    boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    cpus = profile.cpus or tuple(sorted(os.sched_getaffinity(0)))
    public = key.public_key().public_bytes_raw()
    node = Node(arguments.node, public, boot_id, tuple(server_facts(now)), tuple(device_facts(now)), cpus,
                host=arguments.host, peer_address=arguments.peer_address)  # fmt: skip
    async with (
        Child("pharoah_benchmarks.micro", profile, idle_seconds=MEASURING_IDLE_SECONDS) as probes,
        fork_servers(profile) as cells,
    ):
        jobs, buffer = KnownJobs(), SignalBuffer(Telemetry())
        remote = str(arguments.remote_folder.absolute()) if arguments.remote_folder else ""
        stream = AgentStream(node, access, Telemetry(), probes, cells, Look(cpus, jobs), remote,
                             arguments.peer_network)  # fmt: skip
        signals = JobSignals(buffer, jobs)

        async def forecast(asker: socket.socket) -> ForecastAnswer:
            model = stream.hazard_model
            return replace(model, features=await signals.features(asker)) if model.model else model

        local = ticket_socket(
            arguments.socket,
            arguments.node,
            boot_id,
            key,
            profile,
            lambda: stream.node_state,
            jobs,
            signals.answer,
            forecast,
        )
        async with local, OwnedTasks() as watching:
            watching.start(FactWatch(node, given, facts, read_process_state, stream.restate).run())
            watching.start(buffer.run())
            await stream.run()


async def _first_seen(seen_by_process: Callable[[], Awaitable[Mapping[str, object]]]) -> Mapping[str, object]:
    """What a process sees of this node. Raises ProviderError where it hangs: nobody can say what the node is then."""
    from pharoah_provider.agent.fact_watch import SEEN_SECONDS

    try:
        async with asyncio.timeout(SEEN_SECONDS):
            return await seen_by_process()
    except TimeoutError:
        raise ProviderError(f"torch has not named the devices of this node for {SEEN_SECONDS:.0f} s: does their driver "
                            "hang?") from None  # fmt: skip


def _profile(text: str) -> NodeProfile:
    try:
        is_json = text.lstrip().startswith("{")
        return check_profile(parse_json(text, "profile") if is_json else read_json_file(Path(text)))
    except OSError as error:
        raise ProfileError(f"--profile {text}: {error.strerror}") from None
    except UnreadableInput as error:
        raise ProfileError(f"--profile {text}: {error.problem}") from None
    except ValueError as error:
        raise ProfileError(f"--profile {text}: {error}") from None


def _check(arguments: argparse.Namespace) -> int:
    """Print what the agent has been sent of its node: a confirmed incident is a problem, and so is an order to drain
    the node."""
    try:
        result, text = _result(asyncio.run(_ask_state(arguments.socket, arguments.service_users)))
    except UntrustedPathError as error:
        result, text = "unknown", f"this agent is not trusted: {error}"
    except (OSError, TimeoutError, MessageError) as error:
        result, text = "unknown", f"no agent answers at {arguments.socket} ({type(error).__name__})"
    show(text[:MAX_LINE_LENGTH])
    return CODES[arguments.format][result]


async def _ask_state(path: Path, service_users: str) -> Message:
    """The agent's answer on its local socket. Raises UntrustedPathError, OSError, TimeoutError, MessageError."""
    place = CheckedSocket(path, service_users)
    async with asyncio.timeout(ANSWER_SECONDS):
        reader, writer = await asyncio.open_unix_connection(str(place.path))
        try:
            place.check_peer(writer.get_extra_info("socket"))
            writer.write(encode(NodeStateRequest()) + b"\n")
            return decode(await reader.readline()).message
        finally:
            writer.close()


def _result(answer: Message) -> tuple[str, str]:
    """The key of CODES that an answer means, and the line to print."""
    if not isinstance(answer, NodeStateAnswer):
        return "unknown", "the agent does not know this question; is it an older release?"
    if answer.state is None:
        return "unknown", "the agent has not heard from the provider"
    if answer.state.is_open:
        since = time.strftime("%Y-%m-%d %H:%M", time.localtime(answer.since))
        return "problem", f"{answer.state} incident since {since}: {answer.evidence}"
    if answer.action is NodeAction.KEEP:
        return "ok", "no incident of this node is known"
    drains = answer.enforced and answer.action is NodeAction.DRAIN
    return "problem" if drains else "advice", answer.advice


if __name__ == "__main__":
    entry()
