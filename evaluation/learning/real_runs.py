"""Real runs of other people: which effects the method calls, and whether any of them is a missing file or one host.

Nothing here knows the truth. What is checked is derived from the raw rows, apart from the method: who failed for want
of data, and on how many hosts a called row rests. Two things are planted into the real runs, so that a method which
calls nothing at all would be seen: a cause that makes one pair fail wherever it runs, and a host that fails.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from evaluation.figures import Figures
from evaluation.learning.simpler_methods import fisher
from pharoah_learning.effects import EffectCall, EffectFinding, find_effects
from pharoah_learning.incompatible_pairs import Call, PairFinding, find_incompatible_pairs
from pharoah_learning.past_runs import PastRuns, observations, select_measured
from pharoah_protocol.attribution import rules
from pharoah_protocol.vocabulary import Attribution, EndState
from pharoah_provider.backfill import SOURCES, Imported, columns_of, read_map_file

MAPS = Path(__file__).parent / "maps"
LAMBDA, MLPERF = "lambda_dlbench", "mlperf_training"
CLAIMS = (Call.INCOMPATIBLE, Call.INSEPARABLE)
MISSING_DATA = re.compile(r"AssertionError|FileNotFoundError|No such file")
"""How a benchmark of Lambda ends that does not find its data: it asserts that a file exists."""
PLANTED, QUICK_PLANTED = 24, 6
PLANTED_RATIO = 0.5
"""The share of the runs of a planted pair that fail."""
MIN_HOSTS = 8
"""Hosts of a planted pair: what fewer could show is not to be called."""
_KIND = re.compile(r",|;| with ")
"""What ends the first part of a reason, which many findings share."""
MAX_TABLE = 40
"""Rows of a table in the docs; `--out` has all findings."""

LAMBDA_KEYS = ("lambda_false_incompatibilities", "lambda_effects", "attribution_accuracy_lambda")


def measure(figures: Figures, arguments: argparse.Namespace) -> None:
    """Both data sets, each where it is present."""
    for keys, folder, part in ((LAMBDA_KEYS, LAMBDA, _lambda), (("mlperf_effects",), MLPERF, _mlperf)):
        if arguments.data is None:
            reason = "needs --data DIR"
        elif not (arguments.data / folder / "runs.csv.gz").is_file():
            reason = "not available"
        else:
            part(figures, arguments)
            continue
        for key in keys:
            figures.skip(key, reason)


def _imported(arguments: argparse.Namespace, folder: str) -> Imported:
    return columns_of(arguments.data / folder / "runs.csv.gz", SOURCES["csv"], read_map_file(MAPS / f"{folder}.toml"))


def _lambda(figures: Figures, arguments: argparse.Namespace) -> None:
    runs = _imported(arguments, LAMBDA).runs
    pairs, effects = find_incompatible_pairs(observations(runs), arguments.seed), find_effects(select_measured(runs))
    raw = _Raw(arguments.data / LAMBDA / "runs.csv.gz", runs)
    called = [_row_of(one) for one in pairs if one.call in CLAIMS]
    called += [_Row(one.subject, (f"{one.column}={one.value}", f"{one.column}={one.against}"), False) for one in effects
               if one.call is EffectCall.CALLED]  # fmt: skip
    false = [row for row in called if raw.missing_data(row) or raw.on_one_host(row)]
    figures.add("lambda_false_incompatibilities", len(false), "0", not false, f"of {len(called)} called rows")
    _naive(figures, runs, raw)
    _effects(figures, "lambda_effects", effects, pairs)
    _planted(figures, arguments, runs)
    _attribution(figures, arguments.data / LAMBDA / "logs_labelled.jsonl.gz")


def _mlperf(figures: Figures, arguments: argparse.Namespace) -> None:
    runs = _imported(arguments, MLPERF).runs
    pairs = find_incompatible_pairs(observations(runs), arguments.seed)
    _effects(figures, "mlperf_effects", find_effects(select_measured(runs)), pairs)


class _Row(NamedTuple):
    """A row that is called: a model or archetype, and the values of a context that it names."""

    subject: str
    values: tuple[str, ...]
    fails: bool
    """Whether it is about failures; else it is about throughput."""


def _row_of(one: PairFinding) -> _Row:
    return _Row(one.archetype, (one.context,), True)


class _Raw:
    """The rows of the file itself, which know nothing of attributions, strata and clusters."""

    def __init__(self, path: Path, runs: PastRuns) -> None:
        with gzip.open(path, "rt", newline="") as file:
            rows = {row["blob"]: row for row in csv.DictReader(file)}
        self.rows = list(rows.values())
        self.runs = runs

    def missing_data(self, row: _Row) -> bool:
        """Whether most failures of the row are for want of data."""
        failed = [one for one in self._chosen(row.subject, row.values[0]) if one["ok"] == "False"]
        missing = sum(bool(MISSING_DATA.search(one["first_error_line"])) for one in failed)
        return row.fails and 2 * missing >= max(1, len(failed))

    def on_one_host(self, row: _Row) -> bool:
        """Whether one value of the row was seen on one host only; of failures, whether they were."""
        for value in row.values:
            chosen = self._chosen(row.subject, value)
            if row.fails:
                chosen = [one for one in chosen if one["ok"] == "False"]
            if len({one["node_id"] or (one["cpu"], one["board"]) for one in chosen}) < 2:
                return True
        return False

    def _chosen(self, subject: str, value: str) -> list[dict[str, str]]:
        fact, _, name = value.partition("=")
        mask = (self.runs.subject == subject) | (self.runs.model == subject)
        mask = mask & (self.runs.context[fact] == name)
        return [self.rows[place] for place in np.flatnonzero(mask)]


def _naive(figures: Figures, runs: PastRuns, raw: _Raw) -> None:
    """What a table calls that counts every failure and every run: Fisher's test for each pair."""
    unattributed = replace(runs, attribution=np.full(len(runs), Attribution.UNKNOWN, dtype=object))
    seen = observations(unattributed)
    called = [_Row(seen.archetypes[a], (seen.contexts[c],), True) for a, c in np.argwhere(fisher(seen))]
    figures.add("lambda_naive_fisher_rows", len(called))
    figures.add("lambda_naive_fisher_rows_missing_data", sum(raw.missing_data(row) for row in called))
    figures.add("lambda_naive_fisher_rows_one_host", sum(raw.on_one_host(row) for row in called))


