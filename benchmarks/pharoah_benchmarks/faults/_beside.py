"""The process beside a rank in which a fault acts.

    python -m pharoah_benchmarks.faults._beside '{"fault": "cpu_share", ...}'

`beside_command` makes the argument. The process ends with the one that has started it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pharoah_benchmarks.faults._fault import Place, Schedule
from pharoah_benchmarks.faults._registry import FAULTS
from pharoah_protocol.parent_process import end_with_parent


def main() -> None:
    """Do what the argument orders, until the limit of the cell or the end of the parent."""
    order = json.loads(sys.argv[1])
    end_with_parent(order["parent"])
    place = Place(
        schedule=Schedule(**order["schedule"]),
        pid=order["pid"],
        folder=Path(order["folder"]),
        limit_seconds=order["limit_seconds"],
    )
    act = FAULTS[order["fault"]].beside
    if act is not None:
        act(place)


if __name__ == "__main__":
    main()
