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
from dataclasses import asdict, dataclass
from math import isnan, log, nan
from pathlib import Path
from statistics import median, stdev
from typing import Any

from evaluation.figures import OUTPUT, ROOT, Figures, timed
from evaluation.loop import full_information, local_alerts, odd_rank_detection
from pharoah_benchmarks.micro import MICRO_BENCHMARKS
from pharoah_protocol.incident_states import CLEARED, CONFIRMED, INCIDENT_STATES
from tests.harness.jobs import Job, losses_identical, start_cpu_stressor
from tests.harness.site import Site, running_site

FOLDER = OUTPUT / "loop"
SCRIPT = [sys.executable, str(ROOT / "evaluation" / "scripts" / "train_workload.py")]
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
JOB_UNDER_WATCH = ["gpt", '{"length": 64, "batch": 4}']
INJECTION_SECONDS = 90.0
CLEARING_SECONDS = 60.0
"""How long a job goes on at most after a degradation has ended, until its incident is cleared. A job that comes later
could not clear it, and would hear of it instead of raising another."""
DETECTED_JOB_SECONDS = 360.0
"""The longest of all waits for one injection: levels, first reports, the alert, and its end."""


def run(arguments: argparse.Namespace) -> int:
    shutil.rmtree(FOLDER, ignore_errors=True)
    figures, chance = Figures("loop"), random.Random(arguments.seed)
    if arguments.part == "local":
        figures = Figures("loop local")
        timed("alerts of the tenant's own machine", lambda: local_alerts.measure(figures, arguments))
        return figures.finish(arguments)
    if arguments.part == "healthy":
        figures = Figures("loop healthy")
        timed("healthy jobs under watch", lambda: local_alerts.measure_healthy(figures, arguments))
        return figures.finish(arguments)
    timed("one slow rank of several", lambda: odd_rank_detection.measure(figures, arguments.quick, arguments.seed))
    with running_site(FOLDER / "site") as site:
        timed("campaign and learning", lambda: _learn(site))
        timed("verdicts against what really happens", lambda: _verdicts(site, figures))
        timed("families never campaigned", lambda: _unknowns(site, figures))
        timed("losses with and without Pharoah", lambda: _losses(site, figures))
        timed("provider killed in mid-run", lambda: _killed(site, figures, 2 if arguments.quick else 4))
        injections, rounds, seconds = (3, 1, 120.0) if arguments.quick else (10, 3, 630.0)
        timed("degradations", lambda: _detection(site, figures, chance, injections))
        timed("healthy runs", lambda: _healthy(site, figures, rounds, seconds))
        timed("cost of micro-benchmarks", lambda: _micro_benchmark_cost(site, figures))
    return figures.finish(arguments)


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
        honest += job.verdict()["status"] == "unknown"
        print(f"  {family}: {job.verdict()['status']} ({job.verdict()['reason']})", flush=True)
    figures.ratio("unknown_honesty_ratio", honest, len(FAMILIES), 1.0)


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
        job = _watched_job(site, "n1", FOLDER / f"killed-{number}", 14.0)
        _until(lambda job=job: _reports(site, job), 40)
        site.kill("provider")
        completed += job.wait() == 0 and json.loads(job.output().splitlines()[-1])["outcome"] == "ok"
        site.start_provider()
        _until(lambda: len(site.listing("nodes")) == len(site.profiles), 30)
    figures.ratio("provider_killed_runs_completed_ratio", completed, times, 1.0)


@dataclass(frozen=True)
class Injection:
    """One planted degradation, and what came of it."""

    number: int
    node: str
    peer: str
    slowdown: float
    """How much longer steps should take."""
    ramp: float
    """Seconds until the degradation is complete."""
    began: float
    """Unix seconds."""
    delay: float
    """Seconds until the alert was confirmed; NaN when it was not."""
    seen: float
    """The last reported step time over the baseline."""
    suspected_with_all: float
    """Seconds until a suspicion by an observer with full information."""
    suspected_with_levels: float
    """Seconds until the provider's own suspicion."""
    peer_alerted: bool
    cleared: float
    """Seconds from the end of the degradation until no incident of the node was open; NaN when one stayed open."""

    @property
    def found(self) -> bool:
        return not isnan(self.delay)


def _durations(number: int) -> Path:
    """The file that the job under injection writes its step times to."""
    return FOLDER / f"durations-{number}.txt"


def _detection(site: Site, figures: Figures, chance: random.Random, injections: int) -> None:
    """One job on each plain node; one of the two nodes is degraded, the other is the peer."""
    rows: list[Injection] = []
    for number in range(injections):
        node, peer = chance.sample(["n1", "n2"], 2)
        slowdown, ramp = chance.uniform(1.2, 2.0), chance.choice([0.0, 8.0])
        jobs = _watched_pair(site, number, node, peer)
        rows.append(_inject(site, jobs, number, node, peer, slowdown, ramp))
        for job in jobs.values():
            job.process.terminate()
            job.wait()
    figures.details["degradations"] = [asdict(row) for row in rows]
    _detection_figures(figures, rows)


def _watched_pair(site: Site, number: int, node: str, peer: str) -> dict[str, Job]:
    """A job on either node, as soon as the levels of both nodes are measured and both jobs report."""
    options = {node: ("--durations", str(_durations(number))), peer: ()}
    started = time.time()
    jobs = {
        name: _watched_job(site, name, FOLDER / f"detect-{number}-{name}", DETECTED_JOB_SECONDS, *options[name])
        for name in (node, peer)
    }
    _until(lambda: site.levels_known(started, 2), 90)
    _until(lambda: all(_reported_seconds(site, job) >= 5 for job in jobs.values()), 60)
    return jobs


