"""The main job end to end: campaign, learning, launches, a node that degrades, an alert that clears.

Leaves `demo/summary.json`, `demo/step_time.png` and `demo/incompatibility.png`.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evaluation.demo import pictures
from evaluation.pages import ROOT
from pharoah_provider.pictures.heatmap import draw, heatmap
from tests.harness.jobs import Job, start_cpu_stressor
from tests.harness.site import Site, running_site

FOLDER = ROOT / "demo"
ALERTS, LOSSES, BARE_LOSSES = FOLDER / "alerts.txt", FOLDER / "losses.txt", FOLDER / "losses-bare.txt"
EXAMPLES = ROOT / "examples"
CAMPAIGN = EXAMPLES / "campaign.toml"
TRAIN_GPT = [sys.executable, str(EXAMPLES / "train_gpt.py")]
GPT = [*TRAIN_GPT, "--batch", "4", "--length", "64", "--workers", "1"]
JOB_SECONDS = 75
"""The duration of the undisturbed main job, on a machine of any speed."""
BARE_STEPS = 300
"""Steps of the same job without Pharoah, for comparison; the main job takes at least as many."""
TOO_LARGE = [*TRAIN_GPT, "--attention", "math", "--length", "1024", "--batch", "2", "--steps", "20"]
NEVER_SEEN = [sys.executable, str(EXAMPLES / "train_lstm.py"), "--steps", "50"]
REGISTERS = [sys.executable, str(EXAMPLES / "train_mlp.py"), "--seconds", str(JOB_SECONDS)]


def run(_: argparse.Namespace) -> int:
    began = time.monotonic()
    shutil.rmtree(FOLDER, ignore_errors=True)
    summary: dict[str, Any] = {}
    with running_site(FOLDER / "site") as site:
        _print(began, "a provider and four nodes are up", "n1, n2: one core each; n3, n4: 440 MB, avx2 only")
        _campaign(site, summary)
        _print(began, "campaign and learning are done", "epoch 1 is sealed")
        _launches(site, summary, began)
        summary["reports"] = site.listing("reports")
        summary["table"] = site.listing("table")
    pictures.step_time(summary, FOLDER / "step_time.png")
    draw(heatmap(summary["table"]), FOLDER / "incompatibility.png")
    summary["seconds"] = round(time.monotonic() - began, 1)
    (FOLDER / "summary.json").write_text(json.dumps(summary, indent=1, default=str) + "\n")
    return _conclude(summary)


def _campaign(site: Site, summary: dict[str, Any]) -> None:
    print(flush=True)
    if site.operator("campaign", "run", str(CAMPAIGN)).wait() != 0:
        raise SystemExit(f"the campaign failed; logs are in {site.folder}")
    learned, _ = site.operator("learn").communicate()
    print("\n".join(f"  {line}" for line in learned.splitlines()), flush=True)
    summary["learned"] = learned.splitlines()


@dataclass(frozen=True)
class Stressed:
    """When the main job's node was degraded, in Unix seconds."""

    began: float
    ended: float


def _launches(site: Site, summary: dict[str, Any], began: float) -> None:
    _first_verdicts(site, summary, began)
    steps = _steps(site)
    command = [*GPT, "--steps", str(steps), "--alerts", str(ALERTS), "--losses", str(LOSSES)]
    launched = time.time()
    main = Job(site, "n1", command, FOLDER / "main", "--allow-beside-job")
    peer = Job(site, "n2", REGISTERS, FOLDER / "peer", wrapped=False)
    _print(began, "a GPT starts on n1 (pharoah run), an MLP that registers itself on n2")
    # The run must have its baseline and its levels before anything happens to its node.
    _wait(lambda: site.levels_known(launched, 2), 90, "the benchmarks' levels beside the main job", main)
    stressed = _degrade(site, main, began)
    _wait(lambda: "CLEARED" in _text(ALERTS) or main.process.poll() is not None, 60, "the alert to clear", main)
    _endings(site, main, peer, began)
    summary.update(
        main={"exit_code": main.returncode, "verdict": main.verdict(), "run": main.verdict()["run_id"][:8]},
        registered={"exit_code": peer.returncode, "verdict": peer.output().splitlines()[0]},
        stressor={**asdict(stressed), "detected_after_seconds": round(stressed.ended - stressed.began, 1)},
        alerts=site.listing("alerts"),
        alert_lines={state: _text(ALERTS).count(state) for state in ("CONFIRMED", "CLEARED")},
        loss_identical=_text(LOSSES).splitlines()[:BARE_STEPS] == _text(BARE_LOSSES).splitlines(),
        steps=steps,
    )


