"""Which facts a release ignores, and which context a node is in."""

from __future__ import annotations

import json
from dataclasses import asdict, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from pharoah_learning.context_evidence import LearnedContexts, describe_contexts, in_contexts, learn_contexts
from pharoah_learning.context_rule import ALL_FACTS, ContextRule, IgnoredFact, identity, nearest
from pharoah_learning.evidence import LeftOut, Trial
from pharoah_learning.models.equivalence import LEVEL, PairedCounts, largest_difference
from pharoah_learning.release import Release
from pharoah_learning.table import learn_table
from pharoah_protocol.vocabulary import Outcome
from tests.provider_service.test_learning import trials

KERNEL = ContextRule((IgnoredFact(name="kernel", values=("5.15", "6.1"), reason="28 pairs"),))
BASE = ("device=a CPU", "isa=avx2")


def ran(
    node: str, *facts: str, count: int = 15, outcome: str = "ok", seconds: float = 0.1, width: int = 8
) -> list[Trial]:
    """Trials of one cell on one node, each in a block of its own."""
    first = trials(1, "c", outcome, seconds, width=width)[0]
    own = (*BASE, *facts)
    return [
        replace(first, node=node, facts=own, context_id=identity(own), block=f"{node}/{at}", ran_at=float(at))
        for at in range(count)
    ]


def two_kernels(count: int = 15, width: int = 8, **later: object) -> list[Trial]:
    """The same cell on two nodes of each of two kernels; `later` is how it ran on the second kernel."""
    return [
        trial
        for name, kernel, how in (("n1", "5.15", {}), ("n2", "5.15", {}), ("n3", "6.1", later), ("n4", "6.1", later))
        for trial in ran(name, f"kernel={kernel}", count=count, width=width, **how)  # type: ignore[arg-type]
    ]


def ignored(learned: LearnedContexts) -> dict[str, tuple[str, ...]]:
    return {fact.name: fact.values for fact in learned.rule.ignored}


def test_a_fact_that_was_shown_to_make_no_difference_is_ignored() -> None:
    learned = learn_contexts(two_kernels())
    assert ignored(learned) == {"kernel": ("5.15", "6.1")}
    assert "30 matched pairs of trials show a difference of at most 8% between 5.15, 6.1" in learned.lines()[0]
    assert len({trial.context_id for trial in in_contexts(two_kernels(), learned.rule)}) == 1


def test_too_little_evidence_keeps_every_fact() -> None:
    few = learn_contexts(two_kernels(count=12))
    assert not few.rule.ignored
    assert "24 matched pairs leave a difference of 10% open" in few.kept["kernel"]
    one_node = [trial for trial in two_kernels(count=40) if trial.node != "n4"]
    assert "too few nodes" in learn_contexts(one_node).kept["kernel"]
    repeats = [replace(trial, block=trial.node) for trial in two_kernels(count=40)]
    assert not learn_contexts(repeats).rule.ignored, "repeats of a cell in one block are one piece of evidence"
    assert learn_contexts([]).rule == ALL_FACTS


def test_a_fact_that_makes_a_cell_fail_or_slow_is_kept_with_the_reason() -> None:
    fails = learn_contexts([*two_kernels(count=60), *two_kernels(count=2, width=16, outcome="error")])
    assert not fails.rule.ignored, "one cell of two ends as an error on both nodes of one kernel alone"
    slow = learn_contexts(two_kernels(seconds=0.13))
    assert "steps take 1.3 times as long with 6.1" in slow.kept["kernel"]
    assert ignored(learn_contexts(two_kernels(seconds=0.11)))


def test_a_failure_that_one_node_alone_shows_does_not_keep_a_fact_for_ever() -> None:
    seen = two_kernels(count=60)
    assert ignored(learn_contexts([*seen[:-1], replace(seen[-1], outcome=Outcome.ERROR, step_seconds=())]))


def test_known_causes_are_never_ignored() -> None:
    seen = [
        trial
        for name, isa in (("n1", "avx2"), ("n2", "avx2"), ("n3", "avx512"), ("n4", "avx512"))
        for trial in (replace(one, facts=("device=a CPU", f"isa={isa}")) for one in ran(name, count=40))
    ]
    learned = learn_contexts(seen)
    assert not learned.rule.ignored and "decides which kernels run" in learned.kept["isa"]


def test_a_fact_is_ignored_that_only_comes_with_one_that_matters() -> None:
    """Steps are slow with 8 threads. More nodes with the newer kernel have 8 threads, and it does nothing itself."""
    places = [("a", 1, "5.15"), ("b", 1, "5.15"), ("c", 8, "6.1"), ("d", 8, "6.1"), ("e", 8, "6.1"), ("f", 8, "6.1")]
    places += [("g", 1, "6.1"), ("h", 1, "6.1"), ("i", 8, "5.15"), ("j", 8, "5.15")]
    seen = [
        trial
        for name, threads, kernel in places
        for trial in ran(name, f"threads={threads}", f"kernel={kernel}", seconds=0.1 * (3 if threads == 8 else 1))
    ]
    learned = learn_contexts(seen)
    assert ignored(learned) == {"kernel": ("5.15", "6.1")} and "threads" in learned.kept