def _inject(
    site: Site, jobs: dict[str, Job], number: int, node: str, peer: str, slowdown: float, ramp: float
) -> Injection:
    """Degrade one node until its alert is confirmed, or for the longest time an injection may take."""
    began = time.time()
    stressor = start_cpu_stressor(site.profiles[node]["cpus"], 1 - 1 / slowdown, ramp)
    try:
        found = _until(lambda: _confirmed(site, jobs[node]), INJECTION_SECONDS)
        confirmed_at = _confirmed(site, jobs[node])
        alerts = [alert for alert in site.listing("alerts") if alert["run"].lower() == _run_of(jobs[node])]
    finally:
        stressor.kill()
        stressor.wait()
    ended = time.time()
    cleared = _until(lambda: not _has_open_incident(site, node), CLEARING_SECONDS)
    cleared_after = time.time() - ended if cleared else nan
    row = Injection(
        number=number,
        node=node,
        peer=peer,
        slowdown=slowdown,
        ramp=ramp,
        began=began,
        delay=confirmed_at - began if found else nan,
        seen=_last_ratio(site, jobs[node], ended),
        suspected_with_all=full_information.suspected_with_all(_durations(number), began) - began,
        suspected_with_levels=full_information.suspected_with_levels(alerts, began) - began,
        peer_alerted=_was_alerted(site, jobs[peer]),
        cleared=cleared_after,
    )
    print(
        f"  {node} planned {slowdown:.2f}x {'ramp' if ramp else 'step'}, seen {row.seen:.2f}x: "
        f"{f'{row.delay:.1f} s' if found else 'MISSED'}{'  (peer alerted too)' if row.peer_alerted else ''}",
        flush=True,
    )
    return row


def _was_alerted(site: Site, job: Job) -> bool:
    """Whether an incident that this job raised was confirmed, also when it is over by now."""
    heard = (CONFIRMED.name, CLEARED.name)
    return any(alert["run"].lower() == _run_of(job) and alert["state"] in heard for alert in site.listing("alerts"))


def _has_open_incident(site: Site, node: str) -> bool:
    """Whether an incident of a node is not over yet."""
    return any(alert["node"] == node and INCIDENT_STATES[alert["state"]].is_open for alert in site.listing("alerts"))


def _last_ratio(site: Site, job: Job, before: float) -> float:
    """The step time over the baseline that a job reported last before a unix time."""
    return float([row for row in _reports(site, job) if row["started_at"] < before][-1]["step_ratio"])


def _detection_figures(figures: Figures, rows: list[Injection]) -> None:
    delays = sorted(row.delay for row in rows if row.found)
    seen = [row.seen for row in rows]
    figures.ratio("detected_ratio", len(delays), len(rows), 0.9)
    figures.add("slowdown_seen_ratio", median(seen), interval=f"[{min(seen):.2f}, {max(seen):.2f}] n={len(seen)}")
    figures.add("detect_p50_seconds", median(delays) if delays else nan)
    figures.add("detect_p95_seconds", delays[int(0.95 * (len(delays) - 1) + 0.5)] if delays else nan)
    figures.add("suspected_full_information_p50_seconds", median(row.suspected_with_all for row in rows))
    figures.add("suspected_private_p50_seconds", median(row.suspected_with_levels for row in rows))
    later = [
        row.suspected_with_levels - row.suspected_with_all
        for row in rows
        if max(row.suspected_with_all, row.suspected_with_levels) < INJECTION_SECONDS
    ]
    figures.add("suspected_private_later_seconds", median(later) if later else nan, interval=f"n={len(later)}")
    figures.add("peer_alerts", sum(row.peer_alerted for row in rows))
    cleared = [row.cleared for row in rows if row.found and not isnan(row.cleared)]
    figures.ratio("cleared_after_the_end_ratio", len(cleared), len(delays))
    figures.add("cleared_after_p50_seconds", median(cleared) if cleared else nan)


def _healthy(site: Site, figures: Figures, rounds: int, seconds: float) -> None:
    healthy_from = time.time()
    false, suspected, watched_seconds = 0, 0, 0.0
    for number in range(rounds):
        jobs = [_watched_job(site, n, FOLDER / f"healthy-{number}-{n}", seconds, "--negatives") for n in ("n1", "n2")]
        for job in jobs:
            job.wait(seconds + 120)
            reports = _reports(site, job)
            watched_seconds += reports[-1]["ended_at"] - reports[0]["started_at"] if reports else 0.0
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


def _micro_benchmark_cost(site: Site, figures: Figures) -> None:
    """Steps while a micro-benchmark ran beside the job over steps while none did, before anything was degraded."""
    probes = [probe for probe in site.listing("probes") if probe["beside_job"]]
    ratios = [
        full_information.micro_benchmark_cost(
            _durations(row["number"]), row["began"], [p for p in probes if p["node"] == row["node"]]
        )
        for row in figures.details["degradations"]
    ]
    figures.add(
        "micro_benchmark_cost_ratio", median(ratios), interval=f"[{min(ratios):.2f}, {max(ratios):.2f}] n={len(ratios)}"
    )


def _watched_job(site: Site, node: str, folder: Path, seconds: float, *options: str) -> Job:
    command = [*SCRIPT, *JOB_UNDER_WATCH, "--seconds", str(seconds), *options]
    return Job(site, node, command, folder, "--allow-beside-job")


def _reports(site: Site, job: Job) -> list[dict[str, Any]]:
    run = _run_of(job)
    return [row for row in site.listing("reports") if run and row["run"].lower() == run]


def _reported_seconds(site: Site, job: Job) -> int:
    return sum(row["seconds"] for row in _reports(site, job))


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
