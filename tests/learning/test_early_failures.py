"""Trials that failed before they had a model: which fingerprint they get, and when they count."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pharoah_archetypes import Fingerprint
from pharoah_learning import early_failures
from pharoah_learning.evidence import LeftOut, Trial
from pharoah_learning.incompatibility import learn_incompatibilities
from pharoah_learning.usable_trials import usable_trials
from pharoah_protocol.vocabulary import Outcome, Rung, Severity

OLD = {"torch": "2.13.0", "transformers": "4.30.2", "accelerate": "1.0"}
NEW = {"torch": "2.13.0", "transformers": "5.24.0"}
KNOWN = Fingerprint(
    "ab" * 16, "12" * 16, "fwd: gemm", {}, {"parameters": 9, "activations": 9}, NEW, code={"torch": "x"}
)
OTHER = replace(KNOWN, archetype="cd" * 16)


def trial(node: str, environment: str, fingerprint: Fingerprint | None = None, **changes: object) -> Trial:
    found = Trial(
        workload="bert",
        settings={"batch": 4, "environment": environment},
        context_id="c",
        device_id="d",
        outcome=Outcome.OK if fingerprint else Outcome.ERROR,
        step_seconds=(0.1, 0.1) if fingerprint else (),
        fingerprint=fingerprint.to_json() if fingerprint else "",
        own_fingerprints=(fingerprint.to_json(),) if fingerprint else (),
        node=node,
        versions=dict(fingerprint.versions if fingerprint else OLD),
    )
    return replace(found, **changes)  # type: ignore[arg-type]


WORKING = [trial(node, "transformers==5.24.0", KNOWN) for node in ("a", "b")]
FAILING = [trial(node, "transformers==4.30.2") for node in ("a", "b")]


def used(*trials: Trial) -> tuple[list[Fingerprint], set[str]]:
    """Fingerprints of the usable trials that failed, and the reasons why others are left out."""
    left_out = LeftOut()
    found = [one for one in usable_trials(trials, left_out) if one.outcome is not Outcome.OK]
    return [Fingerprint.from_json(one.fingerprint) for one in found], {group.reason for group in left_out.counts}


def test_a_version_that_fails_early_gets_the_structure_of_the_others_with_its_own_versions() -> None:
    found, reasons = used(*WORKING, *FAILING)
    versions = {"torch": "2.13.0", "transformers": "4.30.2"}
    assert found == [replace(KNOWN, versions=versions, code={})] * 2 and not reasons


def test_the_order_of_trials_stays() -> None:
    mixed = [FAILING[0], WORKING[0], FAILING[1], WORKING[1]]
    outcomes = [one.outcome for one in usable_trials(mixed, LeftOut())]
    assert outcomes == [one.outcome for one in mixed]


@pytest.mark.parametrize(
    ("trials", "reason"),
    [
        ([*WORKING, FAILING[0], FAILING[0]], early_failures.ONE_NODE),
        ([*WORKING, FAILING[0], replace(FAILING[1], versions={**OLD, "torch": "2.0"})], early_failures.ONE_NODE),
        ([*WORKING, FAILING[0], replace(FAILING[1], outcome=Outcome.OK)], early_failures.WORKED),
        ([*WORKING, *(replace(one, versions={"torch": "2.13.0"}) for one in FAILING)], early_failures.NO_VERSIONS),
        ([*WORKING, *(replace(one, versions={}) for one in FAILING)], early_failures.NO_VERSIONS),
        (FAILING, early_failures.NO_STRUCTURE),
        ([*(replace(one, workload="t5") for one in WORKING), *FAILING], early_failures.NO_STRUCTURE),
        (
            [*(replace(one, settings={**one.settings, "batch": 8}) for one in WORKING), *FAILING],
            early_failures.NO_STRUCTURE,
        ),
        (
            [*WORKING, *(trial(node, "transformers==4.40.2", OTHER) for node in "ab"), *FAILING],
            early_failures.STRUCTURES,
        ),
        (
            [*WORKING, *(replace(one, versions={"torch": 3}) for one in FAILING)],  # type: ignore[dict-item]
            "its versions cannot be read",
        ),
    ],
)
def test_what_is_not_known_well_is_left_out(trials: list[Trial], reason: str) -> None:
    found, reasons = used(*trials)
    assert found == [] and reason in reasons


def test_the_providers_own_dry_run_of_the_cell_takes_precedence() -> None:
    own = replace(OTHER, versions={"torch": "2.13.0", "transformers": "4.30.2"}, code={})
    known = [replace(one, own_fingerprints=(own.to_json(),)) for one in FAILING]
    assert used(*WORKING, known[0]) == ([own], set()), "its versions are those that one node states"
    other = [replace(one, versions={**OLD, "transformers": "4.31.0"}) for one in known]
    assert used(other[0]) == ([], {early_failures.ONE_NODE})
    found, _ = used(*other)
    assert [one.versions["transformers"] for one in found] == ["4.31.0"] * 2


def test_two_nodes_with_an_early_failure_make_a_row_that_warns_of_the_version() -> None:
    rows = learn_incompatibilities(usable_trials([*WORKING, *FAILING], LeftOut()))
    exact = {row.outcome: row for row in rows if row.rung is Rung.EXACT and row.group_id == "c"}
    assert exact[Outcome.ERROR].severity is Severity.WARN
    assert "transformers=4.30.2" in exact[Outcome.ERROR].tokens
    assert exact[Outcome.OK].severity is Severity.OK
