from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pharoah_archetypes import Fingerprint
from pharoah_learning.degradation import fit_degradation
from pharoah_learning.evidence import DegradedRun, Trial
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.models.cross_validation import (
    ALARM_LOG_ODDS,
    BenchmarkLevel,
    compare,
    evidence,
    spread,
    typical_seconds,
)
from pharoah_learning.models.proportions import wilson
from pharoah_learning.recipe import failure_index
from pharoah_learning.release import LearnedRow
from pharoah_learning.signals import features
from pharoah_learning.slow_trials import mark_slow
from pharoah_protocol.vocabulary import Outcome
from pharoah_protocol.windows import MEMORY_RATIO, STEP_RATIO, Window


def trials(
    count: int, context: str, outcome: str = "ok", seconds: float = 0.1, length: int = 128, **settings: object
) -> list[Trial]:
    """Trials that two nodes of a context have run in turn."""
    print_ = Fingerprint(
        "ab" * 16,
        "12" * 16,
        "fwd: gemm",
        {name: str(value) for name, value in settings.items()},
        {"parameters": 1000, "activations": 1000 * length},
        {"torch": "2.13.0"},
    )
    steps = () if outcome in ("memory", "error") else (seconds, seconds, seconds)
    row = Trial(
        workload="gpt",
        settings={"length": length, **settings},
        context_id=context,
        device_id="cpu",
        outcome=Outcome(outcome),
        step_seconds=steps,
        fingerprint=print_.to_json(),
    )
    return [replace(row, node=f"{context}-{number % 2}") for number in range(count)]


def exact(rows: list[LearnedRow], context: str, **wanted: str) -> LearnedRow:
    tokens = {f"{name}={value}" for name, value in wanted.items()}
    found = [
        r
        for r in rows
        if r.rung == "exact" and r.scope == "server" and r.group_id == context and tokens <= set(r.tokens)
    ]
    assert len(found) == 1
    return found[0]


def memory_incompatibility(failures: int, controls: int) -> list[Trial]:
    return [
        *trials(failures, "small", "memory", length=1024, attention="math"),
        *trials(controls, "large", length=1024, attention="math"),
    ]


@pytest.mark.parametrize(("failures", "controls", "severity"), [(5, 20, "block"), (4, 20, "warn"), (5, 19, "warn")])
def test_the_small_numbers_rule(failures: int, controls: int, severity: str) -> None:
    row = exact(learn_incompatibilities(memory_incompatibility(failures, controls)), "small", attention="math")
    assert (row.severity, row.outcome) == (severity, "memory")
    assert (row.failures, row.runs, row.base_failures, row.base_runs) == (failures, failures, 0, controls)


def test_one_success_among_the_treated_forbids_blocking() -> None:
    rows = learn_incompatibilities([*memory_incompatibility(6, 30), *trials(1, "small", length=1024, attention="math")])
    assert exact(rows, "small", attention="math").severity == "warn"


def test_memory_informs_at_most_beyond_the_exact_rung() -> None:
    rows = learn_incompatibilities(memory_incompatibility(9, 40))
    wider = [r for r in rows if r.rung != "exact" and r.outcome == "memory"]
    assert wider and all(r.severity == "info" and not r.remedy for r in wider)


def test_a_failure_in_every_context_is_blamed_on_the_setting() -> None:
    everywhere = [trial for c in ("a", "b") for trial in trials(5, c, "nan", dtype="float16")]
    controls = [trial for c in ("a", "b") for trial in trials(10, c, dtype="float32")]
    row = exact(learn_incompatibilities([*everywhere, *controls]), "a", dtype="float16")
    assert (row.severity, row.base_failures, row.base_runs, row.remedy) == ("block", 0, 20, 3)


def test_the_remedy_is_the_change_that_worked_here() -> None:
    rows = learn_incompatibilities(
        [*memory_incompatibility(5, 20), *trials(5, "small", length=1024, attention="flash")]
    )
    assert exact(rows, "small", attention="math").remedy == 1
    assert exact(learn_incompatibilities(memory_incompatibility(5, 20)), "small", attention="math").remedy == 5


def test_a_job_that_two_nodes_failed_in_different_ways_has_no_row_that_says_it_works() -> None:
    nodes = [replace(one, node=f"n{at}") for at, one in enumerate(trials(4, "a", length=128))]
    errors, crashes = (replace(nodes[0], node=name, outcome=Outcome(name)) for name in ("error", "crash"))
    assert exact(learn_incompatibilities([*nodes, errors]), "a").severity == "ok", "one node proves nothing"
    assert learn_incompatibilities([*nodes, errors, crashes]) == []


