"""The verdict on a job: what the provider says of its fingerprint, and what arithmetic says of its cost."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pharoah._errors import UnknownReason
from pharoah._link import Link
from pharoah._settings import Settings
from pharoah._verdict import Verdict, unknown
from pharoah.cli import _common
from pharoah.cost.advice import Advice, Trial, advise
from pharoah.cost.findings import memory_finding
from pharoah.cost.room import fit, room_of
from pharoah.dryrun import DryRun

CHECK_SECONDS = 15.0


class Checked(NamedTuple):
    verdict: Verdict
    profile: dict[str, Any]
    """Of this node."""
    dry: DryRun | None
    """None when there was no dry run; the verdict says why."""


def check_job(link: Link, arguments: argparse.Namespace, settings: Settings) -> Checked:
    """The verdict on a job. What this machine can say by itself is not in it yet."""
    content: dict[str, Any] = {}
    dry = None
    try:
        dry = _common.dry_run_of(arguments, settings)
        content["fingerprint"] = dry.fingerprint.to_json()
    except UnknownReason as reason:
        content["pending"] = str(reason)
    try:
        answer = link.ask("check", CHECK_SECONDS, **content)
    except OSError as error:
        return Checked(unknown(f"the courier does not answer: {error}"), {}, dry)
    return Checked(Verdict.from_dict(answer["verdict"]), answer["profile"], dry)


def with_memory(checked: Checked, trial: Trial | None = None, command: Sequence[str] = ()) -> Verdict:
    """The verdict with whether the job fits; with a `trial`, also after which changes it would."""
    room = room_of(checked.dry.fingerprint, checked.profile) if checked.dry else None
    if checked.dry is None or room is None:
        return checked.verdict
    needs = fit(checked.dry.cost, room)
    advice: list[Advice] = []
    if trial and needs.status != "fits":
        print(f"pharoah: {needs.status}; trying changes in dry runs", file=sys.stderr, flush=True)
        advice = list(advise(command, checked.dry.cost, room, trial))
    finding = memory_finding(needs, advice, checked.dry.cost.uncounted)
    if checked.verdict.ok and checked.verdict.rung == "exact" and finding.severity == "block":
        finding = replace(finding, severity="warn")  # it did run
    return checked.verdict.with_findings(finding)
