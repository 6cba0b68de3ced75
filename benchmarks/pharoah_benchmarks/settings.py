"""Settings a campaign may ask of its workloads, and a refusal of all others. Without torch: providers read plans."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pharoah_benchmarks.environments import Environment, EnvironmentTextError
from pharoah_benchmarks.strategies import STRATEGIES
from pharoah_benchmarks.workload_files import WorkloadFileError, workload_files
from pharoah_protocol.vocabulary import ENVIRONMENT, DeviceKind


class Task(StrEnum):
    """What a cell does with the model of its workload."""

    TRAIN = "train"
    SERVE = "serve"
    """It answers requests, without gradients."""


TASK = "task"
RANKS = "ranks"
MAX_RANKS = 8
"""Ranks are processes that share the cores or the devices of one node."""
_COMMON = {
    "device": tuple(DeviceKind),
    TASK: tuple(Task),
    "strategy": tuple(STRATEGIES.entries),
    "dtype": ("float32", "bfloat16", "float16", "float8_e4m3fn"),
    "optimizer": tuple(f"{kind}/{how}" for kind in ("adamw", "sgd") for how in ("forloop", "foreach", "fused")),
}
"""Settings of every workload, besides the number of ranks and the environment."""


class SettingError(ValueError):
    """A campaign asks for a workload or setting that does not exist; the message names it and what does."""


def check(workload: object, settings: dict[str, Any]) -> None:
    """Raise SettingError unless `workload` exists and knows each setting: a number above 0 or one of a few words."""
    try:
        known = workload_files()
    except WorkloadFileError as error:
        raise SettingError(str(error)) from None
    if workload not in known:
        raise SettingError(f"{workload!r} is no workload; known are {', '.join(known)}")
    file = known[str(workload)]
    numbers, choices = (*file.settings, RANKS), {**_COMMON, **file.choices}
    for key, value in settings.items():
        if key == ENVIRONMENT:
            _check_environment(value)
        elif key in choices:
            if value not in choices[key]:
                raise SettingError(f"{key}: {value!r} is not one of {', '.join(choices[key])}")
        elif key not in numbers:
            raise SettingError(
                f"{key}: no setting of {workload}; known are {', '.join(sorted((*numbers, *choices, ENVIRONMENT)))}"
            )
        elif not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise SettingError(f"{key}: {value!r} is not a whole number above 0")
    _check_ranks(settings)
    if settings.get(TASK) == Task.SERVE and (only := {"optimizer", "strategy", RANKS} & settings.keys()):
        raise SettingError(f"{min(only)}: no setting of a workload that serves")


def _check_environment(value: object) -> None:
    try:
        text = Environment.read(value).text
    except EnvironmentTextError as error:
        raise SettingError(f"{ENVIRONMENT}: {error}") from None
    if text != value:
        raise SettingError(f"{ENVIRONMENT}: {value!r} is written as {text!r}")


def _check_ranks(settings: dict[str, Any]) -> None:
    ranks, strategy = settings.get(RANKS, 1), settings.get("strategy")
    least = STRATEGIES[strategy].least_ranks if strategy else 1
    if ranks > 1 and not strategy:
        raise SettingError(f"{RANKS}: {ranks} ranks need a strategy: {', '.join(STRATEGIES.entries)}")
    if not least <= ranks <= MAX_RANKS or ranks % least:
        raise SettingError(f"{RANKS}: {ranks}; {strategy} needs a multiple of {least}, at most {MAX_RANKS}")
