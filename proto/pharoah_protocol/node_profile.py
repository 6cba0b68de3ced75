"""Node profiles: restrictions that a node imposes on processes, and how a command is started under them.

    python -m pharoah_protocol.node_profile '{"cpus": [0], "threads": 1}' python train.py

`check_profile` reads what an operator has written, and names every mistake. What an agent states is read by
`pharoah_protocol.received_profile`. Read back what is in force: torch ignores a cap that it does not know.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from pharoah_protocol.ceilings import MeasuredCeilings, read_ceilings
from pharoah_protocol.job_program import become, read_given_environment
from pharoah_system.own_python import own_module
from pharoah_system.standard_streams import hold_standard_descriptors, say
from pharoah_system.text import render_value

_MODULE = "pharoah_protocol.node_profile"
"""This module, which is `__main__` where it starts a command."""
MAX_CPU_NUMBER = 8191
"""The largest number of a processor that a Linux kernel can have (CONFIG_NR_CPUS goes to 8,192)."""
MAX_THREADS = 4096
"""More threads than any machine has cores are a mistake."""
MIN_MEMORY_BYTES = 16 << 20
"""A Python interpreter that has imported nothing needs about as much; a smaller limit is a mistake."""
MAX_MEMORY_BYTES = 1 << 60
"""No machine has an exbibyte."""
MMAP_THRESHOLD_BYTES = 128 << 10
"""glibc's own threshold before it grows (mallopt(3), M_MMAP_THRESHOLD)."""


class InstructionSet(StrEnum):
    """A cap on the instruction sets that torch and oneDNN use, from the oldest to the newest."""

    DEFAULT = "default"
    AVX2 = "avx2"
    AVX512 = "avx512"


ATEN_CAPS = {InstructionSet.DEFAULT: "default", InstructionSet.AVX2: "avx2", InstructionSet.AVX512: "avx512"}
"""Values of ATEN_CPU_CAPABILITY."""
ONEDNN_CAPS = {InstructionSet.DEFAULT: "SSE41", InstructionSet.AVX2: "AVX2", InstructionSet.AVX512: "AVX512_CORE"}
"""Values of ONEDNN_MAX_CPU_ISA."""


class ProfileError(ValueError):
    """A profile with an unknown key or a value that cannot be; the message names it."""


@dataclass(frozen=True)
class NodeProfile:
    """The limits of a node. What is absent is not limited."""

    cpus: tuple[int, ...] = ()
    """Numbers of the processors that a job may use."""
    threads: int = 0
    isa: InstructionSet | None = None
    memory_limit_bytes: int = 0
    """Limit of the data segment of each process."""
    ceilings: MeasuredCeilings | None = None
    """They limit nothing: predictions of step times use them."""

    def to_dict(self) -> dict[str, Any]:
        """What `check_profile` reads again, without what is absent."""
        plain = {"cpus": list(self.cpus), "threads": self.threads, "memory_limit_bytes": self.memory_limit_bytes}
        content: dict[str, Any] = {name: value for name, value in plain.items() if value}
        if self.isa:
            content["isa"] = self.isa.value
        if self.ceilings:
            content["ceilings"] = self.ceilings.to_dict()
        return content


NO_LIMITS = NodeProfile()


# Reading.


def check_profile(profile: Mapping[str, Any]) -> NodeProfile:
    """The profile that an operator has written, once every key and value is checked. Raises ProfileError."""
    if not isinstance(profile, Mapping):
        raise ProfileError(f"profile: an object was expected, not {render_value(profile)}")
    values: dict[str, Any] = {}
    for key, value in profile.items():
        if key not in READERS:
            raise ProfileError(f"profile: unknown key {key!r}; known are {', '.join(READERS)}")
        try:
            values[key] = READERS[key](value)
        except ValueError as error:
            raise ProfileError(f"profile: {key}: {error}") from None
    checked = NodeProfile(**values)
    if not set(checked.cpus) <= set(range(os.cpu_count() or 1)):
        raise ProfileError(f"profile: cpus {list(checked.cpus)} are not all on this machine")
    return checked


