"""Sub-archetypes from cells of campaigns: clusters, changes, new versions, and rows that are expanded."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pharoah_learning.evidence import LeftOut, Trial
from pharoah_learning.expansion import MAX_VERSION_SETS, expand_rows
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.known_versions import ACTIVATIONS, STEP_TIME, STRUCTURE, SubArchetype, in_words
from pharoah_learning.models.version_effects import version_effects
from pharoah_learning.release import FORMAT, Release
from pharoah_learning.sub_archetypes import Place, learn_versions, place_versions
from pharoah_learning.table import learn_table
from pharoah_protocol.vocabulary import Outcome, Rung, Scope, Severity
from tests.harness.version_trials import OTHER_GRAMMAR, Planted, archetype_of, version_trials

SLOW = Planted(1.2)
RELEASES = {
    "4.9.0": Planted(code="a"),
    "4.10.0": Planted(code="a"),
    "4.11.0": Planted(code="b"),
    "4.12.0": SLOW,
    "4.13.0": SLOW,
    "4.14.0": Planted(1.2, failing_ratio=1.0),
    "4.15.0": Planted(1.2, grammar=OTHER_GRAMMAR),
    "4.16.0": Planted(1.2, grammar=OTHER_GRAMMAR),
}
SAME = {version: Planted() for version in ("4.9.0", "4.10.0", "4.11.0")}


def clusters(found: tuple[SubArchetype, ...], library: str = "transformers") -> dict[tuple[str, ...], SubArchetype]:
    return {tuple(one.version for one in sub.versions): sub for sub in found if sub.library == library}


# ---- effects of versions --------------------------------------------------------------------------------------------


def test_effects_are_those_of_a_regression_on_versions_and_strata() -> None:
    rng = np.random.default_rng(2)
    version, stratum = rng.integers(0, 4, 60), rng.integers(0, 9, 60)
    measured = rng.normal(size=60) + 2.0 * version + 5.0 * stratum
    found = version_effects(measured, version, stratum, 4)
    design = np.hstack([np.eye(4)[version], np.eye(9)[stratum]])
    expected = np.linalg.lstsq(design, measured, rcond=None)[0][:4]
    assert found.value - found.value[0] == pytest.approx(expected - expected[0])


def test_in_complete_blocks_the_variance_of_a_difference_is_that_of_paired_means() -> None:
    blocks, versions = 4000, 3
    rng = np.random.default_rng(3)
    stratum, version = np.divmod(np.arange(blocks * versions), versions)
    measured = 0.5 * rng.standard_normal(blocks * versions) + 9 * rng.standard_normal(blocks)[stratum]
    found = version_effects(measured, version, stratum, versions)
    assert found.variance[0] + found.variance[1] == pytest.approx(2 * 0.25 / blocks, rel=0.05)
    assert found.measurements.tolist() == [blocks] * versions


@pytest.mark.parametrize("order", range(5))
def test_the_order_of_the_strata_changes_nothing(order: int) -> None:
    """Sums of thousands of numbers differ in their last digits by their order, and by the threads of a library."""
    rng = np.random.default_rng(order)
    version, block = np.tile(np.arange(5), 3000), np.repeat(rng.permutation(3000), 5)
    measured = 0.1 * rng.standard_normal(15_000) + version
    keep = rng.random(15_000) < 0.7
    found = version_effects(np.where(keep, measured, np.nan), version, block, 5)
    assert found.value == pytest.approx(np.arange(5) - 2.0, abs=0.02)
    assert (found.variance > 0).all() and (found.variance < 1e-4).all()


def test_versions_without_a_common_stratum_are_not_compared() -> None:
    version, stratum = np.array([0, 1, 0, 1, 0, 1, 0, 1, 2, 3]), np.array([0, 0, 1, 1, 2, 2, 3, 3, 4, 4])
    found = version_effects(np.arange(10.0), version, stratum, 5)
    assert np.isfinite(found.value).tolist() == [True, True, False, False, False]
    assert found.measurements.tolist() == [4, 4, 0, 0, 0]


def test_the_noise_of_two_measurements_is_unknown() -> None:
    found = version_effects(np.array([1.0, 2.0]), np.array([0, 1]), np.array([0, 0]), 2)
    assert np.isnan(found.variance).all() and found.value[1] - found.value[0] == pytest.approx(1.0)


# ---- clusters and changes -------------------------------------------------------------------------------------------


def test_versions_that_behave_the_same_are_one_sub_archetype() -> None:
    found = clusters(learn_versions(version_trials(RELEASES)).sub_archetypes)
    assert set(found) == {("4.9.0", "4.10.0", "4.11.0"), ("4.12.0", "4.13.0"), ("4.14.0",), ("4.15.0", "4.16.0")}
    first, second = found["4.9.0", "4.10.0", "4.11.0"], found["4.12.0", "4.13.0"]
    assert second.centre[STEP_TIME].value - first.centre[STEP_TIME].value == pytest.approx(np.log(1.2), abs=0.02)
    assert first.is_stable and first.expanded_versions == {"4.9.0", "4.10.0", "4.11.0"}
    assert STEP_TIME not in found["4.14.0",].centre, "it never ended a step"
    assert found["4.15.0", "4.16.0"].archetype == archetype_of(OTHER_GRAMMAR) != first.archetype


def test_changes_say_what_changed_by_how_much_and_where_nothing_did() -> None:
    changes = {(c.before, c.after): c for c in learn_versions(version_trials(RELEASES)).changes}
    assert [pair for pair, change in changes.items() if not change.effects] == [
        ("4.9.0", "4.10.0"),
        ("4.10.0", "4.11.0"),
        ("4.12.0", "4.13.0"),
        ("4.15.0", "4.16.0"),
    ]
    (slower,) = changes["4.11.0", "4.12.0"].effects
    assert slower.quantity == STEP_TIME and slower.low < np.log(1.2) < slower.high
    assert slower.in_words.startswith("step time +20 % [+1") and slower.in_words.endswith("]")
    assert {effect.quantity for effect in changes["4.14.0", "4.15.0"].effects} == {STRUCTURE, "failed_error"}
    assert changes["4.9.0", "4.10.0"].same_code is True
    assert changes["4.10.0", "4.11.0"].same_code is False
    assert changes["4.12.0", "4.13.0"].same_code is None


def test_a_slow_node_or_minute_is_no_effect_of_the_version_that_ran_there() -> None:
    trials = version_trials({"4.9.0": Planted(), "4.10.0": Planted()}, blocks=6)
    slow = [replace(t, step_seconds=tuple(3 * s for s in t.step_seconds)) if t.node == "a-0" else t for t in trials]
    assert not any(change.effects for change in learn_versions(slow).changes)


def test_versions_that_ran_in_different_contexts_alone_are_not_compared() -> None:
    apart = version_trials({"4.9.0": Planted(), "4.10.0": SLOW}, only={"4.9.0": ("a",), "4.10.0": ("b",)})
    assert learn_versions(apart) == ((), ())


def test_one_cell_of_each_version_says_nothing_about_speed() -> None:
    trials = version_trials({"4.9.0": Planted(), "4.10.0": Planted(3.0)}, contexts=("a",), nodes=1, blocks=1)
    (sub,) = learn_versions(trials).sub_archetypes
    assert STEP_TIME not in sub.centre and not sub.expanded_versions


def test_libraries_that_change_together_are_said_to_be_inseparable() -> None:
    others = {"4.9.0": {"peft": "0.1"}, "4.10.0": {"peft": "0.2"}, "4.11.0": {"peft": "0.2"}}
    found = learn_versions(version_trials(SAME, others=others)).sub_archetypes
    (sub,) = (one for one in found if one.library == "transformers")
    assert sub.together == ("peft",)
    assert not any(one.library == "peft" and one.together for one in found), "4.10 and 4.11 share a version of it"


@given(st.randoms(use_true_random=False))
@settings(max_examples=5, deadline=None)
def test_the_order_of_trials_does_not_matter(random: object) -> None:
    trials = version_trials(RELEASES, blocks=2)
    shuffled = list(trials)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert learn_versions(shuffled) == learn_versions(trials)


def test_a_difference_is_written_in_words() -> None:
    assert in_words(STEP_TIME, np.log(1.12)) == "step time +12 %"
    assert in_words(ACTIVATIONS, -np.log(2)) == "activations -50 %"
    assert in_words("failed_nan", 0.25) == "cells with nan +25 %"


# ---- new versions ---------------------------------------------------------------------------------------------------


def placed(versions: dict[str, Planted], **options: object) -> dict[str, Place]:
    known = learn_versions(version_trials(RELEASES)).sub_archetypes
    new = version_trials(versions, blocks=2, seed=5, **options)  # type: ignore[arg-type]
    return {one.version: one.place for one in place_versions(known, new)}


def test_a_new_version_is_placed_beside_known_ones_or_called_unlike_them() -> None:
    found = placed(
        {
            "4.11.0": Planted(),
            "4.12.0": SLOW,
            "4.20.0": SLOW,
            "4.21.0": Planted(1.6),
            "4.22.0": Planted(grammar=OTHER_GRAMMAR.replace("attn", "gemm")),
            "4.23.0": Planted(1.0, failing_ratio=1.0),
        }
    )
    assert found == {
        "4.20.0": Place.KNOWN,
        "4.21.0": Place.UNLIKE,
        "4.22.0": Place.UNLIKE,
        "4.23.0": Place.KNOWN,
    }


def test_a_new_version_that_fails_in_a_new_way_is_unlike_anything_known() -> None:
    known = learn_versions(version_trials({"4.9.0": Planted(), "4.12.0": SLOW})).sub_archetypes
    new = version_trials({"4.9.0": Planted(), "4.20.0": Planted(failing_ratio=1.0)}, seed=7)
    assert [one.place for one in place_versions(known, new)] == [Place.UNLIKE]


def test_a_new_version_that_ran_beside_no_known_one_is_not_compared() -> None:
    assert placed({"4.20.0": Planted(), "4.21.0": Planted()}) == {
        "4.20.0": Place.NOT_COMPARED,
        "4.21.0": Place.NOT_COMPARED,
    }


# ---- rows -----------------------------------------------------------------------------------------------------------


def expanded(trials: list[Trial]) -> list[tuple[str, str, Rung, str]]:
    rows = expand_rows(learn_incompatibilities(trials), trials, learn_versions(trials).sub_archetypes)
    token = "transformers="
    return [
        (row.group_id, row.severity, row.rung, next(t for t in row.tokens if t.startswith(token)).removeprefix(token))
        for row in rows
        if row.scope is Scope.SERVER
    ]


def test_a_row_is_sealed_for_the_versions_that_behave_the_same() -> None:
    trials = version_trials(SAME, contexts=("a", "b", "c"), only={"4.10.0": ("b", "c")})
    assert ("a", Severity.OK, Rung.EXACT, "4.10.0") in expanded(trials)
    learned = learn_incompatibilities(trials)
    rows = expand_rows(learned, trials, learn_versions(trials).sub_archetypes)
    for row in rows:
        (source,) = {one.evidence for one in learned if one.evidence == row.evidence}
        twin = next(one for one in learned if one.evidence == source and one.rung == row.rung)
        assert replace(row, tokens=twin.tokens, title=twin.title) in learned, "counts, grade and evidence are the same"


def test_a_version_with_cells_of_its_own_keeps_its_own_row() -> None:
    assert expanded(version_trials(SAME)) == []


def test_a_version_that_behaves_otherwise_gets_no_row() -> None:
    trials = version_trials({**SAME, "4.12.0": SLOW}, contexts=("a", "b"), only={"4.12.0": ("b",)}, blocks=6)
    assert expanded(trials) == []


def test_a_version_that_failed_once_where_the_other_works_gets_no_row() -> None:
    trials = version_trials(SAME, only={"4.10.0": ("b",)}, blocks=12)
    at = next(number for number, trial in enumerate(trials) if "4.10.0" in trial.trial_id)
    assert expanded(trials)
    trials[at] = replace(trials[at], outcome=Outcome.ERROR, step_seconds=())
    assert expanded(trials) == []


def test_clusters_that_are_not_stable_or_rest_on_one_node_are_not_expanded() -> None:
    trials = version_trials(SAME, only={"4.10.0": ("b",)})
    subs = learn_versions(trials).sub_archetypes
    rows = learn_incompatibilities(trials)
    assert expand_rows(rows, trials, subs)
    assert not expand_rows(rows, trials, [replace(sub, stability=0.8) for sub in subs])
    one_node = [replace(sub, versions=tuple(replace(v, nodes=1) for v in sub.versions)) for sub in subs]
    assert not expand_rows(rows, trials, one_node)


def test_rows_that_contradict_each_other_are_not_expanded() -> None:
    trials = version_trials(SAME, only={"4.10.0": ("b",)})
    rows = learn_incompatibilities(trials)
    changed = [
        replace(row, outcome=Outcome.NAN, severity=Severity.WARN) if "transformers=4.9.0" in row.tokens else row
        for row in rows
    ]
    subs = learn_versions(trials).sub_archetypes
    found = [row for row in expand_rows(changed, trials, subs) if row.rung is Rung.EXACT]
    assert found == [], "one source works and the other does not"


def test_a_row_is_sealed_for_a_bounded_number_of_version_sets() -> None:
    versions = {f"4.{number}.0": Planted() for number in range(80)}
    only = dict.fromkeys(list(versions)[1:], ("b",))
    found = [row for row in expanded(version_trials(versions, only=only, blocks=3)) if row[2] is Rung.EXACT]
    assert len(found) == MAX_VERSION_SETS and ("a", Severity.OK, Rung.EXACT, "4.79.0") in found


def test_a_table_holds_expanded_rows_apart_and_is_the_same_each_time() -> None:
    trials = version_trials(RELEASES, only={"4.10.0": ("b",)})
    table = learn_table(trials, LeftOut())
    assert table.expanded and not {row.id for row in table.expanded} & {row.id for row in table.rows}
    assert learn_table(trials, LeftOut()) == table


def test_a_release_with_sub_archetypes_comes_back_from_json_and_older_ones_have_none() -> None:
    versions = learn_versions(version_trials(RELEASES))
    release = Release(7, sub_archetypes=versions.sub_archetypes, version_changes=versions.changes)
    assert Release.from_dict(json.loads(json.dumps(asdict(release)))) == release
    old = {name: value for name, value in asdict(release).items() if name not in ("sub_archetypes", "version_changes")}
    read = Release.from_dict({**old, "format": 3})
    assert (read.sub_archetypes, read.version_changes, read.format) == ((), (), 3) and FORMAT == 7
