"""Hostile and changed files for every reader: does one of them run code, load, open or set anything?

A process reads a good file with each reader and then the hostile ones. Its audit hook notes every event that the good
file has not caused, and a real shared library and a real module leave a mark when something loads them. The control
follows names out of a file, as the replay of steps did: the oracle must see it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from evaluation.figures import Figures
from tests.harness.hostile_files import Traps, controls, hostile_files
from tests.harness.readers import CONTROL
from tests.harness.reading_child import read_apart

EACH, EACH_QUICK = 4, 1
"""Files of each kind for each reader: with a text that is code, and changed at random."""


def measure(figures: Figures, quick: bool, seed: int) -> None:
    """Add the figures of this part."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        traps = Traps.set_up(folder / "traps")
        files = folder / "files"
        orders = [*controls(files, traps), *hostile_files(files, traps, seed, EACH_QUICK if quick else EACH)]
        ran, seen, internal, read = list[str](), 0, list[str](), 0
        for order, reading in zip(orders, read_apart(folder, orders, traps.environment), strict=True):
            noticed = traps.sprung() or bool(reading.events)
            if order.reader == CONTROL:
                seen += noticed
                continue
            read += not reading.error
            if noticed:
                ran.append(f"{order.what}: {', '.join(reading.events)}")
            if reading.internal:
                internal.append(f"{order.what}: {reading.error}")
    for line in (*ran, *internal):
        print(f"  {line[:300]}", flush=True)
    hostile = [order for order in orders if order.reader != CONTROL]
    figures.details["hostile_files"] = {"ran": ran, "internal": internal}
    figures.add("code_run_by_files", len(ran), "0", not ran)
    least = 0 if quick else 300
    figures.add("hostile_files", len(hostile), f">= {least}", len(hostile) >= least)
    figures.add("hostile_files_readers", len({order.reader for order in hostile}))
    figures.add("hostile_files_read", read)
    figures.add("hostile_files_internal_errors", len(internal), "0", not internal)
    figures.ratio("hostile_files_control_seen_ratio", seen, len(orders) - len(hostile), 1.0)
