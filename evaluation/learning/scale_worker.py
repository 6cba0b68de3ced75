"""One process of the part `scale`: it draws runs into a file, or learns from such a file, and measures itself.

Runs are stored as their columns: codes of one byte, and flags.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from evaluation.learning.simulated_runs import simulate
from pharoah_learning.incompatible_pairs import find_incompatible_pairs
from pharoah_learning.models.mantel_haenszel import log_odds_ratio, p_values
from pharoah_learning.observations import Observations, adjust, stratify


def draw(file: Path, runs: int, seed: int) -> None:
    """Write simulated runs."""
    seen = simulate(runs, seed, hidden=True).seen
    columns: dict[str, Any] = {"archetype": seen.archetype, **seen.confounders}
    columns = {name: column.astype(np.uint8) for name, column in columns.items()}
    with file.open("wb") as opened:
        np.savez(opened, in_context=seen.in_context, failed=seen.failed, **columns)


def learn(file: Path, hosts: int = 0) -> None:
    """Find the incompatible pairs of the runs of a file, and print what that took as JSON. With `hosts`, each run is on
    one of so many hosts, and learning knows it."""
    with np.load(file) as columns:
        kept = {name: columns[name] for name in columns.files}
    in_context, failed, archetype = kept.pop("in_context"), kept.pop("failed"), kept.pop("archetype")
    seen = Observations(
        tuple(f"a{number}" for number in range(int(archetype.max()) + 1)),
        tuple(f"c{number}" for number in range(in_context.shape[1])),
        archetype,
        in_context,
        kept,
        failed,
        {"host": np.random.default_rng(hosts).integers(0, hosts, len(failed))} if hosts else {},
    )
    before = _resident_bytes("VmRSS")
    began = time.monotonic(), time.process_time()
    findings = find_incompatible_pairs(seen, seed=1)
    result: dict[str, object] = {
        "seconds": time.monotonic() - began[0],
        "cpu_seconds": time.process_time() - began[1],
        "peak_bytes": _resident_bytes("VmHWM"),
        "bytes_before": before,
        "findings": len(findings),
    }
    if hosts:
        print(json.dumps(result))
        return
    # The same runs once more, which are not grouped yet, with the questions that statsmodels answers alone.
    seen = replace(seen)
    began = time.monotonic(), time.process_time()
    counted, own = stratify(seen), adjust(seen)
    odds, _ = log_odds_ratio(counted.counts.strata), p_values(counted.counts.strata)
    result |= {
        "same_question_cpu_seconds": time.process_time() - began[1],
        "odds": np.exp(odds.value).tolist(),
        "adjusted": own.odds.value.tolist(),
        "standard_errors": np.sqrt(own.odds.variance).tolist(),
    }
    print(json.dumps(result))


def _resident_bytes(field: str) -> int:
    """Memory of this process: `VmRSS` now, `VmHWM` the most it has had. What its parent had does not count."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(next(line.split()[1] for line in status.splitlines() if line.startswith(field)))


COMMANDS: dict[str, Callable[..., None]] = {
    "draw": lambda file, runs, seed: draw(Path(file), int(runs), int(seed)),
    "learn": lambda file, hosts="0": learn(Path(file), int(hosts)),
}

if __name__ == "__main__":
    COMMANDS[sys.argv[1]](*sys.argv[2:])