def _effects(figures: Figures, key: str, effects: Sequence[EffectFinding], pairs: Sequence[PairFinding]) -> None:
    """The number of effects that were examined, and a table of what was found."""
    clusters = "hosts" if key.startswith("lambda") else "submitters"
    figures.add(key, len(effects) + len(pairs), "> 0", bool(effects or pairs))
    examined: list[EffectFinding | PairFinding] = [*effects, *pairs]
    calls = Counter((str(one.call), _KIND.split(one.reason)[0]) for one in examined)
    rows = [_pair_cells(one) for one in pairs] + [_effect_cells(one) for one in effects]
    figures.details[key] = rows
    declined = [row for row in rows if row[2] == EffectCall.DECLINED and "failures" not in row[1]]
    shown = [row for row in rows if row not in declined]
    figures.table(
        f"Effects in {key.partition('_')[0]} runs, with {clusters} counted as one each; below are those that are not "
        "declined, the most certain first, and the first declined ones.",
        ["call", "why", "effects"],
        [[call, reason or "-", str(count)] for (call, reason), count in sorted(calls.items())],
    )
    figures.table(
        "",
        ["model or archetype", "effect", "call", "grade", "runs", clusters, "estimate [95 %]", "q", "hidden", "why"],
        [*shown, *declined][:MAX_TABLE],
    )


def _pair_cells(one: PairFinding) -> list[str]:
    estimate = f"odds x{one.odds_ratio:.2g} [{one.low:.2g}, {one.high:.2g}]"
    counts = f"{one.failures}/{one.runs}, {one.other_failures}/{one.other_runs}"
    why = one.reason + (f": {', '.join(one.inseparable_from)}" if one.inseparable_from else "")
    return [one.archetype, f"failures at {one.context}", one.call, "association", counts, str(one.clusters), estimate,
            f"{one.q:.2g}", f"{one.matched.sensitivity:.2g}", why or "-"]  # fmt: skip


