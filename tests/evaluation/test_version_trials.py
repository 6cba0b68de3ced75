"""What the evaluation of real versions counts, on trials with planted changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from evaluation.learning.version_picture import draw
from evaluation.learning.version_trials import Campaign, Pair, read_campaign
from pharoah_archetypes import Fingerprint
from pharoah_learning.evidence import Trial
from pharoah_protocol.vocabulary import Outcome

VERSIONS = ("1.0.0", "1.0.1", "1.1.0", "1.1.1", "2.0.0")
ORDER = [f"tiny=={version}" for version in VERSIONS]
FINGERPRINT = Fingerprint("ab" * 16, "12" * 16, "fwd: gemm", {}, {"parameters": 1, "activations": 1}, {"torch": "2.13"})
OTHER = replace(FINGERPRINT, archetype="cd" * 16)
BLOCKS = 3


def trials(seed: int, changes: dict[str, dict[str, object]] | None = None) -> list[Trial]:
    """Trials of one family in complete blocks. `changes`: version to `factor`, `code`, `stated` and `outcome`."""
    rng = np.random.default_rng(seed)
    found = []
    for block in range(BLOCKS):
        speed = rng.lognormal(0, 0.3)
        for version in VERSIONS:
            planted = {"factor": 1.0, "code": "a", "stated": FINGERPRINT, "outcome": Outcome.OK}
            planted |= (changes or {}).get(version, {})
            seconds = 0.01 * speed * float(str(planted["factor"])) * rng.lognormal(0, 0.02)
            worked, stated = planted["outcome"] is Outcome.OK, planted["stated"]
            own = replace(FINGERPRINT, code={"tiny": str(planted["code"])})
            found.append(
                Trial(
                    workload="llama",
                    settings={"environment": f"tiny=={version}"},
                    context_id="c",
                    device_id="d",
                    outcome=Outcome(str(planted["outcome"])),
                    step_seconds=(9.0, 9.0, *[seconds] * 5) if worked else (),
                    fingerprint=stated.to_json() if isinstance(stated, Fingerprint) and worked else "",
                    own_fingerprints=(own.to_json(),) if worked else (),
                    trial_id=f"{version}/{block}",
                    block=f"b/{block}",
                )
            )
    return found


def campaign(changes: dict[str, dict[str, object]] | None = None, seed: int = 1) -> Campaign:
    return read_campaign(trials(seed, changes), ORDER, {f"2.0.0/{block}": "no such module" for block in range(BLOCKS)})


def test_versions_that_are_the_same_change_nothing() -> None:
    for seed in range(5):
        found = campaign(seed=seed)
        assert (found.speed_changes(), found.structure_changes(), found.outcome_changes()) == ([], [], [])
        assert len(found.same_code()) == 10 and found.missed(found.same_code()) == []
        assert found.skipped_runs(found.same_code()) == 4 * BLOCKS and found.runs == 5 * BLOCKS
        assert [pair[1:] for pair in found.same_minor()] == [("1.0.0", "1.0.1"), ("1.1.0", "1.1.1")]
        assert 0.01 < found.noise < 0.04


def test_a_slower_version_begins_a_piece_and_noise_between_equal_code_is_counted() -> None:
    slower: dict[str, dict[str, object]] = {version: {"factor": 1.3} for version in VERSIONS[2:]}
    found = campaign(slower)
    (pair,) = found.speed_changes()
    assert pair == Pair("llama", "1.0.1", "1.1.0") and found.slower(pair)
    assert found.missed_speed(found.same_code()) == [pair] and found.missed(found.same_code()) == []
    assert found.missed_speed(found.same_minor()) == []
    assert found.shown("1.1.0", "llama").endswith(" = >") and found.shown("2.0.0", "llama") == "1.00 ="


def test_another_structure_or_outcome_behind_equal_code_is_missed() -> None:
    found = campaign({"1.0.1": {"stated": OTHER}, "1.1.1": {"code": "b", "stated": OTHER}})
    assert [pair.later for pair in found.structure_changes()] == ["1.0.1", "1.1.0", "1.1.1", "2.0.0"]
    missed = {pair[1:] for pair in found.missed(found.same_code())}
    assert missed == {("1.0.0", "1.0.1"), ("1.0.1", "1.1.0"), ("1.0.1", "2.0.0")}, "1.1.1 has code of its own"


def test_a_version_that_fails_has_no_code_and_is_never_the_same(tmp_path: Path) -> None:
    found = campaign({"2.0.0": {"outcome": "error"}})
    assert [pair.later for pair in found.outcome_changes()] == ["2.0.0"]
    assert not any("2.0.0" in pair for pair in found.same_code())
    cell = found.cell("2.0.0", "llama")
    assert cell is not None and not cell.worked and cell.detail == "no such module"
    assert found.shown("2.0.0", "llama") == "fails" and found.speeds["1.1.1", "llama"] == 0.0
    draw(found, tmp_path / "pictures" / "versions.png")
    assert (tmp_path / "pictures" / "versions.png").read_bytes().startswith(b"\x89PNG")
