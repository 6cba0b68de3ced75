"""Puts a process behind the walls of a dry run: the strongest that the machine allows.

The first choice is isolation: the script may write, listen and start processes, and nothing of it stays. Where the
machine does not allow that, side effects are refused, by the kernel (Landlock and a filter for system calls) and by an
audit hook that ends the dry run and names the attempt. Where neither holds, there is a dry run only if the user has
allowed it.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path

from pharoah._errors import UnknownReason
from pharoah.dryrun import capabilities, isolation, landlock
from pharoah.dryrun.refused_calls import among_other_processes, attributes_of_files
from pharoah.dryrun.sandbox_mode import SANDBOX_MODE, SCRATCH_FOLDER, UNPROTECTED, Sandbox, SandboxMode
from pharoah.dryrun.seccomp import restrict

_NO_DUMP_BYTES = 1
"""A limit of one byte also keeps programs that collect core dumps from being started; zero does not (core(5))."""
_MAX_FILE_BYTES = 16 << 20
"""Limit of a file in the folder for temporary files: it is on a real disk."""
_CACHES = ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "CUDA_CACHE_PATH", "NUMBA_CACHE_DIR", "MPLCONFIGDIR")
"""Variables with folders in which libraries keep what they compute."""


def enter_sandbox(*, keeps_program: bool) -> Sandbox:
    """Enter the strongest sandbox that this machine allows. Call it before there are threads.

    `keeps_program` states that this process will not be replaced by a program from inside the sandbox. Raises
    UnknownReason when there must be no dry run.
    """
    _limit(resource.RLIMIT_CORE, _NO_DUMP_BYTES)
    wanted = os.environ.get(SANDBOX_MODE, "")
    no_isolation = f"{SANDBOX_MODE}={wanted}"
    if wanted != SandboxMode.RULES:
        try:
            return _isolate(wanted, keeps_program)
        except Exception as refused:  # noqa: BLE001 - whatever the fault is, there is no isolation
            no_isolation = str(refused)
    return _refusing(no_isolation)


def _isolate(wanted: str, keeps_program: bool) -> Sandbox:
    mode = isolation.isolate(user_namespace=True) if wanted == SandboxMode.USER else isolation.isolate()
    if keeps_program:
        restrict(attributes_of_files())
    return Sandbox(mode)


def _refusing(no_isolation: str) -> Sandbox:
    """A sandbox among the other processes of the machine. Raises UnknownReason."""
    folder = os.environ.get(SCRATCH_FOLDER, "")
    allowed = os.environ.get(UNPROTECTED, "") == "1"
    mode = SandboxMode.RULES
    _use_caches_in(folder)
    _limit(resource.RLIMIT_FSIZE, _MAX_FILE_BYTES)
    walls: tuple[Callable[[], None], ...] = (partial(_forbid_writes, folder), _forbid_calls)
    for wall in walls:
        try:
            wall()
        except OSError as error:
            if not allowed:
                raise UnknownReason(
                    f"this machine allows no sandbox for a dry run: {no_isolation}; {error}. If the script may do "
                    f"what it does, set {UNPROTECTED}=1"
                ) from None
            mode = SandboxMode.UNPROTECTED
    return Sandbox(mode, no_isolation)


def _forbid_writes(folder: str) -> None:
    landlock.forbid_writes(Path(folder) if folder else None)


def _forbid_calls() -> None:
    capabilities.keep_only(capabilities.about_files())
    restrict(among_other_processes(os.getpid()))


def _use_caches_in(folder: str) -> None:
    if folder:
        for name in _CACHES:
            os.environ.setdefault(name, folder)


def _limit(resource_kind: int, most_bytes: int) -> None:
    """Lower a limit, for good. A limit that is lower already stays."""
    hard = resource.getrlimit(resource_kind)[1]
    value = most_bytes if hard == resource.RLIM_INFINITY else min(most_bytes, hard)
    resource.setrlimit(resource_kind, (value, value))
