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
vary = { environment = ["two-transformers"] }                    # each environment of the group, or one by its name

[[environment]]                                                  # or a file (pharoah_benchmarks.environments.files)
name = "two-transformers"                                        # not the name of a file
packages = ["transformers=={version}"]
versions = ["4.40.2", "4.50.3"]

[[lock]]                                                         # one for each environment and kind of machine;
environment = "transformers==4.40.2"                             # `pharoah-provider campaign lock FILE` makes them
python = "3.11"
platform = "linux_x86_64"
packages = ["transformers==4.40.2 transformers-4.40.2-py3-none-any.whl sha256:..."]

[degrade]                         # cells to which something is done while they train
workload = "gpt"
settings = { ranks = 2, strategy = "ddp" }
seconds = 8
healthy = 6                       # control runs
onset_seconds = 2.2               # of all faults that state no onset of their own, and of control runs

[[degrade.fault]]                 # `pharoah-provider registries faults` lists what there is
name = "cpu_share"
doses = [1.0, 0.5]                # one cell for each, in the unit of the fault
ramp_seconds = 3                  # from nothing to the full dose; 0 is a step
rank = 1                          # the rank that it acts on, in cells of several ranks

[executor]                        # the nodes of the fleet where it is absent
name = "local"
slots = 2
profile = { threads = 1 }
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pharoah_benchmarks.campaign.cell import MAX_CELL_ID_LENGTH, Cell, Degradation
from pharoah_benchmarks.campaign.record import CELL_WINDOW_SECONDS
from pharoah_benchmarks.environments import Environment, EnvironmentFileError, NamedEnvironments
from pharoah_benchmarks.faults import FAULTS
from pharoah_benchmarks.settings import RANKS, SettingError, check
from pharoah_protocol.bounds import MAX_SECONDS, MAX_WINDOWS, is_number
from pharoah_protocol.vocabulary import ENVIRONMENT, DeviceKind
from pharoah_system.bounded_reading import UnreadableInput, parse_toml

_TOP = {"name", "repeats", "workload", "environment", "lock", "degrade", "limit_seconds", "skip_same_code", "executor"}
_WORKLOAD = {"name", "steps", "settings", "vary", "also", "repeats"}
_DEGRADE = {"workload", "settings", "seconds", "healthy", "onset_seconds", "fault"}
_FAULT = {"name", "doses", "onset_seconds", "ramp_seconds", "rank"}
_ONSET_SECONDS = 2.2
"""After the baseline of a degraded cell: five steps and four windows of half a second (`record`)."""


MAX_CELLS = 20_000
"""Cells of one campaign file: at ten seconds each, they take one node more than two days."""
MAX_STEPS = 1_000_000
MAX_LIMIT_SECONDS = 86_400
"""A day. A cell is to be short, so that its repeats can be spread over nodes and time."""
MAX_DEGRADED_SECONDS = int(MAX_WINDOWS * CELL_WINDOW_SECONDS)
"""The result of a degraded cell holds no more windows: those after this time would be lost."""
_MAX_ID_LENGTH = MAX_CELL_ID_LENGTH - 1
"""The id of a cell that is planned once more has one more character (`schedule`)."""
MAX_NAME_LENGTH = 100
"""Characters of the name of a campaign, which stands in every listing of it."""


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

    @property
    def without_lock(self) -> list[str]:
        """The texts of the environments that have packages and no lock, in the order of the file."""
        cells = [cell for cell in (*self.cells, *self.degraded) if cell.environment and not cell.lock]
        texts = dict.fromkeys(cell.environment for cell in cells)
        return [text for text in texts if Environment.read(text).packages]


def parse_plan(text: str) -> CampaignPlan:
    """Read a campaign file. Raises PlanError for unknown keys, workloads and settings, and for wrong kinds."""
    try:
        data = parse_toml(text, "campaign")
    except UnreadableInput as error:
        raise PlanError(error.problem) from None
    _require_known(data, _TOP, "")
    repeats = _number(data, "repeats", 5, MAX_CELLS)
    limit = float(_number(data, "limit_seconds", 60, MAX_LIMIT_SECONDS, least=1))
    name, executor = _name(data), _table(data, "executor")
    try:
        named = NamedEnvironments(_tables(data, "environment"), _tables(data, "lock"))
    except EnvironmentFileError as error:
        raise PlanError(str(error)) from None
    cells: list[Cell] = []
    for entry in _tables(data, "workload"):
        cells += _workload_cells(entry, named, repeats, limit, MAX_CELLS - len(cells))
    if not cells:
        raise PlanError("workload: a campaign needs at least one [[workload]]")
    if twice := [cell_id for cell_id, count in Counter(cell.id for cell in cells).items() if count > 1]:
        raise PlanError(f"workload: {twice[0].rpartition('#')[0]} comes twice; `repeats` says how often a cell runs")
    degraded = tuple(_plan_degraded_cells(_table(data, "degrade"), named, limit)) if "degrade" in data else ()
    skip = data.get("skip_same_code", False)
    if not isinstance(skip, bool):
        raise PlanError(f"skip_same_code: {skip!r} is not true or false")
    return CampaignPlan(name, tuple(cells), degraded, skip, executor)


