"""`pharoah-agent benchmark`: run micro-benchmarks on this node now."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import json
import re
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from pharoah_benchmarks.facts import device_kinds, server_facts
from pharoah_benchmarks.micro import (
    MICRO_BENCHMARKS,
    SLOW_SECONDS,
    Answer,
    MeasureOrder,
    MicroBenchmark,
    Need,
    Peer,
    device_count,
    suitable,
)
from pharoah_protocol.node_profile import NodeProfile
from pharoah_protocol.vocabulary import DeviceKind
from pharoah_provider.agent.child_processes import Child, ChildDied, read_json
from pharoah_provider.agent.node_facts import NodeFacts
from pharoah_provider.superbench import NodeResult, results_text
from pharoah_serving.errors import ProviderError
from pharoah_system.files import write_output
from pharoah_system.standard_streams import say, show
from pharoah_system.text import sanitize_text
from pharoah_system.trusted_paths import private_content

_OPTIONS = {Need.PARTNER: "--peer", Need.REMOTE_FOLDER: "--remote-folder"}
"""What gives a micro-benchmark what it needs."""
_PEER = re.compile(r"(\d+)/(\d+)@(.+)")
_ROW = "{:22} {:17} {:>11} {:>8}  {}"
"""A line of at most 80 characters."""


class ReturnCode(IntEnum):
    """How a micro-benchmark ended, as SuperBench counts it: only 0 is a success."""

    OK = 0
    ERROR = 1
    WRONG = 2


@dataclass(frozen=True)
class Measured:
    """One micro-benchmark and what it has shown."""

    benchmark: MicroBenchmark
    answer: Answer

    @property
    def code(self) -> ReturnCode:
        """How it ended."""
        if self.answer.correct is False:
            return ReturnCode.WRONG
        return ReturnCode.ERROR if self.answer.error else ReturnCode.OK

    @property
    def median_seconds(self) -> float | None:
        """None when nothing was measured."""
        return median(self.answer.seconds) if self.answer.seconds else None

    @property
    def spread_ratio(self) -> float | None:
        """The interquartile range of the repeats over their median; None for fewer than two repeats."""
        if len(self.answer.seconds) < 2:
            return None
        low, middle, high = quantiles(self.answer.seconds, method="inclusive")
        return (high - low) / middle

    def data(self) -> dict[str, Any]:
        """What `-o json` prints."""
        return {
            "name": self.benchmark.name,
            "resource": self.benchmark.resource,
            "device": self.benchmark.device,
            "median_seconds": self.median_seconds,
            "spread_ratio": self.spread_ratio,
            "repeats": len(self.answer.seconds),
            "correct": self.answer.correct,
            "digest": self.answer.digest,
            "error": self.answer.error,
        }

    def row(self) -> str:
        """A line of the table."""
        seconds, spread = self.median_seconds, self.spread_ratio
        shown = {True: "yes", False: "NO", None: "error" if self.answer.error else "-"}[self.answer.correct]
        return _ROW.format(
            self.benchmark.name,
            self.benchmark.resource,
            "-" if seconds is None else f"{1000 * seconds:.3f} ms",
            "-" if spread is None else f"{100 * spread:.1f} %",
            shown,
        )


def add_parser(commands: Any) -> argparse.ArgumentParser:
    """The command and its options."""
    parser: argparse.ArgumentParser = commands.add_parser(
        "benchmark",
        help="run micro-benchmarks on this node now and print what they show",
        description="Run micro-benchmarks on this node now. Nothing else should run on it meanwhile.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help="default: all that this node can run alone; docs/registries.md lists them")  # fmt: skip
    parser.add_argument("--profile", default="{}", help="node profile as JSON or a file of it")
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    parser.add_argument("--duty", type=float, default=1.0, metavar="SHARE",
                        help="share of the time in which to work, 0.01 to 1: beside a job, 0.1 takes ten times as "
                        "long (default: 1)")  # fmt: skip
    parser.add_argument("--scratch-folder", type=Path, metavar="FOLDER",
                        help="for files on the local disk (default: /var/tmp)")  # fmt: skip
    parser.add_argument("--remote-folder", type=Path, metavar="FOLDER", help="for files on remote storage")
    parser.add_argument("--peer", metavar="RANK/SIZE@PLACE",
                        help="measure one NAME with other nodes that run the same command with other ranks; they meet "
                        "at HOST:PORT of rank 0, or in a file that all of them reach")  # fmt: skip
    parser.add_argument("--peer-token-file", type=Path, metavar="FILE",
                        help="a private file with the same secret on all these nodes, which keeps strangers out of "
                        "their meeting (default: whoever reaches HOST:PORT may take part)")  # fmt: skip
    parser.add_argument("--superbench", type=Path, metavar="FILE", help="write a result of SuperBench (JSON lines)")
    parser.add_argument("--node", default="", help="the name of this node in that file")
    return parser


def run(arguments: argparse.Namespace, profile: NodeProfile) -> int:
    """Measure and print. Returns 0 when all were measured and right, else 1. Raises ProviderError for bad options."""
    if arguments.superbench and not arguments.node:
        raise ProviderError("--superbench: --node is missing; name this node as the file shall")
    return asyncio.run(_run(arguments, profile))


async def _run(arguments: argparse.Namespace, profile: NodeProfile) -> int:
    facts = server_facts(await read_json("pharoah_benchmarks.context", profile))
    peer = _peer(arguments.peer, arguments.peer_token_file)
    benchmarks = choose(arguments.names, device_kinds(facts), peer is not None, arguments.remote_folder is not None)
    orders = [_order(benchmark, arguments, peer) for benchmark in benchmarks]
    as_table = arguments.output == "table"
    measured = _print_row if as_table else lambda _: None
    if as_table:
        show(_ROW.format("NAME", "RESOURCE", "MEDIAN", "SPREAD", "CORRECT"), flush=True)
    results = await _measure(benchmarks, orders, profile, measured)
    if not as_table:
        show(json.dumps([result.data() for result in results], indent=1))
    if arguments.superbench:
        write_output(arguments.superbench, results_text([superbench_result(arguments.node, results)]), mode=0o644)
    for result in results:
        if result.answer.error:
            say(f"pharoah-agent: {result.benchmark.name}: {sanitize_text(result.answer.error)}")
    return 0 if all(result.code is ReturnCode.OK for result in results) else 1


def choose(
    names: Sequence[str], devices: Container[DeviceKind], with_peer: bool, with_remote: bool
) -> tuple[MicroBenchmark, ...]:
    """The micro-benchmarks to run. Raises ProviderError for a name that is not known, or that cannot run here."""
    has = {None: True, Need.PARTNER: with_peer, Need.REMOTE_FOLDER: with_remote}
    if with_peer and len(names) != 1:
        raise ProviderError("--peer: expected one NAME, because each measurement has a meeting place of its own")
    if not names:
        everything = suitable(devices, beside_job=False, names=tuple(MICRO_BENCHMARKS.entries))
        return tuple(benchmark for benchmark in everything if has[benchmark.need])
    for name in names:
        if name not in MICRO_BENCHMARKS:
            raise ProviderError(f"{name}: there is no such micro-benchmark; {_nearest(name)}")
        benchmark = MICRO_BENCHMARKS[name]
        if benchmark.device not in devices:
            raise ProviderError(f"{name}: this node has no {benchmark.device} device")
        if benchmark.need is not None and not has[benchmark.need]:
            raise ProviderError(f"{name}: it needs {_OPTIONS[benchmark.need]}")
    return tuple(MICRO_BENCHMARKS[name] for name in dict.fromkeys(names))


def superbench_result(node: str, results: Sequence[Measured]) -> NodeResult:
    """The metrics of this node as SuperBench names them: `pharoah-NAME/time_s` and `pharoah-NAME/return_code`."""
    metrics: dict[str, int | float | None] = {}
    for result in results:
        metrics[f"pharoah-{result.benchmark.name}/return_code"] = int(result.code)
        if result.median_seconds is not None:
            metrics[f"pharoah-{result.benchmark.name}/time_s"] = result.median_seconds
    return NodeResult(node, metrics)


async def _measure(
    benchmarks: Sequence[MicroBenchmark],
    orders: Sequence[MeasureOrder],
    profile: NodeProfile,
    measured: Callable[[Measured], object],
) -> list[Measured]:
    """One after another in one child; `measured` gets each as soon as it is there."""
    results, facts = [], server_facts(NodeFacts({}).read())
    async with Child("pharoah_benchmarks.micro", profile) as child:
        await child.warm()
        for benchmark, order in zip(benchmarks, orders, strict=True):
            try:
                slow = SLOW_SECONDS * device_count(benchmark.name, facts)
                answer = Answer.from_json(await child.ask(order.to_json(), order.longest_seconds + slow))
            except (ChildDied, TimeoutError, ValueError) as error:
                answer = Answer(error=f"{type(error).__name__}: {error}")
            results.append(Measured(benchmark, answer))
            measured(results[-1])
    return results


def _order(benchmark: MicroBenchmark, arguments: argparse.Namespace, peer: Peer | None) -> MeasureOrder:
    try:
        return MeasureOrder(
            benchmark=benchmark.name,
            repeats=benchmark.repeats,
            limit_seconds=benchmark.limit_seconds,
            duty=arguments.duty,
            scratch_folder=_absolute(arguments.scratch_folder),
            remote_folder=_absolute(arguments.remote_folder),
            peer=peer if benchmark.need is Need.PARTNER else None,
        )
    except ValueError as error:
        raise ProviderError(str(error)) from None


def _peer(text: str | None, token_file: Path | None) -> Peer | None:
    if text is None:
        return None
    parts = _PEER.fullmatch(text)
    if parts is None:
        raise ProviderError(f"--peer {text}: expected RANK/SIZE@HOST:PORT, such as 0/2@10.0.0.1:7300")
    try:
        token = private_content(token_file).decode().strip() if token_file else ""
        return Peer(int(parts[1]), int(parts[2]), parts[3], token)
    except ValueError as error:
        raise ProviderError(f"--peer {text}: {error}") from None


def _absolute(folder: Path | None) -> str:
    """The child runs in another folder than the user."""
    return str(folder.absolute()) if folder else ""


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, MICRO_BENCHMARKS.entries)
    return f"the closest ones are {', '.join(near)}" if near else f"there are {', '.join(MICRO_BENCHMARKS.entries)}"


def _print_row(result: Measured) -> None:
    show(result.row(), flush=True)
