"""The class of a node from reruns: closed forms, laws, and nodes whose truth is known."""

from __future__ import annotations

from itertools import product
from math import inf, log

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.special import comb
from scipy.stats import beta, betabinom

from pharoah_learning.models.rerun_likelihoods import (
    AFFECTED_SHARE,
    BASE,
    GRAY,
    PERSISTENT,
    TRANSIENT,
    BetaRate,
    Reruns,
    class_likelihoods,
    gray_evidence,
)
from pharoah_learning.node_class import CERTAIN, MAX_RERUNS, PRIORS, Rerun, RerunWorkload, classify
from pharoah_protocol.vocabulary import NodeClass

FOUR = [RerunWorkload(name=name) for name in ("gpt", "bert", "resnet", "dlrm")]


def reruns(failures: list[int], runs: list[int], base: tuple[int, int] = (0, 0)) -> Reruns:
    return Reruns(
        *(np.array(one, dtype=float) for one in (failures, runs, [base[0]] * len(runs), [base[1]] * len(runs)))
    )


def affected_rate(own: float) -> float:
    """How often an affected workload fails, with the mean of the base rate."""
    return 1 - (1 - own) * (1 - BASE.failures / sum(BASE))


@pytest.mark.parametrize(("failures", "runs"), [(0, 5), (3, 5), (7, 20)])
def test_one_workload_is_a_beta_binomial(failures: int, runs: int) -> None:
    found = class_likelihoods(reruns([failures], [runs]))
    sequences = log(comb(runs, failures))
    assert found.healthy == pytest.approx(betabinom.logpmf(failures, runs, *BASE) - sequences)
    assert found.gray == -inf
    for value, rate in ((found.transient, TRANSIENT), (found.persistent, PERSISTENT)):
        expected = quad(
            lambda own, of=rate: (
                beta.pdf(own, *of) * affected_rate(own) ** failures * (1 - affected_rate(own)) ** (runs - failures)
            ),
            0,
            1,
        )[0]
        assert value == pytest.approx(log(expected), rel=1e-6)


def test_a_gray_node_is_a_sum_over_all_sets_of_affected_workloads() -> None:
    failures, runs = [2, 0, 1], [3, 4, 2]
    alone = [betabinom.pmf(f, n, *BASE) / comb(n, f) for f, n in zip(failures, runs, strict=True)]

    def joint(own: float, of: tuple[bool, ...]) -> float:
        value = float(beta.pdf(own, *GRAY))
        for at, is_affected in enumerate(of):
            rate = affected_rate(own)
            hurt = rate ** failures[at] * (1 - rate) ** (runs[at] - failures[at])
            value *= AFFECTED_SHARE * hurt if is_affected else (1 - AFFECTED_SHARE) * alone[at]
        return value

    sets = [of for of in product((False, True), repeat=3) if 0 < sum(of) < 3]
    weights = {of: quad(joint, 0, 1, args=(of,))[0] for of in sets}
    possible = 1 - AFFECTED_SHARE**3 - (1 - AFFECTED_SHARE) ** 3
    found = gray_evidence(reruns(failures, runs))
    assert found.log_likelihood == pytest.approx(log(sum(weights.values()) / possible), rel=1e-6)
    for at in range(3):
        share = sum(weight for of, weight in weights.items() if of[at]) / sum(weights.values())
        assert found.affected[at] == pytest.approx(share, rel=1e-6)


def test_the_probabilities_of_all_outcomes_add_up_to_one() -> None:
    """In each class, over the four outcomes of one rerun of each of two workloads."""
    for of in ("healthy", "transient", "gray", "persistent"):
        logs = [getattr(class_likelihoods(reruns(list(one), [1, 1])), of) for one in product((0, 1), repeat=2)]
        assert np.exp(logs).sum() == pytest.approx(1)


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=20), st.randoms())
def test_the_order_of_reruns_does_not_matter(history: list[tuple[int, bool]], random: object) -> None:
    outcomes = [Rerun(FOUR[at].name, failed) for at, failed in history]
    shuffled = sorted(outcomes, key=lambda _: random.random())  # type: ignore[attr-defined]
    one, other = classify(FOUR, outcomes), classify(FOUR, shuffled)
    assert one == other
    assert sum(one.posterior.values()) == pytest.approx(1)
    assert (one.next_workload is None) == (one.is_certain or len(outcomes) >= MAX_RERUNS)
    assert all(0 <= share <= 1 for share in one.affected.values())


