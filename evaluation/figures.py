"""Figures of an evaluation: numbers with intervals and bounds, printed, written as JSON, and put into the docs."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import platform
import textwrap
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from scipy import stats

from evaluation.pages import DOCS, FELL_SHORT, PRINTED, ROOT, find_page, write_section, write_summary
from pharoah.capture.hardware import gpu_names
from pharoah_learning.models.proportions import wilson

OUTPUT = ROOT / "evaluation-out"


class Figure(NamedTuple):
    """One row of the printed table."""

    key: str
    value: str
    interval: str
    bound: str
    """The bound in words, or `printed` for a figure without one."""


@dataclass
class Figures:
    """All figures of one evaluation."""

    name: str
    values: dict[str, float | bool] = field(default_factory=dict)
    details: dict[str, Any] = field(default_factory=dict)
    rows: list[Figure] = field(default_factory=list)
    tables: list[list[str]] = field(default_factory=list)
    """Further tables for the docs, each as lines of Markdown."""
    _holds: bool = True

    @property
    def empty(self) -> bool:
        """Whether there is nothing to show. A part may have tables only."""
        return not (self.rows or self.tables)

    def add(self, key: str, value: float | bool, must: str = "", holds: bool = True, interval: str = "") -> None:
        """One figure; `must` is the bound in words, `holds` whether it is met."""
        self.values[key] = value
        self._holds &= bool(holds)  # numpy has a bool type of its own
        shown = str(value) if isinstance(value, bool) else f"{value:.4g}"
        self._show(Figure(key, shown, interval, f"{must}{'' if holds else f'   {FELL_SHORT}'}" or PRINTED))

    def ratio(self, key: str, hits: int, trials: int, bound: float | None = None) -> None:
        """A proportion with its Wilson interval; it must be at least `bound`."""
        low, high = wilson(hits, trials)
        value = hits / trials if trials else float("nan")
        holds = bound is None or value >= bound
        must = f">= {bound:g}" if bound is not None else ""
        self.add(key, value, must, holds, f"[{low:.2f}, {high:.2f}] n={trials}")

    def rate(self, key: str, events: int, exposure: float, most: float | None = None) -> None:
        """Events per unit of exposure with its exact Poisson interval; it must be at most `most`."""
        low = stats.chi2.ppf(0.025, 2 * events) / 2 / exposure if events else 0.0
        high = stats.chi2.ppf(0.975, 2 * events + 2) / 2 / exposure
        value, must = events / exposure, f"<= {most:g}" if most is not None else ""
        holds = most is None or value <= most
        self.add(key, value, must, holds, f"[{low:.2f}, {high:.2f}] {events} in {exposure:.2f}")

    def skip(self, key: str, reason: str) -> None:
        """A figure that was not measured; its row holds the reason, such as `needs --data`."""
        self._show(Figure(key, "-", "", reason))

    def table(self, caption: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A further table for the docs. The caption is one sentence and may be empty."""
        lines = ([*_prose(caption), ""] if caption else []) + [_row(columns), "|---" * len(columns) + "|"]
        self.tables.append([*lines, *map(_row, rows)])
        print("\n".join(self.tables[-1]), flush=True)

    def finish(self, arguments: argparse.Namespace) -> int:
        """Print all figures once more, write JSON and, with `--docs`, the docs. Returns the exit code.

        Raises SystemExit when there are none, because no part has the name that was asked for.
        """
        if self.empty:
            raise SystemExit(f"--part {arguments.part}: not a part of this evaluation; a full run prints their names")
        self.print_all()
        self.document(arguments)
        return self.write(arguments.out)

    def include(self, part: Figures) -> None:
        """The figures of a part count as these figures' own."""
        self.values |= part.values
        self.details |= part.details
        self.rows += part.rows
        self.tables += part.tables
        self._holds &= part._holds

    def print_all(self) -> None:
        """Print all figures once more."""
        print("\nall figures")
        for row in self.rows:
            print(f"  {row.key:42} {row.value:>9}  {row.interval:40} {row.bound}")

    def document(self, arguments: argparse.Namespace) -> None:
        """With `--docs`, write the section of these figures, and the summary of all sections."""
        if arguments.docs:
            write_section(find_page(DOCS, self.name), self.name, self.markdown(command(arguments)))
            write_summary(DOCS)

    def markdown(self, command: str) -> list[str]:
        """The section of the docs: command, machine and date, the figures, the further tables."""
        lines = [
            *_prose(f"`{command}`, {machine()}, {time.strftime('%Y-%m-%d')}."),
            "",
            _row(("figure", "value", "interval, trials", "must be")),
            "|---|---|---|---|",
            *(_row((f"`{row.key}`", *row[1:])) for row in self.rows),
        ]
        for table in self.tables:
            lines += ["", *table]
        return lines

    def write(self, path: Path | None) -> int:
        """Write JSON to `path` and a summary to standard output. Returns the exit code.

        A number that is not finite is written as null, because JSON has no other word for it.
        """
        result = {
            "name": self.name,
            "figures": self.values,
            "holds": self._holds,
            "details": self.details,
            "tables": self.tables,
            "machine": machine(),
            "date": time.strftime("%Y-%m-%d"),
        }
        if path:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(_json(result, indent=1) + "\n")
        print(_json({key: result[key] for key in ("name", "figures", "holds")}))
        return 0 if self._holds else 1

    def _show(self, row: Figure) -> None:
        self.rows.append(row)
        print(f"  {row.key:42} {row.value:>9}  {row.interval:18} {row.bound}", flush=True)


def command(arguments: argparse.Namespace) -> str:
    """The command that makes these figures again."""
    data = " --data DIR" if arguments.data else ""
    part = "".join(
        f" --{name} {value}" for name in ("part", "torch", "python") if (value := getattr(arguments, name, ""))
    )
    return f"python -m evaluation {arguments.name}{part} --seed {arguments.seed}{' --quick' * arguments.quick}{data}"


def machine() -> str:
    """What a reader must know about the machine to compare figures."""
    cores = len(os.sched_getaffinity(0))
    hardware = ", ".join([f"{cores} cores", *gpu_names()])
    return f"{platform.machine()}, {hardware}, Python {platform.python_version()}, torch {version('torch')}"


def timed(what: str, work: Callable[[], None], only: str | None = None) -> None:
    """Run a part of an evaluation and print how long it took. With `only`, just the part of that name runs."""
    if only not in (None, what):
        return
    began = time.monotonic()
    print(f"\n{what}", flush=True)
    work()
    print(f"  ({time.monotonic() - began:.0f} s)", flush=True)


class Peak:
    """The most memory that any process below this one has had, as the kernel reports it while they live."""

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


def _json(value: Any, indent: int | None = None) -> str:
    return json.dumps(_finite(value), indent=indent, default=str, allow_nan=False)


def _finite(value: Any) -> Any:
    """The same value with None in place of numbers that are not finite."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(one) for key, one in value.items()}
    return [_finite(one) for one in value] if isinstance(value, list | tuple) else value


def _prose(text: str) -> list[str]:
    """Lines as all pages have them."""
    return textwrap.wrap(text, 120, break_on_hyphens=False)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