def test_trials_without_facts_keep_their_context_and_support_nothing() -> None:
    old = [replace(trial, facts=(), context_id="old") for trial in two_kernels()]
    learned = learn_contexts(old)
    assert learned.rule == ALL_FACTS and not learned.kept
    assert {trial.context_id for trial in in_contexts(old, KERNEL)} == {"old"}
    assert describe_contexts(old, KERNEL) == ()


def test_the_table_is_learned_in_the_contexts_of_the_rule_and_equal_trials_give_an_equal_rule() -> None:
    table = learn_table(two_kernels(), LeftOut())
    assert {row.group_id for row in table.rows if row.scope == "server"} == {
        context.context_id for context in table.contexts
    }
    (context,) = table.contexts
    assert context.description == "device model a CPU, AVX2; kernel does not matter"
    again = learn_table(list(reversed(two_kernels())), LeftOut())
    assert (again.learned_contexts, again.contexts) == (table.learned_contexts, table.contexts)


def test_a_release_keeps_its_rule_and_older_releases_ignore_nothing() -> None:
    table = learn_table(two_kernels(), LeftOut())
    release = Release(1, context_rule=table.learned_contexts.rule, contexts=table.contexts)
    assert Release.from_dict(json.loads(json.dumps(asdict(release)))) == release
    old = {"release": 1, "rows": [], "survival": None, "baselines": [], "notes": [], "format": 3}
    assert Release.from_dict(old).context_rule == ALL_FACTS


def test_a_value_that_was_not_compared_counts_and_so_does_its_absence() -> None:
    names = {KERNEL.context_of((*BASE, *kernel)) for kernel in (["kernel=5.15"], ["kernel=6.1"])}
    assert names == {identity(BASE)}
    assert KERNEL.context_of((*BASE, "kernel=6.9")) not in names
    assert KERNEL.context_of(BASE) not in names
    absent = ContextRule((replace(KERNEL.ignored[0], values=("", "6.1")),))
    assert absent.context_of(BASE) == absent.context_of((*BASE, "kernel=6.1")) == identity(BASE)


@given(st.lists(st.from_regex(r"[a-f]=[0-3]", fullmatch=True), unique_by=lambda fact: fact[0]))
def test_without_ignored_facts_a_context_is_the_set_of_all_facts(facts: list[str]) -> None:
    assert ALL_FACTS.context_of(facts) == identity(facts)
    assert ALL_FACTS.context_of(facts[::-1]) == identity(facts)


def test_contexts_are_described_in_plain_words() -> None:
    facts = ("device=X", "isa=avx512", "threads=4", "cpus=1", f"memory_limit={3 << 29}", "kernel=6.1", "driver=550")
    both = ContextRule((*KERNEL.ignored, IgnoredFact(name="driver", values=("550",), reason="")))
    assert both.describe(facts) == (
        "1 core, device model X, AVX-512, at most 1.5 GiB of memory, 4 threads; kernel and driver do not matter"
    )
    assert ALL_FACTS.describe(("memory_limit=0", "numa_nodes=2")) == "no limit of memory, numa nodes 2"


def test_the_nearest_context_differs_in_the_fewest_facts_and_in_no_known_cause_where_possible() -> None:
    seen = [*ran("a", "kernel=5.15", "threads=1"), *ran("b", "kernel=6.1", "threads=4")]
    seen += [replace(one, facts=("device=other", "isa=avx2", "kernel=7", "threads=1")) for one in ran("c")]
    known = describe_contexts(seen, ALL_FACTS)
    near = nearest((*BASE, "kernel=7", "threads=1"), known)
    assert near is not None and near.differs == ("kernel",)
    own = nearest((*BASE, "kernel=6.1", "threads=4"), known)
    assert (
        own is not None and own.differs == () and own.context.context_id == identity((*BASE, "kernel=6.1", "threads=4"))
    )
    assert nearest(BASE, ()) is None


@pytest.mark.parametrize("pairs", [10, 25, 400])
def test_pairs_without_a_disagreement_leave_what_the_closed_form_says(pairs: int) -> None:
    """Tango (1998): without discordant pairs the bound is z^2 / (n + z^2)."""
    square = norm.isf(LEVEL) ** 2
    assert largest_difference(PairedCounts(pairs, 0, 0)) == pytest.approx(square / (pairs + square), abs=1e-4)


@given(st.integers(1, 300), st.data())
def test_the_bound_is_beyond_the_estimate_and_ignores_which_side_is_which(pairs: int, data: st.DataObject) -> None:
    left = data.draw(st.integers(0, pairs))
    right = data.draw(st.integers(0, pairs - left))
    bound = largest_difference(PairedCounts(pairs, left, right))
    assert abs(left - right) / pairs <= bound <= 1.0
    assert bound == largest_difference(PairedCounts(pairs, right, left))
