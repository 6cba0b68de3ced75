"""What else a release must do, a little of each: cells of a campaign, micro-benchmarks, replays, and `pharoah doctor`.

Each gives the names of what was tried, with the reason where it failed; an empty reason means that it held.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evaluation.releases.jobs import (
    BARE_SECONDS,
    CACHES,
    HERE,
    NO_DRY_RUN_SECONDS,
    WATCHED_SECONDS,
    Ended,
    Script,
    ended,
)
from pharoah_benchmarks.campaign.cell import Cell, CellResult, read_answer
from pharoah_benchmarks.micro import MICRO_BENCHMARKS, Answer, MeasureOrder, MicroBenchmark, Need, Peer
from pharoah_protocol.vocabulary import DeviceKind, Outcome

Reasons = dict[str, str]
"""Name to why it failed; empty where it held."""

CELLS = (
    Cell("mlp", "mlp", {"width": 32, "optimizer": "adamw/fused"}, limit_seconds=300.0),
    Cell("gpt", "gpt", {"length": 16, "width": 32, "heads": 2, "depth": 1, "attention": "flash"}, limit_seconds=300.0),
    Cell("mlp on two ranks", "mlp", {"width": 32, "strategy": "ddp", "ranks": 2}, limit_seconds=300.0),
)
REPLAYED = ("gpt", "cnn_batch_norm")
REPEATS, REPEAT_SECONDS = 2, 5.0
"""A micro-benchmark repeats so little: whether it measures is asked here, not how fast the machine is."""
NEWER_THAN_TESTED = "99.0.0"
"""A release that does not exist: of what is newer than everything that was tested, only the name can be shown."""


def cells(interpreter: Path) -> Reasons:
    """Cells of a campaign in one fork server: each must train, and have a fingerprint."""
    lines = "".join(cell.to_json() + "\n" for cell in CELLS)
    done = _module(interpreter, ("pharoah_benchmarks.campaign.fork_server", "0"), lines)
    return _answered([cell.id for cell in CELLS], done, _cell_fault)


def _cell_fault(line: str) -> str:
    answer = read_answer(line)
    if not isinstance(answer, CellResult):
        return answer.not_built
    if answer.outcome is not Outcome.OK:
        return f"{answer.outcome}: {answer.detail}"
    return "" if answer.fingerprint else "no fingerprint"


def micro_benchmarks(interpreter: Path) -> Reasons:
    """A round of those for CPUs. Two processes of this machine are the partners of those that need one."""
    chosen = [one for one in MICRO_BENCHMARKS if one.device is DeviceKind.CPU and one.need is not Need.REMOTE_FOLDER]
    alone, together = ([one for one in chosen if (one.need is Need.PARTNER) is paired] for paired in (False, True))
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        lines = "".join(_order(one, folder, None).to_json() + "\n" for one in alone)
        done = _module(interpreter, ("pharoah_benchmarks.micro",), lines)
        found = _answered([one.name for one in alone], done, _measurement_fault)
        return found | _with_partner(interpreter, together, folder)


def _with_partner(interpreter: Path, chosen: Sequence[MicroBenchmark], folder: str) -> Reasons:
    """The orders of both partners; what one of them says counts, and it says nothing without the other."""
    names, orders = [one.name for one in chosen], ["", ""]
    for one in chosen:
        for rank in range(2):
            peer = Peer(rank, 2, f"{folder}/{one.name}")
            orders[rank] += _order(one, folder, peer).to_json() + "\n"
    script = "import subprocess as s, sys; w = [sys.executable, '-m', 'pharoah_benchmarks.micro']\n"
    script += "p = s.Popen(w, stdin=s.PIPE, stdout=s.DEVNULL, text=True); p.stdin.write(sys.argv[1]); p.stdin.close()\n"
    script += "s.run(w, input=sys.argv[2], text=True); p.wait(60)"
    done = ended([str(interpreter), "-c", script, *orders], Path(folder), CACHES, WATCHED_SECONDS)
    return _answered(names, done, _measurement_fault)


def _order(of: MicroBenchmark, folder: str, peer: Peer | None) -> MeasureOrder:
    limit = min(REPEAT_SECONDS, of.limit_seconds)
    return MeasureOrder(
        benchmark=of.name, repeats=min(REPEATS, of.repeats), limit_seconds=limit, scratch_folder=folder, peer=peer
    )


def _measurement_fault(line: str) -> str:
    answer = Answer.from_json(line)
    if answer.error or answer.correct is False:
        return answer.error or "a wrong answer"
    return "" if answer.seconds else "no times"


def replays(interpreter: Path) -> Reasons:
    """A step saved under `pharoah run` and computed again: all bits must be equal."""
    return {name: _replay_fault(interpreter, Script(HERE / "scripts" / "single" / f"{name}.py")) for name in REPLAYED}


def _replay_fault(interpreter: Path, script: Script) -> str:
    pharoah = [str(interpreter), "-m", "pharoah"]
    with tempfile.TemporaryDirectory(prefix="release-", ignore_cleanup_errors=True) as folder:
        place, file = Path(folder), str(Path(folder, "step"))
        variables = {**CACHES, "PHAROAH_STATE_DIR": str(place / "state"), "PHAROAH_MODE": "offline"}
        limit = ["--dry-run-timeout-seconds", str(NO_DRY_RUN_SECONDS)]
        save = [*pharoah, "run", *limit, "--step-file", file, "--", *script.command(interpreter)]
        saved = ended(save, place, variables, WATCHED_SECONDS)
        if saved.code or not Path(file).exists():
            return f"not saved: exit code {saved.code}: {saved.errors.strip()[-300:]}"
        again = ended([*pharoah, "replay", file, "--seconds", "0"], place, variables, WATCHED_SECONDS)
    return f"exit code {again.code}: {(again.output + again.errors).strip()[-300:]}" if again.code else ""


def doctor(interpreter: Path, variables: Mapping[str, str] | None = None) -> Reasons:
    """What `pharoah doctor` finds wrong with torch; empty where it is content with it."""
    command = [str(interpreter), "-m", "pharoah", "doctor", "-o", "json"]
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        done = ended(command, Path(folder), {**(variables or {}), "PHAROAH_STATE_DIR": folder}, BARE_SECONDS)
    try:
        rows = {row["check"]: row for row in json.loads(done.output)}
        return {"torch": "" if rows["torch"]["result"] == "PASS" else str(rows["torch"]["detail"])}
    except (ValueError, KeyError, TypeError):
        return {"torch": f"no answer: exit code {done.code}: {done.errors.strip()[-300:]}"}


def doctor_of_newer(interpreter: Path) -> Reasons:
    """What `pharoah doctor` finds wrong with a release that is newer than all that exist: the installed one under
    another number."""
    with tempfile.TemporaryDirectory(prefix="release-") as folder:
        _install_renumbered(_torch_of(interpreter), Path(folder), NEWER_THAN_TESTED)
        return doctor(interpreter, {"PYTHONPATH": folder})


def _torch_of(interpreter: Path) -> Path:
    find = "import importlib.util; print(importlib.util.find_spec('torch').submodule_search_locations[0])"
    return Path(ended([str(interpreter), "-c", find], Path.cwd(), CACHES, BARE_SECONDS).output.strip())


def _install_renumbered(torch: Path, folder: Path, release: str) -> None:
    """Links to the files of an installed torch, and its number in the two places in which a program finds it."""
    (folder / "torch").mkdir()
    for path in torch.iterdir():
        if path.name not in ("version.py", "__pycache__"):
            (folder / "torch" / path.name).symlink_to(path)
    version = (torch / "version.py").read_text()
    (folder / "torch" / "version.py").write_text(f"{version}\n__version__ = {release!r}\n")
    metadata = folder / f"torch-{release}.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {release}\n")


CHECKS: dict[str, Callable[[Path], Reasons]] = {
    "cells": cells,
    "micro_benchmarks": micro_benchmarks,
    "replay": replays,
    "doctor": doctor,
}


def _module(interpreter: Path, module: Sequence[str], lines: str) -> Ended:
    with tempfile.TemporaryDirectory(prefix="release-", ignore_cleanup_errors=True) as folder:
        return ended([str(interpreter), "-m", *module], Path(folder), CACHES, WATCHED_SECONDS, lines)


def _answered(names: Sequence[str], done: Ended, fault: Callable[[str], str]) -> Reasons:
    """The fault in each answer; a process that has ended early has answered fewer orders than it had."""
    lines: list[Any] = [line for line in done.output.splitlines() if line.strip()]
    missing = f"no answer: exit code {done.code}: {done.errors.strip()[-500:]}"
    found = {}
    for number, name in enumerate(names):
        try:
            found[name] = fault(lines[number]) if number < len(lines) else missing
        except (ValueError, KeyError, TypeError) as error:
            found[name] = f"its answer cannot be read: {error}"
    return found
