"""Kinds of evidence that learning cannot use, as rows in the database of a provider: what an older release, a fault or
a malicious agent may have left there. Learning must skip each kind and name it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import inf, nan
from typing import Any

import duckdb

from pharoah_archetypes import Fingerprint

BAD = "bad"
"""Campaign, purpose or organisation of rows that are bad, so that they can be removed again."""
OTHER_JOB = Fingerprint(
    "ab" * 16, "12" * 16, "fwd: gemm", {"dtype": "float32"}, {"parameters": 9, "activations": 9}, {"torch": "2.13.0"}
)


@dataclass(frozen=True)
class BadEvidence:
    """One kind: a table, and the values that differ from those of a good row of it."""

    table: str
    name: str
    values: dict[str, Any] = field(default_factory=dict)
    rows: int = 5
    """How often the row is there: five failures would block."""


def kinds() -> list[BadEvidence]:
    """All kinds, in a fixed order."""
    return [*_of_cells(), *_of_own_fingerprints(), *_of_degraded_runs(), *_of_probes(), *_of_reports()]


def plant(connection: duckdb.DuckDBPyConnection, kind: BadEvidence, good: dict[str, dict[str, Any]]) -> None:
    """Write the rows of a kind. `good` has the columns of a good row of each table."""
    row = {**good[kind.table], **kind.values}
    names, marks = ", ".join(row), ", ".join("?" * len(row))
    for number in range(kind.rows):
        own_run = hashlib.blake2b(f"{kind.name} {number}".encode(), digest_size=16).digest()
        changed = {**row, "run_id": own_run} if kind.table == "outcome_reports" else row
        connection.execute(f"INSERT INTO {kind.table} ({names}) VALUES ({marks})", list(changed.values()))


def remove(connection: duckdb.DuckDBPyConnection) -> None:
    """Remove the rows of all kinds."""
    connection.execute("DELETE FROM cells WHERE campaign = ?", [BAD])
    connection.execute("DELETE FROM own_fingerprints WHERE software = ?", [BAD])
    connection.execute("DELETE FROM probes WHERE order_id = ?", [BAD])
    connection.execute("DELETE FROM outcome_reports WHERE organisation = ? OR organisation IS NULL", [BAD])


def _of_cells() -> Iterator[BadEvidence]:
    seconds = ([nan], [inf], [-inf], [1e308] * 5, [0.0], [-1.0], [1e-300], [None], None, [0.1] * 100_001, [1e5 + 1])
    values: dict[str, tuple[Any, ...]] = {
        "step_seconds": seconds,
        "settings": ("[]", "{", "null", '"x"', "7", '{"a": [1]}', '{"a": {}}', "", None, "[" * 5000),
        "outcome": ("slow", "weird", "", None, "OK"),
        "fingerprint": tuple(_fingerprints()),
        "device": ("tpu", "", None, "cuda"),
        "context_device": ("tpu", "", None, "cuda"),
        **dict.fromkeys(("workload", "context_id", "device_id", "node"), ("", None)),
        "result_id": (None,),
    }
    for column, found in values.items():
        for number, value in enumerate(found):
            # An id that is missing makes no trial unusable by itself; with the fingerprint of another job it is one.
            extra = {"fingerprint": OTHER_JOB.to_json()} if column == "result_id" else {}
            yield BadEvidence("cells", f"{column} {number}", {column: value, **extra})


def _fingerprints() -> Iterator[str]:
    """Texts in place of a fingerprint: none of them is that of the cell that was ordered."""
    good = json.loads(OTHER_JOB.to_json())

    def changed(**values: Any) -> str:
        return json.dumps({**good, **values})

    yield from ("{", "{}", "null", "[]", "7", '"x"', "[" * 100_000, "\x00", "nan", "{" * 3000, "9" * 5000)
    yield OTHER_JOB.to_json()
    yield changed(features={f"f{number}": "x" * 1000 for number in range(70)})
    yield changed(features={"a": "J\u030c", "b": "\u01f0"})
    yield changed(features={"a": "x" * 2000})
    yield changed(features={"\ud800": "x"})
    yield changed(features={"a": 1})
    yield changed(features=[])
    yield changed(features={f"f{number}": str(number) for number in range(20_000)})
    yield changed(sizes={"parameters": -1, "activations": 1})
    yield changed(sizes={"parameters": 2**70, "activations": 1})
    yield changed(sizes={"parameters": 1e30, "activations": 1})
    yield changed(sizes={})
    yield changed(versions={})
    yield changed(versions={"torch": "1" * 1024, **{f"s{number}": "1" for number in range(5000)}})
    yield changed(archetype="x" * 32)
    yield changed(archetype="")
    yield changed(grammar="fwd: " + "(" * 50_000)
    yield changed(grammar="fwd: \x1b[0m")
    yield changed(format=99)
    yield changed(hardware={"gpu": None})


def _of_own_fingerprints() -> Iterator[BadEvidence]:
    for number, text in enumerate(("{", "{}", "null", "[]", "[" * 100_000, "x" * 300_000)):
        yield BadEvidence("own_fingerprints", f"fingerprint {number}", {"fingerprint": text}, rows=1)


def _of_degraded_runs() -> Iterator[BadEvidence]:
    def window(at: Any, step: Any = 1.0, memory: Any = 1.0) -> dict[str, Any]:
        return {"at_seconds": at, "values": {"step_ratio": step, "memory_ratio": memory}}

    texts = ["{", "null", "{}", "7", '[["a", 1, 1]]', "[[1]]", '[{"at_seconds": 1}]', "[" * 5000]
    lists: list[list[Any]] = [
        [window(1.0, nan)],
        [window(1.0, inf)],
        [window(nan)],
        [window(1.0, 1e300)],
        [window(1e300)],
        [window(-5.0), window(1.0)],
        [window(2.0), window(1.0)],
        [window(1.0), window(1.0)],
        [window(1.0, "x")],
        [window(1.0, None)],
        [window(1.0, True)],
        [window(0.1 * at) for at in range(1, 2_100)],
        [{"at_seconds": 1.0, "values": {f"s{number}": 1.0 for number in range(100)}}],
    ]
    for number, text in enumerate([*texts, *map(json.dumps, lists)]):
        yield BadEvidence("cells", f"windows {number}", {"degradation": "none", "windows": text})
    for number, fault in enumerate(("we ird", "x" * 65)):
        yield BadEvidence("cells", f"degradation {number}", {"degradation": fault})
    telemetry = ("{", "null", "[7]", '[{"at_seconds": 1}]', '[{"at_seconds": 1, "values": {"A": 1}}]', "[" * 5000)
    for number, text in enumerate(telemetry):
        yield BadEvidence("cells", f"telemetry {number}", {"degradation": "none", "telemetry": text})
    for name, value in (("dose", nan), ("dose", inf), ("dose", None), ("onset_seconds", nan), ("onset_seconds", 1e300)):
        yield BadEvidence("cells", f"{name} {value}", {"degradation": "none", name: value})


def _of_probes() -> Iterator[BadEvidence]:
    for number, seconds in enumerate(
        ([nan], [inf], [1e308] * 10, [0.0], [-1.0], [1e-300], [None], None, [1e5 + 1], [0.1] * 100_001)
    ):
        yield BadEvidence("probes", f"seconds {number}", {"seconds": seconds})
    for column in ("node", "benchmark", "beside_job"):
        yield BadEvidence("probes", f"{column} missing", {column: None})
    yield BadEvidence("probes", "node empty", {"node": ""})


def _of_reports() -> Iterator[BadEvidence]:
    for number, name in enumerate(("", None, "zz" * 32, "ab", "AB" * 32, "ab" * 33)):
        yield BadEvidence("outcome_reports", f"name {number}", {"name": name}, rows=9)
    for column in ("organisation", "context_id", "failed"):
        yield BadEvidence("outcome_reports", f"{column} missing", {column: None}, rows=9)
