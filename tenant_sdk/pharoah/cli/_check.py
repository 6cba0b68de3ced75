"""The verdict on a job: the provider's answer about its fingerprint, and what its cost means on this node."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pharoah._errors import UnknownReason
from pharoah._settings import Settings
from pharoah._sidecar_link import SidecarLink
from pharoah._verdict import Verdict, unknown
from pharoah.cli import _common
from pharoah.cost.advice import Advice, Trial, advise
from pharoah.cost.findings import cost_findings
from pharoah.cost.memory_fit import Fit
from pharoah.dryrun import DryRun
from pharoah_protocol.local_messages import Check, CheckAnswer

CHECK_SECONDS = 15.0


class Checked(NamedTuple):
    verdict: Verdict
    profile: dict[str, Any]
    """The profile of this node."""
    dry: DryRun | None
    """None when there was no dry run; the verdict has the reason."""


def check_job(link: SidecarLink, arguments: argparse.Namespace, settings: Settings) -> Checked:
    """The verdict on a job. Findings of this machine are not in it yet."""
    dry = None
    try:
        dry = _common.dry_run_of(arguments, settings)
        question = Check(fingerprint=dry.fingerprint.to_json())
    except UnknownReason as reason:
        question = Check(pending=str(reason))
    try:
        answer = link.ask(question, CheckAnswer, CHECK_SECONDS)
        return Checked(Verdict.from_dict(answer.verdict), answer.profile, dry)
    except (OSError, ValueError) as error:
        return Checked(unknown(f"the sidecar does not answer: {error}"), {}, dry)


def with_cost(checked: Checked, trial: Trial | None = None, command: Sequence[str] = ()) -> Verdict:
    """The verdict with what the job's cost means here; with a `trial`, also the changes after which it fits."""
    verdict, dry = checked.verdict, checked.dry
    if dry is None:
        return verdict

    def suggest(needs: Fit) -> Iterator[Advice]:
        if trial:
            print(f"pharoah: {needs.status}; trying changes in dry runs", file=sys.stderr, flush=True)
            yield from advise(command, dry.cost, needs.budget, trial)

    return verdict.with_findings(*cost_findings(dry.fingerprint, dry.cost, checked.profile, verdict, suggest))
