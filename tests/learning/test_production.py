"""What runs that tenants revealed show, and what they cannot show."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np

from pharoah_learning.evidence import LeftOut, RevealedRun
from pharoah_learning.incompatible_pairs import Call, PairFinding
from pharoah_learning.production import learn_production
from pharoah_learning.release import Release
from pharoah_protocol.vocabulary import Attribution, EndState
from tests.harness.exchange import KNOWN

DRIVERS = ("driver=535", "driver=550")
RUNS = 3_000


def runs(seed: int, *, organisations: int = 8, blamed: int | None = None) -> list[RevealedRun]:
    """Runs of six archetypes, of which the first fails with driver 550: 40 % in all organisations, or in `blamed` all
    of its runs, whatever those of the others do."""
    rng = np.random.default_rng(seed)
    found = []
    for number in range(RUNS):
        archetype, driver, organisation = rng.integers(6), rng.integers(2), rng.integers(organisations)
        bad = archetype == 0 and driver == 1 and (blamed is None or organisation == blamed)
        failed = rng.random() < ((0.4 if blamed is None else 1.0) if bad else 0.05)
        found.append(
            RevealedRun(
                organisation=f"o{organisation}",
                fingerprint=replace(KNOWN, archetype=f"{archetype:032x}").to_json(),
                facts=(DRIVERS[driver], "device=cpu"),
                ranks=int(rng.integers(1, 4)),
                state=EndState.FAILED if failed else EndState.OK,
                attribution=Attribution.UNKNOWN,
                ended_at=1.7e9 + 3600 * number,
            )
        )
    return found


def calls(found: list[PairFinding]) -> dict[tuple[str, str], Call]:
    return {(one.archetype[-1], one.context): one.call for one in found if one.call is not Call.DECLINED}


def test_a_driver_with_which_one_archetype_fails_is_found() -> None:
    found = learn_production(runs(1), LeftOut())
    # Two drivers only: having one is not having the other, so both are named with the pair.
    assert ("0", "driver=550") in calls(found)
    assert {archetype for archetype, _ in calls(found)} == {"0"}


def test_what_one_organisation_alone_reports_is_declined() -> None:
    assert calls(learn_production(runs(2, blamed=3), LeftOut())) == {}


def test_failures_that_users_caused_do_not_count() -> None:
    left_out = LeftOut()
    theirs = [replace(run, attribution=Attribution.USER) if run.state is EndState.FAILED else run for run in runs(3)]
    assert calls(learn_production(theirs, left_out)) == {}
    assert left_out.counts.total() == sum(run.state is EndState.FAILED for run in theirs)


def test_nothing_that_tenants_send_ends_learning() -> None:
    left_out = LeftOut()
    long = replace(KNOWN, grammar=f"fwd: gemm\nwith: {'x' * 70_000}").to_json()  # no name has room for such a trait
    odd = [replace(runs(4)[0], fingerprint=text) for text in ("", "{}", "[" * 100_000, '{"format": 3}', long)]
    assert learn_production(odd, left_out) == [] and left_out.counts.total() == len(odd)
    assert learn_production([], LeftOut()) == []
    assert learn_production(runs(5)[:3], LeftOut()) == []


def test_pairs_come_back_from_a_stored_release() -> None:
    release = Release(1, pairs=tuple(learn_production(runs(1), LeftOut())))
    assert release.pairs and Release.from_dict(json.loads(json.dumps(asdict(release)))) == release