def test_a_row_that_says_it_works_counts_the_controls_that_failed() -> None:
    """Whatever the controls failed with: the base rate of the row is how often such jobs fail."""
    seen = [*trials(4, "a", length=128), *trials(3, "a", "memory", length=1024), *trials(2, "b", "error", length=128)]
    row = exact(learn_incompatibilities(seen), "a", activations="2^16")
    assert (row.failures, row.runs, row.base_failures, row.base_runs) == (0, 4, 5, 5)


def test_the_order_of_trials_is_irrelevant() -> None:
    data = [*memory_incompatibility(5, 20), *trials(3, "small", attention="flash")]
    assert sorted(map(str, learn_incompatibilities(data))) == sorted(map(str, learn_incompatibilities(data[::-1])))


def test_a_job_much_slower_here_than_elsewhere_is_slow() -> None:
    data = [
        *trials(3, "old", seconds=0.8, dtype="bfloat16"),
        *trials(3, "new", seconds=0.1, dtype="bfloat16"),
    ]
    data += [
        *trials(3, "old", seconds=0.12, dtype="float32"),
        *trials(3, "new", seconds=0.1, dtype="float32"),
    ]
    marked = {(t.context_id, t.settings["dtype"]): t.outcome for t in mark_slow(data)}
    assert marked["old", "bfloat16"] == "slow"
    assert {marked[key] for key in marked if key != ("old", "bfloat16")} == {"ok"}


def test_steps_of_a_millisecond_and_a_busy_minute_are_not_slow() -> None:
    short = [*trials(3, "old", seconds=0.0012, dtype="float32"), *trials(3, "new", seconds=0.0005, dtype="float32")]
    assert {t.outcome for t in mark_slow(short)} == {"ok"}
    busy = [*trials(3, "old", seconds=0.8, dtype="float32"), *trials(3, "new", seconds=0.1, dtype="float32")]
    busy = [replace(t, step_seconds=(0.1, *t.step_seconds)[::-1]) if t.context_id == "old" else t for t in busy]
    assert {t.outcome for t in mark_slow(busy)} == {"ok"}, "one step was as fast as elsewhere"


def test_a_context_that_slows_everything_by_one_factor_is_not_an_incompatibility() -> None:
    kinds = ("float32", "bfloat16", "float64")
    data = [t for kind in kinds for c, s in (("old", 0.3), ("new", 0.1)) for t in trials(3, c, seconds=s, dtype=kind)]
    assert {t.outcome for t in mark_slow(data)} == {"ok"}


