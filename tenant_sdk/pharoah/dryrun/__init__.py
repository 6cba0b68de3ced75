"""The dry run: one training step of a script on fake tensors, in a child process that cannot change the machine.

    command line --> parent.dry_run --> enter: the sandbox --> child.run: fake tensors, the script --> DryRun

`parent` is the parent's side; `enter` and `child` are the child's. Only `child` imports torch. Names are loaded when
they are used, because `enter` needs little and runs before each dry run.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pharoah.dryrun.parent import dry_run as dry_run
    from pharoah.dryrun.parent import dry_run_step as dry_run_step
    from pharoah.dryrun.result import DryRun as DryRun

_HOMES = {"dry_run": "parent", "dry_run_step": "parent", "DryRun": "result"}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value  # found at once from now on
    return value
