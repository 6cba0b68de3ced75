"""The verdict on a job: the provider's answer about its fingerprint, and what its cost and the node's profile mean."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah._sidecar_link import SidecarLink
from pharoah._verdict import Verdict, unknown
from pharoah.cli import _common
from pharoah.cost.advice import Advice, Trial, advise
from pharoah.cost.findings import cost_findings, estimate_step_seconds
from pharoah.cost.memory_fit import Fit, fit, memory_budget_of
from pharoah.documented import list_documented_findings
from pharoah.dryrun import DryRun
from pharoah.findings.values_assumed import VALUES_ASSUMED
from pharoah.node_restrictions import Machine, Restrictions, restrictions_of
from pharoah_protocol.node_profile import NO_LIMITS, NodeProfile
from pharoah_protocol.rank_messages import Check, CheckAnswer
from pharoah_system.standard_streams import say

CHECK_SECONDS = 15.0


@dataclass(frozen=True)
class Checked:
    """What the sidecar has answered."""

    verdict: Verdict
    dry: DryRun | None
    """None when there was no dry run; the verdict has the reason."""
    profile: NodeProfile = NO_LIMITS
    """The profile of this node."""
    profile_dropped: tuple[str, ...] = ()
    """What the agent states and cannot be used."""


@dataclass(frozen=True)
class JudgedHere:
    """The verdict with what this machine has found out by itself, and what of the node's profile is applied."""

    verdict: Verdict
    restrictions: Restrictions
    step_seconds: float = 0.0
    """What a step should take on this node; 0 where what the node can do was not measured."""


def check_job(
    link: SidecarLink, arguments: argparse.Namespace, settings: Settings, wall_seconds: float | None = None
) -> Checked:
    """The verdict on a job. Findings of this machine are not in it yet. `wall_seconds`: how long the dry run may take
    where a job waits for it."""
    dry = None
    try:
        dry = _common.dry_run_of(arguments, settings, wall_seconds=wall_seconds)
        question = Check(fingerprint=dry.fingerprint.to_json())
    except UnknownReason as reason:
        question = Check(pending=str(reason))
    try:
        answer = link.ask(question, CheckAnswer, CHECK_SECONDS)
        return Checked(Verdict.from_dict(answer.verdict), dry, answer.profile, answer.profile_dropped)
    except (OSError, ValueError) as error:
        return Checked(unknown(f"the sidecar does not answer: {error}"), dry)


def judge_here(checked: Checked, trial: Trial | None = None, command: Sequence[str] = ()) -> JudgedHere:
    """The verdict with what vendors document, and what the job's cost and the node's profile mean here; with a `trial`,
    also the changes after which the job fits."""
    verdict, dry, step_seconds = checked.verdict, checked.dry, 0.0

    def suggest(needs: Fit) -> Iterator[Advice]:
        if trial and dry:
            say(f"pharoah: {needs.status}; trying changes in dry runs")
            yield from advise(command, dry.cost, needs.budget, trial)

    if dry is not None:
        verdict = verdict.with_findings(*list_documented_findings(dry.fingerprint, dry.cost, verdict))
        verdict = verdict.with_findings(*cost_findings(dry.fingerprint, dry.cost, checked.profile, verdict, suggest))
        step_seconds = estimate_step_seconds(dry.fingerprint, dry.cost, checked.profile)
        if dry.assumptions:
            verdict = verdict.with_findings(VALUES_ASSUMED.create(evidence="; ".join(dry.assumptions)))
    here = restrictions_of(checked.profile, checked.profile_dropped, Machine.here(), _needs(checked))
    return JudgedHere(verdict.with_findings(*here.findings), here.restrictions, step_seconds)


def _needs(checked: Checked) -> Fit | None:
    """The job's memory beside the limit of the node's profile; None where the two cannot be compared."""
    if checked.dry is None:
        return None
    budget = memory_budget_of(checked.dry.fingerprint, checked.profile)
    return fit(checked.dry.cost, budget) if budget and not budget.on_gpu else None
