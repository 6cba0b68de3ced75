"""`fabric run [options] script.py`: its arguments are parsed by Lightning Fabric itself."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from itertools import takewhile
from typing import Any

from pharoah._errors import UnknownReason
from pharoah.launchers._gpus import torch_counts_simulated_gpus
from pharoah.launchers._launcher import Launcher, python_beside
from pharoah.launchers._options import value_of
from pharoah.launchers._program import Launch, Program, count_or_one

_NAME = "fabric"
_LIBRARIES = ("lightning.fabric.cli", "lightning_fabric.cli")
"""The module in the two distributions of Fabric."""


def _launch(words: Sequence[str]) -> Launch:
    if list(words[1:2]) != ["run"]:
        raise UnknownReason("cannot dry-run `fabric ...`: only `fabric run` starts a job")
    # Fabric reads its options also behind the script, up to `--`.
    own = list(takewhile(lambda word: word != "--", words[2:]))
    here = count_or_one(value_of(own, "--devices"))
    return Launch(python_beside(words[0]), Program(tuple(words[2:]), _NAME), processes_here=here)


def _first_process(program: Program) -> Program:
    """The program that Fabric starts as its first process. Sets the variables by which it configures that process.

    Raises UnknownReason.
    """
    fabric = _library()
    try:
        given = dict(fabric._run.make_context("fabric run", list(program.arguments)).params)
        rest = given.pop("script_args", ())
        options = Namespace(**given)
        fabric._set_env_variables(options)
        with torch_counts_simulated_gpus():
            alone = options.strategy == "dp"
            here = 1 if alone else max(1, fabric._get_num_processes(options.accelerator, options.devices))
    except (AttributeError, ImportError, SystemExit) as error:
        raise UnknownReason(f"cannot dry-run `fabric run`: {error}") from None
    except Exception as error:  # noqa: BLE001 - click's own, and what Fabric finds wrong
        message = getattr(error, "message", None) or str(error)
        raise UnknownReason(f"cannot dry-run `fabric run`: {message}") from None
    return replace(
        program,
        arguments=(options.script, *rest),
        launcher="",
        nodes=program.nodes or options.num_nodes,
        processes=program.processes or here,
    )


def _library() -> Any:
    reasons = []
    for name in _LIBRARIES:
        try:
            return import_module(name)
        except ImportError as error:
            reasons.append(str(error))
    raise UnknownReason(f"cannot dry-run `fabric run`: {reasons[0]}")


FABRIC = Launcher(
    _NAME,
    "a script by Lightning Fabric",
    (_NAME, "fabric.pt"),
    _launch,
    _LIBRARIES,
    _first_process,
)
