"""The figures and tables of what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from evaluation.figures import Figures
from evaluation.pages import ROOT
from evaluation.releases.jobs import CAPTURED, Script, error_line
from evaluation.releases.known_changes import BadEnd, KnownChange, KnownEnd, known_changes, read_known_ends
from evaluation.releases.measure import CONTROLS, Measuring, Mode, Result
from evaluation.releases.plan import FIRST_PYTHON, Plan, Release
from evaluation.releases.small_checks import CHECKS, NEWER_THAN_TESTED
from evaluation.releases.two_ranks import difference_by_rank

MIN_RATIO = 0.97
"""The bound for dry runs, and for equal archetypes."""
MAX_REASON = 160
"""Characters of a reason in a table."""


@dataclass
class Count:
    """The number of trials in which something holds."""

    holds: int = 0
    trials: int = 0

    def add(self, holds: bool) -> None:
        self.holds += holds
        self.trials += 1

    def __str__(self) -> str:
        return f"{self.holds} of {self.trials}" if self.trials else "-"


@dataclass
class Row:
    """What holds of one release."""

    release: Release
    bare: Count = field(default_factory=Count)
    dry: Count = field(default_factory=Count)
    identical: Count = field(default_factory=Count)
    watched: Count = field(default_factory=Count)
    same: Count = field(default_factory=Count)
    """Archetypes like those of the reference."""
    capture: Count = field(default_factory=Count)
    checks: dict[str, Count] = field(default_factory=dict)
    excluded: list[tuple[str, str]] = field(default_factory=list)
    """Scripts that do not count, with the reason."""
    faults: list[tuple[str, str]] = field(default_factory=list)
    """Scripts and checks of which something does not hold, with what."""
    changed: list[tuple[KnownChange, str]] = field(default_factory=list)
    """Scripts with another archetype because torch has changed."""
    bad_ends: list[tuple[str, str]] = field(default_factory=list)
    """Scripts that torch has ended badly under Pharoah, all their work done, with the defect."""
    bad_ends_alone: int = 0
    """Runs without Pharoah that ended so."""


def show(figures: Figures, measuring: Measuring, plan: Plan, newer: str) -> None:
    """Add all figures and tables. `newer` is what `pharoah doctor` says about a release that does not exist yet."""
    changes = known_changes([script.name for script in measuring.scripts])
    rows = [_row(measuring, release, plan.reference, changes) for release in plan.releases]
    first = [row for row in rows if row.release.python == FIRST_PYTHON]
    further = [row for row in rows if row.release.python != FIRST_PYTHON]
    figures.add("releases_minors", len({row.release.minor for row in rows}))
    _ratio(figures, "releases_dry_run_ratio", [row.dry for row in first], MIN_RATIO)
    _ratio(figures, "releases_identical_ratio", [row.identical for row in rows], 1.0)
    _ratio(figures, "pythons_dry_run_ratio", [row.dry for row in further], MIN_RATIO)
    _ratio(figures, "releases_archetype_same_ratio", [row.same for row in rows], MIN_RATIO)
    figures.add("releases_archetype_known_changes", sum(len(row.changed) for row in rows))
    figures.add("releases_bad_ends", sum(len(row.bad_ends) for row in rows))
    figures.add("releases_bad_ends_alone", sum(row.bad_ends_alone for row in rows))
    _ratio(figures, "releases_watched_ratio", [row.watched for row in rows])
    _ratio(figures, "releases_capture_ratio", [row.capture for row in rows], 1.0)
    for name in CHECKS:
        if name != "doctor":
            _ratio(figures, f"releases_{name}_ratio", [row.checks[name] for row in first if name in row.checks], 1.0)
    _unsupported(figures, measuring, plan, newer, [row.checks["doctor"] for row in first if "doctor" in row.checks])
    _tables(figures, rows, plan, changes)


def _ratio(figures: Figures, key: str, counts: Sequence[Count], bound: float | None = None) -> None:
    holds, trials = sum(count.holds for count in counts), sum(count.trials for count in counts)
    if trials:
        figures.ratio(key, holds, trials, bound)
    else:
        figures.skip(key, "no such release was chosen")


def _row(measuring: Measuring, release: Release, reference: Release, changes: Sequence[KnownChange]) -> Row:
    row = Row(release)
    for script in measuring.scripts:
        alone = measuring.result(release, script.name, Mode.BARE) or {"code": 1, "why": "not measured"}
        row.bare.add(alone["code"] == 0)
        if alone["code"]:
            row.excluded.append((script.name, _cell(alone["why"])))
            continue
        archetype = measuring.archetype(release, script)
        row.dry.add(bool(archetype))
        if not archetype:
            explained = measuring.result(release, script.name, Mode.EXPLAINED) or {}
            row.faults.append((script.name, f"no dry run: {_cell(explained.get('reason', ''))}"))
        _compare_runs(row, measuring, script)
        if archetype:
            _compare_archetypes(row, script, archetype, measuring.archetype(reference, script), changes)
    for name in CHECKS:
        if found := measuring.result(release, name, Mode.CHECK):
            count = row.checks[name] = Count()
            for what, reason in found["reasons"].items():
                count.add(not reason)
                if reason:
                    row.faults.append((f"{name}: {what}", _cell(reason)))
    return row


def _compare_runs(row: Row, measuring: Measuring, script: Script) -> None:
    """Whether runs under Pharoah are those of the script alone: one of those, where they differ from each other. A
    script that never does the same twice shows nothing."""
    alone, under, captured = (
        measuring.result(row.release, script.name, mode) for mode in (Mode.BARE, Mode.UNDER_PHAROAH, Mode.CAPTURED)
    )
    if alone is None or under is None:
        return
    row.watched.add(under["steps"] > 0)
    if not under["steps"]:
        row.faults.append((script.name, "no step was seen under pharoah run"))
    controls = [one for mode in CONTROLS if (one := measuring.result(row.release, script.name, mode))]
    bare = [alone, *(one for one in controls if not one["late"])]
    repeats_itself = len(bare) == 1 or any(not difference_by_rank(one, other) for one, other in combinations(bare, 2))
    hangs_alone = any(one["late"] for one in controls)
    for one in controls:
        row.bad_ends_alone += _bad_end(row.release, script, one, [alone]) is not None
    for run in filter(None, (under, captured)):
        unlike = all(difference_by_rank(one, run) for one in bare)
        if unlike and (known := _bad_end(row.release, script, run, bare)):
            row.bad_ends.append((script.name, known.reason))
            continue
        if unlike and run["late"] and hangs_alone:
            row.excluded.append((script.name, "not compared: it hangs, and without Pharoah too"))
            continue
        if unlike and not repeats_itself:
            row.excluded.append((script.name, f"not compared: {len(bare)} runs without Pharoah differ from each other"))
            continue
        row.identical.add(not unlike)
        if unlike:
            row.faults.append((script.name, f"under pharoah run: {_one_line(difference_by_rank(alone, run))}"))
    if captured and script.name in CAPTURED and (dry := measuring.archetype(row.release, script)):
        row.capture.add(captured["archetype"] == dry)
        if captured["archetype"] != dry:
            row.faults.append((script.name, f"captured: {captured['grammar'] or 'nothing'}"))


def _bad_end(release: Release, script: Script, run: Result, bare: Sequence[Result]) -> KnownEnd | None:
    """The defect of torch by which a run has ended badly that was like one of the script alone until then."""
    end = BadEnd.HANGS if run["late"] else BadEnd.ABORTS if "SIGABRT" in run["errors"] else None
    known = [one for one in read_known_ends() if one.end is end and one.has(release.minor) and script.ranks > 1]
    like = any(not difference_by_rank(one, {**run, "code": one["code"]}) for one in bare)
    return known[0] if known and like else None


def _compare_archetypes(row: Row, script: Script, own: str, other: str, changes: Sequence[KnownChange]) -> None:
    if not other:
        return  # the reference has none, which counts against it
    known = [change for change in changes if change.covers(script.name, row.release.minor)]
    if own != other and known:
        row.changed.append((known[0], script.name))
        return
    row.same.add(own == other)
    if own != other:
        row.faults.append((script.name, "another archetype than with the reference"))


def _unsupported(figures: Figures, measuring: Measuring, plan: Plan, newer: str, content: Sequence[Count]) -> None:
    """Whether `pharoah doctor` names releases outside the promise, and none of those within it; and whether a job
    trains with them all the same."""
    named, identical, rows = Count(), Count(), []
    for release in plan.unsupported:
        found = measuring.result(release, "doctor", Mode.CHECK) or {"reasons": {"torch": ""}}
        said = found["reasons"]["torch"]
        named.add(release.torch in said)
        alone, under = (measuring.result(release, "mlp_adamw", mode) for mode in (Mode.BARE, Mode.UNDER_PHAROAH))
        if alone and alone["code"]:
            trains = f"not even alone: {_cell(alone['errors'])}"
        elif alone and under:
            unlike = _one_line(difference_by_rank(alone, under))
            identical.add(not unlike)
            trains = unlike or "identical"
        else:
            trains = "not measured"
        rows.append((str(release), _cell(said) or "nothing", trains))
    named.add(NEWER_THAN_TESTED in newer)
    rows.append((f"torch {NEWER_THAN_TESTED} (its name only)", _cell(newer) or "nothing", "-"))
    _ratio(figures, "doctor_names_unsupported_ratio", [named], 1.0)
    _ratio(figures, "unsupported_identical_ratio", [identical], 1.0)
    wrong = sum(count.trials - count.holds for count in content)
    figures.add("doctor_false_alarms", wrong, "0", wrong == 0, f"n={sum(count.trials for count in content)}")
    caption = "Releases outside the promise, what `pharoah doctor` says, and a job under `pharoah run`:"
    figures.table(caption, ("release", "doctor", "the job"), rows)


def _tables(figures: Figures, rows: Sequence[Row], plan: Plan, changes: Sequence[KnownChange]) -> None:
    names = [name for name in CHECKS if name != "doctor"]
    columns = ("torch", "Python", "run bare", "dry run", "identical", "steps seen", "archetype", "capture", *names)
    lines = []
    for row in rows:
        counts = (row.bare, row.dry, row.identical, row.watched, row.same, row.capture)
        checks = [str(row.checks.get(name, "-")) for name in names]
        lines.append((row.release.torch, row.release.python, *map(str, counts), *checks))
    caption = f"Releases and what holds with them; archetypes are compared with those of {plan.reference}:"
    figures.table(caption, columns, lines)
    excluded = _joined((row.release, *one) for row in rows for one in row.excluded)
    if excluded:
        figures.table("Scripts that do not count for a release:", ("script", "why", "releases"), excluded)
    ended = _joined((row.release, *one) for row in rows for one in row.bad_ends)
    if ended:
        caption = "Scripts that torch ended badly under Pharoah, their work done:"
        figures.table(caption, ("script", "why", "releases"), ended)
    faults = _joined((row.release, *one) for row in rows for one in row.faults)
    if faults:
        figures.table("What does not hold:", ("script or check", "what", "releases"), faults)
    met = {change: sorted({name for row in rows for c, name in row.changed if c is change}) for change in changes}
    if changes:
        caption = "Changes of torch that give a script another archetype, with the scripts in which they were seen:"
        shown = [(change.releases, change.reason, ", ".join(found) or "none") for change, found in met.items()]
        figures.table(caption, ("torch", "what has changed", "scripts"), shown)


def _joined(found: Iterator[tuple[Release, str, str]]) -> list[tuple[str, str, str]]:
    """One line for what several releases share."""
    where: dict[tuple[str, str], list[str]] = {}
    for release, name, what in found:
        python = "" if release.python == FIRST_PYTHON else f" ({release.python})"
        where.setdefault((name, what), []).append(f"{release.minor}{python}")
    return [(name, what, ", ".join(releases)) for (name, what), releases in sorted(where.items())]


def _cell(text: str) -> str:
    """An error for a cell of a table."""
    return _one_line(error_line(text)[-MAX_REASON:])


def _one_line(text: str) -> str:
    """A text for a cell of a table, without the folder of this repository."""
    return " ".join(text.replace(f"{ROOT}/", "").replace("|", "/").split())
