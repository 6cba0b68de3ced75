"""Files and messages that cost much to read for what they are, for every reader.

Each is read in a process that has read a good file with the same reader before, so that imports and what is kept count
for nothing. The control beside it is what a plain parser takes for one of them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from evaluation.figures import Figures
from tests.harness.bombs import JSON_BOMBS, bombs
from tests.harness.reading_child import Order, Reading, read_apart

MAX_SECONDS, MAX_MIB = 1.0, 64.0
"""Processor time, and memory beyond what the process had before."""
LEAST = 60
SHOWN = 12
"""Rows of the table: the most expensive ones."""
_PLAIN = """
import json, sys
json.load(open(sys.argv[1]))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def measure(figures: Figures, quick: bool, _seed: int) -> None:
    """Add the figures of this part. The bombs are no random ones."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain_mib = _plain_parser_mib(folder / "plain.json")
        orders = list(bombs(folder / "files", quick=quick))
        found = list(zip(orders, read_apart(folder, orders), strict=True))
    internal = [f"{order.what}: {reading.error}" for order, reading in found if reading.internal]
    for line in internal:
        print(f"  {line[:300]}", flush=True)
    seconds, mib = max(one.seconds for _, one in found), max(one.mib for _, one in found)
    figures.details["bombs"] = {"internal": internal, "read": [order.what for order, one in found if not one.error]}
    figures.add("bomb_seconds_max", seconds, f"<= {MAX_SECONDS:g}", seconds <= MAX_SECONDS)
    figures.add("bomb_mib_max", mib, f"<= {MAX_MIB:g}", mib <= MAX_MIB)
    figures.add("bomb_internal_errors", len(internal), "0", not internal)
    figures.add("bomb_files", len(found), f">= {LEAST}", len(found) >= LEAST)
    figures.add("bomb_readers", len({order.reader for order, _ in found}))
    figures.add("bomb_plain_parser_mib", plain_mib)
    figures.table(
        "The most expensive of them:", ("file", "processor seconds", "MiB", "said"), _rows(found, seconds, mib)
    )


def _rows(found: list[tuple[Order, Reading]], seconds: float, mib: float) -> list[tuple[str, ...]]:
    ordered = sorted(found, key=lambda one: -max(one[1].seconds / (seconds or 1), one[1].mib / (mib or 1)))
    return [
        (order.what, f"{one.seconds:.2f}", f"{one.mib:.0f}", one.error.partition(": ")[0] or "read")
        for order, one in ordered[:SHOWN]
    ]


def _plain_parser_mib(file: Path) -> float:
    """What Python's own parser takes for one of the files that the reader refuses."""
    file.write_bytes(JSON_BOMBS["many objects"])
    empty = file.with_name("empty.json")
    empty.write_text(json.dumps({}))
    taken = [
        int(subprocess.run([sys.executable, "-c", _PLAIN, str(one)], capture_output=True, text=True, check=True).stdout)
        for one in (file, empty)
    ]
    return (taken[0] - taken[1]) / 1024
