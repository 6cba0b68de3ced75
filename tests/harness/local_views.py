"""What a sidecar sees of a job on its own machine, for tests of detectors."""

from __future__ import annotations

from pharoah.local_alerts._readings import ProcessReading
from pharoah.local_alerts._step_windows import Window


def window_of(**values: float) -> Window:
    """A window of a job that computes all the time, with these values changed; in the rest of a step, it waits."""
    usual = {
        "began_at": 0.0, "ended_at": 5.0, "median": 0.1, "took": 0.1, "computed": 0.1, "queued": 0.0,
        "process_computed": 0.1, "moved_bytes": 0.0, "blocked": 0.0, "disk_waited": 0.0, "others": 0.0, "cores": 2.0,
        "stolen": 0.0, "throttled": 0.0, "worker_computed": 0.0, "worker_moved": 0.0, "measured": 0.0,
    }  # fmt: skip
    changed = {**usual, **values}
    waited = max(0.0, changed["took"] - changed["computed"] - changed["queued"])
    return Window(**{"waited": waited, **changed})


def process_reading(**values: float) -> ProcessReading:
    """A process that does nothing, with these values changed."""
    usual = {
        "computed_seconds": 0.0, "main_computed_seconds": 0.0, "main_queued_seconds": 0.0, "blocked": False,
        "stopped": False, "moved_bytes": 0, "resident_bytes": 1 << 30, "worker_seconds": 0.0, "worker_bytes": 0,
        "worker_moved_bytes": 0, "throttled_seconds": 0.0, "data_free_bytes": None,
    }  # fmt: skip
    return ProcessReading(**{**usual, **values})  # type: ignore[arg-type]
