"""Node profiles: restrictions that a node imposes on processes, and how a command is started under them.

    python -m pharoah_protocol.node_profile '{"cpus": [0], "threads": 1}' python train.py

A profile holds `cpus` (list), `threads`, `isa` (a cap on CPU instruction sets), `memory_limit_bytes` (data segment) and
`ceilings` (measured by `pharoah-agent measure`; they impose nothing); each may be absent. Read back what is in force:
torch ignores a cap that it does not know.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ISA_CAPS = {"default": ("default", "SSE41"), "avx2": ("avx2", "AVX2"), "avx512": ("avx512", "AVX512_CORE")}
"""Cap to the values of ATEN_CPU_CAPABILITY and ONEDNN_MAX_CPU_ISA."""

KEYS = {"cpus": list, "threads": int, "isa": str, "memory_limit_bytes": int, "ceilings": dict}


class ProfileError(ValueError):
    """A profile with an unknown key or a value of the wrong kind; the message names it."""


def check_profile(profile: Mapping[str, Any]) -> dict[str, Any]:
    """The profile, once every key and value is checked. Raises ProfileError."""
    for key, value in profile.items():
        if key not in KEYS:
            raise ProfileError(f"profile: unknown key {key!r}; known are {', '.join(KEYS)}")
        if not isinstance(value, KEYS[key]) or isinstance(value, bool):
            raise ProfileError(f"profile: {key} is {value!r}, expected {KEYS[key].__name__}")
    if profile.get("isa") not in (None, *ISA_CAPS):
        raise ProfileError(f"profile: isa {profile['isa']!r} is not one of {', '.join(ISA_CAPS)}")
    if not set(profile.get("cpus", [])) <= set(range(os.cpu_count() or 1)):
        raise ProfileError(f"profile: cpus {profile['cpus']} are not all on this machine")
    return dict(profile)


def environment(profile: Mapping[str, Any]) -> dict[str, str]:
    """Environment variables that put a profile into force."""
    variables: dict[str, str] = {}
    if threads := profile.get("threads"):
        variables |= {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)}
    if isa := profile.get("isa"):
        variables["ATEN_CPU_CAPABILITY"], variables["ONEDNN_MAX_CPU_ISA"] = ISA_CAPS[isa]
    if profile.get("memory_limit_bytes"):
        # By default glibc keeps more and more freed memory for itself, how much depends on what else was allocated
        # before. Set by hand, the threshold stays where it is (docs/adr/0011).
        variables["MALLOC_MMAP_THRESHOLD_"] = str(128 << 10)
    return variables


def limit_memory(limit_bytes: int) -> None:
    """Cap the data segment of this process; allocations beyond the cap fail.

    A limit of the address space would not work: torch reserves far more than it uses.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit_bytes, hard))


def data_segment() -> int:
    """Bytes of this process that such a limit counts, and the stack; 0 where the system does not report them."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
    except OSError:
        return 0


def command_under(profile: Mapping[str, Any], command: list[str], memory: bool = True) -> list[str]:
    """A command line that starts `command` under `profile`; without its memory limit when `memory` is false."""
    left_out = {"ceilings"} if memory else {"ceilings", "memory_limit_bytes"}
    kept = {key: value for key, value in profile.items() if key not in left_out}
    return [sys.executable, "-m", "pharoah_protocol.node_profile", json.dumps(kept), *command] if kept else command


def main() -> None:
    """Replace this process by the command in its arguments, under the profile before it."""
    profile, command = check_profile(json.loads(sys.argv[1])), sys.argv[2:]
    if cpus := profile.get("cpus"):
        os.sched_setaffinity(0, cpus)
    os.environ.update(environment(profile))
    if limit := profile.get("memory_limit_bytes"):
        limit_memory(limit)
    try:
        os.execvp(command[0], command)
    except OSError as error:
        print(f"pharoah: cannot start {command[0]}: {error.strerror}", file=sys.stderr)  # noqa: T201
        sys.exit(127 if isinstance(error, FileNotFoundError) else 126)


if __name__ == "__main__":
    main()
