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
import time
from math import log
from pathlib import Path
from statistics import median, stdev
from typing import Any

from evaluation.figures import Figures, timed
from evaluation.loop import full_information
from pharoah_benchmarks.micro import MICRO_BENCHMARKS
from tests.harness.jobs import Job, losses_identical, start_cpu_stressor
from tests.harness.site import Site, running_site

FOLDER = Path("evaluation-out/loop")
SCRIPT = [sys.executable, "evaluation/scripts/train_workload.py"]
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
FAMILIES = ["lstm", "autoencoder", "experts", "spectral"]
JOB_UNDER_WATCH = ["gpt", '{"length": 64, "batch": 4}']
INJECTION_SECONDS = 90.0


def run(arguments: argparse.Namespace) -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    figures, chance = Figures("loop"), random.Random(arguments.seed)
    with running_site(FOLDER / "site") as site:
        timed("campaign and learning", lambda: _learn(site))
        timed("verdicts against what really happens", lambda: _verdicts(site, figures))
        timed("families never campaigned", lambda: _unknowns(site, figures))
        timed("losses with and without Pharoah", lambda: _losses(site, figures))
        timed("provider killed in mid-run", lambda: _killed(site, figures, 2 if arguments.quick else 4))
        injections, rounds, seconds = (3, 1, 120.0) if arguments.quick else (10, 3, 630.0)
        timed("degradations", lambda: _detection(site, figures, chance, injections))
        timed("healthy runs", lambda: _healthy(site, figures, rounds, seconds))
        timed("cost of micro-benchmarks", lambda: _probe_cost(site, figures))
    print("\nall figures")
    for line in figures._lines:
        print(f"  {line[0]:42} {line[1]:>9}  {line[2]:24} {line[3]}")
    return figures.write(arguments.out)


def _learn(site: Site) -> None:
    if site.operator("campaign", "examples/campaign.toml").wait() != 0:
        raise SystemExit(f"the campaign failed; logs are in {site.folder}")
    learned, _ = site.operator("learn").communicate()
    print(learned, end="")


def _verdicts(site: Site, figures: Figures) -> None:
    """The verdict before launch beside the outcome of the launch (which no gate stops)."""
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
        honest += job.verdict()["status"] == "unknown"
        print(f"  {family}: {job.verdict()['status']} ({job.verdict()['reason']})", flush=True)
    figures.ratio("unknown_honesty_ratio", honest, len(FAMILIES), 1.0)


def _losses(site: Site, figures: Figures) -> None:
    """Dropout, a DataLoader with workers; under Pharoah with consent, and bare."""
    command = [
        sys.executable,
        "examples/train_gpt.py",
        "--steps",
        "300",
        "--length",
        "64",
        "--workers",
        "2",
        "--losses",
    ]
    ours, bare = FOLDER / "losses-pharoah.txt", FOLDER / "losses-bare.txt"
    Job(site, "n1", [*command, str(ours)], FOLDER / "losses", "--allow-beside-job").wait()
    subprocess.run(site.bare("n1", [*command, str(bare)]), check=True, stdout=subprocess.DEVNULL)
    identical = losses_identical(ours, bare)
    figures.add("loss_identical", identical, "true", identical)


def _killed(site: Site, figures: Figures, times: int) -> None:
    completed = 0
    for number in range(times):
        job = _watched_job(site, "n1", FOLDER / f"killed-{number}", 14.0)
        _until(lambda job=job: _reports(site, job), 40)
        site.kill_provider()
        completed += job.wait() == 0 and json.loads(job.output().splitlines()[-1])["outcome"] == "ok"
        site.start_provider()
        _until(lambda: len(site.listing("nodes")) == len(site.profiles), 30)
    figures.ratio("provider_killed_runs_completed_ratio", completed, times, 1.0)


def _detection(site: Site, figures: Figures, chance: random.Random, injections: int) -> None:
    """One job on each plain node; one of the two nodes is degraded, the other is the peer."""
    delays: list[float] = []
    knowing: list[tuple[float, float]] = []
    rows: list[dict[str, Any]] = []
    for number in range(injections):
        node, peer = chance.sample(["n1", "n2"], 2)
        slowdown, ramp = chance.uniform(1.2, 2.0), chance.choice([0.0, 8.0])
        durations = FOLDER / f"durations-{number}.txt"
        options = {node: ("--durations", str(durations)), peer: ()}
        jobs = {
            name: _watched_job(site, name, FOLDER / f"detect-{number}-{name}", 240.0, *options[name])
            for name in (node, peer)
        }
        started = time.time()
        _until(lambda started=started: site.levels_known(started, 2), 90)
        _until(lambda jobs=jobs: all(len(_reports(site, job)) >= 5 for job in jobs.values()), 60)
        began = time.time()
        stressor = start_cpu_stressor(site.profiles[node]["cpus"], 1 - 1 / slowdown, ramp)
        try:
            found = _until(lambda jobs=jobs, node=node: _confirmed(site, jobs[node]), INJECTION_SECONDS)
        finally:
            stressor.kill()
            stressor.wait()
        delay = _confirmed(site, jobs[node]) - began if found else float("nan")
        if found:
            delays.append(delay)
        seen = _reports(site, jobs[node])[-1]["step_ratio"]
        exact = full_information.suspected_with_all(durations, began) - began
        alerts = [alert for alert in site.listing("alerts") if alert["run"].lower() == _run_of(jobs[node])]
        told = full_information.suspected_with_levels(alerts, began) - began
        knowing.append((exact, told))
        wrong = bool(_confirmed(site, jobs[peer]))
        rows.append(
            {
                "node": node,
                "began": began,
                "wanted": slowdown,
                "seen": seen,
                "ramp": ramp,
                "delay": delay,
                "peer_alerted": wrong,
            }
        )
        print(
            f"  {node} wanted {slowdown:.2f}x {'ramp' if ramp else 'step'}, seen {seen:.2f}x: "
            f"{f'{delay:.1f} s' if found else 'MISSED'}{'  (peer alerted too)' if wrong else ''}",
            flush=True,
        )
        for job in jobs.values():
            job.process.terminate()
            job.wait()
    figures.details["degradations"] = rows
    figures.ratio("detected_ratio", len(delays), injections, 0.9)
    figures.add("detect_p50_seconds", median(delays) if delays else float("nan"))
    figures.add("detect_p95_seconds", sorted(delays)[int(0.95 * (len(delays) - 1) + 0.5)] if delays else float("nan"))
    for at, name in enumerate(("full_knowledge", "private")):
        figures.add(f"suspected_{name}_p50_seconds", median(pair[at] for pair in knowing))
    later = [told - exact for exact, told in knowing if max(exact, told) < INJECTION_SECONDS]
    figures.add("suspected_private_later_seconds", median(later) if later else float("nan"), interval=f"n={len(later)}")
    figures.add("peer_alerts", sum(row["peer_alerted"] for row in rows))