def _whole_number(value: object, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:  # a bool is an int for isinstance
        raise ValueError(f"a whole number from {least} to {most} was expected, not {render_value(value)}")
    return value


def _cpus(value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not 0 < len(value) <= MAX_CPU_NUMBER + 1:
        raise ValueError(f"a list of processors was expected, not {render_value(value)}")
    return tuple(sorted({_whole_number(number, 0, MAX_CPU_NUMBER) for number in value}))


def _instruction_set(value: object) -> InstructionSet:
    if not isinstance(value, str) or value not in set(InstructionSet):
        raise ValueError(f"{render_value(value)} is not one of {', '.join(InstructionSet)}")
    return InstructionSet(value)


READERS: dict[str, Callable[[object], object]] = {
    "cpus": _cpus,
    "threads": lambda value: _whole_number(value, 1, MAX_THREADS),
    "isa": _instruction_set,
    "memory_limit_bytes": lambda value: _whole_number(value, MIN_MEMORY_BYTES, MAX_MEMORY_BYTES),
    "ceilings": read_ceilings,
}
"""For each key of a profile what reads its value; raises ValueError, which states what is wrong."""


# Applying.


def environment(profile: NodeProfile) -> dict[str, str]:
    """Environment variables that put a profile into force."""
    variables: dict[str, str] = {}
    if profile.threads:
        variables |= {"OMP_NUM_THREADS": str(profile.threads), "MKL_NUM_THREADS": str(profile.threads)}
    if profile.isa:
        variables |= {
            "ATEN_CPU_CAPABILITY": ATEN_CAPS[profile.isa],
            "ONEDNN_MAX_CPU_ISA": ONEDNN_CAPS[profile.isa],
        }
    if profile.memory_limit_bytes:
        # By default glibc keeps more and more freed memory for itself, how much depends on what else was allocated
        # before. Set by hand, the threshold stays where it is (docs/adr/0011).
        variables["MALLOC_MMAP_THRESHOLD_"] = str(MMAP_THRESHOLD_BYTES)
    return variables


def limit_memory(limit_bytes: int) -> None:
    """Cap the data segment of this process; allocations beyond the cap fail.

    A limit of the address space would not work: torch reserves far more than it uses.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard))


def command_under(profile: NodeProfile, command: Sequence[str], memory: bool = True) -> list[str]:
    """A command line that starts `command` under `profile`; without its memory limit when `memory` is false."""
    left_out = {"ceilings"} if memory else {"ceilings", "memory_limit_bytes"}
    kept = {key: value for key, value in profile.to_dict().items() if key not in left_out}
    return [*own_module(_MODULE, json.dumps(kept)), *command] if kept else list(command)


def main() -> None:
    """Replace this process by the command in its arguments, under the profile before it.

    Whatever cannot be applied is named on standard error, and the command is started without it: a command that runs
    under too few limits can be stopped, one that was never started is lost.
    """
    hold_standard_descriptors()
    written, command = (sys.argv[1:2] or ["{}"])[0], sys.argv[2:]
    if not command:
        say("pharoah: no command given: write it after the profile")
        sys.exit(2)
    variables: dict[str, str] = {}
    for what in _failures(written, variables):
        say(f"pharoah: not applied of the node's profile: {what}")
    become(command, {**read_given_environment(), **variables})


def _failures(written: str, variables: dict[str, str]) -> Iterator[str]:
    """Apply each restriction by itself, and fill `variables` for the environment. Gives what cannot be applied."""
    try:
        content = json.loads(written)
        items = list(content.items())
    except Exception as error:  # noqa: BLE001 - whatever is wrong with a profile, the command is started
        yield f"all of it: {error}"
        return
    for key, value in items:
        try:
            one = check_profile({key: value})
            variables |= environment(one)
            _apply(one)
        except ProfileError as error:
            yield str(error)
        except Exception as error:  # noqa: BLE001 - as above
            yield f"{key}: {error}"


def _apply(profile: NodeProfile) -> None:
    """Put into force what is not in the environment. Raises OSError and ValueError."""
    if profile.cpus:
        os.sched_setaffinity(0, profile.cpus)
    if profile.memory_limit_bytes:
        limit_memory(profile.memory_limit_bytes)


if __name__ == "__main__":
    main()
