"""The record of a job: everything two runs may differ in, by name. Stays on this machine unless somebody hands it on.

A sealed record holds keyed hashes instead of values: who has another one sealed with the same key sees which names are
equal and which differ, and nothing else. Names are not hidden; they come from lists that everybody has. Who has the key
can guess values and test the guess: it is for two parties who trust each other that far.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import resource
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pharoah._errors import PharoahError
from pharoah.cost.memory import peak
from pharoah.dryrun.result import DryRun
from pharoah_archetypes import Fingerprint
from pharoah_archetypes.effects import is_looked_at
from pharoah_system.bounded_reading import UnreadableInput, read_content, read_json_file
from pharoah_system.text import render_value

FORMAT = 1
COST = "cost"
GROUPS = ("structure", "choices", "settings", "software", "environment", "hardware", "limits", COST)
_COST = re.compile("[0-9]{0,40}")
"""A value of that group; empty where it is not known."""
SHORTEST_KEY, MAX_KEY_BYTES = 16, 1 << 16


class RecordError(PharoahError):
    """A file that is no record, or a key that is none; the message names it."""


@dataclass(frozen=True)
class Record:
    """Everything by name in which two runs of a job may differ."""

    groups: dict[str, dict[str, str]]
    """Group to name to value. A group that is missing is not known."""
    sealed: str = ""
    """Which key the values are sealed with; empty when they are open."""

    def seal(self, key: bytes) -> Record:
        """The same with hashes for values, HMAC-SHA256 of group, name and value."""
        return Record(
            {group: {name: _seal(key, group, name, value) for name, value in values.items()}
             for group, values in self.groups.items()},
            sealed=hmac.digest(key, b"pharoah/record/key", "sha256").hex()[:16],
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        return {"format": FORMAT, "sealed": self.sealed, "groups": self.groups}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=1, sort_keys=True)

    @classmethod
    def read(cls, path: Path) -> Record:
        """Read what `to_json` wrote. Raises RecordError."""
        return parse_record(path).record


class ParsedRecord(NamedTuple):
    """The content of a file, and the record in it."""

    data: dict[str, Any]
    """All fields of the file, as JSON has them."""
    record: Record


def parse_record(path: Path) -> ParsedRecord:
    """Read a file with a record. Raises RecordError naming file and field."""
    try:
        data = read_json_file(path)
    except OSError as error:
        raise RecordError(f"{path}: {error.strerror}") from None
    except UnreadableInput as error:
        raise RecordError(f"{path}: not a record: {error.problem}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise RecordError(f"{path}: format: expected {FORMAT}; made by another release of pharoah?")
    groups = data.get("groups")
    if not isinstance(groups, dict) or not set(groups) <= set(GROUPS):
        raise RecordError(f"{path}: groups: expected some of {', '.join(GROUPS)}")
    for group, values in groups.items():
        if not isinstance(values, dict) or not all(isinstance(value, str) for value in values.values()):
            raise RecordError(f"{path}: groups.{group}: expected names with texts")
    sealed = str(data.get("sealed", ""))
    for name, value in groups.get(COST, {}).items() if not sealed else ():
        if not _COST.fullmatch(value):
            raise RecordError(f"{path}: groups.{COST}.{render_value(name)}: {render_value(value)} is no whole number")
    return ParsedRecord(data=data, record=Record(groups, sealed))


def read_key(path: Path) -> bytes:
    """A key both sides have. Raises RecordError when it is missing or too short to be one."""
    try:
        key = read_content(path, MAX_KEY_BYTES).strip()
    except OSError as error:
        raise RecordError(f"key {path}: {error.strerror}; make one with `openssl rand -hex 32`") from None
    except UnreadableInput as error:
        raise RecordError(f"key {error}") from None
    if len(key) < SHORTEST_KEY:
        raise RecordError(f"key {path}: {len(key)} bytes are too few, {SHORTEST_KEY} is the least")
    return key


def record_of(dry: DryRun) -> Record:
    """The record of a job that was just dry-run here, in this process's environment."""
    fingerprint, cost = dry.fingerprint, dry.cost
    costs = {
        "floating-point operations": str(cost.flops),
        "bytes moved": str(cost.moved),
        "bytes sent": str(cost.traffic),
        "bytes of tensors": str(peak(cost.memory, tensors_only=True).bytes),
        "bytes of parameters": str(fingerprint.sizes["parameters"]),
        "bytes of activations": str(fingerprint.sizes["activations"]),
    }
    return Record({**record_of_seen(fingerprint).groups, "settings": dry.settings, "cost": costs})


def record_of_seen(fingerprint: Fingerprint) -> Record:
    """The record of a job of which nothing but a captured step is known, in this process's environment."""
    return Record(
        {
            "structure": {"archetype": fingerprint.archetype, **_words(fingerprint.grammar)},
            "choices": {**fingerprint.features, "ranks": str(fingerprint.sizes.get("ranks", 1))},
            "software": fingerprint.versions,
            "environment": {name: value for name, value in os.environ.items() if is_looked_at(name)},
            "hardware": fingerprint.hardware,
            "limits": _limits(),
        }
    )


def _words(grammar: str) -> dict[str, str]:
    """The lines of a grammar by their names: `fwd`, `bwd`, `with`."""
    return {name: word.strip() for name, _, word in (line.partition(":") for line in grammar.splitlines())}


_LIMITS = {
    "open files": resource.RLIMIT_NOFILE, "memlock": resource.RLIMIT_MEMLOCK, "data": resource.RLIMIT_DATA,
    "stack": resource.RLIMIT_STACK, "processes": resource.RLIMIT_NPROC, "core": resource.RLIMIT_CORE,
}  # fmt: skip


def _limits() -> dict[str, str]:
    found = {name: str(resource.getrlimit(limit)[0]) for name, limit in _LIMITS.items()}
    found["cpus"] = str(len(os.sched_getaffinity(0)))
    found["kernel"] = os.uname().release
    for name in ("memory.max", "cpu.max"):
        try:
            found[f"group's {name}"] = Path("/sys/fs/cgroup", name).read_text().strip()
        except OSError:
            pass  # no such group
    try:
        shared = os.statvfs("/dev/shm")
        found["shared memory"] = str(shared.f_frsize * shared.f_blocks)
    except OSError:
        pass  # none
    return found


def _seal(key: bytes, group: str, name: str, value: str) -> str:
    message = json.dumps([group, name, value]).encode()
    return hmac.new(key, message, hashlib.sha256).hexdigest()[:32]