def _healthy(site: Site, figures: Figures, rounds: int, seconds: float) -> None:
    healthy_from = time.time()
    false, suspected, watched_seconds = 0, 0, 0.0
    for number in range(rounds):
        jobs = [_watched_job(site, n, FOLDER / f"healthy-{number}-{n}", seconds, "--negatives") for n in ("n1", "n2")]
        for job in jobs:
            job.wait(seconds + 120)
            reports = _reports(site, job)
            watched_seconds += reports[-1]["ended_at"] - reports[0]["ended_at"] if reports else 0.0
            alerts = [alert for alert in site.listing("alerts") if alert["run"].lower() == _run_of(job)]
            false += sum(a["state"] == "confirmed" or bool(a["fault_domain"] == "node") for a in alerts)
            suspected += len(alerts)
        print(f"  round {number + 1} of {rounds}: {suspected} suspicions, {false} alerts so far", flush=True)
    figures.details["healthy"] = {"runs": 2 * rounds, "seconds_each": seconds, "suspicions": suspected}
    hours = watched_seconds / 3600
    figures.add("healthy_job_hours", hours, ">= 1 unless --quick", rounds == 1 or hours >= 1)
    figures.rate("false_alerts_per_job_hour", false, hours)
    figures.rate("suspicions_per_job_hour", suspected, hours)
    _noise(site, figures, healthy_from)
    figures.add(
        "healthy_run_seconds",
        seconds,
        ">= 3 x detect_p95",
        seconds >= 3 * figures.values["detect_p95_seconds"],
    )


def _noise(site: Site, figures: Figures, healthy_from: float) -> None:
    """How much two healthy nodes differ from one validation to the next: sd of log(own ratio / peer ratio)."""
    probes = [p for p in site.listing("probes") if p["beside_job"] and p["started_at"] > healthy_from]
    for benchmark in MICRO_BENCHMARKS.entries:
        shown = {n: [p for p in probes if (p["node"], p["benchmark"]) == (n, benchmark)] for n in ("n1", "n2")}
        ratios = {node: _own_ratios(rows) for node, rows in shown.items()}
        differences = [
            log(own / peer) for at, own in ratios["n1"] for peer_at, peer in ratios["n2"] if abs(at - peer_at) < 1.5
        ]
        if len(differences) > 2:
            figures.add(f"validation_noise_sd_{benchmark}", stdev(differences), interval=f"n={len(differences)}")


def _own_ratios(probes: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """When each validation of one node began, and what it showed over the level measured last before it."""
    ratios: list[tuple[float, float]] = []
    levels: list[float] = []
    for probe in sorted(probes, key=lambda probe: float(probe["started_at"])):
        if probe["purpose"] == "level":
            levels.append(probe["mean_seconds"])
        elif levels:
            ratios.append((probe["started_at"], probe["mean_seconds"] / median(levels[-3:])))
    return ratios


def _probe_cost(site: Site, figures: Figures) -> None:
    """Steps while a micro-benchmark ran beside the job over steps while none did, before anything was degraded."""
    probes = [probe for probe in site.listing("probes") if probe["beside_job"]]
    ratios = [
        full_information.probe_cost(
            FOLDER / f"durations-{number}.txt", row["began"], [p for p in probes if p["node"] == row["node"]]
        )
        for number, row in enumerate(figures.details["degradations"])
    ]
    figures.add("probe_cost_ratio", median(ratios), interval=f"[{min(ratios):.2f}, {max(ratios):.2f}] n={len(ratios)}")


def _watched_job(site: Site, node: str, folder: Path, seconds: float, *options: str) -> Job:
    command = [*SCRIPT, *JOB_UNDER_WATCH, "--seconds", str(seconds), *options]
    return Job(site, node, command, folder, "--allow-beside-job")


def _reports(site: Site, job: Job) -> list[dict[str, Any]]:
    run = _run_of(job)
    return [row for row in site.listing("reports") if run and row["run"].lower() == run]


def _confirmed(site: Site, job: Job) -> float:
    """Unix time at which an alert of this job was confirmed; 0 when none is."""
    for alert in site.listing("alerts"):
        if alert["run"].lower() == _run_of(job) and alert["state"] == "confirmed":
            return float(alert["changed_at"])
    return 0.0


def _run_of(job: Job) -> str:
    return str(job.verdict().get("run_id", ""))[:8].lower()


def _until(condition: Any, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.5)
    return False
