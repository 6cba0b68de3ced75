"""What the verdicts of a job's nodes show together, and which files they are read from."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from pharoah._settings import Settings
from pharoah._verdict import Finding, Verdict
from pharoah.sidecar import node_verdicts
from pharoah.sidecar.job_identity import JobIdentity
from pharoah.sidecar.node_comparison import MAX_NAMES, NodeVerdict, compare, node_verdict, ranges
from pharoah.sidecar.node_verdicts import SAME_JOB_SECONDS, NodeVerdicts
from pharoah_protocol.vocabulary import FindingSeverity, VerdictStatus
from tests.harness.until import until

FAILS = Finding(FindingSeverity.BLOCK, "bfloat16 products are missing", "5/5 runs", "use float16", code="learned-error")
COMPATIBLE = Verdict(VerdictStatus.COMPATIBLE)
INCOMPATIBLE = Verdict(VerdictStatus.INCOMPATIBLE, findings=(FAILS,))


def test_the_nodes_on_which_a_job_fails_are_named() -> None:
    verdicts = {n: node_verdict(f"n{n + 1}", INCOMPATIBLE if n == 7 else COMPATIBLE) for n in range(8)}
    finding = compare(verdicts, nodes=8)
    assert finding is not None
    assert finding.what == "compatible on n1-n7; incompatible on n8: bfloat16 products are missing"
    assert (finding.severity, finding.evidence, finding.remedy) == (FindingSeverity.BLOCK, "5/5 runs", "use float16")


def test_equal_verdicts_are_stated_when_all_nodes_have_one() -> None:
    verdicts = {n: node_verdict(f"n{n}", COMPATIBLE) for n in range(3)}
    assert compare(verdicts, nodes=4) is None
    finding = compare(verdicts, nodes=3)
    assert finding is not None and "all 3 nodes" in finding.what and finding.severity == FindingSeverity.INFO


def test_a_node_about_which_nothing_is_known_blocks_nothing() -> None:
    unknown = Verdict(VerdictStatus.UNKNOWN, reason="no job similar to this one has run on nodes like this one")
    finding = compare({0: node_verdict("a", COMPATIBLE), 1: node_verdict("b", unknown)}, nodes=2)
    assert finding is not None and finding.severity == FindingSeverity.INFO
    assert finding.what.startswith("compatible on a; unknown on b: no job similar")


def test_hosts_with_one_name_are_named_by_their_numbers() -> None:
    finding = compare({0: node_verdict("pod", COMPATIBLE), 1: node_verdict("pod", INCOMPATIBLE)}, nodes=2)
    assert finding is not None and "compatible on node 0; incompatible on node 1" in finding.what


def test_a_comparison_is_not_compared_again() -> None:
    finding = compare({0: node_verdict("a", COMPATIBLE), 1: node_verdict("b", INCOMPATIBLE)}, nodes=2)
    assert finding is not None
    warned = Verdict(VerdictStatus.WARN, findings=(replace(FAILS, severity=FindingSeverity.WARN), finding))
    assert node_verdict("a", warned).what == FAILS.what


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["n1", "n2", "n3", "n5"], "n1-n3, n5"),
        (["n10", "n9", "n8"], "n8-n10"),
        (["gpu-009", "gpu-010", "gpu-11"], "gpu-009-gpu-010, gpu-11"),
        (["a1.example", "a2.example", "b3.example"], "a1.example-a2.example, b3.example"),
        (["login"], "login"),
        ([f"n{2 * i}" for i in range(MAX_NAMES + 3)], "n0, n2, n4, n6, n8, n10, n12, n14, and 3 more"),
    ],
)
def test_names_of_hosts_are_shortened_to_ranges(names: list[str], text: str) -> None:
    assert ranges(names) == text


@given(st.sets(st.integers(0, 99), min_size=1), st.sampled_from(["n{}", "n{:03}", "rack2-{}.x", "{}"]))
def test_ranges_hold_exactly_the_names(numbers: set[int], form: str) -> None:
    parts = ranges(form.format(number) for number in numbers).split(", ")
    every = {form.format(number): number for number in range(100)}
    held: set[int] = set()
    for part in parts[:MAX_NAMES]:
        first, last = next(  # a name may hold a hyphen
            (one, other) for one in every for other in every if part in (one if one == other else f"{one}-{other}",)
        )
        held |= set(range(every[first], every[last] + 1))
    assert held == numbers if len(parts) <= MAX_NAMES else held < numbers


def shared(folder: Path, work: Callable[[list[Finding], Path], Awaitable[None]]) -> None:
    """Does `work` with what the first of two compatible nodes finds, and the folder of the job's verdicts."""
    key = folder / "provider.pub"
    key.write_text(Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex())
    settings = Settings(state_folder=str(folder), provider_key_file=str(key))
    found: list[Finding] = []

    async def inside() -> None:
        first = NodeVerdicts(JobIdentity(bytes(16), 0, 2), settings, lambda: COMPATIBLE, found.append)
        first.share()
        await until(lambda: bool(list(folder.glob("exchange/*/nodes/*/0.json"))), "the verdict of the first node")
        (file,) = folder.glob("exchange/*/nodes/*/0.json")
        await work(found, file.parent)
        await first.stop()
        assert not file.parent.exists()

    asyncio.run(inside())


@pytest.fixture(autouse=True)
def _quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_verdicts, "FIRST_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(node_verdicts, "MAX_LOOK_SECONDS", 0.01)


def test_files_that_hold_no_verdict_or_are_of_an_earlier_job_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[bool] = []
    read = NodeVerdicts._read
    monkeypatch.setattr(NodeVerdicts, "_read", lambda self, folder: looks.append(True) or read(self, folder))

    async def looked() -> None:
        seen = len(looks)
        await until(lambda: len(looks) >= seen + 2, "a look that began later, and its end")

    async def work(found: list[Finding], folder: Path) -> None:
        second = folder / "1.json"
        before = (folder / "0.json").stat().st_mtime - SAME_JOB_SECONDS - 1
        second.write_text(json.dumps(vars(NodeVerdict("old", VerdictStatus.INCOMPATIBLE))))
        os.utime(second, (before, before))
        await looked()
        for nonsense in ("", "[]", '{"name": 3}', '{"name": "n", "status": "better"}', "\udcff" * 5):
            second.write_bytes(nonsense.encode(errors="surrogateescape"))
            await looked()
        assert found == []
        second.write_text(json.dumps({**vars(NodeVerdict("n", VerdictStatus.COMPATIBLE)), "of a later release": 1}))
        await until(lambda: bool(found), "the comparison")
        assert found[0].code == "nodes-agree"

    shared(tmp_path, work)