def test_nothing_but_the_priors_is_known_before_the_first_rerun() -> None:
    found = classify(FOUR, [])
    assert found.posterior == pytest.approx(dict(PRIORS))
    assert found.next_workload == "gpt"
    assert sum(PRIORS.values()) == pytest.approx(1)
    assert list(found.affected.values()) == pytest.approx([found.affected["gpt"]] * 4)


@pytest.mark.parametrize(
    ("wrong", "expected"),
    [(set(), NodeClass.HEALTHY), ({"bert"}, NodeClass.GRAY), ({one.name for one in FOUR}, NodeClass.PERSISTENT)],
)
def test_nodes_that_always_fail_the_same_work_are_recognised(wrong: set[str], expected: NodeClass) -> None:
    history: list[Rerun] = []
    while (found := classify(FOUR, history)).next_workload is not None:
        history.append(Rerun(found.next_workload, found.next_workload in wrong))
    assert (found.node_class, found.is_certain) == (expected, True)
    assert len(history) <= MAX_RERUNS
    assert set(found.wrong_for) == (wrong if expected is NodeClass.GRAY else set())


def test_a_node_that_fails_now_and_then_is_transient() -> None:
    history = [Rerun(FOUR[at % 4].name, at in (1, 4, 10, 15)) for at in range(16)]
    found = classify(FOUR, history)
    assert (found.node_class, found.wrong_for) == (NodeClass.TRANSIENT, ())
    assert found.posterior[NodeClass.TRANSIENT] >= CERTAIN


def test_work_that_fails_everywhere_does_not_speak_against_a_node() -> None:
    history = [Rerun(one.name, one.name == "gpt") for one in FOUR for _ in range(4)]
    assert classify(FOUR, history).wrong_for == ("gpt",)
    known = [RerunWorkload(name="gpt", base_failures=95, base_runs=100), *FOUR[1:]]
    assert classify(known, history).node_class is NodeClass.HEALTHY


def test_after_a_failure_the_same_and_other_work_are_run_again() -> None:
    """The next rerun distinguishes a gray node from a transient and a persistent one."""
    history = [Rerun("gpt", True), Rerun("gpt", True)]
    found = classify(FOUR, history)
    assert found.next_workload != "gpt"


def test_wrong_input_is_named() -> None:
    with pytest.raises(ValueError, match=r"workloads: different names are needed, not \[\]"):
        classify([], [])
    with pytest.raises(ValueError, match="different names are needed"):
        classify([FOUR[0], FOUR[0]], [])
    with pytest.raises(ValueError, match=r"reruns: \['vit'\] is not among the workloads"):
        classify(FOUR, [Rerun("vit", True)])
    with pytest.raises(ValueError, match="workload 'gpt': 3 failures in 2 runs"):
        RerunWorkload(name="gpt", base_failures=3, base_runs=2)


def test_a_long_history_stays_finite() -> None:
    history = [Rerun(FOUR[at % 4].name, at % 3 == 0) for at in range(5000)]
    posterior = classify(FOUR, history).posterior
    assert all(np.isfinite(list(posterior.values())))
    assert posterior[NodeClass.TRANSIENT] > CERTAIN


def test_a_beta_rate_has_the_mean_that_is_stated() -> None:
    means = {rate: rate.failures / sum(rate) for rate in (BASE, TRANSIENT, GRAY, PERSISTENT)}
    assert list(means.values()) == [0.01, 0.25, 0.8, 0.9]
    assert isinstance(GRAY, BetaRate)