def _effect_cells(one: EffectFinding) -> list[str]:
    estimate = f"x{one.ratio:.3g} [{one.low:.3g}, {one.high:.3g}]"
    return [one.subject, f"{one.column}: {one.value} against {one.against}", one.call, one.grade,
            f"{one.runs}, {one.other_runs}", str(one.clusters), estimate, f"{one.q:.2g}", f"{one.sensitivity:.2g}",
            one.reason or "-"]  # fmt: skip


def _planted(figures: Figures, arguments: argparse.Namespace, runs: PastRuns) -> None:
    """A cause that is planted into the real runs of one pair, and one that is planted into one host."""
    rng = np.random.default_rng(arguments.seed)
    trials = QUICK_PLANTED if arguments.quick else PLANTED
    clean = replace(runs, end_state=np.where(runs.failed, EndState.OK, runs.end_state).astype(object))
    seen = observations(clean)
    hosts = seen.clusters["host"]
    wide = [
        (a, c)
        for a, c in np.ndindex(len(seen.archetypes), len(seen.contexts))
        if len(np.unique(hosts[(seen.archetype == a) & seen.in_context[:, c]])) >= MIN_HOSTS
        and len(np.unique(hosts[(seen.archetype == a) & ~seen.in_context[:, c]])) >= MIN_HOSTS
    ]
    found = false = 0
    for a, c in rng.permutation(wide)[:trials]:
        pair = (seen.archetype == a) & seen.in_context[:, c]
        failed = pair & (rng.random(len(seen)) < PLANTED_RATIO)
        findings = find_incompatible_pairs(replace(seen, failed=failed), arguments.seed)
        name = seen.archetypes[a], seen.contexts[c]
        claimed = [one for one in findings if one.call in (*CLAIMS, Call.SUSPECT)]
        found += any(
            name == (one.archetype, one.context) or (one.archetype == name[0] and name[1] in one.inseparable_from)
            for one in claimed
        )
        host = (seen.archetype == a) & (hosts == rng.choice(hosts[pair]))
        lemon = find_incompatible_pairs(replace(seen, failed=host), arguments.seed)
        false += any(one.call in CLAIMS for one in lemon)
    figures.ratio("lambda_planted_pairs_found", found, min(trials, len(wide)))
    figures.add("lambda_planted_hosts_called", false, "0", false == 0, f"{min(trials, len(wide))} hosts")


EXPECTED: dict[str, frozenset[str]] = {
    "failed_missing_data": frozenset({"missing-file"}),
    "oom": frozenset({"device-memory"}),
    "cudnn": frozenset({"library-internal-error"}),
}
"""What the labels of the logs say, in the names of the rules; a run that ended well has no cause."""


def _attribution(figures: Figures, path: Path) -> None:
    """How many labelled logs get the cause of their label, from the end state and the whole log."""
    if not path.is_file():
        figures.skip("attribution_accuracy_lambda", "not available")
        return
    with gzip.open(path, "rt") as file:
        logs = [json.loads(line) for line in file]
    counts: Counter[tuple[str, str, str]] = Counter()
    right = failures = failures_right = 0
    for log in logs:
        failed = log["cls"].startswith("failed")
        found = rules().cause(EndState.FAILED if failed else EndState.OK, log["lines"])
        label = log["cls"] if log["cls"] in EXPECTED else log["err_class"] if failed else log["cls"]
        correct = found.rule in EXPECTED.get(label, frozenset({""}))
        counts[log["cls"], str(found.attribution), found.rule or "no cause"] += 1
        right += correct
        failures += failed
        failures_right += failed and correct
    figures.ratio("attribution_accuracy_lambda", right, len(logs))
    figures.ratio("attribution_accuracy_lambda_failures", failures_right, failures)
    figures.table(
        "What the rules make of labelled logs.",
        ["label", "attribution", "rule", "logs"],
        [[*key, str(count)] for key, count in sorted(counts.items())],
    )
