"""Fingerprint: everything the ladder is made from, as it lies in a file on the tenant's side.

A fingerprint never leaves the tenant. What leaves is what `ladder` and the exchange derive from it.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from pharoah_system.bounded_reading import UnreadableInput, parse_json

FORMAT = 3
SERVES = "serves"
"""The feature that a job has if it computes answers and trains nothing."""
MAX_TEXT_LENGTH = 1024
MAX_SIZE = 2**63
_NAME = re.compile("[0-9a-f]{32}")


class FingerprintError(ValueError):
    """A fingerprint file that is not one; the message names the field."""


@dataclass(frozen=True)
class Fingerprint:
    """Structure, features, sizes and software of one job."""

    archetype: str
    """Name of the skeleton, 32 hex digits."""
    compute: str
    """Name of what a compiled step shows of the same skeleton, 32 hex digits."""
    grammar: str
    """The skeleton as people read it; for `explain`, never for the wire."""
    features: dict[str, str]
    """What the software chose: dtype, attention kernel, optimizer."""
    sizes: dict[str, int]
    """Bytes: `parameters` (all trainable; of a job that serves, all) and `activations` (written by the forward pass);
    of a distributed job also the number of its `ranks`."""
    versions: dict[str, str]
    """Software to version; `torch` is always there."""
    hardware: dict[str, str] = field(default_factory=dict)
    """Facts of the machine it was made on: `gpu`, `gpus`, `driver`, `cpu`, `cpus`, `memory`."""
    code: dict[str, str] = field(default_factory=dict)
    """Package to digest of those of its functions that ran, where that was recorded."""

    @property
    def serves(self) -> bool:
        """Whether the job computes answers and trains nothing."""
        return SERVES in self.features

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **self.__dict__}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Fingerprint:
        """Read what `to_json` wrote. Raises FingerprintError that names the field."""
        try:
            data = parse_json(text, "fingerprint")
        except UnreadableInput as error:
            raise FingerprintError(error.problem) from None
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise FingerprintError(f"format: expected {FORMAT}; made by another release of pharoah?")
        fingerprint = cls(
            archetype=_name(data, "archetype"),
            compute=_name(data, "compute"),
            grammar=_text(data, "grammar"),
            features=_mapping(data, "features", str),
            sizes=_mapping(data, "sizes", int),
            versions=_mapping(data, "versions", str),
            hardware=_mapping(data, "hardware", str),
            code=_mapping(data, "code", str),
        )
        if "torch" not in fingerprint.versions:
            raise FingerprintError("versions: torch is missing")
        for name in ("parameters", "activations"):
            if name not in fingerprint.sizes:
                raise FingerprintError(f"sizes.{name}: missing")
        return fingerprint


def _check(data: dict[str, Any], name: str, kind: type) -> Any:
    if not isinstance(data.get(name), kind):
        raise FingerprintError(f"{name}: missing or not a {kind.__name__}")
    return data[name]


def _name(data: dict[str, Any], field: str) -> str:
    value = _check(data, field, str)
    if not _NAME.fullmatch(value):
        raise FingerprintError(f"{field}: expected 32 hexadecimal digits")
    return str(value)


def _text(data: dict[str, Any], field: str) -> str:
    value = _check(data, field, str)
    if not all(line.isprintable() for line in value.split("\n")):
        raise FingerprintError(f"{field}: holds what cannot be printed")
    return str(value)


def _mapping(data: dict[str, Any], name: str, kind: type) -> dict[str, Any]:
    value = _check(data, name, dict)
    for key, item in value.items():
        if len(key) > MAX_TEXT_LENGTH or not key.isprintable():
            raise FingerprintError(f"{name}: a key of more than {MAX_TEXT_LENGTH} characters, or not printable")
        if not isinstance(item, kind) or isinstance(item, bool):
            raise FingerprintError(f"{name}.{key}: not a {kind.__name__}")
        if isinstance(item, int) and not 0 <= item < MAX_SIZE:
            raise FingerprintError(f"{name}.{key}: not a size")
        if isinstance(item, str) and (len(item) > MAX_TEXT_LENGTH or not item.isprintable()):
            raise FingerprintError(f"{name}.{key}: more than {MAX_TEXT_LENGTH} characters, or not printable")
    return dict(value)
