"""What is measured of a release, and what is known of it already."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any

from evaluation.releases import jobs, small_checks
from evaluation.releases.install import installed
from evaluation.releases.jobs import HERE, Script
from evaluation.releases.plan import Release
from evaluation.releases.store import Key, Results, digest_of
from evaluation.releases.two_ranks import difference_by_rank, with_own_outputs
from tests.harness.processes import POLL_SECONDS, command_line, descendants, kill

AT_ONCE = 2
"""Scripts at the same time, as many as the smallest machine has cores."""
TWO_RANKS_SECONDS = 180.0
"""A script of two ranks takes up to 20 s on an idle machine; some hang with some releases (`known_changes.toml`)."""

Result = dict[str, Any]


class Mode(StrEnum):
    """How a script is run, or that it is a check that has none."""

    BARE = "bare"
    UNDER_PHAROAH = "pharoah run"
    AGAIN = "bare, again"
    """A control of a script whose run under Pharoah differs: two ranks may sum in any order."""
    AGAIN_2 = "bare, again 2"
    AGAIN_3 = "bare, again 3"
    AGAIN_4 = "bare, again 4"
    AGAIN_5 = "bare, again 5"
    EXPLAINED = "pharoah explain"
    """Where the run had no dry run."""
    CAPTURED = "capture"
    CHECK = "check"


CONTROLS = (Mode.AGAIN, Mode.AGAIN_2, Mode.AGAIN_3, Mode.AGAIN_4, Mode.AGAIN_5)


class NotMeasured(Exception):
    """A result is missing, and there is no interpreter to get it with."""


class Measuring:
    """Measures releases one after another; what an earlier call has measured with the same sources is not repeated."""

    def __init__(self, results: Results, scripts: Sequence[Script]) -> None:
        self.scripts = with_own_outputs(scripts)
        self._results, self._product = results, jobs.product_digest()
        two_ranks = [HERE / "two_ranks.py"]
        self._digests = {
            script.name: digest_of([script.path, HERE / "jobs.py", *(two_ranks if script.ranks > 1 else [])])
            for script in scripts
        }
        self._checks = digest_of([HERE / "small_checks.py"])
        self._stopped = False

    def measure(self, release: Release, checks: bool, captures: bool = True) -> None:
        """The scripts with a promised release. With `checks`, also what has no script; with `captures`, also steps as
        they really run. Raises what `installed` raises."""
        try:
            self._all(release, None, checks, captures)
        except NotMeasured:
            with installed(release) as interpreter:
                self._all(release, interpreter, checks, captures)

    def measure_unsupported(self, release: Release) -> None:
        """A release outside the promise: what `pharoah doctor` says, and whether a job still trains."""
        try:
            self._unsupported(release, None)
        except NotMeasured:
            with installed(release) as interpreter:
                self._unsupported(release, interpreter)

    def measure_newer(self, interpreter: Path) -> small_checks.Reasons:
        """What `pharoah doctor` says about a release that is newer than all."""
        return small_checks.doctor_of_newer(interpreter)

    def result(self, release: Release, work: str, mode: Mode) -> Result | None:
        """What is known; None for what was not measured."""
        return self._results.get(self._key(release, work, mode))

    def archetype(self, release: Release, script: Script) -> str:
        """The archetype of a script's dry run; empty where there was none."""
        run = self.result(release, script.name, Mode.UNDER_PHAROAH) or {}
        if run.get("dry"):
            return str(run["archetype"])
        return str((self.result(release, script.name, Mode.EXPLAINED) or {}).get("archetype", ""))

    def runs_bare(self, release: Release, script: Script) -> bool:
        found = self.result(release, script.name, Mode.BARE)
        return found is not None and found["code"] == 0

    def _all(self, release: Release, interpreter: Path | None, checks: bool, captures: bool) -> None:
        works = [partial(self._script, release, interpreter, script, captures) for script in self.scripts]
        if checks:
            works += [partial(self._check, release, interpreter, name) for name in small_checks.CHECKS]
        if interpreter is None:
            for work in works:
                work()
            return
        with ThreadPoolExecutor(AT_ONCE) as pool:
            running = [pool.submit(work) for work in works]
            try:
                for one in running:
                    one.result()
            except BaseException:  # interrupted: what runs now would go on for minutes
                self._stopped = True
                pool.shutdown(wait=False, cancel_futures=True)
                while not all(one.done() for one in running):
                    kill(descendants(os.getpid()))
                    time.sleep(POLL_SECONDS)
                raise

    def _unsupported(self, release: Release, interpreter: Path | None) -> None:
        self._check(release, interpreter, "doctor")
        script = next(one for one in self.scripts if one.name == "mlp_adamw")
        alone = self._once(release, interpreter, script.name, Mode.BARE, partial(jobs.bare, script))
        if alone["code"] == 0:
            watched = partial(jobs.watched, script, capture=False)
            self._once(release, interpreter, script.name, Mode.UNDER_PHAROAH, watched)

    def _script(self, release: Release, interpreter: Path | None, script: Script, captures: bool) -> None:
        def once(mode: Mode, measured: Callable[[Path], Result]) -> Result:
            limited = partial(_end_late, script.name, measured) if script.ranks > 1 else measured
            return self._once(release, interpreter, script.name, mode, limited)

        alone = once(Mode.BARE, partial(jobs.bare, script))
        if alone["code"]:
            return
        under = once(Mode.UNDER_PHAROAH, partial(jobs.watched, script, capture=False))
        if not under["dry"]:
            once(Mode.EXPLAINED, partial(jobs.explained, script))
        runs = [under]
        if captures and script.name in jobs.CAPTURED:
            runs.append(once(Mode.CAPTURED, partial(jobs.watched, script, capture=True)))
        seen = [alone]
        for control in CONTROLS:
            if all(any(not difference_by_rank(one, run) for one in seen) for run in runs):
                return
            again = once(control, partial(jobs.bare, script))
            if not again["late"]:
                seen.append(again)
            elif any(run["late"] for run in runs):  # it hangs alone as well, so that hang shows nothing
                return

    def _check(self, release: Release, interpreter: Path | None, name: str) -> None:
        self._once(release, interpreter, name, Mode.CHECK, lambda place: {"reasons": small_checks.CHECKS[name](place)})

    def _once(
        self, release: Release, interpreter: Path | None, work: str, mode: Mode, measured: Callable[[Path], Result]
    ) -> Result:
        """The result, measured if it is not known. Raises NotMeasured when it is neither known nor can be measured."""
        key = self._key(release, work, mode)
        if (known := self._results.get(key)) is not None:
            return known
        if interpreter is None or self._stopped:
            raise NotMeasured
        result = measured(interpreter)
        if result.get("late"):
            _end_ranks(work)
        if self._stopped:
            raise NotMeasured  # it was killed with this call
        self._results.add(key, result, keep=not result.get("late"))
        print(f"  {release}: {work}, {mode}: {_line(result)}", flush=True)
        return result

    def _key(self, release: Release, work: str, mode: Mode) -> Key:
        if mode is Mode.CHECK:
            digest = f"{self._product} {self._checks}"
        elif mode in (Mode.BARE, *CONTROLS):  # whatever the product is
            digest = self._digests[work]
        else:
            digest = f"{self._product} {self._digests[work]}"
        return Key(release.torch, release.python, work, mode, digest)


def _end_late(script: str, measured: Callable[[Path], Result], interpreter: Path) -> Result:
    """A result that is late after `TWO_RANKS_SECONDS`."""
    late = threading.Event()

    def end() -> None:
        late.set()
        _end_ranks(script)

    timer = threading.Timer(TWO_RANKS_SECONDS, end)
    timer.start()
    try:
        result = measured(interpreter)
    finally:
        timer.cancel()
    return {**result, "late": result["late"] or late.is_set()}


def _end_ranks(script: str) -> None:
    """Ranks that hang outlive their launcher: each has a session of its own."""
    kill(pid for pid in list(descendants(os.getpid())) if f"/{script}.py" in command_line(pid))


def _line(result: Result) -> str:
    """A result in a few words."""
    if "reasons" in result:
        return "; ".join(f"{name}: {reason[-200:]}" for name, reason in result["reasons"].items() if reason) or "holds"
    if "reason" in result:
        return f"no dry run: {result['reason'][-200:]}"
    if "code" not in result:
        return str(result["archetype"])
    said = f", {result['why'][-200:]}" if result["code"] else ""
    return f"exit code {result['code']}, {result['seconds']:g} s{said}".replace("\n", " ")
