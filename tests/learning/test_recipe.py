"""The recipe: signals that move before failures are found, and others are not."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_learning.evidence import DegradedRun
from pharoah_learning.models.superiority import superiority
from pharoah_learning.recipe import learn_recipe
from pharoah_learning.recipe_item import RecipeItem
from pharoah_learning.release import Release
from pharoah_protocol.windows import MEMORY_RATIO, STEP_RATIO, Window

ARCHETYPE = "ab" * 16


def run(fault: str, seed: int, archetype: str = ARCHETYPE) -> DegradedRun:
    """A leak grows from the fifth window on and kills after the fourteenth; a stressor slows the steps down."""
    rng = np.random.default_rng(seed)
    windows = []
    for at in range(14):
        step = 1 + 0.02 * rng.standard_normal() + (0.15 * max(0, at - 4) if fault == "cpu_share" else 0)
        memory = 1 + 0.002 * rng.standard_normal() + (0.1 * max(0, at - 4) if fault == "host_leak" else 0)
        windows.append(Window(at_seconds=float(at + 1), values={STEP_RATIO: step, MEMORY_RATIO: memory}))
    return DegradedRun(fault, tuple(windows), fault == "host_leak", node=f"n{seed % 2}", archetype=archetype)


RUNS = [run(fault, seed) for seed in range(12) for fault in ("none", "host_leak", "cpu_share")]


def item(found: list[RecipeItem], fault: str, feature: str) -> RecipeItem:
    return next(one for one in found if (one.fault, one.feature) == (fault, feature))


def test_a_leak_shows_in_memory_before_it_kills_and_not_in_steps() -> None:
    found = learn_recipe(RUNS)
    growth, slowdown = item(found, "host_leak", "growth"), item(found, "host_leak", "slowdown")
    assert growth.collect and growth.effect == 1 and growth.low > 0.75 and growth.lead_seconds >= 6
    assert (growth.runs, growth.failed, growth.controls, growth.nodes) == (12, 12, 12, 2)
    assert not slowdown.collect and slowdown.low < 0.5 < slowdown.high
    assert next(one.feature for one in found if one.fault == "host_leak") == "growth", "the strongest comes first"


def test_a_slow_core_shows_in_steps() -> None:
    found = learn_recipe(RUNS)
    assert item(found, "cpu_share", "slowdown").collect and not item(found, "cpu_share", "growth").collect


def test_what_one_node_shows_is_not_worth_collecting() -> None:
    one_node = [replace(one, node="n0") for one in RUNS]
    growth = item(learn_recipe(one_node), "host_leak", "growth")
    assert growth.low > 0.5 and growth.nodes == 1 and not growth.collect


def test_archetypes_are_kept_apart_and_need_control_runs() -> None:
    others = [run("host_leak", seed, "cd" * 16) for seed in range(4)]
    assert {one.archetype for one in learn_recipe([*RUNS, *others])} == {ARCHETYPE}
    assert learn_recipe([replace(one, archetype="") for one in RUNS]) == []
    assert learn_recipe([replace(one, windows=()) for one in RUNS]) == []


def test_a_release_keeps_its_recipe_and_an_older_one_has_none() -> None:
    release = Release(3, recipe=tuple(learn_recipe(RUNS)))
    assert Release.from_dict(asdict(release)).recipe == release.recipe
    older = asdict(release)
    del older["recipe"]
    assert Release.from_dict({**older, "format": 3}).recipe == ()


def test_without_values_nothing_is_known() -> None:
    assert superiority(np.array([]), np.array([1.0])) == (0.5, 0.0, 1.0)


@given(st.lists(st.integers(0, 5), min_size=1, max_size=12), st.lists(st.integers(0, 5), min_size=1, max_size=12))
def test_a_probability_is_in_its_interval_and_turns_with_the_groups(first: list[int], second: list[int]) -> None:
    found, turned = (
        superiority(np.array(a, dtype=float), np.array(b, dtype=float)) for a, b in ((first, second), (second, first))
    )
    assert 0 <= found.low <= found.value <= found.high <= 1 and found.low < found.high
    assert found.value == pytest.approx(1 - turned.value)
    assert (found.low, found.high) == (
        pytest.approx(1 - turned.high, abs=1e-6),
        pytest.approx(1 - turned.low, abs=1e-6),
    )


def test_intervals_cover_the_truth_as_often_as_they_claim() -> None:
    """Normal values one standard deviation apart: the larger one is of the first group in 76 % of all pairs."""
    rng = np.random.default_rng(1)
    found = [superiority(rng.normal(1, 1, 10), rng.normal(0, 1, 8)) for _ in range(1000)]
    covered = sum(one.low <= 0.7602 <= one.high for one in found) / 1000
    assert 0.93 <= covered <= 0.985
