"""What of a node's profile is put into force for one job: only what this machine has, and only what takes away.

An agent states the profile, and may be wrong. So nothing of it may give a job what it would not have alone, or keep it
from running: a processor that lacks an instruction set would kill the job, and so would a memory limit below its need.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pharoah._verdict import Finding
from pharoah.cost.findings import gib
from pharoah.cost.memory_fit import Fit, FitStatus
from pharoah.findings.node_profile_not_applied import NODE_PROFILE_NOT_APPLIED
from pharoah.findings.node_takes_cores import NODE_TAKES_CORES
from pharoah_protocol.node_profile import (
    ATEN_CAPS,
    ONEDNN_CAPS,
    InstructionSet,
    NodeProfile,
    environment,
    limit_memory,
)

MIN_MEMORY_LIMIT_BYTES = 1 << 30
"""No smaller limit is applied, whatever a dry run predicts: about four times what a process needs that has imported
torch and done one tiny step (docs/adr/0019 has the measurement and its command)."""
_FLAGS = {
    InstructionSet.DEFAULT: frozenset[str](),
    InstructionSet.AVX2: frozenset({"avx2", "fma"}),
    InstructionSet.AVX512: frozenset({"avx2", "fma", "avx512f", "avx512dq", "avx512bw", "avx512vl"}),
}
"""Flags of a processor that torch's kernels for an instruction set need (torch/aten/src/ATen/native/DispatchStub.cpp).
torch does not look at them when the cap is set by hand."""
_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Machine:
    """What this process, and so a job that it starts, has now."""

    cpus: frozenset[int]
    instruction_sets: frozenset[InstructionSet]
    variables: Mapping[str, str]

    @classmethod
    def here(cls) -> Machine:
        """Raises OSError."""
        sets = frozenset(kind for kind, flags in _FLAGS.items() if flags <= _cpu_flags())
        return cls(frozenset(os.sched_getaffinity(0)), sets, dict(os.environ))


@dataclass(frozen=True)
class Restrictions:
    """What is put into force for a job."""

    cpus: frozenset[int] = frozenset()
    """Empty: all that this process may use."""
    variables: Mapping[str, str] = field(default_factory=dict)
    data_limit_bytes: int = 0
    """Limit of the data segment; 0: none."""

    @property
    def outside_environment(self) -> bool:
        """Whether something has to be done in the new process itself."""
        return bool(self.cpus or self.data_limit_bytes)

    def apply(self) -> Iterator[str]:
        """Put everything but the variables into force in this process. Gives what failed; raises nothing.

        Runs between fork and exec, so it does no more than it must.
        """
        steps: dict[str, Callable[[], None]] = {}
        if self.cpus:
            steps["cpus"] = lambda: os.sched_setaffinity(0, self.cpus)
        if self.data_limit_bytes:
            steps["memory_limit_bytes"] = lambda: limit_memory(self.data_limit_bytes)
        for name, step in steps.items():
            try:
                step()
            except Exception:  # noqa: BLE001 - the job starts without it
                yield name


NO_RESTRICTIONS = Restrictions()


@dataclass(frozen=True)
class Judged:
    """Restrictions, and what the verdict says about them."""

    restrictions: Restrictions
    findings: tuple[Finding, ...] = ()


def restrictions_of(profile: NodeProfile, dropped: Sequence[str], machine: Machine, needs: Fit | None) -> Judged:
    """What of a profile is applied to a job on this machine.

    `dropped` is what was not usable when the profile arrived. `needs` compares the job with the profile's memory limit;
    None when that is not known.
    """
    not_applied = list(dropped)
    findings: list[Finding] = []
    cpus = machine.cpus & set(profile.cpus) if profile.cpus else machine.cpus
    if not cpus:
        not_applied.append("cpus: this process may use none of them")
        cpus = machine.cpus
    if taken := cpus < machine.cpus:
        findings.append(NODE_TAKES_CORES.create(left=len(cpus), had=len(machine.cpus), evidence="the node's agent"))
    data_limit_bytes, why_not = _memory_limit(profile.memory_limit_bytes, needs)
    not_applied += [f"memory_limit_bytes: {why_not}"] if why_not else []
    variables = _variables(profile, machine, len(machine.cpus), not_applied)
    if not_applied:
        findings.append(NODE_PROFILE_NOT_APPLIED.create(what="; ".join(not_applied), evidence="the node's agent"))
    return Judged(Restrictions(cpus if taken else frozenset(), variables, data_limit_bytes), tuple(findings))


def _memory_limit(limit_bytes: int, needs: Fit | None) -> tuple[int, str]:
    """The limit to apply, and why it is not the one of the profile."""
    if not limit_bytes:
        return 0, ""
    limit = f"{gib(limit_bytes)} GiB"
    if needs is None:
        return 0, f"{limit}, and what the job needs is not known"
    if needs.status is not FitStatus.FITS:
        return 0, f"{limit}, and the job needs {gib(needs.needed)}"
    if limit_bytes < MIN_MEMORY_LIMIT_BYTES:
        return 0, f"{limit} is less than {gib(MIN_MEMORY_LIMIT_BYTES)} GiB, the least that is applied"
    return limit_bytes, ""


def _variables(profile: NodeProfile, machine: Machine, cores: int, not_applied: list[str]) -> dict[str, str]:
    """The variables of a profile that only take away. What they cannot be is added to `not_applied`."""
    kept = profile
    if profile.isa and profile.isa not in machine.instruction_sets:
        not_applied.append(f"isa: this processor does not have {profile.isa}")
        kept = replace(kept, isa=None)
    if profile.threads > cores:
        not_applied.append(f"threads: {profile.threads} are more than the {cores} cores of this job")
        kept = replace(kept, threads=0)
    wanted = environment(kept)
    return {name: value for name, value in wanted.items() if not _is_stricter(name, machine.variables, value)}


def _is_stricter(name: str, variables: Mapping[str, str], value: str) -> bool:
    """Whether the user's own value of a variable stays: it allows no more, or nothing is known about it."""
    own = variables.get(name)
    if own is None:
        return False
    if own.isdecimal() and value.isdecimal():
        return int(own) <= int(value)
    for caps in (ATEN_CAPS, ONEDNN_CAPS):
        order = list(caps.values())
        if own in order and value in order:
            return order.index(own) <= order.index(value)
    return True


def _cpu_flags() -> frozenset[str]:
    """Flags of the first processor; none on other machines than x86."""
    try:
        lines = _CPU_INFO.read_text().splitlines()
    except OSError:
        return frozenset()
    flags = next((line.partition(":")[2] for line in lines if line.startswith("flags")), "")
    return frozenset(flags.split())
