"""What vendors document about the software and the hardware of a job. Nothing of this leaves the machine."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from pharoah._verdict import Finding, Verdict
from pharoah.capture import hardware
from pharoah.capture.inventory import find_distribution, find_installed_version
from pharoah.cost.step import StepCost
from pharoah.findings.documented_incompatible import DOCUMENTED_INCOMPATIBLE
from pharoah_archetypes import Fingerprint
from pharoah_archetypes.devices import device_named
from pharoah_archetypes.documented import Answer, Compatibility, Consequence, capability_of, documents
from pharoah_protocol.vocabulary import FindingSeverity, Rung

_SEVERITIES = {
    Consequence.FAILS: FindingSeverity.BLOCK,
    Consequence.UNSUPPORTED: FindingSeverity.WARN,
}
_SENTENCES = {
    Consequence.FAILS: "does not work",
    Consequence.UNSUPPORTED: "is not supported",
}
_OF_GPU = ("driver", "capability", "forward_compatibility")
"""Facts that matter to a job that computes on a GPU."""
_CUDA_BUILD = re.compile(r"cu(\d+)(\d)")
_CUDA_OF_TORCH = re.compile(r"""^cuda(?:\s*:[^=\n]*)?\s*=\s*['"]([\d.]+)['"]""", re.MULTILINE)
"""The line of torch/version.py that the build of torch writes (PyTorch, tools/generate_torch_version.py)."""


def list_documented_findings(fingerprint: Fingerprint, cost: StepCost, verdict: Verdict) -> Iterator[Finding]:
    """A finding for everything that does not go together in a job, on the machine that it was dry-run for.

    `verdict` is what is known about such runs there: where they worked, a document that says otherwise only warns.
    """
    worked = verdict.ok and verdict.rung == Rung.EXACT
    for answer in objections(documents().answers(facts_of(fingerprint, cost))):
        consequence = answer.relation.consequence
        yield DOCUMENTED_INCOMPATIBLE.create(
            severity=FindingSeverity.WARN if worked else _SEVERITIES[consequence],
            consequence=_SENTENCES[consequence],
            question=answer.question,
            evidence="; ".join(filter(None, (answer.source, answer.why))),
            remedy=answer.remedy,
        )


def objections(answers: Iterable[Answer]) -> Iterator[Answer]:
    """The answers that speak against what is installed.

    A build that its vendor has not published is none: it is here, so somebody has made it.
    """
    for answer in answers:
        published = answer.relation.consequence is not Consequence.NOT_PUBLISHED
        if published and answer.compatibility is Compatibility.INCOMPATIBLE:
            yield answer


def facts_of(fingerprint: Fingerprint, cost: StepCost) -> dict[str, str]:
    """The facts of a job: its versions, and those of the machine that it was dry-run for.

    Facts of the GPU are left out for a job that allocates nothing on one. So is glibc: what was imported has found it.
    """
    machine = {name: fingerprint.hardware.get(name, "") for name in ("gpu", "driver")}
    facts = complete({**fingerprint.versions, **machine, **_read_this_machine()})
    on_gpu = "gpu" in facts and bool(cost.memory.roles)  # of a job for GPUs, these are its allocations on them
    return facts if on_gpu else {name: value for name, value in facts.items() if name not in _OF_GPU}


def find_installed_facts() -> dict[str, str]:
    """The facts of this machine and of what is installed here. Imports none of it."""
    library, version = platform.libc_ver()
    found = {
        "python": platform.python_version(),
        "glibc": version if library == "glibc" else "",
        "driver": hardware.driver(),
        "cuda": _cuda_of_torch(),
        **_read_this_machine(),
    }
    found |= {name: find_installed_version(name) for name in documents().names - found.keys()}
    gpus = hardware.gpu_names()
    return complete({**found, "gpu": gpus[0] if gpus else ""})


def complete(given: Mapping[str, str]) -> dict[str, str]:
    """Given facts, and those that follow from them: `cuda` from torch's build tag, `capability` from the GPU's name."""
    facts = {name: value for name, value in given.items() if value}
    built = _CUDA_BUILD.fullmatch(facts.get("torch", "").partition("+")[2])
    if built:
        facts.setdefault("cuda", f"{built[1]}.{built[2]}")
    if capability := capability_of_gpu(facts.get("gpu", "")):
        facts.setdefault("capability", capability)
    return facts


def capability_of_gpu(name: str) -> str:
    """The compute capability of a GPU, such as 9.0; empty where its name is not known."""
    device = device_named(name)
    return "{}.{}".format(*device.capability) if device else capability_of(name)


def _cuda_of_torch() -> str:
    """The CUDA that the installed torch was built for, by its own file: on PyPI its version has no build tag. Empty
    where it was built without CUDA, and where there is no torch."""
    torch = find_distribution("torch")
    if torch is None:
        return ""
    try:
        found = _CUDA_OF_TORCH.search(Path(str(torch.locate_file("torch/version.py"))).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ""
    return found[1] if found else ""


def _read_this_machine() -> dict[str, str]:
    return {"machine": platform.machine(), "forward_compatibility": hardware.forward_compatibility()}
