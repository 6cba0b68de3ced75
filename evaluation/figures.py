"""Figures of an evaluation: numbers with intervals and bounds, printed as a table and written as JSON."""

from __future__ import annotations

import contextlib
import json
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from scipy import stats

from pharoah_learning.models.proportions import wilson


@dataclass
class Figures:
    name: str
    values: dict[str, float | bool] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    _lines: list[tuple[str, str, str, str]] = field(default_factory=list)
    _holds: bool = True

    def add(self, key: str, value: float | bool, must: str = "", holds: bool = True, interval: str = "") -> None:
        """One figure; `must` is the bound in words, `holds` whether it is met."""
        self.values[key] = value
        self._holds &= bool(holds)  # numpy has its own
        shown = str(value) if isinstance(value, bool) else f"{value:.4g}"
        self._lines.append((key, shown, interval, f"{must}{'' if holds else '   DOES NOT HOLD'}" or "printed"))
        print(f"  {key:42} {shown:>9}  {interval:18} {self._lines[-1][3]}", flush=True)

    def ratio(self, key: str, hits: int, trials: int, bound: float | None = None) -> None:
        """A proportion with its Wilson interval; at least `bound`."""
        low, high = wilson(hits, trials)
        value = hits / trials if trials else float("nan")
        holds = bound is None or value >= bound
        self.add(
            key,
            value,
            f">= {bound:g}" if bound is not None else "",
            holds,
            f"[{low:.2f}, {high:.2f}] n={trials}",
        )

    def rate(self, key: str, events: int, exposure: float) -> None:
        """Events per unit of exposure with its exact Poisson interval."""
        low = stats.chi2.ppf(0.025, 2 * events) / 2 / exposure if events else 0.0
        high = stats.chi2.ppf(0.975, 2 * events + 2) / 2 / exposure
        self.add(key, events / exposure, interval=f"[{low:.2f}, {high:.2f}] {events} in {exposure:.2f}")

    def write(self, path: Path | None) -> int:
        """JSON to `path` or standard output; the exit code."""
        result = {
            "name": self.name,
            "figures": self.values,
            "holds": self._holds,
            "details": self.details,
            "machine": f"{platform.machine()}, {_cores()} cores, Python {platform.python_version()}",
            "date": time.strftime("%Y-%m-%d"),
        }
        text = json.dumps(result, indent=1, default=str)
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text + "\n")
        print(json.dumps({key: result[key] for key in ("name", "figures", "holds")}))
        return 0 if self._holds else 1


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0))


def timed(what: str, work: Callable[[], None]) -> None:
    """Run a part and say how long it took."""
    began = time.monotonic()
    print(f"\n{what}", flush=True)
    work()
    print(f"  ({time.monotonic() - began:.0f} s)", flush=True)


class Peak:
    """The most memory any process below this one has had, by asking the kernel while they live."""

    def __init__(self) -> None:
        self.bytes = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._over.wait(0.1):
            for child in psutil.Process().children(recursive=True):
                with contextlib.suppress(OSError):
                    status = Path(f"/proc/{child.pid}/status").read_text()
                    high = next((line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")), 0)
                    self.bytes = max(self.bytes, 1024 * int(high))