def _first_verdicts(site: Site, summary: dict[str, Any], began: float) -> None:
    """A job that must not start, and a job that no campaign has run."""
    blocked = Job(site, "n3", TOO_LARGE, FOLDER / "blocked", "--gate", "block")
    unknown = Job(site, "n1", NEVER_SEEN, FOLDER / "unknown")
    blocked.wait()
    _print(began, "a GPT with math attention and 1,024 tokens on n3:", f"exit code {blocked.returncode}")
    print(_indented(blocked.verdict_text()), flush=True)
    unknown.wait()
    _print(began, "an LSTM, never campaigned, on n1:")
    print(_indented("\n".join(unknown.verdict_text().splitlines()[:2])), flush=True)
    summary.update(
        blocked={"exit_code": blocked.returncode, "verdict": blocked.verdict()},
        unknown={"exit_code": unknown.returncode, "verdict": unknown.verdict()},
    )


def _degrade(site: Site, main: Job, began: float) -> Stressed:
    """Take time from the main job's core until its script has received the alert."""
    what = "n1 is degraded for real: a copy loop on its core"
    _print(began, what, f"(step time so far {_ratio(site, main):.2f}x)")
    stressor_began = time.time()
    stressor = start_cpu_stressor(site.profiles["n1"]["cpus"], 1.0)
    try:
        _wait(lambda: "CONFIRMED" in _text(ALERTS), 60, "the alert", main)
    finally:
        stressor.kill()
        stressor.wait()
    stressed = Stressed(stressor_began, time.time())
    seconds = stressed.ended - stressed.began
    _print(began, f"the alert reached the training script after {seconds:.1f} s; the copy loop stops")
    print(_indented(_text(ALERTS).strip()), flush=True)
    return stressed


def _endings(site: Site, main: Job, peer: Job, began: float) -> None:
    """Wait for both jobs, and run the main one without Pharoah on the core that the other leaves."""
    peer.wait()
    bare = site.scope.own(
        subprocess.Popen(
            site.bare("n2", [*GPT, "--steps", str(BARE_STEPS), "--losses", str(BARE_LOSSES)]), stdout=subprocess.DEVNULL
        )
    )
    _print(began, "the MLP has ended; the same GPT starts on n2 without Pharoah, for its losses")
    main.wait()
    _print(began, "the watched job ends")
    if bare.wait() != 0:
        raise SystemExit(f"the job without Pharoah failed with {bare.returncode}")


def _steps(site: Site) -> int:
    """How many steps of the main job take `JOB_SECONDS` on this machine."""
    few, many = 20, 220
    seconds = []
    for steps in (few, many):
        began = time.monotonic()
        subprocess.run(site.bare("n1", [*GPT, "--steps", str(steps)]), check=True, stdout=subprocess.DEVNULL)
        seconds.append(time.monotonic() - began)
    return max(BARE_STEPS, round(JOB_SECONDS * (many - few) / (seconds[1] - seconds[0])))


def _conclude(summary: dict[str, Any]) -> int:
    block = summary["blocked"]["verdict"]["findings"]
    expectations = {
        "compatible job ran": summary["main"]["exit_code"] == 0
        and summary["main"]["verdict"]["status"] == "compatible",
        "registered job ran, compatible": summary["registered"]["exit_code"] == 0
        and "COMPATIBLE" in summary["registered"]["verdict"],
        "incompatible job was stopped before it started": summary["blocked"]["exit_code"] == 10 and bool(block),
        "unseen workload is unknown": summary["unknown"]["verdict"]["status"] == "unknown",
        "alert fired once": summary["alert_lines"]["CONFIRMED"] == 1,
        "alert cleared once": summary["alert_lines"]["CLEARED"] == 1,
        f"{BARE_STEPS} losses bit-identical to a bare run": summary["loss_identical"],
    }
    summary["holds"] = expectations
    (FOLDER / "summary.json").write_text(json.dumps(summary, indent=1, default=str) + "\n")
    print(f"\nSummary ({summary['seconds']:.0f} s; everything in {FOLDER}/)")
    for what, held in expectations.items():
        print(f"  {'yes' if held else 'NO ':3}  {what}")
    print(f"  {FOLDER}/summary.json, {FOLDER}/step_time.png, {FOLDER}/incompatibility.png")
    return 0 if all(expectations.values()) else 1


def _windows(site: Site, job: Job) -> list[dict[str, Any]]:
    run_id = job.verdict().get("run_id", "")[:8].upper()
    return [row for row in site.listing("reports") if row["run"].upper() == run_id]


def _ratio(site: Site, job: Job) -> float:
    return float([row for row in _windows(site, job) if not row["masked"]][-1]["step_ratio"])


def _wait(condition: Callable[[], bool], seconds: float, what: str, job: Job) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if job.process.poll() is not None:
            raise SystemExit(f"the main job ended ({job.process.returncode}) before {what}:\n{job.output()[-2000:]}")
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {seconds:g} s for {what}; logs are in {FOLDER}/")
        time.sleep(0.5)


def _print(began: float, *words: str) -> None:
    print(f"\n[{time.monotonic() - began:5.0f} s] {' '.join(words)}", flush=True)


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
