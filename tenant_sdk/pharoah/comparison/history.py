"""This user's runs on this machine, the newest of them: what `pharoah status --ended` lists and `compare` looks up.

One file per run, of the run's record with what became of it beside; they never leave the machine by themselves.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pharoah._settings import Settings
from pharoah.comparison.record import Record, RecordError, parse_record

SHORTEST_PREFIX = 4
NOT_ENDED = "not ended"
"""It still runs, or whoever watched it was killed."""


@dataclass
class Run:
    id: str
    """Hexadecimal."""
    command: str = ""
    began: float = 0.0
    """Seconds since 1970."""
    state: str = NOT_ENDED
    steps: int = 0
    """Timed ones of one rank: not the first, nor the one that was captured."""
    step_seconds: float = 0.0
    """Median of the last thousand; 0 when there were none."""
    record: Record = field(default_factory=lambda: Record({}))

    def to_json(self) -> str:
        run = {name: value for name, value in asdict(self).items() if name != "record"}
        return json.dumps({**self.record.to_dict(), "run": run}, indent=1, sort_keys=True)


class History:
    """Files in a folder of the user's state; `keep` is how many, 0 for none."""

    def __init__(self, settings: Settings) -> None:
        self._folder = Path(settings.state_folder).expanduser() / "runs"
        self._keep = settings.keep_runs

    def write(self, run: Run) -> None:
        """Create or replace a run's file, for this user's eyes; the oldest go. Raises OSError."""
        if not self._keep:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        scratch = self._folder / f".{run.id}"
        with os.fdopen(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(run.to_json() + "\n")
        scratch.rename(self._folder / f"{run.id}.json")
        for old in self._files()[self._keep :]:
            old.unlink(missing_ok=True)

    def runs(self) -> list[Run]:
        """All that can be read, the newest first."""
        found = []
        for path in self._files():
            with contextlib.suppress(RecordError):
                found.append(read(path))
        return sorted(found, key=lambda run: -run.began)

    def find(self, prefix: str) -> Run:
        """The run whose id begins so. Raises RecordError when there is none, or more than one."""
        found = [path for path in self._files() if path.stem.startswith(prefix)]
        if len(found) != 1 or len(prefix) < SHORTEST_PREFIX:
            what = "no file and no run of this machine" if not found else f"the beginning of {len(found)} runs' ids"
            raise RecordError(f"{prefix}: {what}; `pharoah status --ended` lists the runs")
        return read(found[0])

    def _files(self) -> list[Path]:
        """The newest first."""
        times = {}
        with contextlib.suppress(OSError):
            for path in self._folder.glob("*.json"):
                with contextlib.suppress(OSError):  # another run took it away
                    times[path] = path.stat().st_mtime
        return sorted(times, key=lambda path: -times[path])


def read(path: Path) -> Run:
    """A run's file, or that of a record alone. Raises RecordError."""
    data, record = parse_record(path)
    known = data.get("run")
    try:
        return Run(**{**(known if known is not None else {"id": ""}), "record": record})
    except TypeError:
        raise RecordError(f"{path}: run: made by another release of pharoah?") from None