# Wilson intervals as published: Newcombe (1998), table I, method 3.
@pytest.mark.parametrize(
    ("failures", "runs", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_intervals(failures: int, runs: int, low: float, high: float) -> None:
    assert wilson(failures, runs) == pytest.approx((low, high), abs=5e-5)


@given(st.integers(0, 500), st.integers(0, 500))
def test_a_wilson_interval_holds_the_rate(failures: int, more: int) -> None:
    low, high = wilson(failures, failures + more)
    rate = failures / (failures + more) if failures + more else 0.5
    assert 0 <= low <= rate + 1e-12 and rate - 1e-12 <= high <= 1


def windows(step_ratios: list[float], memory_ratios: list[float] | None = None) -> tuple[Window, ...]:
    pairs = zip(step_ratios, memory_ratios or [1.0] * len(step_ratios), strict=True)
    return tuple(
        Window(at_seconds=0.5 * (i + 1), values={STEP_RATIO: step, MEMORY_RATIO: memory})
        for i, (step, memory) in enumerate(pairs)
    )


def degraded(fault: str, ratios: list[float], died: bool = False) -> DegradedRun:
    return DegradedRun(fault, windows(ratios), died)


def test_failure_is_a_slowdown_that_lasts_or_death() -> None:
    assert failure_index(degraded("cpu_share", [1, 1, 2, 2, 2, 2, 2])) == 5
    assert failure_index(degraded("cpu_share", [1, 2, 2, 1, 2, 2, 1])) is None
    assert failure_index(degraded("host_leak", [1, 1], died=True)) == 1


def test_the_degradation_model_ranks_degrading_runs_above_healthy_ones() -> None:
    chance = np.random.default_rng(0)

    def noise(length: int) -> list[float]:
        return [float(value) for value in 1 + 0.03 * chance.standard_normal(length)]

    runs = [degraded("none", noise(14)) for _ in range(8)]
    for i in range(10):
        ramp = [1 + min(1.2, 0.12 * max(0, t - 2)) for t in range(14)]
        runs.append(degraded("cpu_share", [a * b for a, b in zip(ramp, noise(14), strict=True)]) if i < 8 else runs[0])
    model, note = fit_degradation(runs)
    assert model.fitted, note
    assert model.coefficients["slowdown"] > 0
    calm, slow = (model.score(features(windows([r] * 5))) for r in (1.0, 1.6))
    assert calm < model.threshold < slow


def test_windows_before_the_onset_of_a_fault_are_healthy() -> None:
    """Runs that are slow before the onset and fast after it: with the onset left out, slowness would count."""
    late = replace(degraded("cpu_share", [2.0] * 6 + [1.0] * 6), onset_seconds=3.0)
    early = replace(degraded("cpu_share", [1.0] * 6 + [2.0] * 6), onset_seconds=3.0)
    control = degraded("none", [1.0] * 12)
    assert not fit_degradation([late] * 6 + [control] * 2).model.fitted
    assert fit_degradation([early] * 6 + [control] * 2).model.fitted
    never = replace(early, onset_seconds=60.0)
    assert not fit_degradation([never] * 6 + [control] * 2).model.fitted, "no fault had begun in any window"


def test_no_feature_excuses_a_node_that_gets_worse() -> None:
    chance = np.random.default_rng(3)
    runs = [degraded("none", list(1 + 0.05 * chance.standard_normal(10))) for _ in range(4)]
    runs += [degraded("cpu_share", [1.0, 1.0, *(s + 0.3 * chance.random() for s in [1.7] * 8)]) for _ in range(6)]
    model, _ = fit_degradation(runs)
    assert model.coefficients["slowdown"] > 0
    assert min(model.coefficients.values()) >= 0


def test_without_degraded_runs_a_plain_threshold_is_used_and_said() -> None:
    model, note = fit_degradation([degraded("none", [1.0] * 6)])
    assert not model.fitted and "too few" in note
    assert model.score(features(windows([1.2] * 3))) > model.threshold
    assert model.score(features(windows([1.05] * 3))) < model.threshold


@given(st.lists(st.floats(0.001, 1.0), min_size=10, max_size=60), st.floats(0.1, 10))
def test_rescaling_time_rescales_the_typical_time(seconds: list[float], factor: float) -> None:
    scaled = typical_seconds([s * factor for s in seconds])
    assert scaled == pytest.approx(factor * typical_seconds(seconds), rel=1e-9)


GEMM_NOISE, MEMORY_NOISE = 0.22, 0.06
"""Standard deviations of the log ratios of healthy nodes, as the micro-benchmarks declare them."""


def seen(*ratios: float, peer: float = 1.0, error: float = 0.03, noise: float = MEMORY_NOISE) -> float:
    return evidence([compare("any", ratio, BenchmarkLevel(1.0, error), noise, peer) for ratio in ratios])


def test_evidence_speaks_against_a_node_that_is_slower_than_its_past_and_its_peer() -> None:
    assert seen(2.0) > ALARM_LOG_ODDS, "twice as slow is enough at once"
    assert 0 < seen(1.2) < ALARM_LOG_ODDS < seen(*[1.25] * 3), "1.25 x needs several validations"
    assert seen(1.05) == 0
    assert seen(*[2.0] * 5, peer=1.9) == 0, "everybody is slow: it is not this node"
    assert seen(1.0, peer=0.5) == 0, "a fast peer incriminates nobody"
    assert seen(1.0, 1.0, 1.25, 1.25, 1.25) == seen(1.25, 1.25, 1.25), "health of long ago does not excuse"


def test_an_error_of_the_level_does_not_average_out() -> None:
    assert seen(*[1.13] * 200, error=0.1) < ALARM_LOG_ODDS
    assert seen(*[1.3] * 200, error=0.15) < ALARM_LOG_ODDS


def test_one_wild_value_of_a_noisy_benchmark_confirms_nothing() -> None:
    assert seen(50.0, noise=GEMM_NOISE) < ALARM_LOG_ODDS


def test_a_healthy_node_is_confirmed_in_at_most_one_of_a_hundred_suspicions() -> None:
    chance = np.random.default_rng(1)
    confirmed = 0
    for _ in range(2000):
        level_error = chance.normal(0.0, 0.03)
        ratios = np.exp(chance.normal(level_error, MEMORY_NOISE, 8))
        confirmed += any(seen(*ratios[:n]) > ALARM_LOG_ODDS for n in range(1, 9))
    assert confirmed / 2000 <= 0.01


def test_spread_of_equal_rounds_is_nothing() -> None:
    assert spread([0.1, 0.1, 0.1]) == pytest.approx(0)
    assert spread([0.1]) == 0


def test_fingerprints_in_the_table_are_those_of_the_trials() -> None:
    row = exact(learn_incompatibilities(trials(1, "a", dtype="float32")), "a", dtype="float32")
    assert f"archetype={json.loads(trials(1, 'a')[0].fingerprint)['archetype']}" in row.tokens
