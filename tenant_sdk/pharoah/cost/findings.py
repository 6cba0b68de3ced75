"""What arithmetic says about a job, as findings of a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pharoah._verdict import Finding
from pharoah.cost.advice import Advice
from pharoah.cost.room import Fit
from pharoah.cost.step import ACTIVATION, GRADIENT, OTHER, PARAMETER, STATE

_NAMES = {
    PARAMETER: "parameters", GRADIENT: "gradients", STATE: "optimizer state", ACTIVATION: "activations", OTHER: "other",
}  # fmt: skip
_SEVERITIES = {"fits": "info", "tight": "warn", "does not fit": "block"}


def memory_finding(fit: Fit, advice: Iterable[Advice] = (), uncounted: Sequence[str] = ()) -> Finding:
    """Whether the job fits, what takes the memory, and after which changes it would fit."""
    parts = ", ".join(
        f"{name} {gib(fit.peak.roles[role])}" for role, name in _NAMES.items() if fit.peak.roles.get(role)
    )
    told = {
        "fits": "fits into memory",
        "tight": "fits into memory only just",
        "does not fit": "does not fit into memory",
    }
    return Finding(
        _SEVERITIES[fit.status],
        f"this job {told[fit.status]}: {gib(fit.needed)} of {gib(fit.room.bytes)} GiB ({fit.room.name})",
        f"dry run, GiB at the peak: {parts}" + (f"; not counted: {', '.join(uncounted[:3])}" if uncounted else ""),
        " - or: ".join(_told(option) for option in advice),
    )


def _told(option: Advice) -> str:
    work = f", {option.work:.2f} times the work" if option.work > 1.01 else ""
    return f"{option.what} ({gib(option.fit.needed)} GiB{work})"


def gib(size: int) -> str:
    """Bytes in GiB, three digits."""
    return f"{size / (1 << 30):.3g}"
