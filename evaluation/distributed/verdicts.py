"""`python -m evaluation rank_verdicts`: does a distributed job get an answer, and is it the right one?

Real jobs under `torchrun` and `pharoah run`, of two and four ranks over gloo, for every strategy and six workloads. The
provider has run a campaign at other sizes: every workload on one rank, and every strategy with half of the workloads.
So half of the jobs can be known as a whole (rung `minor`), and the other half from their parts only. Some jobs fail,
each in a way that the campaign has seen on one rank.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluation.figures import OUTPUT, Figures, timed
from evaluation.pages import ROOT
from pharoah_benchmarks.strategies import STRATEGIES
from pharoah_protocol.vocabulary import VerdictStatus
from tests.harness.jobs import Job
from tests.harness.site import Site, node_profiles, running_site

FOLDER = OUTPUT / "rank_verdicts"
SCRIPT = str(ROOT / "evaluation" / "scripts" / "train_workload.py")
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
STEPS = 5
CAMPAIGN_SIZES: dict[str, dict[str, int]] = {
    "gpt": {"batch": 2, "length": 32, "width": 64, "depth": 3},
    "lstm": {"batch": 4, "length": 16},
    "llama": {"batch": 2, "length": 16},
    "mlp": {"batch": 16, "width": 64},
    "convnet": {"batch": 2, "size": 16, "channels": 16},
    "recommender": {"batch": 16, "items": 100},
}
JOB_SIZES: dict[str, dict[str, int]] = {
    "gpt": {"batch": 3, "length": 128, "width": 128, "depth": 4},
    "lstm": {"batch": 8, "length": 64},
    "llama": {"batch": 4, "length": 64, "depth": 3},
    "mlp": {"batch": 64, "width": 256, "depth": 3},
    "convnet": {"batch": 6, "size": 32, "channels": 32, "depth": 2},
    "recommender": {"batch": 64, "items": 2000, "tables": 3},
}
KNOWN_TOGETHER = ("gpt", "lstm", "mlp")
"""Workloads that the campaign also runs under every strategy."""
RIGHT_OF = {"ok": VerdictStatus.COMPATIBLE, "nan": VerdictStatus.INCOMPATIBLE, "error": VerdictStatus.INCOMPATIBLE}
FAILING_DTYPE, FAILING_STEPS = "float16", 40
"""Without scaling, AdamW's second moments are too small for float16, and the loss becomes NaN after some steps."""
VARIED = {"gpt": "length", "lstm": "length", "mlp": "width"}
"""Workloads that the campaign runs with several dtypes, each at two values of this setting."""


@dataclass(frozen=True)
class Case:
    """One distributed job."""

    workload: str
    strategy: str
    ranks: int
    settings: dict[str, Any]

    @property
    def known_together(self) -> bool:
        return self.workload in KNOWN_TOGETHER and "dtype" not in self.settings


@dataclass(frozen=True)
class Answer:
    """What a job was predicted to do, and what it did."""

    case: Case
    status: str
    rung: str
    codes: list[str]
    outcome: str

    @property
    def is_right(self) -> bool:
        return self.status == RIGHT_OF.get(self.outcome)


def run(arguments: argparse.Namespace) -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    figures = Figures("rank_verdicts")
    answers: list[Answer] = []
    plain = {name: profile for name, profile in node_profiles().items() if name in ("n1", "n2")}
    with running_site(FOLDER / "site", plain) as site:
        timed("campaign and learning", lambda: _learn(site, arguments.quick))
        timed("distributed jobs", lambda: answers.extend(_answers(site, list(cases(arguments.quick)))))
    _show(figures, answers)
    return figures.finish(arguments)


def cases(quick: bool) -> Iterator[Case]:
    """Every strategy with every workload; two and four ranks in turn. The short form has two workloads."""
    workloads = ["mlp", "recommender"] if quick else list(JOB_SIZES)
    for number, workload in enumerate(workloads):
        for at, strategy in enumerate(STRATEGIES):
            ranks = max(strategy.least_ranks, 4 if (number + at) % 3 == 0 else 2)
            yield Case(workload, strategy.name, ranks, JOB_SIZES[workload])
    for workload in VARIED if not quick else ("mlp",):
        for name in ("ddp", "fsdp2", "gradients_by_hand"):
            yield Case(workload, name, 2, {**JOB_SIZES[workload], "dtype": FAILING_DTYPE})


