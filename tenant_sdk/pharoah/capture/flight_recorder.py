"""torch's flight recorders: which collective this process has called last in each group, and from which line.

torch keeps the last 2,000 collectives of NCCL and of gloo by itself (TORCH_FR_BUFFER_SIZE), in a recorder for each;
reading them is the only cost.
"""

from __future__ import annotations

import logging
import pickle
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pharoah.torch_names import find_loaded

log = logging.getLogger("pharoah")

MAX_STARTS = 64
"""Starts of collectives that are given: those of several steps."""
_DUMPS = {"dump_of_gloo": "", "dump_of_nccl": "cuda:"}
"""Functions that read a recorder of torch, gloo's and NCCL's, and what is put before the names of its groups: a group
whose tensors may be on either device has a backend for each, and each counts its own collectives."""


def read_recorded_calls(*, places: bool = True) -> dict[str, Any]:
    """What the recorders hold together; empty where there is none. `places`: also where in the code each call stands,
    for which torch needs a second when it has recorded thousands."""
    found = []
    for name, prefix in _DUMPS.items():
        if (dump := find_loaded(name)) is not None:
            try:
                found.append(_prefix(pickle.loads(dump(includeStackTraces=places)), prefix))
            except Exception as fault:  # noqa: BLE001 - the other recorder may hold the call that hangs
                log.debug("%s: %s", name, fault)
    if not found:
        return {}
    entries = [entry for recorded in found for entry in recorded["entries"]]
    entries.sort(key=lambda entry: entry["time_created_ns"])
    return {"entries": entries, "pg_config": {name: group for one in found for name, group in one["pg_config"].items()}}


def _prefix(recorded: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """What a recorder holds, with names of groups that no other recorder has."""
    entries = [
        {**entry, "process_group": (prefix + entry["process_group"][0], *entry["process_group"][1:])}
        for entry in recorded.get("entries", ())
    ]
    return {
        "entries": entries,
        "pg_config": {prefix + name: group for name, group in recorded.get("pg_config", {}).items()},
    }


def last_starts(recorded: dict[str, Any]) -> list[dict[str, Any]]:
    """When the last collectives were called, oldest first: `group`, `number`, and `at_ns` in unix nanoseconds."""
    collectives = [entry for entry in recorded.get("entries", ()) if not entry["is_p2p"]]
    return [
        {
            "group": entry["process_group"][0],
            "number": entry["collective_seq_id"],
            "at_ns": entry["time_created_ns"],
        }
        for entry in collectives[-MAX_STARTS:]
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
    return [_describe(group, entry, recorded.get("pg_config", {}).get(group, {})) for group, entry in last.items()]


def _describe(group: str, entry: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
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
