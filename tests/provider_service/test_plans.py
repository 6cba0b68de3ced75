"""Plans and rows about near duplicates: what many archetypes share, and nothing that identifies one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pharoah_archetypes import Fingerprint, band_tokens
from pharoah_archetypes.catalogue import catalogue
from pharoah_learning.evidence import Trial
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.monitoring_plans import LEAST_ARCHETYPES, learn_plans
from pharoah_learning.near_duplicates import learn_near_duplicates
from pharoah_protocol.monitoring_plan import PLAIN, RESTLESS, STEADY, MonitoringPlan
from pharoah_protocol.vocabulary import Outcome


def trial(archetype: int, noise: float, outcome: str = "ok", grammar: str = "fwd: gemm", node: str = "n1") -> Trial:
    fingerprint = Fingerprint(
        f"{archetype:032x}", "0" * 32, grammar, {}, {"parameters": 1, "activations": 1}, {"torch": "2.13.0"}
    )
    steps = tuple(0.1 * (1 + noise * sign) for sign in (0, 1, -1, 1, -1, 1, -1))
    return Trial(
        workload=f"w{archetype}",
        settings={},
        context_id="ctx",
        device_id="cpu",
        outcome=Outcome(outcome),
        step_seconds=steps,
        fingerprint=fingerprint.to_json(),
        node=node,
    )


def on_two_nodes(trials: list[Trial]) -> list[Trial]:
    return [replace(one, node=node) for one in trials for node in ("n1", "n2")]


@pytest.mark.parametrize(("noise", "plan"), [(0.001, STEADY), (0.03, PLAIN), (0.2, RESTLESS)])
@pytest.mark.parametrize("sharing", [LEAST_ARCHETYPES - 1, LEAST_ARCHETYPES])
def test_a_plan_is_given_where_five_archetypes_share_it(noise: float, plan: MonitoringPlan, sharing: int) -> None:
    trials = on_two_nodes([trial(number, noise) for number in range(sharing)] + [trial(99, 0.03)])
    rows = learn_plans(learn_incompatibilities(trials), trials)
    plans = {row.plan for row in rows if f"archetype={99:032x}" not in row.tokens}
    assert plans == {(plan if sharing >= LEAST_ARCHETYPES else PLAIN).pack().hex()}


def test_one_node_moves_no_plan() -> None:
    steady = on_two_nodes([trial(number, 0.001) for number in range(LEAST_ARCHETYPES)])
    false = [trial(number, 0.9, node="odd") for number in range(LEAST_ARCHETYPES)]
    wanted = {STEADY.pack().hex()}
    for trials in (steady, [*steady, *false]):
        assert {row.plan for row in learn_plans(learn_incompatibilities(trials), trials)} == wanted
    assert {row.plan for row in learn_plans(learn_incompatibilities(false), false)} == {PLAIN.pack().hex()}


def test_rows_without_steps_get_the_plain_plan() -> None:
    trials = on_two_nodes([replace(trial(1, 0.1, "error"), step_seconds=())])
    assert {row.plan for row in learn_plans(learn_incompatibilities(trials), trials)} == {PLAIN.pack().hex()}


GRAMMAR = next(iter(catalogue().values())).skeleton.text


def test_band_rows_are_coarse_and_say_nothing_where_neighbours_disagree() -> None:
    bad = on_two_nodes([trial(1, 0.1, "error", GRAMMAR)] * 3)
    bands = learn_near_duplicates(learn_incompatibilities(bad), bad)
    assert {row.tokens for row in bands} == set(band_tokens(Fingerprint.from_json(bad[0].fingerprint)))
    assert {(row.severity, row.outcome, row.remedy, row.kind) for row in bands} == {("warn", "error", 0, "band")}
    mixed = [*bad, *on_two_nodes([trial(2, 0.1, "ok", GRAMMAR)] * 3)]
    assert learn_near_duplicates(learn_incompatibilities(mixed), mixed) == []
    memory = on_two_nodes([trial(1, 0.1, "memory", GRAMMAR)] * 3)
    assert learn_near_duplicates(learn_incompatibilities(memory), memory) == [], "whether it fits is arithmetic"


def test_fingerprints_without_a_skeleton_make_no_bands() -> None:
    odd = on_two_nodes([trial(1, 0.1, "ok", "no grammar at all")] * 3)
    assert learn_near_duplicates(learn_incompatibilities(odd), odd) == []
