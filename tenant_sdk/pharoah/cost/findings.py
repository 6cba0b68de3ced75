"""Findings about a job that this machine computes by itself: its memory and its step time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from pharoah._verdict import Finding, Verdict
from pharoah.cost.advice import Advice
from pharoah.cost.duration import Duration, ceilings_of, duration
from pharoah.cost.memory_fit import Fit, FitStatus, fit, memory_budget_of
from pharoah.cost.step import ACTIVATION, GRADIENT, KERNEL, OTHER, PARAMETER, STATE, StepCost
from pharoah.findings.memory_does_not_fit import MEMORY_DOES_NOT_FIT
from pharoah.findings.memory_fits import MEMORY_FITS
from pharoah.findings.memory_tight import MEMORY_TIGHT
from pharoah.findings.no_step_time import NO_STEP_TIME
from pharoah.findings.step_time import STEP_TIME
from pharoah.findings.waits_for_collectives import WAITS_FOR_COLLECTIVES
from pharoah_archetypes import Fingerprint
from pharoah_protocol.ceilings import CeilingsError
from pharoah_protocol.node_profile import NodeProfile
from pharoah_protocol.vocabulary import FindingSeverity, Rung

_NAMES = {
    PARAMETER: "parameters", GRADIENT: "gradients", STATE: "optimizer state", ACTIVATION: "activations",
    KERNEL: "kernels", OTHER: "other",
}  # fmt: skip
_KINDS = {
    FitStatus.FITS: MEMORY_FITS,
    FitStatus.TIGHT: MEMORY_TIGHT,
    FitStatus.DOES_NOT_FIT: MEMORY_DOES_NOT_FIT,
}


def cost_findings(
    fingerprint: Fingerprint,
    cost: StepCost,
    profile: NodeProfile,
    verdict: Verdict,
    suggest: Callable[[Fit], Iterable[Advice]] = lambda _: (),
) -> Iterator[Finding]:
    """Whether a job fits on a node and how long its steps take, as far as the node's limits are known.

    `profile` is that of the node. `verdict` is what is known about such runs there: where they worked, a prediction
    that the job does not fit is only a warning, and so it is where a compiled job may keep less. `suggest` yields
    changes when the job does not fit well.
    """
    if budget := memory_budget_of(fingerprint, profile):
        needs = fit(cost, budget)
        finding = memory_finding(needs, suggest(needs) if needs.status is not FitStatus.FITS else (), cost.uncounted)
        blocks = finding.severity == FindingSeverity.BLOCK
        worked = verdict.ok and verdict.rung == Rung.EXACT
        if compiled := fingerprint.features.get("compiled") == "yes":
            finding = replace(finding, evidence=f"{finding.evidence}; as without torch.compile")
        # Compiled code keeps less for the backward pass. What the job has besides stays the same.
        may_fit = compiled and needs.needed - needs.peak.roles.get(ACTIVATION, 0) <= budget.bytes
        yield replace(finding, severity=FindingSeverity.WARN) if blocks and (worked or may_fit) else finding
    try:
        if ceilings := ceilings_of(fingerprint, profile):
            yield time_finding(duration(cost, ceilings), cost)
    except CeilingsError as error:
        yield NO_STEP_TIME.create(reason=error, evidence="node profile")


def estimate_step_seconds(fingerprint: Fingerprint, cost: StepCost, profile: NodeProfile) -> float:
    """What a step should take on a node whose ceilings were measured; 0 for another node."""
    try:
        ceilings = ceilings_of(fingerprint, profile)
        return duration(cost, ceilings).seconds if ceilings and ceilings.measured else 0.0
    except CeilingsError:
        return 0.0


def memory_finding(fit: Fit, advice: Iterable[Advice] = (), uncounted: Sequence[str] = ()) -> Finding:
    """Whether the job fits, what takes the memory, and after which changes it would fit."""
    parts = ", ".join(
        f"{name} {gib(fit.peak.roles[role])}" for role, name in _NAMES.items() if fit.peak.roles.get(role)
    )
    return _KINDS[fit.status].create(
        needed=gib(fit.needed),
        room=gib(fit.budget.bytes),
        place=fit.budget.name,
        evidence=f"dry run, GiB at the peak: {parts}"
        + (f"; not counted: {', '.join(uncounted[:3])}" if uncounted else ""),
        remedy=" - or: ".join(_describe(option) for option in advice),
    )


def _describe(option: Advice) -> str:
    work = f", {option.work:.2f} times the work" if option.work > 1.01 else ""
    return f"{option.what} ({gib(option.fit.needed)} GiB{work})"


def gib(amount: int) -> str:
    """Bytes as a number of GiB with three digits."""
    return f"{amount / (1 << 30):.3g}"


def size(amount: int) -> str:
    """Bytes as text, `1.21 GiB`."""
    return _scale(amount, 1024, ("B", "KiB", "MiB", "GiB", "TiB", "PiB"))


def operations(count: int) -> str:
    """Floating-point operations as text, `92.3 GFLOP`."""
    return _scale(count, 1000, ("FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"))


def _scale(amount: float, step: int, units: Sequence[str]) -> str:
    power = 0
    while amount >= 999.5 and power < len(units) - 1:
        amount, power = amount / step, power + 1
    return f"{amount:.3g} {units[power]}"


def time_finding(predicted: Duration, cost: StepCost) -> Finding:
    """How long a step takes, which parts it consists of, and whether it waits for the network."""
    name, known = predicted.ceilings.name, predicted.ceilings.measured
    takes = f"about {_seconds(predicted.seconds)}" if known else f"{_seconds(predicted.seconds)} or more"
    bound = predicted.communication > sum(predicted.parts)
    parts = {**predicted.parts._asdict(), "communication": predicted.communication}
    spent = ", ".join(f"{part} {_seconds(took)}" for part, took in parts.items() if took)
    work = f"{operations(cost.flops)}, {size(cost.moved)} moved"
    sent = f", {size(cost.traffic)} through collectives" if cost.traffic else ""
    kind = WAITS_FOR_COLLECTIVES if bound else STEP_TIME
    return kind.create(
        time=takes,
        place=name,
        evidence=f"dry run and {'measured ceilings' if known else 'data sheet'}: {spent}; {work}{sent}",
        remedy="send less: larger micro-batches, or parameters sharded within a node only" if bound else "",
    )


def _seconds(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{seconds * 1e3:.3g} ms"
