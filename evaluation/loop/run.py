"""`python -m evaluation loop`: verdicts, detection and cost of the whole loop. All processes, faults and jobs are real.

Verdicts are compared with what the same job really does on the same node. Degradations are copy loops pinned to the
job's core whose share of time is drawn at random (1.2x to 2x, half steps, half ramps). Healthy runs do what healthy
jobs do: checkpoint pauses, evaluation phases, longer sequences.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
from functools import partial
from typing import Any

from evaluation.figures import Figures, timed
from evaluation.loop import detection, disturbance, full_information, healthy_jobs, local_alerts, odd_rank_detection
from evaluation.loop.watched_jobs import (
    FOLDER,
    SCRIPT,
    agents_are_connected,
    reports,
    result_of,
    wait_until,
    watched_job,
)
from evaluation.pages import ROOT
from tests.harness.jobs import Job, losses_identical
from tests.harness.site import Site, running_site

STATUS_OF = {
    "ok": "compatible",
    "slow": "warn",
    "memory": "incompatible",
    "nan": "incompatible",
    "error": "incompatible",
}
SLOW_RATIO = 2.0

PAIRS: list[tuple[str, dict[str, Any], str]] = [
    ("gpt", {"batch": 2, "length": 128}, "n1"),
    ("gpt", {"batch": 2, "length": 128}, "n3"),
    ("gpt", {"batch": 2, "length": 1024, "attention": "math"}, "n1"),
    ("gpt", {"batch": 2, "length": 1024, "attention": "math"}, "n3"),
    ("recommender", {}, "n3"),
    # Sizes no campaign has run, in size classes it has.
    ("gpt", {"batch": 2, "length": 110}, "n3"),
    ("gpt", {"batch": 2, "length": 1000, "attention": "math"}, "n3"),
    ("gpt", {"batch": 2, "length": 1100, "attention": "math"}, "n3"),
    ("gpt", {"batch": 2, "length": 960}, "n3"),
    ("gpt", {"batch": 2, "length": 120, "dtype": "bfloat16"}, "n1"),
    ("gpt", {"batch": 2, "length": 120, "dtype": "bfloat16"}, "n3"),
    ("gpt", {"batch": 2, "length": 120, "dtype": "float16"}, "n1"),
    ("gpt", {"batch": 2, "length": 120, "dtype": "float16"}, "n3"),
    ("mlp", {"batch": 270}, "n3"),
    ("recommender", {"batch": 300}, "n1"),
    ("convnet", {"batch": 7}, "n3"),
]
FAMILIES = ["recurrence", "autoencoder", "experts", "spectral"]
NEVER_RUN = ("no job similar to this one", "this job itself")
"""How the reason of an `unknown` begins when the job has not run here (`pharoah.sidecar.verdict_rules`)."""
KILLED_JOB_SECONDS = 14.0
"""How long a job trains whose provider is killed: reports come within some seconds, and much of the run is left."""


PARTS = {
    "local": "alerts of the tenant's own machine",
    "healthy": "healthy jobs, watched by the tenant's own machine",
    "detection": "degradations, watched by the provider",
    "disturbance": "healthy jobs, watched by the provider within its budget for micro-benchmarks",
}
"""Parts that can be measured alone."""


def run(arguments: argparse.Namespace) -> int:
    """Measure all of the loop, or a part. Returns the exit code."""
    if arguments.part and arguments.part not in PARTS:
        print(f"--part {arguments.part}: not a part; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    figures = Figures(f"loop {arguments.part}" if arguments.part else "loop")
    match arguments.part:
        case "local":
            timed(PARTS["local"], lambda: local_alerts.measure(figures, arguments))
        case "healthy":
            timed(PARTS["healthy"], lambda: healthy_jobs.measure(figures, arguments))
        case _:
            _measure(figures, arguments)
    return figures.finish(arguments)


def _measure(figures: Figures, arguments: argparse.Namespace) -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    chance, everything = random.Random(arguments.seed), not arguments.part
    if everything:
        odd = partial(odd_rank_detection.measure, figures, arguments.quick, arguments.seed)
        timed("one slow rank of several", odd)
    with running_site(FOLDER / "site") as site:
        timed("campaign and learning", lambda: _learn(site))
        if everything:
            timed("verdicts against what really happens", lambda: _verdicts(site, figures))
            timed("families never campaigned", lambda: _unknowns(site, figures))
        if everything or arguments.part == "disturbance":
            rounds, seconds = (1, 120.0) if arguments.quick else (6, 630.0)
            timed("healthy runs", lambda: disturbance.measure(site, figures, rounds, seconds))
        if everything:
            timed("losses with and without Pharoah", lambda: _losses(site, figures))
            timed("provider killed in mid-run", lambda: _killed(site, figures, 2 if arguments.quick else 4))
        if everything or arguments.part == "detection":
            injections = 3 if arguments.quick else 10
            timed("degradations", lambda: detection.detection(site, figures, chance, injections))
            timed("cost of micro-benchmarks", lambda: detection.micro_benchmark_cost(site, figures))
        if everything:
            detection.healthy_runs_are_long_enough(figures)


def _learn(site: Site) -> None:
    if site.operator("campaign", "run", str(ROOT / "examples" / "campaign.toml")).wait() != 0:
        raise SystemExit(f"the campaign failed; logs are in {site.folder}")
    learned, _ = site.operator("learn").communicate()
    print(learned, end="")


def _verdicts(site: Site, figures: Figures) -> None:
    """The verdict before launch beside the outcome of the launch, which no launch gate stops."""
    plain: dict[str, float] = {}
    rows: list[dict[str, Any]] = []
    same = 0
    for workload, settings, node in PAIRS:
        command = [*SCRIPT, workload, json.dumps(settings), "--steps", "12"]
        job = Job(site, node, command, FOLDER / f"verdict-{len(rows)}", "--gate", "warn")
        job.wait()
        result = json.loads(job.output().splitlines()[-1])
        key = json.dumps([workload, settings])
        if key not in plain:
            plain[key] = result["step_seconds"] if node == "n1" else _plain_seconds(site, command)
        outcome = result["outcome"]
        if outcome == "ok" and result["step_seconds"] > SLOW_RATIO * plain[key] > 0:
            outcome = "slow"
        verdict = job.verdict()
        same += full_information.hashed_verdict(site, node, command) == verdict["status"]
        right = verdict["status"] == STATUS_OF[outcome]
        rows.append({"job": key, "node": node, "outcome": outcome, "verdict": verdict["status"], "right": right})
        mark = "" if right else "   WRONG"
        print(
            f"  {node} {workload} {settings}: {outcome} / {verdict['status']} ({verdict['rung']}){mark}",
            flush=True,
        )
    figures.details["verdicts"] = rows
    kinds = {row["outcome"] for row in rows}
    figures.add("verdict_pairs", len(rows), ">= 8", len(rows) >= 8)
    figures.add("verdict_outcome_kinds", len(kinds), ">= 3", len(kinds) >= 3)
    figures.ratio("hashed_verdicts_the_same_ratio", same, len(rows), 1.0)
    figures.ratio("verdict_accuracy_ratio", sum(row["right"] for row in rows), len(rows), 0.95)


def _plain_seconds(site: Site, command: list[str]) -> float:
    """Median step of the same job on the plain node."""
    output = subprocess.run(site.bare("n1", command), capture_output=True, text=True).stdout
    return float(json.loads(output.splitlines()[-1])["step_seconds"])


def _unknowns(site: Site, figures: Figures) -> None:
    honest = 0
    for family in FAMILIES:
        job = Job(site, "n1", [*SCRIPT, family, "--steps", "10"], FOLDER / f"unknown-{family}")
        job.wait()
        honest += is_honest(job.verdict())
        print(f"  {family}: {job.verdict()['status']} ({job.verdict()['reason']})", flush=True)
    figures.ratio("unknown_honesty_ratio", honest, len(FAMILIES), 1.0)


def is_honest(verdict: dict[str, Any]) -> bool:
    """Whether a verdict says that the job has not run here. A check that failed ends in `unknown` as well."""
    return verdict["status"] == "unknown" and str(verdict["reason"]).startswith(NEVER_RUN)


def _losses(site: Site, figures: Figures) -> None:
    """A job with dropout and DataLoader workers: under Pharoah with consent, and without Pharoah."""
    script = str(ROOT / "examples" / "train_gpt.py")
    command = [sys.executable, script, "--steps", "300", "--length", "64", "--workers", "2", "--losses"]
    ours, bare = FOLDER / "losses-pharoah.txt", FOLDER / "losses-bare.txt"
    Job(site, "n1", [*command, str(ours)], FOLDER / "losses", "--allow-beside-job").wait()
    subprocess.run(site.bare("n1", [*command, str(bare)]), check=True, stdout=subprocess.DEVNULL)
    identical = losses_identical(ours, bare)
    figures.add("loss_identical", identical, "true", identical)


def _killed(site: Site, figures: Figures, times: int) -> None:
    completed = 0
    for number in range(times):
        job = watched_job(site, "n1", FOLDER / f"killed-{number}", KILLED_JOB_SECONDS)
        reported = wait_until(partial(reports, site, job), 40)
        site.kill("provider")
        running = job.returncode is None
        code, output = job.wait(), job.output()
        print(f"  reported: {reported}, running at the kill: {running}, ended with {code}", flush=True)
        completed += went_on(reported, running, code, output)
        site.start_provider()
        wait_until(lambda: agents_are_connected(site), 30)
    figures.ratio("provider_killed_runs_completed_ratio", completed, times, 1.0)


def went_on(reported: bool, running: bool, code: int, output: str) -> bool:
    """Whether a job went on to its end after the provider was killed. One that had not reported or did not run any more
    shows nothing, and does not count."""
    return reported and running and code == 0 and result_of(output).get("outcome") == "ok"