def campaign(quick: bool) -> str:
    """The campaign file: small sizes, on one rank and under strategies."""
    workloads = ("mlp", "recommender") if quick else tuple(CAMPAIGN_SIZES)
    parts = ['name = "distributed"', "repeats = 5", "limit_seconds = 120"]
    for workload in workloads:
        sizes = CAMPAIGN_SIZES[workload]
        vary: dict[str, list[Any]] = {}
        if name := VARIED.get(workload):
            vary = {"dtype": ["float32", "bfloat16", FAILING_DTYPE], name: [sizes[name], 2 * sizes[name]]}
        parts += _entry(workload, sizes, vary, 5, steps=FAILING_STEPS if vary else 3)
        for strategy in STRATEGIES if workload in KNOWN_TOGETHER else ():
            own = {**sizes, "strategy": strategy.name, "ranks": strategy.least_ranks}
            parts += _entry(workload, own, {}, 2, steps=3)
    return "\n".join(parts) + "\n"


def _entry(workload: str, settings: dict[str, Any], vary: dict[str, Any], repeats: int, steps: int) -> list[str]:
    lines = ["", "[[workload]]", f'name = "{workload}"', f"steps = {steps}", f"repeats = {repeats}"]
    lines += [f"settings = {_table(settings)}"] if settings else []
    return lines + ([f"vary = {_table(vary)}"] if vary else [])


def _table(values: dict[str, Any]) -> str:
    return "{ " + ", ".join(f"{key} = {json.dumps(value)}" for key, value in values.items()) + " }"


def _learn(site: Site, quick: bool) -> None:
    file = site.folder / "campaign.toml"
    file.write_text(campaign(quick))
    if site.operator("campaign", "run", str(file)).wait() != 0:
        raise SystemExit(f"the campaign failed; logs are in {site.folder}")
    learned, _ = site.operator("learn").communicate()
    print(learned, end="")


def _answers(site: Site, chosen: Sequence[Case]) -> list[Answer]:
    """Jobs on both nodes at the same time."""

    nodes = list(site.profiles)

    def on(at: int) -> list[Answer]:
        numbers = range(at, len(chosen), len(nodes))
        return [_answer(site, nodes[at], chosen[number], FOLDER / f"job-{number}") for number in numbers]

    with ThreadPoolExecutor(len(nodes)) as pool:
        return [answer for part in pool.map(on, range(len(nodes))) for answer in part]


def _answer(site: Site, node: str, case: Case, folder: Path) -> Answer:
    settings = json.dumps({**case.settings, "strategy": case.strategy, "ranks": case.ranks})
    steps = str(FAILING_STEPS if "dtype" in case.settings else STEPS)
    job = Job(site, node, [*LAUNCHER, str(case.ranks), SCRIPT, case.workload, settings, "--steps", steps], folder)
    job.wait()
    verdict = job.verdict()
    codes = [finding["code"] for finding in verdict["findings"]]
    answer = Answer(case, verdict["status"], verdict["rung"], codes, _outcome(job.output()))
    mark = "" if answer.is_right else "   WRONG"
    what = f"{case.workload} {case.strategy} x{case.ranks} {case.settings.get('dtype', '')}"
    print(f"  {what}: {answer.outcome} / {answer.status} ({answer.rung}) {verdict['reason']}{mark}", flush=True)
    return answer


def _outcome(output: str) -> str:
    """The outcome of the first rank that states one which is not `ok`; `died` when none states any. Ranks write into
    each other's lines."""
    stated = re.findall(r'\{"outcome": "(\w+)"', output)
    return next((outcome for outcome in stated if outcome != "ok"), stated[0] if stated else "died")


def _show(figures: Figures, answers: Sequence[Answer]) -> None:
    unknown = sum(answer.status == VerdictStatus.UNKNOWN for answer in answers)
    share = unknown / len(answers)
    figures.add("distributed_jobs_unknown_ratio", share, "<= 0.1", share <= 0.1, f"n={len(answers)}")
    figures.ratio("distributed_verdict_accuracy_ratio", sum(answer.is_right for answer in answers), len(answers), 0.95)
    apart = [answer for answer in answers if not answer.case.known_together]
    figures.ratio("known_from_parts_ratio", sum(answer.status != VerdictStatus.UNKNOWN for answer in apart), len(apart))
    failed = [answer for answer in answers if answer.outcome != "ok"]
    figures.ratio("failing_jobs_predicted_ratio", sum(answer.is_right for answer in failed), len(failed))
    figures.details["jobs"] = [{**vars(answer), "case": vars(answer.case)} for answer in answers]