def _workload_cells(
    entry: dict[str, Any], named: NamedEnvironments, repeats: int, limit: float, most: int
) -> list[Cell]:
    """Raises PlanError before more cells than `most` are made: few lines can ask for billions."""
    _require_known(entry, _WORKLOAD, "workload.")
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
    repeats = _number(entry, "repeats", repeats, MAX_CELLS)
    if (math.prod(map(len, vary.values())) + len(also)) * repeats > most:
        raise PlanError(f"workload: {name}: the file asks for more than {MAX_CELLS:,} cells")
    steps = _number(entry, "steps", 4, MAX_STEPS, least=1)  # a cell without a step would be OK and has trained nothing
    grid = [dict(zip(vary, point, strict=True)) for point in itertools.product(*vary.values())]
    return [
        Cell(
            _id(name, checked, repeat),
            name,
            checked,
            steps,
            repeat,
            limit_seconds=limit,
            lock=named.lock_of(str(checked.get(ENVIRONMENT, ""))),
        )
        for point in [*grid, *also]
        for checked in [_check("workload", name, {**fixed, **point})]
        for repeat in range(repeats)
    ]


def _plan_degraded_cells(entry: dict[str, Any], named: NamedEnvironments, limit: float) -> list[Cell]:
    _require_known(entry, _DEGRADE, "degrade.")
    name = str(entry.get("workload"))
    try:
        settings = _check("degrade", name, _with_environment(_table(entry, "settings"), named))
    except EnvironmentFileError as error:
        raise PlanError(f"degrade: {ENVIRONMENT}: {error}") from None
    seconds = float(_number(entry, "seconds", 8, MAX_DEGRADED_SECONDS))
    if seconds >= limit:
        raise PlanError(
            f"degrade.seconds: {seconds:g} s do not fit into the {limit:g} s of limit_seconds, which every cell has"
        )
    onset = _seconds(entry, "onset_seconds", _ONSET_SECONDS, "degrade.")
    what = [Degradation(onset_seconds=onset)] * _number(entry, "healthy", 4, MAX_CELLS)
    what += [one for fault in _tables(entry, "fault") for one in _degradations(fault, onset, settings)]
    if late := next((one for one in what if one.onset_seconds >= seconds), None):
        raise PlanError(
            f"degrade.seconds: {seconds:g} s are over before {late.fault} begins at {late.onset_seconds:g} s"
        )
    return [
        Cell(
            f"degrade/{one.fault}-{i}",
            name,
            settings,
            4,
            i,
            seconds,
            limit_seconds=limit,
            degradation=one,
            lock=named.lock_of(str(settings.get(ENVIRONMENT, ""))),
        )
        for i, one in enumerate(what)
    ]


def _degradations(entry: dict[str, Any], onset: float, settings: dict[str, Any]) -> list[Degradation]:
    """One for each dose of a fault."""
    where = "degrade.fault."
    _require_known(entry, _FAULT, where)
    if entry.get("name") not in FAULTS:
        raise PlanError(f"{where}name: {entry.get('name')!r} is no fault; known are {', '.join(FAULTS.entries)}")
    fault, ranks = FAULTS[entry["name"]], int(settings.get(RANKS, 1))
    if lacking := fault.lacks(DeviceKind(settings.get("device", DeviceKind.CPU)), ranks):
        raise PlanError(f"{where}name: {fault.name}: {lacking}")
    rank = _number(entry, "rank", ranks - 1, ranks)
    if rank >= ranks:
        raise PlanError(f"{where}rank: there is no rank {rank}; the cell has {ranks}")
    doses = entry.get("doses")
    if not isinstance(doses, list) or not doses:
        raise PlanError(f"{where}doses: expected a list of numbers, not {doses!r}")
    for dose in doses:
        try:
            fault.dose.check(dose)
        except ValueError as error:
            raise PlanError(f"{where}doses: {fault.name}: {error}") from None
    onset = _seconds(entry, "onset_seconds", onset, where)
    ramp = _seconds(entry, "ramp_seconds", 0.0, where)
    return [
        Degradation(fault=fault.name, dose=float(dose), onset_seconds=onset, ramp_seconds=ramp, rank=rank)
        for dose in doses
    ]


def _with_environment(settings: dict[str, Any], named: NamedEnvironments) -> dict[str, Any]:
    """The settings with the text of the environment in place of its name. Raises EnvironmentFileError."""
    return settings | ({ENVIRONMENT: named.one(settings[ENVIRONMENT])} if ENVIRONMENT in settings else {})


def _id(name: str, settings: dict[str, Any], repeat: int) -> str:
    """Raises PlanError for one that no result could hold."""
    found = f"{name}/{','.join(f'{key}={value}' for key, value in sorted(settings.items()))}#{repeat}"
    if len(found) > _MAX_ID_LENGTH:
        raise PlanError(f"workload: {name}: its settings have {len(found)} characters, at most {_MAX_ID_LENGTH}")
    return found


def _check(where: str, workload: str, settings: dict[str, Any]) -> dict[str, Any]:
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


def _seconds(data: dict[str, Any], key: str, default: float, where: str) -> float:
    value = data.get(key, default)
    if not is_number(value) or not 0 <= value <= MAX_SECONDS:
        raise PlanError(f"{where}{key}: {value!r} is not a time from 0 to {MAX_SECONDS:g} s")
    return float(value)


def _number(data: dict[str, Any], key: str, default: int, largest: int, least: int = 0) -> int:
    value = data.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= largest:
        raise PlanError(f"{key}: {value!r:.40} is not a whole number from {least} to {largest:,}")
    return value


def _name(data: dict[str, Any]) -> str:
    name = data.get("name", "campaign")
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_LENGTH:
        raise PlanError(f"name: expected a text of 1 to {MAX_NAME_LENGTH} characters")
    return name


def _require_known(data: dict[str, Any], keys: set[str], where: str) -> None:
    for key in data:
        if key not in keys:
            raise PlanError(f"{where}{key}: unknown key; known are {', '.join(sorted(keys))}")
