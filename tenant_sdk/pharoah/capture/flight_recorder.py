"""torch's flight recorder: which collective this process has called last in each group, and from which line.

torch keeps the last 2,000 collectives of NCCL and gloo by itself (TORCH_FR_BUFFER_SIZE); reading them is the only cost.
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

MOST_STARTS = 64
"""Starts of collectives that are given: those of several steps."""


def recorded_calls(*, places: bool = True) -> dict[str, Any]:
    """What the recorder holds; empty where there is none. `places`: also where in the code each call stands, for which
    torch needs a second when it has recorded thousands."""
    c10d = sys.modules.get("torch._C._distributed_c10d")
    dump = getattr(c10d, "_dump_fr_trace", None) or getattr(c10d, "_dump_nccl_trace", None)
    if dump is None:
        return {}
    recorded: dict[str, Any] = pickle.loads(dump(includeStackTraces=places))
    return recorded


def last_starts(recorded: dict[str, Any]) -> list[dict[str, Any]]:
    """When the last collectives were called, oldest first: `group`, `number`, and `at_ns` in unix nanoseconds."""
    collectives = [entry for entry in recorded.get("entries", ()) if not entry["is_p2p"]]
    return [
        {
            "group": entry["process_group"][0],
            "number": entry["collective_seq_id"],
            "at_ns": entry["time_created_ns"],
        }
        for entry in collectives[-MOST_STARTS:]
    ]


def last_calls(recorded: dict[str, Any]) -> list[dict[str, Any]]:
    """One call for each process group.

    `group` is the group's name, `ranks` those in it, `number` counts its collectives, `name` and `sizes` say what was
    called, `place` where (empty when autograd called it).
    """
    last: dict[str, dict[str, Any]] = {}
    for entry in recorded.get("entries", ()):
        group = entry["process_group"][0]
        if not entry["is_p2p"] and entry["collective_seq_id"] >= last.get(group, entry)["collective_seq_id"]:
            last[group] = entry
    return [_described(group, entry, recorded.get("pg_config", {}).get(group, {})) for group, entry in last.items()]


def _described(group: str, entry: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "group": group,
        "ranks": str(settings.get("ranks", "")),
        "number": entry["collective_seq_id"],
        "name": entry["profiling_name"].rpartition(":")[2],
        "sizes": str(entry["input_sizes"])[:200],
        "place": _place(entry.get("frames", ())),
    }


def _place(frames: Any) -> str:
    """The innermost line that is not torch's."""
    library = str(Path(sys.modules["torch"].__file__ or "").parent)
    for frame in frames:
        if not frame["filename"].startswith((library, "<")):
            return f"{Path(frame['filename']).name}:{frame['line']}"
    return ""
