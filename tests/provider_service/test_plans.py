"""Plans and rows about near duplicates: what many archetypes share, and nothing that identifies one of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pharoah_archetypes import Fingerprint, band_tokens
from pharoah_archetypes.canonical import parse
from pharoah_archetypes.catalogue import catalogue
from pharoah_archetypes.vocabulary import vocabulary
from pharoah_learning.evidence import LeftOut, Trial
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.monitoring_plans import MIN_ARCHETYPES, learn_plans
from pharoah_learning.near_duplicates import learn_near_duplicates
from pharoah_learning.usable_trials import usable_trials
from pharoah_protocol.monitoring_plan import PLAIN, RESTLESS, STEADY, MonitoringPlan
from pharoah_protocol.vocabulary import Outcome

CLASSES = sorted(vocabulary().known_classes - vocabulary().collectives)


def grammar_of(number: int) -> str:
    """One of many different structures."""
    return f"fwd: {CLASSES[number % len(CLASSES)]} up"


def archetype_of(number: int) -> str:
    return parse(grammar_of(number)).archetype


def trial(number: int, noise: float, outcome: str = "ok", grammar: str = "", node: str = "n1", batch: int = 4) -> Trial:
    fingerprint = Fingerprint(
        archetype_of(number),
        "0" * 32,
        grammar or grammar_of(number),
        {},
        {"parameters": 1, "activations": 1},
        {"torch": "2.13.0"},
    )
    steps = tuple(0.1 * (1 + noise * sign) for sign in (0, 1, -1, 1, -1, 1, -1))
    return Trial(
        workload=f"w{number}",
        settings={"batch": batch},
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
@pytest.mark.parametrize("sharing", [MIN_ARCHETYPES - 1, MIN_ARCHETYPES])
def test_a_plan_is_given_where_five_archetypes_share_it(noise: float, plan: MonitoringPlan, sharing: int) -> None:
    trials = on_two_nodes([trial(number, noise) for number in range(sharing)] + [trial(99, 0.03)])
    rows = learn_plans(learn_incompatibilities(trials), trials)
    plans = {row.plan for row in rows if f"archetype={archetype_of(99)}" not in row.tokens}
    assert plans == {(plan if sharing >= MIN_ARCHETYPES else PLAIN).pack().hex()}


def test_one_node_moves_no_plan() -> None:
    steady = on_two_nodes([trial(number, 0.001) for number in range(MIN_ARCHETYPES)])
    false = [trial(number, 0.9, node="odd") for number in range(MIN_ARCHETYPES)]
    wanted = {STEADY.pack().hex()}
    for trials in (steady, [*steady, *false]):
        assert {row.plan for row in learn_plans(learn_incompatibilities(trials), trials)} == wanted
    assert {row.plan for row in learn_plans(learn_incompatibilities(false), false)} == {PLAIN.pack().hex()}


def test_rows_without_steps_get_the_plain_plan() -> None:
    trials = on_two_nodes([replace(trial(1, 0.1, "error"), step_seconds=())])
    assert {row.plan for row in learn_plans(learn_incompatibilities(trials), trials)} == {PLAIN.pack().hex()}


GRAMMAR = next(iter(catalogue().values())).skeleton.text


def test_band_rows_are_coarse_and_say_nothing_where_neighbours_disagree() -> None:
    bad = on_two_nodes([trial(number, 0.1, "error", GRAMMAR, batch=batch) for number in (1, 3) for batch in (1, 4)])
    bands = learn_near_duplicates(learn_incompatibilities(bad), bad)
    assert {row.tokens for row in bands} == set(band_tokens(Fingerprint.from_json(bad[0].fingerprint)))
    assert {(row.severity, row.outcome, row.remedy, row.kind) for row in bands} == {("warn", "error", 0, "band")}
    alone = [one for one in bad if one.workload == "w1"]
    assert learn_near_duplicates(learn_incompatibilities(alone), alone) == [], "what is odd about it may be the cause"
    mixed = [*bad, *on_two_nodes([trial(2, 0.1, "ok", GRAMMAR)] * 3)]
    assert learn_near_duplicates(learn_incompatibilities(mixed), mixed) == []
    memory = on_two_nodes([trial(one, 0.1, "memory", GRAMMAR, batch=batch) for one in (1, 3) for batch in (1, 4)])
    assert learn_near_duplicates(learn_incompatibilities(memory), memory) == [], "whether it fits is arithmetic"


@pytest.mark.parametrize("grammar", ["no grammar at all", "fwd: " + "(" * 5000, "fwd: " + "gemm act " * 20_000])
def test_fingerprints_without_a_skeleton_are_left_out(grammar: str) -> None:
    left_out = LeftOut()
    assert usable_trials(on_two_nodes([trial(1, 0.1, "ok", grammar)] * 3), left_out) == []
    assert "fingerprint cannot be read" in left_out.lines()[0]
