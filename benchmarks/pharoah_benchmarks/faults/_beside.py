"""The process beside a rank in which a fault acts.

    python -m pharoah_benchmarks.faults._beside '{"fault": "cpu_share", ...}'

`beside_command` and `ready` make the argument. Without a place in it, the process writes when it is ready, and reads
its place from its standard input. It ends with the one that has started it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pharoah_benchmarks.faults._fault import Place, Schedule
from pharoah_benchmarks.faults._injection import READY
from pharoah_benchmarks.faults._registry import FAULTS
from pharoah_system.parent_process import end_with_parent


def main() -> None:
    """Do what the argument orders, until the limit of the cell or the end of the parent."""
    order = json.loads(sys.argv[1])
    end_with_parent(order["parent"])
    act = FAULTS[order["fault"]].beside
    data = order["place"] if "place" in order else _receive_place()
    if act is not None and data is not None:
        place = Place(
            schedule=Schedule(**data["schedule"]),
            pid=data["pid"],
            folder=Path(data["folder"]),
            limit_seconds=data["limit_seconds"],
        )
        act(place)


def _receive_place() -> dict[str, Any] | None:
    """The place that the rank sends when it begins; None when it never does."""
    os.write(1, READY)
    os.dup2(2, 1)  # nobody reads what a fault prints
    line = sys.stdin.readline()
    place: dict[str, Any] | None = json.loads(line) if line else None
    return place


if __name__ == "__main__":
    main()
