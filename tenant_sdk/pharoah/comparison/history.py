"""This user's runs: what `pharoah status --ended` lists and `pharoah compare` looks up.

One file per run, of the run's record with what became of it beside, in one folder per machine, since homes may be
shared; they never leave it by themselves.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pharoah._settings import Settings
from pharoah.comparison.record import Record, RecordError, parse_record
from pharoah_system.files import write_atomically
from pharoah_system.trusted_paths import find_folder, is_own_file, make_folder

SHORTEST_PREFIX = 4
KEPT_DAYS = 90
"""How long the runs of another machine stay that writes no more."""
NOT_ENDED = "not ended"
"""The run continues, or its sidecar was killed."""
_LIST = "`pharoah status --ended` lists the runs"


@dataclass
class Run:
    """One run of this user, as its file on this machine holds it."""

    id: str
    """Hexadecimal."""
    command: str = ""
    began: float = 0.0
    """Seconds since 1970."""
    state: str = NOT_ENDED
    steps: int = 0
    """Timed steps of one rank, without the first step and the captured step."""
    step_seconds: float = 0.0
    """Median of the last thousand; 0 when there were none."""
    record: Record = field(default_factory=lambda: Record({}))

    def to_json(self) -> str:
        run = {name: value for name, value in asdict(self).items() if name != "record"}
        return json.dumps({**self.record.to_dict(), "run": run}, indent=1, sort_keys=True)


class History:
    """Files in a folder of the user's state; a machine keeps its newest."""

    def __init__(self, settings: Settings) -> None:
        self._folder = Path(os.path.expanduser(settings.state_folder), "runs")  # noqa: PTH111 - Path's raises
        self._here = self._folder / os.uname().nodename
        self._keep = settings.keep_runs

    def folder(self) -> Path:
        """This machine's, made if it was not there. Raises OSError, also when others can change it."""
        if str(self._folder).startswith("~"):
            raise FileNotFoundError(f"{self._folder}: there is no such home; set PHAROAH_STATE_DIR")
        make_folder(self._here)
        return self._here

    def write(self, run: Run) -> None:
        """Create or replace a run's file, for this user's eyes; the oldest go. Raises OSError."""
        if not self._keep:
            return
        is_new = not self._here.exists()
        write_atomically(self.folder() / f"{run.id}.json", run.to_json() + "\n")
        for old in _newest_first(self._here.glob("*.json"))[self._keep :]:
            old.unlink(missing_ok=True)
        if is_new:
            self._delete_other_machines()

    def _delete_other_machines(self) -> None:
        """Pods that share a home have a new name each time, and each writes its runs into a folder of its own."""
        oldest = time.time() - KEPT_DAYS * 86_400
        for folder in self._folder.iterdir():
            if folder != self._here and folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)

    def runs(self) -> list[Run]:
        """This machine's, the newest first; what cannot be read is left out. Raises RecordError without its folder."""
        found = []
        for path in self._files(self._here):
            try:
                found.append(read(path))
            except RecordError:
                continue  # reported when the user names it
        return sorted(found, key=lambda run: -run.began)

    def find(self, prefix: str) -> Run:
        """The run whose id begins so, of any machine that shares this home. Raises RecordError unless it is one."""
        if len(prefix) < SHORTEST_PREFIX:
            raise RecordError(
                f"{prefix}: no file, and too short for a run: {SHORTEST_PREFIX} digits of its id; {_LIST}"
            )
        found = [path for path in self._files(self._folder) if path.stem.startswith(prefix)]
        if len(found) != 1:
            what = f"the beginning of {len(found)} runs' ids" if found else "no file and no run that is kept"
            raise RecordError(f"{prefix}: {what}; {_LIST}")
        return read(found[0])

    def _files(self, folder: Path) -> list[Path]:
        try:
            find_folder(folder)
            every = [Path(where, name) for where, _, names in os.walk(folder, onerror=_raise) for name in names]
            return [path for path in every if is_own_file(path)]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RecordError(f"{error.filename or folder}: {error.strerror} (PHAROAH_STATE_DIR)") from None


def read(path: Path) -> Run:
    """A run's file, or that of a record alone. Raises RecordError."""
    data, record = parse_record(path)
    known = data.get("run", {"id": ""})
    plain = Run("")
    if not isinstance(known, dict) or not {"id"} <= set(known) <= set(vars(plain)) - {"record"}:
        raise RecordError(f"{path}: run: made by another release of pharoah?")
    for name, value in known.items():
        if not _fits(value, type(getattr(plain, name))):
            raise RecordError(f"{path}: run.{name}: {value!r} is not a {type(getattr(plain, name)).__name__}")
    return Run(**known, record=record)


def _fits(value: Any, kind: type) -> bool:
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value) and 0 <= value < 1e11  # what a date can be
    return type(value) is kind


def _newest_first(paths: Iterator[Path]) -> list[Path]:
    times = {}
    for path in paths:
        try:
            times[path] = path.stat().st_mtime
        except FileNotFoundError:
            continue  # another run deleted it
    return sorted(times, key=lambda path: -times[path])


def _raise(error: OSError) -> None:
    raise error
