"""`python -m evaluation distributed`: dry runs of distributed jobs against real ranks, costs, diagnosis, and traces.

Real ranks are processes on this machine that talk over gloo. World size 1,024 exists in dry runs only.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from evaluation.costs import memory_fit, operation_counts, step_time
from evaluation.diagnosis import odd_rank, planted_difference
from evaluation.distributed.strategies import STRATEGIES
from evaluation.figures import Figures, Peak, timed
from pharoah import PharoahError
from pharoah.dryrun import dry_run
from pharoah_archetypes import Fingerprint, describe_sent, parse
from pharoah_provider.traces import Trace, TraceError, read_traces

NODES, PROCESSES = 128, 8
RANKS = {"hsdp": 4, "tp_fsdp2": 4}
"""Number of real ranks of the strategies that need more than two."""
FIRST_RANK_ONLY = {"pp"}
TIMEOUT_SECONDS = 300.0


def run(arguments: argparse.Namespace) -> int:
    figures = Figures("distributed")
    names = ["ddp", "fsdp2", "tp"] if arguments.quick else list(STRATEGIES)
    part = partial(timed, only=arguments.part)
    part("world size 1,024", lambda: large_worlds(figures, names))
    part("dry runs against real ranks", lambda: against_real_ranks(figures, names))
    part("a model of 6.7 billion parameters on 1,024 ranks", lambda: large_model(figures))
    part("counted beside torch's own counters", lambda: operation_counts.measure(figures, arguments.quick))
    part("does it fit?", lambda: memory_fit.measure(figures, arguments.quick))
    part("how long does a step take?", lambda: step_time.measure(figures, arguments.quick))
    part("what differs?", lambda: planted_difference.measure(figures, arguments.quick))
    part("an odd rank", lambda: odd_rank.measure(figures, arguments.quick))
    part("traces", lambda: traces(figures, arguments.data and arguments.data / "op_traces"))
    return figures.finish(arguments)


def large_worlds(figures: Figures, names: list[str]) -> None:
    """Does every strategy dry-run at world size 1,024, with the archetype that it has on few ranks?"""
    ran = 0
    for name in names:
        began = time.monotonic()
        few, many = _dry(name, size=RANKS.get(name, 2)), _dry(name, size=NODES * PROCESSES)
        if isinstance(few, Fingerprint) and isinstance(many, Fingerprint):
            ran += few.archetype == many.archetype
            what = describe_sent(parse(many.grammar)) + (
                "" if few.archetype == many.archetype else ", not as on few ranks"
            )
        else:
            what = str(few if isinstance(many, Fingerprint) else many)
        print(f"  {name:18} {time.monotonic() - began:5.1f} s  {what}", flush=True)
    figures.ratio("strategies_at_1024", ran, len(names), 1.0)


def against_real_ranks(figures: Figures, names: list[str]) -> None:
    """Ranks whose real step has the skeleton of their dry step, with all collectives."""
    equal = count = 0
    for name in names:
        size = RANKS.get(name, 2)
        real = real_ranks(name, size)
        for rank in range(size if name not in FIRST_RANK_ONLY else 1):
            dry = _dry(name, rank=rank, size=size)
            seen = real[rank]
            same = isinstance(dry, Fingerprint) and seen is not None and dry.grammar == seen.grammar
            count += 1
            equal += same
            if not same:
                print(f"  {name} rank {rank}: dry {_shown(dry)} / real {_shown(seen)}", flush=True)
    figures.ratio("dry_equals_real_ratio", equal, count, 1.0)


def large_model(figures: Figures) -> None:
    command = [sys.executable, str(Path(__file__).parents[1] / "scripts" / "train_7b_fsdp.py")]
    seconds, peaks = [], []
    for _ in range(3):
        with Peak() as peak:
            began = time.monotonic()
            fingerprint = dry_run(command, TIMEOUT_SECONDS, nodes=NODES, processes=PROCESSES).fingerprint
            seconds.append(time.monotonic() - began)
        peaks.append(peak.bytes)
    print(f"  sends {describe_sent(parse(fingerprint.grammar))}")
    shown = f"[{min(seconds):.2f}, {max(seconds):.2f}]"
    figures.add("dry_run_7b_1024_seconds", median(seconds), "<= 15", median(seconds) <= 15, shown)
    figures.add("dry_run_7b_1024_rss_bytes", max(peaks), "<= 600e6", max(peaks) <= 600e6)


def traces(figures: Figures, folder: Path | None) -> None:
    """Published traces of production jobs; without a folder the rows state that they need one."""
    if folder is None:
        for key in ("trace_import_ratio", "dlrm_archetypes", "resnet_execution_equals_kineto"):
            figures.skip(key, "needs --data")
        return
    read: list[Trace] = []
    files = sorted(path for path in folder.rglob("*") if path.name.endswith((".json.gz", ".tar.gz")))
    failed = 0
    for path in files:
        try:
            read += read_traces(path)
        except TraceError as error:
            failed += 1
            print(f"  {error}", flush=True)
    with_structure = [trace for trace in read if trace.skeleton]
    figures.ratio("trace_import_ratio", len(with_structure), len(read) + failed, 1.0)
    tables = {trace.skeleton.archetype for trace in with_structure if trace.skeleton and "dlrm" in trace.source}
    figures.add("dlrm_archetypes", len(tables), "1", len(tables) == 1)
    convnets = {
        (trace.kind, trace.skeleton.alone.archetype)
        for trace in with_structure
        if trace.skeleton and "resnet_" in trace.source
    }
    same = len({archetype for _, archetype in convnets}) == 1 and {kind for kind, _ in convnets} > {"kineto"}
    figures.add("resnet_execution_equals_kineto", same, "true", same)


def _dry(name: str, size: int, rank: int = 0) -> Fingerprint | PharoahError:
    """The fingerprint of one of `size` ranks, or the reason why there is none."""
    command = [sys.executable, "-m", "evaluation.distributed.strategies", name]
    previous = dict(os.environ)
    try:
        os.environ.update(environment(rank, size))
        return dry_run(command, TIMEOUT_SECONDS).fingerprint
    except PharoahError as reason:
        return reason
    finally:
        os.environ.clear()
        os.environ.update(previous)


def real_ranks(name: str, size: int) -> list[Fingerprint | None]:
    """Fingerprints that real ranks captured of themselves; None where one failed."""
    with tempfile.TemporaryDirectory() as folder, socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = str(held.getsockname()[1])
        held.close()
        files = [Path(folder) / str(rank) for rank in range(size)]
        ranks = [
            subprocess.Popen(
                [sys.executable, "-m", "evaluation.distributed.strategies", name, str(file)],
                env={**os.environ, **environment(rank, size, port)},
                cwd=Path(__file__).parents[2],
                stderr=subprocess.DEVNULL,
            )
            for rank, file in enumerate(files)
        ]
        for process in ranks:
            process.wait(TIMEOUT_SECONDS)
        return [Fingerprint.from_json(file.read_text()) if file.exists() else None for file in files]


def environment(rank: int, size: int, port: str = "0") -> dict[str, str]:
    """The variables that a launcher sets for one of `size` ranks on this machine."""
    return {
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "OMP_NUM_THREADS": "1",
    }  # fmt: skip


def _shown(seen: Any) -> str:
    return json.dumps(seen.grammar) if isinstance(seen, Fingerprint) else str(seen)
