"""Campaign files (TOML) and the cells they ask for.

name = "nightly"
repeats = 5
skip_same_code = true    # run one of the environments in which a workload executes the same code

[[workload]]
name = "gpt"
steps = 4
vary = { attention = ["flash", "math"], length = [128, 1024] }   # every combination
also = [{ dtype = "bfloat16" }]                                  # single points beside the grid

[[workload]]
name = "bert"
vary = { environment = ["transformers"] }                        # each environment of the group, or one by its name

[[environment]]                                                  # or a file (pharoah_benchmarks.environments.files)
name = "transformers"
packages = ["transformers=={version}"]
versions = ["4.40.2", "4.50.3"]

[degrade]
workload = "gpt"
seconds = 8
healthy = 6
cpu_stressors = [1.0, 0.5]        # one degraded cell per entry: the share of a core the CPU stressor wants
leaks = [100_000_000]    # bytes per second

[executor]                        # the nodes of the fleet where it is absent
name = "local"
slots = 2
profile = { threads = 1 }
"""

from __future__ import annotations

import itertools
import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pharoah_benchmarks.campaign.cell import Cell, Degradation
from pharoah_benchmarks.environments import EnvironmentFileError, NamedEnvironments
from pharoah_benchmarks.settings import SettingError, check
from pharoah_protocol.vocabulary import ENVIRONMENT, Fault

_TOP = {"name", "repeats", "workload", "environment", "degrade", "limit_seconds", "skip_same_code", "executor"}
_WORKLOAD = {"name", "steps", "settings", "vary", "also", "repeats"}
_DEGRADE = {"workload", "settings", "seconds", "healthy", "cpu_stressors", "leaks", "ramp_seconds"}


class PlanError(ValueError):
    """A campaign file nobody can run; the message names the key."""


@dataclass(frozen=True)
class CampaignPlan:
    """The cells of one campaign."""

    name: str
    cells: tuple[Cell, ...]
    """To be run once in every context."""
    degraded: tuple[Cell, ...]
    """To be run once each, anywhere without other load."""
    skip_same_code: bool = False
    """Whether one environment is enough of those in which a workload executes the same code."""
    executor: Mapping[str, Any] = field(default_factory=dict)
    """Where it runs, as the file states it; the provider checks it."""


def parse_plan(text: str) -> CampaignPlan:
    """Read a campaign file. Raises PlanError for unknown keys, workloads and settings, and for wrong kinds."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PlanError(f"not TOML: {error}") from None
    _known(data, _TOP, "")
    repeats = _number(data, "repeats", 5)
    limit = float(_number(data, "limit_seconds", 60))
    try:
        named = NamedEnvironments(_tables(data, "environment"))
    except EnvironmentFileError as error:
        raise PlanError(str(error)) from None
    cells = [cell for entry in _tables(data, "workload") for cell in _workload_cells(entry, named, repeats, limit)]
    if not cells:
        raise PlanError("workload: a campaign needs at least one [[workload]]")
    degraded = tuple(_degraded_cells(_table(data, "degrade"), named, limit)) if "degrade" in data else ()
    skip = data.get("skip_same_code", False)
    if not isinstance(skip, bool):
        raise PlanError(f"skip_same_code: {skip!r} is not true or false")
    name, executor = str(data.get("name", "campaign")), _table(data, "executor")
    return CampaignPlan(name, tuple(cells), degraded, skip, executor)


def _workload_cells(entry: dict[str, Any], named: NamedEnvironments, repeats: int, limit: float) -> list[Cell]:
    _known(entry, _WORKLOAD, "workload.")
    name = str(entry.get("name"))
    fixed, vary, also = _table(entry, "settings"), _table(entry, "vary"), _tables(entry, "also")
    for key, values in vary.items():
        if not isinstance(values, list) or not values:
            raise PlanError(f"workload.vary.{key}: expected a list of values")
    try:
        if ENVIRONMENT in vary:
            vary = {**vary, ENVIRONMENT: [text for value in vary[ENVIRONMENT] for text in named.all_of(value)]}
        fixed, *also = (_with_environment(settings, named) for settings in (fixed, *also))
    except EnvironmentFileError as error:
        raise PlanError(f"workload: {ENVIRONMENT}: {error}") from None
    grid = [dict(zip(vary, point, strict=True)) for point in itertools.product(*vary.values())]
    return [
        Cell(
            _id(name, settings, repeat),
            name,
            _checked("workload", name, settings),
            _number(entry, "steps", 4),
            repeat,
            limit_seconds=limit,
        )
        for point in [*grid, *also]
        for settings in [{**fixed, **point}]
        for repeat in range(_number(entry, "repeats", repeats))
    ]


def _degraded_cells(entry: dict[str, Any], named: NamedEnvironments, limit: float) -> list[Cell]:
    _known(entry, _DEGRADE, "degrade.")
    name = str(entry.get("workload"))
    try:
        settings = _checked("degrade", name, _with_environment(_table(entry, "settings"), named))
    except EnvironmentFileError as error:
        raise PlanError(f"degrade: {ENVIRONMENT}: {error}") from None
    seconds, ramp = float(_number(entry, "seconds", 8)), _amounts([entry.get("ramp_seconds", 3)], "ramp_seconds")[0]
    kinds = [Degradation(Fault.NONE)] * _number(entry, "healthy", 4)
    kinds += [
        Degradation(Fault.CPU_STRESSOR, 2.2, ramp * (i % 2), s)
        for i, s in enumerate(_amounts(entry.get("cpu_stressors", []), "cpu_stressors"))
    ]
    kinds += [Degradation(Fault.LEAK, 2.2, 0.0, strength) for strength in _amounts(entry.get("leaks", []), "leaks")]
    return [
        Cell(f"degrade/{d.kind}-{i}", name, settings, 4, i, seconds, limit_seconds=limit, degradation=d)
        for i, d in enumerate(kinds)
    ]


def _with_environment(settings: dict[str, Any], named: NamedEnvironments) -> dict[str, Any]:
    """The settings with the text of the environment in place of its name. Raises EnvironmentFileError."""
    return settings | ({ENVIRONMENT: named.one(settings[ENVIRONMENT])} if ENVIRONMENT in settings else {})


def _id(name: str, settings: dict[str, Any], repeat: int) -> str:
    return f"{name}/{','.join(f'{key}={value}' for key, value in sorted(settings.items()))}#{repeat}"


def _checked(where: str, workload: str, settings: dict[str, Any]) -> dict[str, Any]:
    try:
        check(workload, settings)
    except SettingError as error:
        raise PlanError(f"{where}: {error}") from None
    return settings


def _table(data: dict[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key, {})
    if not isinstance(value, dict):
        raise PlanError(f"{key}: expected a table, not {value!r}")
    return value


def _tables(data: dict[str, Any], key: str) -> list[dict[str, Any]]:
    value = data.get(key, [])
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise PlanError(f"{key}: expected a list of tables, not {value!r}")
    return value


def _amounts(values: Any, key: str) -> list[float]:
    if not isinstance(values, list) or not all(type(each) in (int, float) and 0 <= each < math.inf for each in values):
        raise PlanError(f"{key}: expected numbers >= 0, not {values!r}")
    return [float(value) for value in values]


def _number(data: dict[str, Any], key: str, default: int) -> int:
    value = data.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise PlanError(f"{key}: {value!r} is not a whole number >= 0")
    return value


def _known(data: dict[str, Any], keys: set[str], where: str) -> None:
    for key in data:
        if key not in keys:
            raise PlanError(f"{where}{key}: unknown key; known are {', '.join(sorted(keys))}")
